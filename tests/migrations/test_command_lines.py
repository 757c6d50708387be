"""psql, mariadb and SQLite's own library read the leak matrix's rows through views of live rows.

Python has no part in what is read: the databases' own programs do it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import inspect, text

import ttl_odm.alembic  # noqa: F401 (it brings the operations)
from tests.clocks import family_of
from tests.leaks.data import ROWS
from tests.leaks.living import LivingWorld
from tests.leaks.worlds import lasting_table
from ttl_odm.alembic.target_schema import adds_columns
from ttl_odm.sqlalchemy.policy.bindings import binding_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import URL, Engine

_SQLITE = (
    "import sqlite3, sys; print(*(r for r, in sqlite3.connect(sys.argv[1]).execute(sys.argv[2])))"
)


def program(name: str, *folders: Path) -> str:
    """Where a database's own client is, which comes with its server from Debian."""
    places = (shutil.which(name), *(shutil.which(name, path=str(folder)) for folder in folders))
    found = next(filter(None, places), None)
    if found is None:
        pytest.fail(f"There is no {name} here. Install the client of this server beside it.")
    return found


def client(url: URL, query: str) -> Sequence[str]:
    """The command that prints the rows of a query, one column, without a heading."""
    if url.get_backend_name() == "sqlite":
        return [sys.executable, "-c", _SQLITE, str(url.database), query]
    host, port = url.host or "", str(url.port)
    if url.get_backend_name() == "postgresql":
        psql = program("psql", *Path("/usr/lib/postgresql").glob("*/bin"))
        place = url.set(drivername="postgresql").render_as_string(hide_password=False)
        return [psql, "--no-psqlrc", "-At", "-c", query, place]
    words = [f"--host={host}", f"--port={port}", f"--user={url.username}", "--protocol=tcp"]
    words += [f"--password={url.password or ''}", "--batch", "--skip-column-names"]
    return [program("mariadb"), "--no-defaults", *words, "-e", query, str(url.database)]


def read(url: URL, query: str) -> set[str]:
    finished = subprocess.run(client(url, query), capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    return set(finished.stdout.split())


@pytest.mark.slow
def test_no_expired_row_of_the_leak_matrix_is_in_a_view(engine: Engine) -> None:
    world: Any = LivingWorld(engine.url.render_as_string(hide_password=False))
    live: dict[str, set[str]] = {}
    defaults: dict[str, int | None] = {}
    every: dict[str, int] = {}
    for row in ROWS:
        table = lasting_table(inspect(getattr(world, row.model)))
        binding = binding_of(table)
        # A view has one default, and rows of some classes here have one of their own.
        if binding is None or not adds_columns(binding) or binding.variants:
            continue
        defaults[table.name] = binding.default()
        every[table.name] = every.get(table.name, 0) + 1
        live.setdefault(table.name, set())
        if row.life.live:
            live[table.name].add(str(row.values["id"]))
    with world.engine.connect() as connection:
        operations: Any = Operations(MigrationContext.configure(connection))
        for table, default in defaults.items():
            operations.alter_ttl(table, default, enforce="view")
        connection.commit()
        for table, number in every.items():
            counted = connection.exec_driver_sql(f"SELECT COUNT(*) FROM {table}").scalar_one()  # noqa: S608
            assert counted == number
    assert sum(every.values()) > sum(map(len, live.values())) > 0
    for table, keys in live.items():
        assert read(engine.url, f"SELECT id FROM {table}_live") == keys, table  # noqa: S608
    now = "UTC_TIMESTAMP(6)" if family_of(engine.dialect) == "mysql" else "CURRENT_TIMESTAMP"
    expired = " UNION ALL ".join(
        f"SELECT COUNT(*) AS n FROM {table}_live WHERE expires_at <= {now}"  # noqa: S608
        for table in live
    )
    assert read(engine.url, f"SELECT SUM(n) FROM ({expired}) AS found") == {"0"}  # noqa: S608
    with world.engine.begin() as connection:
        for table in live:
            connection.execute(text(f"DROP VIEW {table}_live"))
    world.engine.dispose()
