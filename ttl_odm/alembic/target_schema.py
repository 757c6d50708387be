"""What a table has once it has TTL: columns, CHECK and indexes, taken from `schema`.

A migration knows a table by its name only, so a stand-in Table with the contract columns is made
here and given to the same functions that a declared model goes through. What ``create_all()``
makes and what a migration makes can so never drift apart. Nothing here talks to a database.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

from sqlalchemy import Column, Index, Integer, MetaData, Table, column, text
from sqlalchemy.schema import CreateColumn, CreateTable

from ttl_odm.alembic.errors import MigrationRefusedError
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
"""Which of them have the sweeper's indexes."""

Columns = Mapping[str, Column[Any]]

LAST_MODIFIED = "_ts"
OWN_TTL = "ttl"


@dataclass(frozen=True)
class TargetSchema:
    """A table's TTL as a migration is to make it; ``table`` is the stand-in.

    Where a column of the table itself has the dates, TTL adds an index on it and no column, and
    ``dates`` is that column's name. It adds no index where rows may have a ttl of their own there.
    """

    table: Table
    policy: Policy
    dates: str | None = None

    @classmethod
    def of(cls, name: str, policy: Policy, schema: str | None) -> TargetSchema:
        """For a table of this name."""
        table = Table(name, MetaData(), last_modified_column(), ttl_column(_Owner), schema=schema)
        declared.add_check(table, table.c[OWN_TTL])
        if not isinstance(policy, TTL):
            dates = Column(policy.field, Integer())
            table.append_column(dates)
            declared.add_index_on(dates)
            return cls(table, policy, policy.field)
        if (policy.last_modified, policy.override) != (LAST_MODIFIED, OWN_TTL):
            return cls(table, policy, policy.last_modified)
        target = cls(table, policy)
        declared.add_indexes(table, target.last_modified, target.own_ttl, target.scope)
        return target

    @classmethod
    def of_link(cls, name: str, columns: Sequence[str], schema: str | None) -> TargetSchema:
        """For a table whose rows follow others: an index on the columns that lead to the parent."""
        table = cls.of(name, ExpireAt(columns[0]), schema).table
        table.indexes.clear()
        for column_name in columns:
            if column_name not in table.c:
                table.append_column(Column(column_name, Integer()))
        Index(declared.link_index_name(name), *(table.c[column_name] for column_name in columns))
        return cls(table, ExpireAt(columns[0]), columns[0])

    @property
    def label(self) -> str:
        """The table, for messages."""
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
        """The column that leads the index over the rows that inherit, where one does."""
        default = default_extension(self.policy)
        return None if default is None or default.by is None else column(default.by)

    @property
    def check(self) -> declared.TTLCheck:
        """The CHECK of that column."""
        (check,) = self.own_ttl.constraints
        assert isinstance(check, declared.TTLCheck)  # noqa: S101 (as `TargetSchema.of` made it)
        return check

    @property
    def check_name(self) -> str:
        """The CHECK's name."""
        return str(self.check.name)

    def condition(self, dialect: Dialect) -> str:
        """What the CHECK asks for."""
        return declared.ttl_condition(self.check, dialect)

    @property
    def indexes(self) -> list[Index]:
        """The sweeper's indexes, in the order of their names."""
        return sorted(self.table.indexes, key=lambda index: str(index.name))

    @property
    def index_names(self) -> list[str]:
        """Their names, which are the same on every database."""
        return [str(index.name) for index in self.indexes]

    def quoted(self, dialect: Dialect) -> str:
        """The table's name in SQL."""
        return dialect.identifier_preparer.format_table(self.table)

    def plain(self, dialect: Dialect) -> str:
        """The same for ``text()`` and as a bound value: without the driver's doubled percents."""
        return out_of_driver_format(dialect, self.quoted(dialect))

    def name_of(self, prefix: str, suffix: str) -> str:
        """A name for something else that belongs to the table, short enough everywhere."""
        return index_name(self.table.name, suffix).replace("ix_", prefix, 1)

    def column(
        self, column: Column[Any], dialect: Dialect, *, default: str | None = None, check: bool
    ) -> str:
        """A column as it stands behind ADD COLUMN, by itself or with the CHECK of rows' own ttl.

        Existing rows get ``default``, SQL that stands in for the column's own default.
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
        """The CHECK as it stands in a table's definition."""
        compiler = dialect.ddl_compiler(dialect, CreateTable(self.table))
        return str(compiler.process(self.check))

    def default_sql(self, dialect: Dialect) -> str:
        """What stands behind DEFAULT in the definition of ``_ts``."""
        compiler = dialect.ddl_compiler(dialect, CreateTable(self.table))
        sql = str(compiler.get_column_default_string(self.last_modified))
        # As both databases need for an expression, and as SQLAlchemy renders it with the column.
        return sql if dialect.name == "postgresql" or sql.startswith("(") else f"({sql})"

    @property
    def seconds(self) -> int | None:
        """The default ttl: what is counted from a row's last modification.

        None where there is none, or the code doesn't have it.
        """
        if not isinstance(self.policy, TTL) or default_extension(self.policy) is not None:
            return None
        return self.policy.default

    @property
    def noted(self) -> str:
        """The policy as a view, or a job, notes which it holds."""
        return note_of(self.policy)

    def live(self, dialect: Dialect, columns: Columns = MappingProxyType({})) -> str:
        """The one predicate as SQL text, with the default in it.

        `columns` are the table's own, as the database has them, for policies that go by these.

        Raises:
            MigrationRefusedError: The one that the policy goes by is not among them.
        """
        binding = self.binding(columns)
        columns_read = binding.columns_of(binding.table)
        live = Predicate(clock_of(dialect)).live(binding, columns_read, in_schema=True)
        return as_text(live, dialect)

    def expired(
        self, dialect: Dialect, home: str | None = None, columns: Columns = MappingProxyType({})
    ) -> str:
        """Whether a row has expired at the moment of the write, as SQL text with the default.

        One that isn't in code is looked up, in a schema `home` if that of its table isn't declared.
        """
        binding = self.binding(columns)
        predicate = Predicate(clock_of(dialect), writing=True)
        expired = predicate.expired(binding, binding.columns_of(binding.table))
        return f"({as_text(expired, dialect, home)})"

    def expires_at(self, dialect: Dialect, columns: Columns = MappingProxyType({})) -> str:
        """The instant of a row's expiry as SQL text, in the unit of ``_ts``; NULL for never."""
        binding = self.binding(columns)
        end = Predicate(clock_of(dialect)).expires_at(binding, binding.columns_of(binding.table))
        return as_text(end, dialect)

    def binding(self, columns: Columns = MappingProxyType({})) -> Binding:
        """The policy over the columns that the database has; see `live`."""
        owner = type(self.table.name, (), {"__ttl__": self.policy})
        return binding_for(self._as_it_is(columns), owner)

    def _as_it_is(self, columns: Columns) -> Table:
        """The stand-in, with the columns of the table's own that the policy goes by, if any."""
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
        for ours in self.table.metadata.tables.values():
            if ours is not self.table:
                ours.to_metadata(metadata)
        copies = {name: Column(name, column.type) for name, column in columns.items()}
        if self.dates is None:
            copies |= {LAST_MODIFIED: last_modified_column(), OWN_TTL: ttl_column(_Owner)}
        return Table(self.table.name, metadata, *copies.values(), schema=self.table.schema)


def adds_columns(binding: Binding) -> bool:
    """Whether TTL brought a model's columns with it; other columns Alembic sees by itself."""
    own = binding.override
    return (
        isinstance(binding.policy, TTL)
        and (binding.last_modified.name, own is not None and own.name) == (LAST_MODIFIED, OWN_TTL)
        and binding.instants.native
        and own is not None
        and isinstance(own.type, Seconds)
    )


def as_text(element: ClauseElement, dialect: Dialect, home: str | None = None) -> str:
    """What an element is as SQL, with its values; tables without a schema are those of `home`."""
    where: dict[str, Any] = {}
    if home is not None:
        where = {"schema_translate_map": {None: home}, "render_schema_translate": True}
    with warnings.catch_warnings():
        # A life that never ends is a NULL, with which the sum is one.
        warnings.filterwarnings("ignore", "Bound parameter .* rendering literal NULL")
        literal = {"literal_binds": True}
        return str(element.compile(dialect=dialect, compile_kwargs=literal, **where))


class _Owner:
    """Stands in for the class whose column it is, which only error messages name."""
