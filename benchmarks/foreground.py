"""Somebody else's work on a table, while something is done to it: what each statement took.

``with foreground(...) as took`` starts a process that works until the block ends; then ``took`` has
the seconds of each of its statements. A process of its own, since in one process a sweeper and its
victims would share Python's lock. The work is told on standard input, for a URL has a password.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from contextlib import contextmanager
from statistics import median, quantiles
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_PACE_SECONDS: Final = 0.002
"""A rest after each statement."""

_READY: Final = "ready"
_PATIENCE_SECONDS: Final = 300
"""How long it waits for SQLite's lock: as long as others make it."""


@contextmanager
def foreground(url: str, work: Sequence[str], keys: int) -> Iterator[list[float]]:
    """Let somebody work while the block runs.

    Args:
        url: of the database, or of a MongoDB server.
        work: SQL with ``:id``, one after the other; for MongoDB a database and a collection, of
            which documents are read and written.
        keys: these are from 1 up to this number.
    """
    command = [sys.executable, "-m", __name__]
    took: list[float] = []
    with subprocess.Popen(  # noqa: S603 - our own module
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        process.stdin.write(json.dumps([url, work, keys]) + "\n")  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]
        process.stdout.readline()  # type: ignore[union-attr]
        yield took
        out, _ = process.communicate("stop\n")
        took += json.loads(out)


def disturbance(took: Sequence[float], name: str) -> dict[str, float]:
    """The median and the 99th percentile, by ``NAME p50`` and ``NAME p99``."""
    return {f"{name} p50": median(took), f"{name} p99": quantiles(took, n=100)[98]}


def _work(url: str, work: Sequence[str], keys: int) -> list[float]:
    operations = _documents(url, *work) if url.startswith("mongodb") else _rows(url, work)
    done = threading.Event()
    threading.Thread(target=_wait_for_line, args=(done,), daemon=True).start()
    chance = random.Random(1)  # noqa: S311 - keys
    took: list[float] = []
    for operation in operations:
        operation(1)  # it connects, prepares, and is ready
    sys.stdout.write(f"{_READY}\n")
    sys.stdout.flush()
    while not done.is_set() or not took:
        for operation in operations:
            begin = perf_counter()
            operation(chance.randint(1, keys))
            took.append(perf_counter() - begin)
            sleep(_PACE_SECONDS)
    return took


def _wait_for_line(done: threading.Event) -> None:
    sys.stdin.readline()
    done.set()


def _rows(url: str, work: Sequence[str]) -> list[Callable[[int], object]]:
    from sqlalchemy import create_engine, text  # noqa: PLC0415 - only where it is SQL
    from sqlalchemy.exc import OperationalError  # noqa: PLC0415 - the same

    patience: Any = {"timeout": _PATIENCE_SECONDS} if url.startswith("sqlite") else {}
    connection = create_engine(url, connect_args=patience).connect()

    def operation(statement: str) -> Callable[[int], object]:
        prepared = text(statement)

        def run(key: int) -> None:
            try:
                connection.execute(prepared, {"id": key})
                connection.commit()
            except OperationalError:
                # MariaDB: the table's definition has changed; the next statement sees it.
                connection.rollback()

        return run

    return [operation(statement) for statement in work]


def _documents(url: str, database: str, collection: str) -> list[Callable[[int], object]]:
    from pymongo import MongoClient  # noqa: PLC0415 - only where it is MongoDB

    entries = MongoClient[dict[str, Any]](url)[database][collection]
    return [
        lambda key: entries.find_one({"_id": key}),
        lambda key: entries.update_one({"_id": key}, {"$currentDate": {"seen": True}}),
    ]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_work(*json.loads(sys.stdin.readline()))) + "\n")
