"""The statements that a test has seen."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy import event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlalchemy import Connection, Dialect, Engine

# By name the table that MariaDB gives: MySQL's default is a tree.
EXPLAIN = {
    "postgresql": "EXPLAIN",
    "mysql": "EXPLAIN FORMAT=TRADITIONAL",
    "sqlite": "EXPLAIN QUERY PLAN",
}


def plan_of(
    cursor: Any, statement: str, parameters: Any, dialect: Dialect
) -> list[tuple[Any, ...]]:
    """The rows of an EXPLAIN; MySQL's as MariaDB has them, without the column for partitions."""
    cursor.execute(f"{EXPLAIN[dialect.name]} {statement}", parameters)
    rows = [tuple(row) for row in cursor.fetchall()]
    return [row[:3] + row[4:] for row in rows] if is_mysql(dialect) else rows


@contextmanager
def explained(bind: Engine | Connection, is_meant: Callable[[str], bool]) -> Iterator[list[str]]:
    """The lines of the plans of those statements that are meant and are sent meanwhile."""
    lines: list[str] = []

    def explain(connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if is_meant(statement):
            first = parameters[0] if isinstance(parameters, list) else parameters
            lines.extend(map(str, plan_of(cursor, statement, first, connection.dialect)))

    event.listen(bind, "before_cursor_execute", explain)
    try:
        yield lines
    finally:
        event.remove(bind, "before_cursor_execute", explain)


def is_delete(statement: str) -> bool:
    """Whether a statement deletes rows."""
    return statement.startswith("DELETE")


def is_mysql(dialect: Dialect) -> bool:
    """Whether it is MySQL and not MariaDB."""
    return dialect.name == "mysql" and not getattr(dialect, "is_mariadb", False)


def beside_inserts(sent: Sequence[str]) -> list[str]:
    """What was sent beside the INSERTs."""
    return [statement for statement in sent if not statement.startswith("INSERT")]
