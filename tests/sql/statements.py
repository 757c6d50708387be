"""The statements that a test has seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Dialect

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


def is_mysql(dialect: Dialect) -> bool:
    """Whether it is MySQL and not MariaDB."""
    return dialect.name == "mysql" and not getattr(dialect, "is_mariadb", False)


def beside_inserts(sent: Sequence[str]) -> list[str]:
    """What was sent beside the INSERTs."""
    return [statement for statement in sent if not statement.startswith("INSERT")]
