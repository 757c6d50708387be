"""`CheckedTable`: a table that `ttl-odm check` reads, and findings about it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import func, select
from sqlalchemy.exc import DBAPIError

from ttl_odm.cli.errors import in_one_line
from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.inspection.evidence import SMALL
from ttl_odm.sqlalchemy.policy.predicate import include_expired
from ttl_odm.sqlalchemy.sweep.due import needs_of, stored_indexes
from ttl_odm.sqlalchemy.sweep.transactions import name_of
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper.findings import Finding, Severity, fix_of_unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlalchemy import ColumnElement, Connection, Select, Table

    from ttl_odm.cli.application import Target
    from ttl_odm.dialects.indexes import IndexNeed, StoredIndex
    from ttl_odm.sqlalchemy.policy.bindings import Binding

MIGRATE: Final = "alembic revision --autogenerate -m ttl  (with import ttl_odm.alembic in env.py)"

MOST: Final = 1_000
"""Rows; wrong rows are counted up to this number."""


class CheckedTable:
    """A table with its policy, on a connection that only reads."""

    def __init__(
        self,
        connection: Connection,
        target: Target,
        binding: Binding,
        max_age: float,
        *,
        deep: bool,
    ) -> None:
        self.connection = connection
        self.dialect = connection.dialect
        self._is_mysql = self.dialect.name in MYSQL_FAMILY
        self.name = target.name
        self.model = target.model or target.name
        self._max_age = max_age
        self.binding = binding
        self._table: Table = binding.table
        self._place = name_of(connection, self._table)
        self._deep = deep

    def _tried(self, look: Callable[[], Iterator[Finding]], subject: str) -> Sequence[Finding]:
        """Return the findings of a check, or that it failed."""
        try:
            with self.connection.begin_nested():
                return list(look())
        except DBAPIError as error:
            why = in_one_line(error)
            fix = fix_of_unreadable(why, self._quoted, self._deeper)
            return [self._skipped("unreadable", f"{subject} can't be checked: {why}", fix)]

    @property
    def _quoted(self) -> str:
        return self.dialect.identifier_preparer.format_table(self._table)

    @property
    def _deeper(self) -> str:
        return f"ttl-odm check --deep --model {self.model}"

    @cached_property
    def _stored(self) -> list[StoredIndex]:
        return stored_indexes(self.connection, self._table)

    @cached_property
    def _needs(self) -> list[IndexNeed]:
        """The indexes that the sweeper would use."""
        return needs_of(self.binding, clock_of(self.dialect))

    @cached_property
    def _lacking(self) -> list[IndexNeed]:
        """The needed indexes that are missing."""
        return [
            need for need in self._needs if not any(index.leads_to(need) for index in self._stored)
        ]

    @property
    def _is_walked(self) -> bool:
        """Whether a sweep reads the table instead of an index."""
        leads = all(
            any(index.leads_to(need) or index.leads_to(need.least) for index in self._stored)
            for need in self._needs
        )
        return self.binding.sweep == "scan" or not self._needs or not leads

    @cached_property
    def _is_readable(self) -> bool:
        """Whether the whole table may be read: it is small, or ``--deep`` was given."""
        return self._deep or self._number(self._some(SMALL + 1)) <= SMALL

    def _some(self, most: int, *criteria: ColumnElement[bool]) -> Select[Any]:
        return select(self.binding.last_modified).where(*criteria).limit(most)

    def _number(self, rows: Select[Any]) -> int:
        """Count rows, expired or not."""
        counted = select(func.count()).select_from(rows.options(include_expired()).subquery())
        return int(self.connection.execute(counted.options(include_expired())).scalar_one())

    def error(self, code: str, message: str, fix: str) -> Finding:
        """Return a finding about something that is wrong."""
        return Finding(Severity.ERROR, code, self.name, message, fix)

    def warning(self, code: str, message: str, fix: str) -> Finding:
        """Return a finding about something that works badly."""
        return Finding(Severity.WARNING, code, self.name, message, fix)

    def _skipped(self, code: str, message: str, fix: str) -> Finding:
        return Finding(Severity.SKIPPED, code, self.name, message, fix)


def up_to_most(rows: int) -> str:
    """Return the text for a number of rows that were counted up to `MOST`; empty for none."""
    return "" if rows == 0 else f"{MOST:,} or more" if rows == MOST else f"{rows:,}"
