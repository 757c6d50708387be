"""`Stored` in Alembic's operations: the rows of stored defaults are begun, and taken away.

The tables that they are in are made with the first of them, by no line of Alembic's own, and stay.
What is stored by then is never overwritten.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

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
    from ttl_odm.sqlalchemy.policy.bindings import Binding


class StoredDefault(Aspect):
    """The row of one table."""

    @classmethod
    def written(cls, declared: Stored) -> str:
        """The declaration by its public name."""
        return f"ttl_odm.{declared!r}"

    @classmethod
    def start(cls, declared: DefaultExtension) -> int | None:
        """What the row has at first."""
        return declared.start if isinstance(declared, Stored) else None

    @classmethod
    def prepare(cls, stand_in: Table, declared: Sequence[MetaData]) -> None:
        """The tables of policies, where one of the models' MetaData says where they are."""
        places = (declared_policy_tables(metadata) for metadata in declared)
        for table in next(filter(None, places), ()):
            table.to_metadata(stand_in.metadata)

    @classmethod
    def tables(cls, connection: Connection, declared: Sequence[Table]) -> IsTable:  # noqa: ARG003
        """Those two, also where a model's MetaData has them: our own operations make them."""
        return lambda _, name: name in (POLICIES, CHANGES)

    def former(self, start: int | None, by: str | None = None) -> Stored | None:
        """One without limits, which the database doesn't have."""
        return Stored(start, by=by) if self._is_begun else None

    def lacking(self, binding: Binding) -> Mapping[str, object] | None:
        """A row where the default is stored, and none where it isn't any more."""
        if self._is_elsewhere:
            return None
        is_stored = isinstance(default_extension(binding.policy), Stored)
        return None if self._is_begun is is_stored else {}

    def before(self, op: Operation, steps: Steps[Any]) -> None:
        """Begin the row where the default is stored, or take it away where it no longer is."""
        if op.verb == "drop" or self._is_elsewhere:
            return
        if self._declared is not None:
            self._begin(self._declared, steps)
        elif op.verb == "alter":
            self._end(steps)

    def after(self, op: Operation, steps: Steps[Any]) -> None:
        """Take the row away with all else."""
        if op.verb == "drop" and not self._is_elsewhere:
            self._end(steps)

    @property
    def _is_elsewhere(self) -> bool:
        """Whether the table has its dates already: then its row is `create_policies`' to make."""
        return self.target.dates is not None

    @property
    def _declared(self) -> Stored | None:
        declared = default_extension(self.target.policy)
        return declared if isinstance(declared, Stored) else None

    @cached_property
    def _is_begun(self) -> bool:
        """Whether the default is stored; a script knows only what it is told."""
        if self.connection is None:
            return self._declared is not None
        table = self.target.table
        policies = tables_of(table).policies
        if not inspect(self.connection).has_table(policies.name, schema=policies.schema):
            return False
        row = select(policies.c.name).where(*row_of(table))
        return self.connection.scalar(row) is not None

    def _begin(self, declared: Stored, steps: Steps[Any]) -> None:
        """Make the tables and the row that aren't there yet."""
        table, dialect = self.target.table, steps.dialect
        for made in tables_of(table):
            steps.run.at_once(_text(CreateTable(made, if_not_exists=True), dialect))
        clock = clock_of(dialect)
        now = clock.literal(clock.now_at_write)
        steps.run.at_once(_text(starting_row(table, declared.start, now), dialect))

    def _end(self, steps: Steps[Any]) -> None:
        if self._is_begun:
            policies = tables_of(self.target.table).policies
            rows = policies.delete().where(policies.c.name == name_of(self.target.table))
            steps.run.at_once(_text(rows, steps.dialect))


def _text(element: ClauseElement, dialect: Dialect) -> str:
    return str(element.compile(dialect=dialect, compile_kwargs={"literal_binds": True}))


ASPECT: Final = StoredDefault
