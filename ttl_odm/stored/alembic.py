"""`Stored` in Alembic's operations, which store initial defaults and remove them.

The first operation on such a model creates the tables of stored defaults, without operations of
their own in the revision; they are never dropped. A stored default is never overwritten.
"""

from __future__ import annotations

import logging
from functools import cached_property
from typing import TYPE_CHECKING, Final

from sqlalchemy import inspect, select
from sqlalchemy.schema import CreateTable

from ttl_odm.alembic.aspects import Aspect
from ttl_odm.core.policy import default_extension
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.stored import Stored
from ttl_odm.stored.rows import CHANGES, POLICIES
from ttl_odm.stored.sqlalchemy.tables import (
    declared_policy_tables,
    name_of,
    row_of,
    starting_row,
    tables_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import ClauseElement, Connection, MetaData, Table
    from sqlalchemy.engine import Dialect

    from ttl_odm.alembic.aspects import IsTable, Operation
    from ttl_odm.alembic.steps import Steps
    from ttl_odm.core.extension import DefaultExtension
    from ttl_odm.dialects import Family
    from ttl_odm.sqlalchemy.policy.bindings import Binding

log = logging.getLogger("alembic.ttl_odm")


class StoredDefault(Aspect):
    """The stored default of one table."""

    @classmethod
    def written(cls, declared: Stored) -> str:
        """The declaration as a revision writes it."""
        return f"ttl_odm.{declared!r}"

    @classmethod
    def start(cls, declared: DefaultExtension) -> int | None:
        """The initial default."""
        return declared.start if isinstance(declared, Stored) else None

    @classmethod
    def prepare(cls, stand_in: Table, declared: Sequence[MetaData]) -> None:
        """Copy the tables of policies, if one of the models' MetaData has them."""
        tables = (declared_policy_tables(metadata) for metadata in declared)
        for table in next(filter(None, tables), ()):
            table.to_metadata(stand_in.metadata)

    @classmethod
    def tables(cls, connection: Connection, declared: Sequence[Table]) -> IsTable:  # noqa: ARG003
        """The tables of stored defaults, which autogenerate ignores even if a MetaData has them."""
        return lambda _, name: name in (POLICIES, CHANGES)

    def former(self, start: int | None, by: str | None = None) -> Stored | None:
        """The declaration before the change; without limits, which the database doesn't store."""
        return Stored(start, by=by) if self._is_begun else None

    def lacking(self, binding: Binding) -> Mapping[str, object] | None:
        """Whether a row must be added or removed: no arguments then, else None."""
        if self._is_adopted:
            return None
        is_stored = isinstance(default_extension(binding.policy), Stored)
        return None if self._is_begun is is_stored else {}

    def before(self, op: Operation, steps: Steps[Family]) -> None:
        """Store the initial default, or remove a default that is no longer declared as stored."""
        if op.verb == "drop" or self._is_adopted:
            return
        if self._declared is not None:
            if op.verb == "add":
                self._warn_of_former(self._declared)
            self._begin(self._declared, steps)
        elif op.verb == "alter":
            self._end(steps)

    def after(self, op: Operation, steps: Steps[Family]) -> None:
        """Remove the row when TTL is dropped from the table."""
        if op.verb == "drop" and not self._is_adopted:
            self._end(steps)

    @property
    def _is_adopted(self) -> bool:
        """Whether the table has its own dates: then `create_policies` stores its default."""
        return self.target.dates is not None

    @property
    def _declared(self) -> Stored | None:
        declared = default_extension(self.target.policy)
        return declared if isinstance(declared, Stored) else None

    @cached_property
    def _is_begun(self) -> bool:
        """Whether the default is stored; without a database, whether it is declared so."""
        if self.connection is None:
            return self._declared is not None
        table = self.target.table
        policies = tables_of(table).policies
        if not inspect(self.connection).has_table(policies.name, schema=policies.schema):
            return False
        row = select(policies.c.name).where(*row_of(table))
        return self.connection.scalar(row) is not None

    def _warn_of_former(self, declared: Stored) -> None:
        """Log defaults that a table begins with other than its own: they may be a former table's.

        Only `op.drop_ttl` removes them, not ``op.drop_table``.
        """
        if self.connection is None or not self._is_begun:
            return
        c = tables_of(self.target.table).policies.c
        of_table = select(c.scope, c.ttl).where(c.name == name_of(self.target.table))
        rows = self.connection.execute(of_table).all()
        others = [(scope, ttl) for scope, ttl in rows if scope or ttl != declared.start]
        if others:
            log.warning(
                "table %s: begins with the default that %s has for this name (%s), not with %r. If "
                "a former table left it behind, delete its rows there first. Write op.drop_ttl() "
                "before op.drop_table(), which leaves them.",
                self.target.label,
                c.name.table.fullname,
                ", ".join(f"{scope or 'all rows'}: {ttl}" for scope, ttl in sorted(others)[:3]),
                declared,
            )

    def _begin(self, declared: Stored, steps: Steps[Family]) -> None:
        """Create the missing tables, and insert the row if it is missing."""
        table, dialect = self.target.table, steps.dialect
        for stored in tables_of(table):
            steps.run.at_once(_text(CreateTable(stored, if_not_exists=True), dialect))
        clock = clock_of(dialect)
        now = clock.literal(clock.now_at_write)
        steps.run.at_once(_text(starting_row(table, declared.start, now), dialect))

    def _end(self, steps: Steps[Family]) -> None:
        if self._is_begun:
            policies = tables_of(self.target.table).policies
            rows = policies.delete().where(policies.c.name == name_of(self.target.table))
            steps.run.at_once(_text(rows, steps.dialect))


def _text(element: ClauseElement, dialect: Dialect) -> str:
    return str(element.compile(dialect=dialect, compile_kwargs={"literal_binds": True}))


ASPECT: Final = StoredDefault
