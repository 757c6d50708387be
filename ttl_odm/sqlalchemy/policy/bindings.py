"""What a policy means for one table: which columns, and whose ``__ttl__`` is the default.

A `Binding` lives in ``Table.info`` under `INFO_KEY`, so that the compiler finds it from any
FROM element without knowing classes, sessions or engines. The default is read from the class
each time a statement *runs* (`ttl_odm.sqlalchemy.policy.sources`): that is what makes a changed
``__ttl__`` act at once, on every row, with no statement compiled again.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field, replace
from importlib import import_module
from inspect import currentframe
from itertools import count
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol
from weakref import WeakKeyDictionary

from sqlalchemy import ColumnDefault, Table

from ttl_odm.core.policy import TTL, ExpireAt, Policy, default_extension
from ttl_odm.core.values import NEVER
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sqlalchemy.compat import ANNOTATED, attach
from ttl_odm.sqlalchemy.policy.sources import DefaultTTL, Fixed, KindTTL, SourceColumns
from ttl_odm.sqlalchemy.time.clock import Seconds, refuse_in_revision

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy import Column, ColumnElement, FromClause
    from typing_extensions import Self

    from ttl_odm.core.extension import Layout
    from ttl_odm.sqlalchemy.policy.sources import DefaultSource, Variant
    from ttl_odm.sqlalchemy.time.clock import Instants

INFO_KEY: Final = "ttl_odm"

KEPT_KEY: Final = "ttl_odm.kept"
"""In the info of a Table that ttl_odm itself keeps in a MetaData of an application's."""


@dataclass(frozen=True, slots=True)
class MaxLifetime:
    """A limit, in seconds since creation, to lives that no write prolongs: `TTL.max_lifetime`."""

    created: Column[Any]
    instants: Instants
    seconds: int


class TableLayout(Protocol):
    """How an extension lays a table out, as its model declares it."""

    @property
    def declared(self) -> Layout:
        """The declaration."""
        ...

    def on(self, columns: Mapping[str, Column[Any]]) -> Self:
        """The same on another Table object, by the names of its columns."""
        ...

    def prepare(self, where: str) -> None:
        """Let ``create_all()`` make the table so; TTLConfigurationError, at the declaration."""
        ...

    def undo(self) -> None:
        """Undo that."""
        ...


@dataclass(slots=True)
class Binding:
    """A table's policy.

    Attributes:
        last_modified: The column that lives are counted from: of the row's last modification, or
            the date field of `ExpireAfter` and `ExpireAt`, which no write resets (see `stamps`).
        override: The column of the row's own ttl, or None where rows can't have one.
        policy: What was declared when the table was bound.
        discriminator: The column that tells single-table subclasses, kinds, or scopes apart.
        sweep: How the sweeper finds expired rows: by the indexes that the database has, such as
            `ttl_odm.sqlalchemy.policy.schema` makes, or by walking the table in any case.
        layout: How an extension lays the table out; None where none was declared.
        default_before: What the column had for a default of SQLAlchemy's before it was stamped,
            to be put back when the table is unbound.
        origin: The binding that was declared, where this one is that of a second Table object of
            the same table; see `ttl_odm.sqlalchemy.policy.second_tables`.
        source: Where the default comes from.
        stamps: Whether writes reset `last_modified`.
        is_adopted: Whether it is anything but one default, or several by subclass, over ``_ts``
            alone.
    """

    table: Table
    last_modified: Column[Any]
    override: Column[Any] | None
    default: DefaultTTL
    policy: Policy
    instants: Instants
    max_lifetime: MaxLifetime | None = None
    discriminator: Column[Any] | None = None
    variants: list[Variant] = field(default_factory=list)
    sweep: Literal["index", "scan"] = "scan"
    layout: TableLayout | None = None
    default_before: Any = None
    origin: Binding | None = None
    source: DefaultSource = field(init=False, repr=False, compare=False)
    stamps: bool = field(init=False)
    is_adopted: bool = field(init=False)

    def __post_init__(self) -> None:
        """Say once what every flush and every lookup in memory asks."""
        has_kinds = isinstance(self.policy, TTL) and self.policy.by is not None
        declared = default_extension(self.policy)
        if declared is None:
            self.source = Fixed(self.default, self.variants, self.discriminator)
        else:
            self.source = import_module(declared.package("sqlalchemy")).source(self, declared)
        self.stamps = isinstance(self.policy, TTL)
        self.is_adopted = (
            has_kinds
            or self.source.scoping is not None
            or self.max_lifetime is not None
            or not (self.stamps and self.instants.native)
        )

    def __repr__(self) -> str:
        refuse_in_revision(getattr(currentframe(), "f_back", None))
        return f"<{self.policy!r} of table {self.table.fullname!r}>"

    @property
    def name(self) -> str:
        """The model's name, for messages."""
        return str(self.default.owner.__name__)

    @property
    def is_checked(self) -> bool:
        """Whether a CHECK keeps what is not a ttl out of the column of rows' own."""
        own = self.override
        return own is not None and isinstance(own.type, Seconds) and self.instants.native

    @property
    def nulls_expire(self) -> bool:
        """Whether a row without an instant is expired."""
        return isinstance(self.policy, ExpireAt) and self.policy.null == "expired"

    @property
    def nevers(self) -> tuple[int, ...]:
        """The values of `override` that mean "never"."""
        return (NEVER, *(self.policy.never if isinstance(self.policy, TTL) else ()))

    @property
    def first(self) -> Binding:
        """That of the Table object which the policy was declared with."""
        return self.origin or self

    @property
    def columns(self) -> list[Column[Any]]:
        """The columns that it reads."""
        created = None if self.max_lifetime is None else self.max_lifetime.created
        columns = (self.last_modified, self.override, self.discriminator, created)
        return [column for column in columns if column is not None]

    def on(self, table: Table, *, is_second: bool) -> Binding:
        """The same policy on another Table object, which has columns of the same names."""
        columns = {column.name: column for column in table.c}
        stamp, limit = columns[self.last_modified.name], self.max_lifetime
        before, ours = stamp.default, self.last_modified.default
        if self.stamps and isinstance(ours, ColumnDefault):
            if getattr(before, "arg", None) is ours.arg:  # to_metadata() has copied it
                before = self.default_before
            stamp.default = ColumnDefault(ours.arg)
            attach(stamp.default, stamp)
        return replace(
            self,
            table=table,
            last_modified=stamp,
            override=None if self.override is None else columns[self.override.name],
            discriminator=None if self.discriminator is None else columns[self.discriminator.name],
            max_lifetime=limit and replace(limit, created=columns[limit.created.name]),
            layout=None if self.layout is None else self.layout.on(columns),
            default_before=before,
            origin=self.first if is_second else None,
        )

    def with_source(self, source: DefaultSource) -> Binding:
        """The same policy with the default from elsewhere, for a part of one statement."""
        other = copy(self)
        other.source = source
        return other

    def columns_of(self, source: FromClause) -> SourceColumns:
        """The columns of this binding as an alias (or the table itself) has them."""
        if source is self.table:
            created = None if self.max_lifetime is None else self.max_lifetime.created
            return SourceColumns(self.last_modified, self.override, self.discriminator, created)
        c = source.c
        return SourceColumns(
            c[self.last_modified.key],
            None if self.override is None else c[self.override.key],
            None if self.discriminator is None else c[self.discriminator.key],
            None if self.max_lifetime is None else c[self.max_lifetime.created.key],
        )

    def columns_from(self, columns: list[ColumnElement[Any]]) -> SourceColumns:
        """The inverse of `SourceColumns.present`."""
        rest = iter(columns)
        return SourceColumns(
            next(rest),
            None if self.override is None else next(rest),
            None if self.discriminator is None else next(rest),
            None if self.max_lifetime is None else next(rest),
        )

    def variant_for(self, cls: type) -> Variant | None:
        """The nearest default of its own that a class has or inherits, None for the table's."""
        owners = {
            variant.default.owner: variant
            for variant in self.variants
            if not isinstance(variant.default, KindTTL)
        }
        return next((owners[base] for base in cls.__mro__ if base in owners), None)

    def default_for(self, cls: type) -> DefaultTTL:
        """The default that rows of a class inherit."""
        variant = self.variant_for(cls)
        return self.default if variant is None else variant.default

    def defaults(self) -> list[DefaultTTL]:
        """Every default that rows of this table may inherit."""
        return [self.default, *(variant.default for variant in self.variants)]


@dataclass(frozen=True, slots=True)
class SubBinding:
    """The table of a joined subclass: its rows live and die with those of the base.

    It stands in ``Table.info`` where the base's table has its `Binding`. The keys are the key
    columns of this table, each with the column of the root that it equals.
    """

    table: Table
    base: Binding
    keys: tuple[tuple[Column[Any], Column[Any]], ...]
    origin: SubBinding | None = None

    def __repr__(self) -> str:
        refuse_in_revision(getattr(currentframe(), "f_back", None))
        return f"<table {self.table.fullname!r} with the rows of {self.base.table.fullname!r}>"

    @property
    def columns(self) -> list[Column[Any]]:
        """The columns that it reads of its own table."""
        return [own for own, _ in self.keys]

    def on(self, table: Table, *, is_second: bool) -> SubBinding:
        """The same on another Table object, with the base that stands beside that."""
        base = binding_of(self.beside(table)) or self.base
        columns = {column.name: column for column in table.c}
        roots = {column.name: column for column in base.table.c}
        keys = tuple((columns[own.name], roots[root.name]) for own, root in self.keys)
        return SubBinding(table, base, keys, (self.origin or self) if is_second else None)

    def beside(self, table: Table) -> Table | None:
        """The Table of the base in the MetaData of another Table object."""
        tables = table.metadata.tables.values()
        name, schema = self.base.table.name, table.schema
        return next((one for one in tables if one.name == name and one.schema == schema), None)

    def keys_of(self, source: FromClause) -> list[tuple[ColumnElement[Any], Column[Any]]]:
        """The keys as an alias (or the table itself) has them, with the root's columns."""
        if source is self.table:
            return list(self.keys)
        return [(source.c[own.key], root) for own, root in self.keys]


class BoundTables:
    """Every table with a policy, and every one that hangs on such a table, while it is in use.

    In the order in which they were bound. Statements are compiled in many threads, and may bind
    a table there, so nothing goes through the dictionaries themselves.
    """

    def __init__(self) -> None:
        self._tables: WeakKeyDictionary[Table, None] = WeakKeyDictionary()
        self._named: dict[str, WeakKeyDictionary[Table, None]] = {}
        self._asked: WeakKeyDictionary[Table, None] = WeakKeyDictionary()
        self._numbers = count(1)
        self.changes = 0
        """Another number whenever a table gets a policy, or a rule, or loses it."""

    def __iter__(self) -> Iterator[Table]:
        return _alive(self._tables)

    def add(self, table: Table) -> None:
        """A table has a policy now."""
        self._tables[table] = None
        self._named.setdefault(table.name, WeakKeyDictionary())[table] = None
        self.changed()

    def discard(self, table: Table) -> None:
        """A table has none any more."""
        self._tables.pop(table, None)
        self.forget_name(table)
        self.changed()

    def changed(self) -> None:
        """What is known of all tables is no longer so."""
        self.changes = next(self._numbers)

    def forget_name(self, table: Table) -> None:
        """No other table of its name is taken for the same."""
        named = self._named.get(table.name)
        if named is not None:
            named.pop(table, None)

    def may_have(self, table: Table) -> bool:
        """Whether there is one of the name of another, with which a statement is compiled."""
        self._asked[table] = None  # first: a policy may be declared at the same time
        return table.name in self._named

    def was_asked(self, table: Table) -> bool:
        """Whether statements may have been compiled with another Table of its name."""
        return any(other.name == table.name for other in _alive(self._asked))

    def declared(self, table: Table) -> list[Binding | SubBinding]:
        """The policies that were declared for tables of its name, in whichever schema."""
        named = self._named.get(table.name)
        bindings = map(_info_of, () if named is None else _alive(named))
        return [binding for binding in bindings if binding is not None and binding.origin is None]


def _alive(tables: WeakKeyDictionary[Table, None]) -> Iterator[Table]:
    return (table for reference in tables.keyrefs() if (table := reference()) is not None)


bound_tables: Final = BoundTables()

copying: Final = RLock()
"""Held while a policy is put on another Table object: a second thread would find the first's stamp
for the default that the column had before."""


def bind(table: Table, binding: Binding | SubBinding) -> None:
    """Put a policy on a table."""
    bind_info(table, INFO_KEY, binding)
    bound_tables.add(table)


def bind_info(table: Table, key: str, value: object) -> None:
    """Put something into ``Table.info``."""
    # Not into the dict that is there: tables of one abstract base may share it.
    table.info = {**table.info, key: value}


def unbind(table: Table) -> None:
    """Take a policy off a table."""
    del table.info[INFO_KEY]
    bound_tables.discard(table)


def first_of(table: Table) -> Table:
    """The Table object that the policy of a table was declared with; without one, the same."""
    info = _info_of(table)
    return table if info is None or info.origin is None else info.origin.table


def tables_like(table: Table) -> list[Table]:
    """The Table objects whose policy is that of a table."""
    return [
        other
        for other in bound_tables
        if (binding := _info_of(other)) is not None
        if binding.origin is not None and binding.origin.table is table
    ]


def may_be_second(table: object) -> bool:
    """Whether a Table without a policy may be a second one of a table that has one.

    See `ttl_odm.sqlalchemy.policy.second_tables`.
    """
    table = getattr(table, ANNOTATED, table)
    return isinstance(table, Table) and INFO_KEY not in table.info and bound_tables.may_have(table)


def binding_of(table: object) -> Binding | None:
    """The policy of a table, or None where it has none."""
    info = _info_of(table)
    return info if isinstance(info, Binding) else None


def sub_binding_of(table: object) -> SubBinding | None:
    """What a table of a joined subclass hangs on, or None where it is something else."""
    info = _info_of(table)
    return info if isinstance(info, SubBinding) else None


def root_binding_of(table: object) -> Binding | None:
    """The policy of a class's table, or of the table at the root that it hangs on."""
    info = _info_of(table)
    return info.base if isinstance(info, SubBinding) else info


def all_subtables(binding: Binding) -> list[SubBinding]:
    """The sub-tables of a table, the farthest first."""
    # A class is mapped after those that it inherits from, and its table is made with it.
    every = map(sub_binding_of, binding.table.metadata.tables.values())
    return [sub for sub in every if sub is not None and sub.base is binding][::-1]


def _info_of(table: object) -> Binding | SubBinding | None:
    # A wrapped Table carries its own __dict__; the policy is on the original.
    original = getattr(table, ANNOTATED, table)
    if not isinstance(original, Table):
        return None
    info: Binding | SubBinding | None = original.info.get(INFO_KEY)
    if info is not None and info.table is not original:  # to_metadata() copies what info has
        with copying:
            info = original.info.get(INFO_KEY)
            if info is not None and info.table is not original:
                info = info.on(original, is_second=original.key == info.table.key)
                bind(original, info)
    return info


def key_columns(table: Table) -> Sequence[Column[Any]]:
    """The primary key of a table; TTLConfigurationError where it has none."""
    columns = list(table.primary_key.columns)
    if not columns:
        raise TTLConfigurationError(
            f"Table {table.fullname!r} has no primary key, so expired rows can't be identified: "
            "declare primary_key=True on its key columns."
        )
    return columns
