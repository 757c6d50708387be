"""What a job that sweeps a table has on each database: its names and its statements.

`MySQLJob` and `PostgreSQLJob` are the two kinds; `requirements` says which tables can have one.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import ColumnElement, literal_column
from sqlalchemy.types import BigInteger

from ttl_odm.alembic.target_schema import as_text
from ttl_odm.database_sweep.names import ARCHIVE_NOTE, JOB, JOB_LOG, JOB_NOTE
from ttl_odm.dialects.family import as_value
from ttl_odm.sqlalchemy.policy.bindings import binding_of
from ttl_odm.sqlalchemy.policy.sources import finite_defaults
from ttl_odm.sqlalchemy.purge.archive import Copy
from ttl_odm.sqlalchemy.sweep.due import needs_of, stored_indexes
from ttl_odm.sqlalchemy.sweep.leases import NAME as LEASE_TABLE
from ttl_odm.sqlalchemy.sweep.leases import declared_lease_table
from ttl_odm.sqlalchemy.sweep.whereabouts import SweptSource
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper.hooks import Archive, archive_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sqlalchemy import Column, Table

    from ttl_odm.alembic.runner import Runner
    from ttl_odm.alembic.steps import Steps
    from ttl_odm.alembic.target_schema import TargetSchema
    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sqlalchemy.policy.sources import Seconds
    from ttl_odm.sqlalchemy.time.clock import Instants

BATCH: Final = 1_000
"""Rows of a transaction; others wait for no longer than it takes."""

BUDGET: Final = 10
"""Seconds after which a run begins no further batch; the next run continues."""

NEWS: Final = 30
"""Seconds after which a run is recorded although its outcome is that of the one before."""

RETRY: Final = 60
"""Seconds after which a blown fuse has the rows counted anew."""

CHANGING: Final = "the default is being changed"
"""The outcome of a run that would wait for that."""


_VARIABLES: Final = "ttl_odm_"
"""What variables begin with in the templates of the procedures."""


class IndexPart(NamedTuple):
    """Rows that one index leads to: all that have expired are `due`, in this `order`.

    Where each scope has its own end of life, they are those of one scope, `ttl_odm_scope`.
    """

    due: str
    order: str
    of_scope: bool = False


class DatabaseJob(ABC):
    """The job of one table.

    Args:
        steps: The steps of its database, which know its names.
        schema: The schema that the job's names get; none where a job has that of its table.
        home: The schema of tables that are declared without one; None where a job has that of its
            session.
    """

    def __init__(self, steps: Steps[Any], schema: str = "", home: str | None = None) -> None:
        """Quote the names."""
        self.steps = steps
        self._home = home
        target, prefix = steps.target, steps.schema or schema
        self.name = prefix + steps.quote(target.name_of("", JOB))
        self.log = prefix + steps.quote(target.name_of("", JOB_LOG))
        preparer = steps.dialect.identifier_preparer
        declared = declared_lease_table(steps.run.metadatas)
        self.lease = self._at_home(steps.quote(LEASE_TABLE))
        if declared is not None:
            lease = preparer.format_table(declared)
            self.lease = lease if declared.schema else self._at_home(lease)
        self.copy = None if steps.run.offline else copy_of(steps.run, target)
        self.variables = self._unused_prefix()
        self.archive = ""
        if self.copy is not None:
            archive = preparer.format_table(self.copy.archive)
            self.archive = archive if self.copy.archive.schema else self._at_home(archive)

    def _unused_prefix(self) -> str:
        """What the procedure's variables begin with, and no table or column that it names."""
        tables = [self.steps.target.table.name, *self.steps.existing.columns]
        if self.copy is not None:
            tables += [self.copy.archive.name, *self.copy.names]
        prefix = _VARIABLES
        while any(name.lower().startswith(prefix) for name in tables):
            prefix += "v_"
        return prefix

    def _named(self, template: str) -> str:
        """A template with the names that variables have in this procedure; its parameter stays."""
        return re.sub(rf"\b{_VARIABLES}(?!seconds\b)", self.variables, template)

    @abstractmethod
    def created(self, *, is_enabled: bool) -> list[str]:
        """The statements that create it, or replace the one that is there."""

    @abstractmethod
    def dropped(self) -> list[str]:
        """The statements that remove it, if it is there."""

    def set(self, columns: Mapping[str, str | float | None]) -> str:
        """The statement that changes its settings."""
        values = ", ".join(
            f"{name} = {as_value(value) if isinstance(value, str) else _number(value)}"
            for name, value in columns.items()
        )
        return f"UPDATE {self.log} SET {values} WHERE id = 1"

    @property
    def note(self) -> str:
        """What it says of itself: the default behind it, and where rows are kept."""
        note = f"{JOB_NOTE}{self.steps.target.noted}"
        return note if self.copy is None else f"{note}{ARCHIVE_NOTE}{self.copy.archive.fullname}"

    @property
    def expired(self) -> str:
        """Whether a row has expired at the moment of the write."""
        steps = self.steps
        return steps.target.expired(steps.dialect, self._home, steps.existing.columns)

    @property
    def default(self) -> str:
        """The seconds after which the first inheriting rows expire: a number, or what looks it up.

        Where kinds of rows live longer, the predicate tells them from the others.
        """
        source = self._binding.source
        if isinstance(source, SweptSource):
            age: Seconds | None = source.age_in(None, None)
        else:
            age = source.shortest_age()
        if isinstance(age, ColumnElement):
            return as_text(age, self.steps.dialect, self._home)
        return str(age or 0)

    @property
    def locked_default(self) -> str | None:
        """A SELECT of the row that a change of the default locks; None without one."""
        row = self._binding.source.locked_row
        return None if row is None else as_text(row, self.steps.dialect, self._home)

    @property
    def scopes(self) -> SweptSource:
        """What knows the scopes that have defaults of their own."""
        source = self._binding.source
        assert isinstance(source, SweptSource)  # noqa: S101 (or there are none)
        return source

    @property
    def _finite_defaults(self) -> list[int]:
        return finite_defaults(default() for default in self._binding.defaults())

    @property
    def parts(self) -> list[IndexPart]:
        """What the indexes lead to; none where nothing ever expires."""
        return [*self._parts()]

    def _parts(self) -> Iterator[IndexPart]:
        binding = self._binding
        is_stored = not binding.source.is_known
        if not is_stored and all(default() is None for default in binding.defaults()):
            return
        if is_stored or self._finite_defaults:
            if binding.source.scoping is not None and self.steps.target.scope is not None:
                scope = self.steps.quote(self.steps.target.scope.name)
                due, order = self._inheriting[:2]
                yield IndexPart(f"{scope} IS NULL AND {due}", order)
                yield self._in_scopes(scope)
            elif self.steps.target.dates is None:
                yield self._inheriting
            else:
                yield self._by_column(
                    binding.instants, binding.last_modified, f"{self.variables}default"
                )
        if binding.override is not None:
            yield self._having_own
        if (limit := binding.max_lifetime) is not None:
            yield self._by_column(limit.instants, limit.created, str(limit.seconds))

    @abstractmethod
    def _in_scopes(self, scope: str) -> IndexPart:
        """The same rows of the scopes that a column tells apart, by the index that it leads."""

    @property
    def _collation(self) -> str | None:
        """By which the index takes some scopes for the same."""
        run, binding = self.steps.run, self._binding
        needs = [need for need in needs_of(binding, clock_of(run.dialect)) if need.scope]
        every = stored_indexes(run.connection, self.steps.target.table)
        alike = (index.collation for index in every for need in needs if index.leads_to(need))
        return next(alike, None)

    @property
    @abstractmethod
    def _inheriting(self) -> IndexPart:
        """The rows whose end is that of the default, by the contract's index."""

    @property
    @abstractmethod
    def _having_own(self) -> IndexPart:
        """The rows with a ttl of their own, by theirs."""

    @property
    @abstractmethod
    def _now(self) -> str:
        """The moment of a batch, of which an index can be searched."""

    def _by_column(self, instants: Instants, column: Column[Any], seconds: str) -> IndexPart:
        """The rows whose lives are counted from a column of the table's own."""
        dialect = self.steps.dialect
        clock = clock_of(dialect)
        column_format, age = instants.on(clock), literal_column(seconds, BigInteger())
        due = column_format.within(column, clock.literal(self._now) - clock.span(age))
        return IndexPart(as_text(due, dialect), as_text(column_format.plain(column), dialect))

    @property
    def _binding(self) -> Binding:
        return self.steps.target.binding(self.steps.existing.columns)

    @property
    def archived(self) -> tuple[str, str]:
        """The columns that an archive gets, and what it gets of a row of the table."""
        assert self.copy is not None  # noqa: S101 (or nobody asks)
        columns = ", ".join(map(self.steps.quote, self.copy.names))
        values = [self.steps.quote(str(column.name)) for column in self.copy.columns]
        values += [as_text(value, self.steps.dialect) for value in self.copy.extra.values()]
        return columns, ", ".join(values)

    def _at_home(self, name: str) -> str:
        return name if self._home is None else f"{self.steps.quote(self._home)}.{name}"


def _number(value: float | None) -> str:
    return "NULL" if value is None else repr(value)


def copy_of(runner: Runner, target: TargetSchema) -> Copy | None:
    """What the model's archive gets of each row; None without one.

    Raises:
        TTLConfigurationError: It lacks the primary key.
    """
    for binding in bindings_of(runner, target):
        archive = archive_of(binding.default.owner)
        if isinstance(archive, Archive):
            return Copy.of(binding, archive, f"{binding.name}.__ttl_archive__")
    return None


def bindings_of(runner: Runner, target: TargetSchema) -> list[Binding]:
    """What the models of env.py, or of the command, declare of a table."""
    bindings = map(binding_of, tables_of(runner, target))
    return [binding for binding in bindings if binding is not None]


def tables_of(runner: Runner, target: TargetSchema) -> list[Table]:
    """The models' own Table objects of a table."""
    schemas = (None, target.table.schema, runner.dialect.default_schema_name)
    return [
        table
        for metadata in runner.metadatas
        for table in metadata.tables.values()
        if table.name == target.table.name and table.schema in schemas
    ]
