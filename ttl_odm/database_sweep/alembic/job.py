"""A job that sweeps a table: its settings, and its names and statements on every database.

`MySQLJob` and `PostgreSQLJob` are the two kinds; `requirements` says which tables can have one.

A job's settings are in its table of one row, not in its procedure, which reads them before each
batch. So an UPDATE changes them at once, and a migration to another default doesn't change them.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import ColumnElement, literal_column
from sqlalchemy.types import BigInteger

from ttl_odm.alembic.runner import MigrationRefusedError, Runner
from ttl_odm.alembic.target_schema import as_text
from ttl_odm.database_sweep.jobs import ARCHIVE_NOTE, JOB, JOB_LOG, JOB_NOTE
from ttl_odm.dialects.family import as_value
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sqlalchemy.policy.bindings import binding_of
from ttl_odm.sqlalchemy.policy.sources import finite_defaults
from ttl_odm.sqlalchemy.purge.archive import Copy
from ttl_odm.sqlalchemy.sweep.due import needs_of, stored_indexes
from ttl_odm.sqlalchemy.sweep.leases import NAME as LEASE_TABLE
from ttl_odm.sqlalchemy.sweep.leases import declared_lease_table
from ttl_odm.sqlalchemy.sweep.whereabouts import SweptSource
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper.hooks import Archive, archive_of
from ttl_odm.sweeper.options import DailyWindow

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sqlalchemy import Column, Table

    from ttl_odm.alembic.aspects import Operation
    from ttl_odm.alembic.steps import Steps
    from ttl_odm.alembic.target_schema import TargetSchema
    from ttl_odm.dialects import Family
    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sqlalchemy.policy.sources import Seconds
    from ttl_odm.sqlalchemy.time.clock import Instants

BATCH: Final = 1_000
"""Rows per transaction: others wait for its locks no longer than it takes."""

BUDGET: Final = 10
"""Seconds after which a run begins no further batch; the next run continues."""

NEWS: Final = 30
"""Seconds after which a run is recorded although its outcome is the same as before."""

RETRY: Final = 60
"""Seconds after which the rows are counted again for a blown fuse."""

FLOOR: Final = 1_000
"""Expired rows that never blow the fuse, as for a sweeper."""

CHANGING: Final = "the default is being changed"
"""The outcome of a run that would have to wait for a change of the default."""

ALWAYS: Final = "always"
"""The argument that removes a job's window."""

_VARIABLES: Final = "ttl_odm_"
"""How variables begin in the templates of the procedures."""


@dataclass(frozen=True)
class JobSettings:
    """The settings of a job that an operation changes.

    Attributes:
        timezone: The time zone of the window's hours; None if the operation sets no window.
        columns: The new values, by columns of the job's table.
    """

    timezone: str | None = None
    columns: dict[str, str | float | None] = field(default_factory=dict)

    @classmethod
    def of(cls, op: Operation, label: str) -> JobSettings:
        """Return the settings of an operation.

        Raises:
            MigrationRefusedError: A value is invalid.
        """
        columns: dict[str, str | float | None] = {}
        timezone = None
        hours, fraction = op.argument("window"), op.argument("max_fraction")
        if hours == ALWAYS:
            columns |= dict.fromkeys(("opens", "closes", "timezone"))
        elif hours is not None:
            timezone = op.argument("timezone")
            try:
                window = DailyWindow.of(hours, timezone)
            except TTLConfigurationError as error:
                raise MigrationRefusedError(f"Table {label}: {error}") from error
            columns |= {"opens": f"{window.start:%H:%M}", "closes": f"{window.end:%H:%M}"}
            columns["timezone"] = timezone
        if fraction is not None:
            if isinstance(fraction, bool) or not 0 < fraction <= 1:
                raise MigrationRefusedError(
                    f"Table {label}: max_fraction={fraction!r}: give the share of rows that may "
                    "be expired at once, more than 0 and at most 1 (1 disables the fuse)."
                )
            columns["max_fraction"] = None if fraction == 1 else float(fraction)
        return cls(timezone, columns)

    def refuse_unknown_zone(self, runner: Runner, label: str) -> None:
        """Reject a time zone that the database doesn't know."""
        if self.timezone is None:
            return
        connection, name = runner.connection, self.timezone.replace("'", "''")
        if runner.dialect.name == "postgresql":
            query = f"SELECT 1 FROM pg_timezone_names WHERE name = '{name}'"
            hint = "See pg_timezone_names."
        else:
            query = f"SELECT CONVERT_TZ('2020-01-01', '+00:00', '{zone_on_mysql(name)}')"
            hint = (
                "Load the time zones: mysql_tzinfo_to_sql /usr/share/zoneinfo | mysql mysql "
                "(MariaDB: mariadb-tzinfo-to-sql)."
            )
        if connection.exec_driver_sql(query).scalar() is None:
            raise MigrationRefusedError(
                f"Table {label}: this server doesn't know timezone={self.timezone!r}. {hint}"
            )


def zone_on_mysql(name: str) -> str:
    """Return MySQL's name of a time zone; for UTC one that needs no loaded time zones."""
    return "+00:00" if name == "UTC" else name


class IndexPart(NamedTuple):
    """Rows that one index leads to.

    Attributes:
        due: The condition for all of them that have expired.
        order: The columns of ORDER BY.
        of_scope: Whether these are the rows of one scope, `ttl_odm_scope`, because each scope has a
            default of its own.
    """

    due: str
    order: str
    of_scope: bool = False


class DatabaseJob(ABC):
    """The job of one table.

    Args:
        steps: The steps of its database for its table.
        schema: The prefix of the job's names if the table is declared without a schema.
        home: The schema of tables that are declared without one; None for that of the session.
    """

    def __init__(self, steps: Steps[Family], schema: str = "", home: str | None = None) -> None:
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
        self.archive = ""
        names = [target.table.name, *steps.existing.columns]
        if self.copy is not None:
            archive = preparer.format_table(self.copy.archive)
            self.archive = archive if self.copy.archive.schema else self._at_home(archive)
            names += [self.copy.archive.name, *self.copy.names]
        # The prefix of variables, with which no table or column in the procedure begins.
        self.variables = _VARIABLES
        while any(name.lower().startswith(self.variables) for name in names):
            self.variables += "v_"

    def _named(self, template: str) -> str:
        """Return a template with this procedure's variables; the parameter keeps its name."""
        return re.sub(rf"\b{_VARIABLES}(?!seconds\b)", self.variables, template)

    @abstractmethod
    def created(self, *, is_enabled: bool) -> list[str]:
        """Return the statements that create the job, or replace an existing one."""

    @abstractmethod
    def dropped(self) -> list[str]:
        """Return the statements that remove the job, if it exists."""

    def scheduled_elsewhere(self) -> str | None:
        """Return the statement that schedules the job from another database; None if not needed."""
        return None

    def set(self, columns: Mapping[str, str | float | None]) -> str:
        """Return the statement that changes the job's settings."""
        values = ", ".join(f"{name} = {_literal(value)}" for name, value in columns.items())
        return f"UPDATE {self.log} SET {values} WHERE id = 1"

    @property
    def note(self) -> str:
        """The job's comment: its policy's fingerprint, and where it archives rows."""
        note = f"{JOB_NOTE}{self.steps.target.noted}"
        return note if self.copy is None else f"{note}{ARCHIVE_NOTE}{self.copy.archive.fullname}"

    @property
    def expired(self) -> str:
        """The condition for rows that have expired at the moment of the write."""
        steps = self.steps
        return steps.target.expired(steps.dialect, self._home, steps.existing.columns)

    @property
    def default(self) -> str:
        """SQL for the seconds after which the first inheriting rows expire: a number or a lookup.

        If other kinds of rows live longer, the condition `expired` leaves them out.
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
        """A SELECT of the row that a change of the default locks; None if there is no such row."""
        row = self._binding.source.locked_row
        return None if row is None else as_text(row, self.steps.dialect, self._home)

    @property
    def scopes(self) -> SweptSource:
        """The source of the scopes' own defaults."""
        source = self._binding.source
        assert isinstance(source, SweptSource)  # noqa: S101 (there are scopes)
        return source

    @property
    def parts(self) -> list[IndexPart]:
        """The rows to delete, by indexes; empty if no row ever expires."""
        return [*self._parts()]

    def _parts(self) -> Iterator[IndexPart]:
        binding = self._binding
        has_finite = True  # a stored default may be finite
        if binding.source.is_known:
            defaults = [default() for default in binding.defaults()]
            if all(default is None for default in defaults):
                return
            has_finite = bool(finite_defaults(defaults))
        if has_finite:
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
        """Return the inheriting rows of each scope, by the index that begins with its column."""

    @property
    def _collation(self) -> str | None:
        """The collation of the index of scopes, by which it may treat different texts as equal."""
        run, binding = self.steps.run, self._binding
        needs = [need for need in needs_of(binding, clock_of(run.dialect)) if need.scope]
        indexes = stored_indexes(run.connection, self.steps.target.table)
        collations = (
            index.collation for index in indexes for need in needs if index.leads_to(need)
        )
        return next(collations, None)

    @property
    @abstractmethod
    def _inheriting(self) -> IndexPart:
        """The rows that inherit the default, by the contract's index."""

    @property
    @abstractmethod
    def _having_own(self) -> IndexPart:
        """The rows with a ttl of their own, by their index."""

    @property
    @abstractmethod
    def _now(self) -> str:
        """SQL for the moment of a batch, by which an index can be searched."""

    def _by_column(self, instants: Instants, column: Column[Any], seconds: str) -> IndexPart:
        """Return the rows whose lifetime is counted from a column of the table's own."""
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
        """The columns of the archive, and the expressions for them over the table."""
        assert self.copy is not None  # noqa: S101 (see `copy`)
        columns = ", ".join(map(self.steps.quote, self.copy.names))
        values = [self.steps.quote(str(column.name)) for column in self.copy.columns]
        values += [as_text(value, self.steps.dialect) for value in self.copy.extra.values()]
        return columns, ", ".join(values)

    def _at_home(self, name: str) -> str:
        return name if self._home is None else f"{self.steps.quote(self._home)}.{name}"


def _literal(value: str | float | None) -> str:
    if value is None:
        return "NULL"
    return as_value(value) if isinstance(value, str) else repr(value)


def copy_of(runner: Runner, target: TargetSchema) -> Copy | None:
    """Return what the model's archive gets of each row; None without an archive.

    Raises:
        TTLConfigurationError: The archive lacks the primary key.
    """
    for binding in bindings_of(runner, target):
        archive = archive_of(binding.default.owner)
        if isinstance(archive, Archive):
            return Copy.of(binding, archive, f"{binding.name}.__ttl_archive__")
    return None


def bindings_of(runner: Runner, target: TargetSchema) -> list[Binding]:
    """Return the policies that the application's models declare for a table."""
    bindings = map(binding_of, tables_of(runner, target))
    return [binding for binding in bindings if binding is not None]


def tables_of(runner: Runner, target: TargetSchema) -> list[Table]:
    """Return the application's own Table objects of a table."""
    schemas = (None, target.table.schema, runner.dialect.default_schema_name)
    return [
        table
        for metadata in runner.metadatas
        for table in metadata.tables.values()
        if table.name == target.table.name and table.schema in schemas
    ]
