"""Waiting until somebody waits for a lock, as the database itself tells it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from tests.guard import GUARD

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

_WAITING = {
    "postgresql": "SELECT pid FROM pg_stat_activity "
    "WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE :query",
    "mysql": "SELECT trx_id FROM information_schema.innodb_trx "
    "JOIN information_schema.processlist ON id = trx_mysql_thread_id "
    "WHERE db = database() AND trx_state = 'LOCK WAIT' AND trx_query LIKE :query",
}
# How many locks somebody waits for in this database.
WAITS = {
    "mariadb": "SELECT count(*) FROM information_schema.innodb_locks "
    "WHERE locate(database(), lock_table)",
    "mysql": "SELECT count(*) FROM performance_schema.data_locks "
    "WHERE lock_status = 'WAITING' AND object_schema = database()",
}
# MariaDB answers from a copy, and renews it when nobody asked for a tenth of a second.
A_WHILE = 0.15
"""Seconds after which it does so."""
_PAUSES = {"postgresql": 0.001, "mysql": A_WHILE}


def answers(
    connection: Connection, question: str, pause: float = 0.01, **values: object
) -> list[Any]:
    """Ask again and again until there is an answer."""
    for _ in range(round(GUARD / pause)):
        found = connection.scalars(text(question), values).all()
        if found:
            return list(found)
        time.sleep(pause)
    raise AssertionError(f"No answer: {question}")


def wait_until_blocked(engine: Engine, query: str = "%") -> None:
    """Return when another connection of this database waits for a lock, in a statement like this.

    Args:
        engine: of the database.
        query: what LIKE compares the statement with.
    """
    name = engine.dialect.name
    with engine.connect() as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT")
        answers(connection, _WAITING[name], _PAUSES[name], query=query)


def is_locked_by_others(engine: Engine, table: str, key: int) -> bool:
    """Say whether another transaction has a lock on a row by which nobody can delete it."""
    row = text(f"SELECT id FROM {table} WHERE id = :id FOR UPDATE NOWAIT")  # noqa: S608 (ours)
    with engine.connect() as connection:
        try:
            connection.execution_options(include_expired=True).execute(row, {"id": key})
        except OperationalError:
            return True
    return False
