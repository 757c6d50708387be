"""Raising a stored default while somebody else's transaction is about to delete by the old one."""

from __future__ import annotations

import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy import event, text
from sqlalchemy.exc import OperationalError

from tests.guard import GUARD
from tests.locks import A_WHILE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from sqlalchemy import Engine
    from typing_extensions import Self

_WAITING = {
    "postgresql": "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
    "AND wait_event_type = 'Lock' AND query LIKE '%ttl_odm_polic%'",
    "mysql": "SELECT count(*) FROM information_schema.processlist "
    "LEFT JOIN information_schema.innodb_trx ON id = trx_mysql_thread_id "
    "WHERE db = database() AND info LIKE '%ttl_odm_polic%' "
    "AND (trx_state = 'LOCK WAIT' OR state LIKE 'Waiting for table%')",
}


class Raise:
    """A change of a stored default, made by another connection.

    Args:
        engine: The database. On SQLite a change that finds the file locked is given up.
        change: Makes the change and commits it.
        live: Returns the keys of the rows that are live.
    """

    def __init__(
        self, engine: Engine, change: Callable[[], object], live: Callable[[], set[Any]]
    ) -> None:
        self._engine = engine
        self._change = change
        self._live = live
        self._pool = ThreadPoolExecutor(1)
        self._made: Future[set[Any]] | None = None
        self._acknowledged = threading.Event()

    def begin(self) -> None:
        """Begin the change; return once it is made, or waits for somebody."""
        self._made = made = self._pool.submit(self._make)
        if self._engine.dialect.name == "sqlite":
            made.exception(GUARD)
            return
        question = text(_WAITING[self._engine.dialect.name])
        pause = 0.001 if self._engine.dialect.name == "postgresql" else A_WHILE
        with self._engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT")
            while not made.done() and not connection.scalar(question):
                time.sleep(pause)

    @property
    def has_begun(self) -> bool:
        """Whether the change was asked for."""
        return self._made is not None

    @property
    def is_acknowledged(self) -> bool:
        """Whether it has been committed by now."""
        return self._acknowledged.is_set()

    def seen(self) -> set[Any]:
        """Wait for the change; return the rows that were live after it was acknowledged."""
        assert self._made is not None
        error = self._made.exception(GUARD)
        if isinstance(error, OperationalError) and self._engine.dialect.name == "sqlite":
            return set()
        return self._made.result()

    def _make(self) -> set[Any]:
        self._change()
        self._acknowledged.set()
        return self._live()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()


@contextmanager
def before_deletion(
    engine: Engine, table: str, number: int, act: Callable[[], object]
) -> Iterator[list[str]]:
    """Act before a statement by which rows of a table are locked, copied or deleted.

    These are counted from 0, and so is the COMMIT behind them. Yields them, as they are sent.
    """
    sent: list[str] = []
    words = "DELETE|INSERT|WITH|SELECT .* FOR UPDATE|ALTER|DROP|LOCK"
    deletes = re.compile(rf"(?=.*\b{table})({words})", re.DOTALL)

    def sending(statement: str) -> None:
        if len(sent) == number:
            act()
        sent.append(statement)

    def execute(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if deletes.match(statement):
            sending(statement)

    def commit(_: Any) -> None:
        if sent and sent[-1] != "COMMIT":
            sending("COMMIT")

    event.listen(engine, "before_cursor_execute", execute)
    event.listen(engine, "commit", commit)
    try:
        yield sent
    finally:
        event.remove(engine, "before_cursor_execute", execute)
        event.remove(engine, "commit", commit)
