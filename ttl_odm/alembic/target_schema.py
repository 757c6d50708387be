"""What a table has once it has TTL: columns, CHECK and indexes.

A migration knows only a table's name. So this module makes a stand-in Table with the contract's
columns and passes it to the functions that models go through (`ttl_odm.sqlalchemy.policy.schema`).
So a migration can't make anything else than ``create_all()``.

This module must not talk to a database.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

from sqlalchemy import Column, Index, Integer, MetaData, Table, column, text
from sqlalchemy.schema import CreateColumn, CreateTable

from ttl_odm.alembic.runner import MigrationRefusedError
from ttl_odm.core.policy import TTL, ExpireAt, Policy, default_extension, instant_field
from ttl_odm.dialects import index_name
from ttl_odm.sqlalchemy.compat import out_of_driver_format
from ttl_odm.sqlalchemy.declare.mapper import binding_for
from ttl_odm.sqlalchemy.declare.mixin import last_modified_column, ttl_column
from ttl_odm.sqlalchemy.policy import schema as declared
from ttl_odm.sqlalchemy.policy.predicate import Predicate
from ttl_odm.sqlalchemy.policy.schema import note_of
from ttl_odm.sqlalchemy.time.clock import Seconds, clock_of

if TYPE_CHECKING:
    from sqlalchemy import ClauseElement, ColumnClause
    from sqlalchemy.engine import Dialect

    from ttl_odm.sqlalchemy.policy.bindings import Binding

Sweep = Literal["index", "scan", "database"]

Enforce = Literal["view", "rls"]

INDEXED: Final = ("index", "database")
"""The kinds of sweep that need the sweeper's indexes."""

Columns = Mapping[str, Column[Any]]

LAST_MODIFIED = "_ts"
OWN_TTL = "ttl"


def is_of_sweeper(index: str) -> bool:
    """Whether a name is that of an index over TTL's columns, made for whatever table.

    A table keeps the names of its indexes when it is renamed.
    """
    return index.endswith(("_ttl_inherited", "_ttl_own"))


@dataclass(frozen=True)
class TargetSchema:
    """A table's TTL as a migration should make it.

    Attributes:
        table: The stand-in of the table.
        policy: The table's policy.
        dates: The column with the dates if it is the table's own: TTL then adds no columns, and
            only for `ExpireAt` and `ExpireAfter` an index on it. None for the contract's columns.
    """

    table: Table
    policy: Policy
    dates: str | None = None

    @classmethod
    def of(cls, name: str, policy: Policy, schema: str | None) -> TargetSchema:
        """Return the target for a table and its policy."""
        table = Table(name, MetaData(), last_modified_column(), ttl_column(_Owner), schema=schema)
        declared.add_check(table, table.c[OWN_TTL])
        if not isinstance(policy, TTL):
            if policy.field not in table.c:  # it may be called as one of the contract's
                table.append_column(Column(policy.field, Integer()))
            declared.add_index_on(table.c[policy.field])
            return cls(table, policy, policy.field)
        if (policy.last_modified, policy.override) != (LAST_MODIFIED, OWN_TTL):
            return cls(table, policy, policy.last_modified)
        target = cls(table, policy)
        declared.add_indexes(table, target.last_modified, target.own_ttl, target.scope)
        return target

    @classmethod
    def of_link(cls, name: str, columns: Sequence[str], schema: str | None) -> TargetSchema:
        """Return the target for a table whose rows follow others: the index of its link."""
        table = cls.of(name, ExpireAt(columns[0]), schema).table
        table.indexes.clear()
        for column_name in columns:
            if column_name not in table.c:
                table.append_column(Column(column_name, Integer()))
        Index(declared.link_index_name(name), *(table.c[column_name] for column_name in columns))
        return cls(table, ExpireAt(columns[0]), columns[0])

    @property
    def label(self) -> str:
        """The table's name, for messages."""
        return repr(self.table.fullname)

    @property
    def last_modified(self) -> Column[Any]:
        """The column of the row's last modification."""
        return self.table.c[LAST_MODIFIED]

    @property
    def own_ttl(self) -> Column[Any]:
        """The column of the row's own ttl."""
        return self.table.c[OWN_TTL]

    @property
    def scope(self) -> ColumnClause[Any] | None:
        """The column of scopes, with which the index over inheriting rows begins; None without."""
        default = default_extension(self.policy)
        return None if default is None or default.by is None else column(default.by)

    @property
    def check(self) -> declared.TTLCheck:
        """The CHECK of the column of rows' own ttl."""
        (check,) = self.own_ttl.constraints
        assert isinstance(check, declared.TTLCheck)  # noqa: S101 (see `TargetSchema.of`)
        return check

    @property
    def check_name(self) -> str:
        """The CHECK's name."""
        return str(self.check.name)

    def condition(self, dialect: Dialect) -> str:
        """Return the condition of the CHECK, as SQL."""
        return declared.ttl_condition(self.check, dialect)

    @property
    def indexes(self) -> list[Index]:
        """The sweeper's indexes, in the order of their names."""
        return sorted(self.table.indexes, key=lambda index: str(index.name))

    @property
    def index_names(self) -> list[str]:
        """The names of the sweeper's indexes, which are the same on every database."""
        return [str(index.name) for index in self.indexes]

    def quoted(self, dialect: Dialect) -> str:
        """Return the table's name in SQL."""
        return dialect.identifier_preparer.format_table(self.table)

    def plain(self, dialect: Dialect) -> str:
        """Return `quoted` without doubled percent signs, for ``text()`` and bound values."""
        return out_of_driver_format(dialect, self.quoted(dialect))

    def name_of(self, prefix: str, suffix: str) -> str:
        """Return a name for an object of the table, short enough for every database."""
        return index_name(self.table.name, suffix).replace("ix_", prefix, 1)

    def column(
        self, column: Column[Any], dialect: Dialect, *, default: str | None = None, check: bool
    ) -> str:
        """Return a column's definition, as it follows ADD COLUMN.

        Args:
            column: The column.
            dialect: The database's dialect.
            default: SQL for the value of existing rows, in place of the column's own default.
            check: Whether to append the CHECK of rows' own ttl.
        """
        plain = Column(
            column.name,
            column.type,
            nullable=bool(column.nullable),
            server_default=column.server_default if default is None else text(default),
        )
        sql = str(CreateColumn(plain).compile(dialect=dialect))
        return f"{sql} {self.check_sql(dialect)}" if check else sql

    def check_sql(self, dialect: Dialect) -> str:
        """Return the CHECK as a clause of a table's definition."""
        compiler = dialect.ddl_compiler(dialect, CreateTable(self.table))
        return str(compiler.process(self.check))

    def default_sql(self, dialect: Dialect) -> str:
        """Return the default of ``_ts`` in SQL."""
        compiler = dialect.ddl_compiler(dialect, CreateTable(self.table))
        sql = str(compiler.get_column_default_string(self.last_modified))
        # MySQL and SQLite need parentheses, which SQLAlchemy adds only in a column's definition.
        return sql if dialect.name == "postgresql" or sql.startswith("(") else f"({sql})"

    @property
    def seconds(self) -> int | None:
        """The default ttl; None without one, or where it isn't in code."""
        if not isinstance(self.policy, TTL) or default_extension(self.policy) is not None:
            return None
        return self.policy.default

    @property
    def noted(self) -> str:
        """The policy's fingerprint, which views and jobs store."""
        return note_of(self.policy)

    def live(self, dialect: Dialect, columns: Columns = MappingProxyType({})) -> str:
        """Return the condition for live rows as SQL, which contains the default.

        Args:
            dialect: The database's dialect.
            columns: The table's columns in the database, for policies that use some of them.

        Raises:
            MigrationRefusedError: A column that the policy uses is not among them.
        """
        binding = self.binding(columns)
        columns_read = binding.columns_of(binding.table)
        live = Predicate(clock_of(dialect)).live(binding, columns_read, in_schema=True)
        return as_text(live, dialect)

    def expired(
        self, dialect: Dialect, home: str | None = None, columns: Columns = MappingProxyType({})
    ) -> str:
        """Return the condition for rows that have expired at the moment of the write, as SQL.

        Args:
            dialect: The database's dialect.
            home: The schema of tables that declare none, in which a default that isn't in code is
                looked up; None for that of the session.
            columns: The table's columns; see `live`.
        """
        binding = self.binding(columns)
        predicate = Predicate(clock_of(dialect), writing=True)
        expired = predicate.expired(binding, binding.columns_of(binding.table))
        return f"({as_text(expired, dialect, home)})"

    def expires_at(self, dialect: Dialect, columns: Columns = MappingProxyType({})) -> str:
        """Return SQL for the instant of a row's expiry, in the unit of ``_ts``; NULL for never."""
        binding = self.binding(columns)
        end = Predicate(clock_of(dialect)).expires_at(binding, binding.columns_of(binding.table))
        return as_text(end, dialect)

    def binding(self, columns: Columns = MappingProxyType({})) -> Binding:
        """Bind the policy to the columns that the database has; see `live`."""
        owner = type(self.table.name, (), {"__ttl__": self.policy})
        return binding_for(self._with_columns(columns), owner)

    def _with_columns(self, columns: Columns) -> Table:
        """Return the stand-in, with the table's own columns if the policy uses some of them."""
        policy, contract = self.policy, (LAST_MODIFIED, OWN_TTL)
        names = {instant_field(policy)}
        if isinstance(policy, TTL):
            default = default_extension(policy)
            scope = None if default is None else default.by
            names |= set(filter(None, (policy.override, policy.created, policy.by, scope)))
        others = names - (set(contract) if self.dates is None else set())
        if not others:
            return self.table
        if not columns:
            raise MigrationRefusedError(
                f"Table {self.label}: this reads the types of its columns "
                f"{', '.join(map(repr, sorted(others)))} from the database, which --sql can't do. "
                "Run this migration online."
            )
        missing = min(others - columns.keys(), default=None)
        if missing is not None:
            raise MigrationRefusedError(
                f"Table {self.label} has no column {missing!r}; it has {', '.join(columns)}."
            )
        metadata = MetaData()
        for table in self.table.metadata.tables.values():
            if table is not self.table:
                table.to_metadata(metadata)
        copies = {name: Column(name, column.type) for name, column in columns.items()}
        if self.dates is None:
            copies |= {LAST_MODIFIED: last_modified_column(), OWN_TTL: ttl_column(_Owner)}
        return Table(self.table.name, metadata, *copies.values(), schema=self.table.schema)


def adds_columns(binding: Binding) -> bool:
    """Whether a model has the contract's columns; Alembic compares other columns itself."""
    own = binding.override
    return (
        isinstance(binding.policy, TTL)
        and (binding.last_modified.name, own is not None and own.name) == (LAST_MODIFIED, OWN_TTL)
        and binding.instants.native
        and own is not None
        and isinstance(own.type, Seconds)
    )


def as_text(element: ClauseElement, dialect: Dialect, home: str | None = None) -> str:
    """Return an element as SQL with its values; tables without a schema get the schema `home`."""
    schema: dict[str, Any] = {}
    if home is not None:
        schema = {"schema_translate_map": {None: home}, "render_schema_translate": True}
    with warnings.catch_warnings():
        # The lifetime of rows that never expire is NULL, and so is their expiry.
        warnings.filterwarnings("ignore", "Bound parameter .* rendering literal NULL")
        literal = {"literal_binds": True}
        return str(element.compile(dialect=dialect, compile_kwargs=literal, **schema))


class _Owner:
    """Stands in for the class that has the column, which only error messages name."""
