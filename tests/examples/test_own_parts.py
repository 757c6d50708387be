"""The examples of parts of one's own run, and keep what the Protocols ask for."""

from __future__ import annotations

import runpy
import sqlite3
import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.guard import GUARD
from tests.stores.test_memory import MemoryRig
from ttl_odm.sweeper import ArchiveSink, Leases, Pacing, Sweeper
from ttl_odm.testing import InMemoryStore, StoreRig
from ttl_odm.testing.contract import (
    CountingContract,
    LeaseContract,
    PurgeContract,
    SweepContract,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

EXAMPLES = Path(__file__).parents[2] / "examples"


def output_of(example: str) -> list[str]:
    finished = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / example)],
        capture_output=True,
        text=True,
        check=False,
        timeout=GUARD,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.splitlines()


def part_of(example: str, name: str) -> Any:
    return runpy.run_path(str(EXAMPLES / example))[name]


def test_the_store_counts_sweeps_and_keeps_what_lives() -> None:
    lines = output_of("own_store.py")
    assert lines[0].endswith("540 rows expired.")
    assert lines[-1] == "left: 460 rows"


def test_the_pace_grows_by_steps() -> None:
    lines = output_of("own_pace.py")
    assert lines[0] == "allowed 100, deleted 100"
    assert sum(int(line.rpartition(" ")[2]) for line in lines) == 1_000
    pace = part_of("own_pace.py", "Cautious")()
    assert isinstance(pace, Pacing)
    assert [pace.next(100, 0.01), pace.next(100, 1.0), pace.shrunk(1)] == [150, 50, 1]


def test_the_lease_lets_one_work_and_pauses_all() -> None:
    lines = output_of("own_lease.py")
    assert "Another sweeper is at work: another host." in lines
    assert "Paused: expired rows are left until the sweepers are resumed." in lines
    assert lines[-1] == "deleted: 1"


def test_the_archive_has_what_was_deleted() -> None:
    assert output_of("own_archive.py") == [
        "1 deleted, 1 archived",
        "{('carts', 'ann'): {'key': 'ann', 'items': 3}}",
    ]


def test_the_archive_reads_each_row_once(tmp_path: Path) -> None:
    sink = part_of("own_archive.py", "JsonLines")(tmp_path / "rows.jsonl")
    assert isinstance(sink, ArchiveSink)
    for _ in range(2):
        store = InMemoryStore()
        store.create("carts", 60, archive=sink)
        store.put("carts", 1, age=3600)
        Sweeper(store).run_once()
    assert len(sink.rows()) == 1


class FileLeaseRig(MemoryRig):
    """Rows in memory, leases in files."""

    def __init__(self, folder: Path) -> None:
        super().__init__(InMemoryStore())
        self.store.leases = part_of("own_lease.py", "FileLeases")(folder)

    def end_lease(self, name: str) -> None:
        with self.store.leases._changing(name) as kept:
            kept["until"] = 0.0


class TestFileLeases(LeaseContract):
    """The leases of examples/own_lease.py pass the shipped suite."""

    @pytest.fixture
    def rig(self, tmp_path: Path) -> Iterator[FileLeaseRig]:
        made = FileLeaseRig(tmp_path)
        assert isinstance(made.store.leases, Leases)
        yield made
        made.close()


class PlainSQLiteRig(StoreRig):
    """A file with tables of (key, modified, ttl)."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = str(file)
        self.store = part_of("own_store.py", "PlainSQLiteStore")(self.file, {})
        self._now = part_of("own_store.py", "NOW")

    def create(self, target: str, default: int | None, hooks: Any = None) -> None:
        assert hooks is None
        self._execute(f"CREATE TABLE {target} (key INTEGER PRIMARY KEY, modified REAL, ttl INT)")
        self.store.ttls[target] = default

    def set_default(self, target: str, default: int | None) -> None:
        self.store.ttls[target] = default

    def add(self, target: str, keys: Sequence[int], *, age: float, ttl: int | None = None) -> None:
        insert = f"INSERT INTO {target} VALUES (?, {self._now} - ?, ?)"  # noqa: S608
        with closing(sqlite3.connect(self.file)) as connection, connection:
            connection.executemany(insert, [(key, age, ttl) for key in keys])

    def renew(self, target: str, key: int) -> None:
        self._execute(f"UPDATE {target} SET modified = {self._now} WHERE key = {key}")  # noqa: S608

    def keys(self, target: str) -> set[int]:
        return {key for (key,) in self._execute(f"SELECT key FROM {target}")}  # noqa: S608

    @contextmanager
    def before_delete(self, action: Callable[[], object]) -> Iterator[None]:
        purge = self.store.purge

        def acted_upon(request: Any) -> Any:
            action()
            self.store.purge = purge
            return purge(request)

        self.store.purge = acted_upon
        yield

    def end_lease(self, name: str) -> None:
        """Nobody leases here."""

    def _execute(self, sql: str) -> list[Any]:
        with closing(sqlite3.connect(self.file)) as connection, connection:
            return list(connection.execute(sql))


class TestPlainSQLiteStore(PurgeContract, SweepContract, CountingContract):
    """The store of examples/own_store.py passes what the shipped suite says of what it offers."""

    @pytest.fixture
    def rig(self, tmp_path: Path) -> Iterator[PlainSQLiteRig]:
        made = PlainSQLiteRig(tmp_path / "rows.sqlite3")
        yield made
        made.close()
