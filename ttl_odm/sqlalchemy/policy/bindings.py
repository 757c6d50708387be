"""`Binding`: the policy of one table: its columns, and the class whose ``__ttl__`` is the default.

A `Binding` is in ``Table.info`` under `INFO_KEY`, so that the compiler finds it from any
FROM element without knowing classes, sessions or engines. The default is read from the class
each time a statement *runs* (`ttl_odm.sqlalchemy.policy.sources`): so a changed ``__ttl__`` acts at
once, on every row, with no statement compiled again.
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
"""In the info of a Table of ttl_odm's own in a MetaData of the application."""


@dataclass(frozen=True, slots=True)
class MaxLifetime:
    """A limit to lives in seconds since creation, which no write extends: `TTL.max_lifetime`."""

    created: Column[object]
    instants: Instants
    seconds: int


class TableLayout(Protocol):
    """An extension's layout of a table, as its model declares it."""

    @property
    def declared(self) -> Layout:
        """The declaration."""
        ...

    def on(self, columns: Mapping[str, Column[object]]) -> Self:
        """Return the same layout for another Table object, by the names of its columns."""
        ...

    def prepare(self, where: str) -> None:
        """Make ``create_all()`` lay the table out.

        Raises:
            TTLConfigurationError: The declaration at `where` is wrong.
        """
        ...

    def undo(self) -> None:
        """Undo `prepare`."""
        ...


@dataclass(slots=True)
class Binding:
    """A table's policy.

    Attributes:
        last_modified: The column that lives are counted from: of the row's last modification, or
            the date field of `ExpireAfter` and `ExpireAt`, which no write resets (see `stamps`).
        override: The column of the row's own ttl, or None where rows can't have one.
        policy: The declaration at the time when the table was bound.
        discriminator: The column that distinguishes single-table subclasses, kinds, or scopes.
        sweep: How the sweeper finds expired rows: by the database's indexes if it has those that
            `ttl_odm.sqlalchemy.policy.schema` describes, or always by walking the table.
        layout: An extension's layout of the table; None if none was declared.
        default_before: The default of SQLAlchemy that the column had before it was stamped, to be
            put back when the table is unbound.
        origin: The binding that was declared, if this one is for a second Table object of the same
            table; see `ttl_odm.sqlalchemy.policy.second_tables`.
        source: Where the default comes from.
        stamps: Whether writes reset `last_modified`.
        is_adopted: Whether the policy is more than one default, or several by subclass, over
            ``_ts`` alone.
    """

    table: Table
    last_modified: Column[object]
    override: Column[object] | None
    default: DefaultTTL
    policy: Policy
    instants: Instants
    max_lifetime: MaxLifetime | None = None
    discriminator: Column[object] | None = None
    variants: list[Variant] = field(default_factory=list)
    sweep: Literal["index", "scan"] = "scan"
    layout: TableLayout | None = None
    default_before: Any = None
    origin: Binding | None = None
    source: DefaultSource = field(init=False, repr=False, compare=False)
    stamps: bool = field(init=False)
    is_adopted: bool = field(init=False)

    def __post_init__(self) -> None:
        """Compute once what every flush and every lookup in memory asks."""
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
        """Whether a CHECK rejects invalid values of the rows' own ttl."""
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
        """The binding of the Table object with which the policy was declared."""
        return self.origin or self

    @property
    def columns(self) -> list[Column[object]]:
        """The columns that the policy reads."""
        created = None if self.max_lifetime is None else self.max_lifetime.created
        columns = (self.last_modified, self.override, self.discriminator, created)
        return [column for column in columns if column is not None]

    def on(self, table: Table, *, is_second: bool) -> Binding:
        """Return the same policy for another Table object with columns of the same names."""
        columns = {column.name: column for column in table.c}
        stamp, limit = columns[self.last_modified.name], self.max_lifetime
        before, stamp_default = stamp.default, self.last_modified.default
        if self.stamps and isinstance(stamp_default, ColumnDefault):
            if getattr(before, "arg", None) is stamp_default.arg:  # to_metadata() has copied it
                before = self.default_before
            stamp.default = ColumnDefault(stamp_default.arg)
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
        """Return the same policy with another source of the default, for part of a statement."""
        other = copy(self)
        other.source = source
        return other

    def columns_of(self, source: FromClause) -> SourceColumns:
        """Return the columns of this binding in an alias, or in the table itself."""
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

    def columns_from(self, columns: list[ColumnElement[object]]) -> SourceColumns:
        """Invert `SourceColumns.present`."""
        rest = iter(columns)
        return SourceColumns(
            next(rest),
            None if self.override is None else next(rest),
            None if self.discriminator is None else next(rest),
            None if self.max_lifetime is None else next(rest),
        )

    def variant_for(self, cls: type) -> Variant | None:
        """Return the nearest default that a class declares or inherits; None for the table's."""
        owners = {
            variant.default.owner: variant
            for variant in self.variants
            if not isinstance(variant.default, KindTTL)
        }
        return next((owners[base] for base in cls.__mro__ if base in owners), None)

    def default_for(self, cls: type) -> DefaultTTL:
        """Return the default that rows of a class inherit."""
        variant = self.variant_for(cls)
        return self.default if variant is None else variant.default

    def defaults(self) -> list[DefaultTTL]:
        """Return every default that rows of this table may inherit."""
        return [self.default, *(variant.default for variant in self.variants)]


@dataclass(frozen=True, slots=True)
class SubBinding:
    """The table of a joined subclass: its rows expire with those of the base.

    It is in ``Table.info`` where the base's table has its `Binding`. The keys are the key columns
    of this table, each with the column of the root that it equals.
    """

    table: Table
    base: Binding
    keys: tuple[tuple[Column[object], Column[object]], ...]
    origin: SubBinding | None = None

    def __repr__(self) -> str:
        refuse_in_revision(getattr(currentframe(), "f_back", None))
        return f"<table {self.table.fullname!r} with the rows of {self.base.table.fullname!r}>"

    @property
    def columns(self) -> list[Column[object]]:
        """The columns of its own table that the policy reads."""
        return [own for own, _ in self.keys]

    def on(self, table: Table, *, is_second: bool) -> SubBinding:
        """Return the same for another Table object, with the base in that one's MetaData."""
        base = binding_of(self.beside(table)) or self.base
        columns = {column.name: column for column in table.c}
        roots = {column.name: column for column in base.table.c}
        keys = tuple((columns[own.name], roots[root.name]) for own, root in self.keys)
        return SubBinding(table, base, keys, (self.origin or self) if is_second else None)

    def beside(self, table: Table) -> Table | None:
        """Return the Table of the base in the MetaData of another Table object."""
        tables = table.metadata.tables.values()
        name, schema = self.base.table.name, table.schema
        return next((one for one in tables if one.name == name and one.schema == schema), None)

    def keys_of(self, source: FromClause) -> list[tuple[ColumnElement[object], Column[object]]]:
        """Return the keys in an alias, or in the table itself, with the root's columns."""
        if source is self.table:
            return list(self.keys)
        return [(source.c[own.key], root) for own, root in self.keys]


class BoundTables:
    """Every table in use that has a policy, or is a joined subclass's, in the order of binding.

    Statements are compiled in many threads, and may bind a table there, so no method iterates over
    the dictionaries themselves.
    """

    def __init__(self) -> None:
        self._tables: WeakKeyDictionary[Table, None] = WeakKeyDictionary()
        self._named: dict[str, WeakKeyDictionary[Table, None]] = {}
        self._asked: WeakKeyDictionary[Table, None] = WeakKeyDictionary()
        self._numbers = count(1)
        self.changes = 0
        """A number that changes whenever a table gets a policy or a rule, or loses it."""

    def __iter__(self) -> Iterator[Table]:
        return _alive(self._tables)

    def add(self, table: Table) -> None:
        """Add a table that has got a policy."""
        self._tables[table] = None
        self._named.setdefault(table.name, WeakKeyDictionary())[table] = None
        self.changed()

    def discard(self, table: Table) -> None:
        """Remove a table that has lost its policy."""
        self._tables.pop(table, None)
        self.forget_name(table)
        self.changed()

    def changed(self) -> None:
        """Invalidate everything that is cached about tables."""
        self.changes = next(self._numbers)

    def forget_name(self, table: Table) -> None:
        """Don't take other tables of this name for the same table any more."""
        named = self._named.get(table.name)
        if named is not None:
            named.pop(table, None)

    def may_have(self, table: Table) -> bool:
        """Return whether a table has the name of this one, with which a statement is compiled."""
        self._asked[table] = None  # first: a policy may be declared at the same time
        return table.name in self._named

    def was_asked(self, table: Table) -> bool:
        """Return whether statements may have been compiled with another Table of this name."""
        return any(other.name == table.name for other in _alive(self._asked))

    def declared(self, table: Table) -> list[Binding | SubBinding]:
        """Return the policies that were declared for tables of this name, in any schema."""
        named = self._named.get(table.name)
        bindings = map(_info_of, () if named is None else _alive(named))
        return [binding for binding in bindings if binding is not None and binding.origin is None]


def _alive(tables: WeakKeyDictionary[Table, None]) -> Iterator[Table]:
    return (table for reference in tables.keyrefs() if (table := reference()) is not None)


bound_tables: Final = BoundTables()

copying: Final = RLock()
"""Held while a policy is put on another Table object: a second thread would take the first one's
stamp for the default that the column had before."""


def bind(table: Table, binding: Binding | SubBinding) -> None:
    """Put a policy on a table."""
    bind_info(table, INFO_KEY, binding)
    bound_tables.add(table)


def bind_info(table: Table, key: str, value: object) -> None:
    """Put a value into ``Table.info``."""
    # Into a new dict: tables of one abstract base may share the old one.
    table.info = {**table.info, key: value}


def unbind(table: Table) -> None:
    """Take a policy off a table."""
    del table.info[INFO_KEY]
    bound_tables.discard(table)


def first_of(table: Table) -> Table:
    """Return the Table object with which a table's policy was declared; without one, the same."""
    info = _info_of(table)
    return table if info is None or info.origin is None else info.origin.table


def tables_like(table: Table) -> list[Table]:
    """Return the second Table objects of a table."""
    return [
        other
        for other in bound_tables
        if (binding := _info_of(other)) is not None
        if binding.origin is not None and binding.origin.table is table
    ]


def may_be_second(table: object) -> bool:
    """Return whether a Table without a policy may be a second one of a table that has one.

    See `ttl_odm.sqlalchemy.policy.second_tables`.
    """
    table = getattr(table, ANNOTATED, table)
    return isinstance(table, Table) and INFO_KEY not in table.info and bound_tables.may_have(table)


def binding_of(table: object) -> Binding | None:
    """Return the policy of a table, or None if it has none."""
    info = _info_of(table)
    return info if isinstance(info, Binding) else None


def sub_binding_of(table: object) -> SubBinding | None:
    """Return the sub-binding of a joined subclass's table, or None for any other table."""
    info = _info_of(table)
    return info if isinstance(info, SubBinding) else None


def root_binding_of(table: object) -> Binding | None:
    """Return the policy of a table, or that of the base if it is a joined subclass's."""
    info = _info_of(table)
    return info.base if isinstance(info, SubBinding) else info


def all_subtables(binding: Binding) -> list[SubBinding]:
    """Return the tables of the joined subclasses of a table, the farthest first."""
    # A class is mapped after those that it inherits from, and its table is made with it.
    subs = map(sub_binding_of, binding.table.metadata.tables.values())
    return [sub for sub in subs if sub is not None and sub.base is binding][::-1]


def subtables(binding: Binding, dialect: str) -> list[SubBinding]:
    """Return the sub-tables from which the database doesn't delete rows by itself.

    With ON DELETE CASCADE it does; but on SQLite only if the connection enforces foreign keys,
    which can't be relied on.
    """

    def cascades(sub: SubBinding) -> bool:
        own = {column for column, _ in sub.keys}
        return any(
            (constraint.ondelete or "").upper() == "CASCADE"
            for constraint in sub.table.foreign_key_constraints
            if own.issuperset(constraint.columns)
        )

    return [sub for sub in all_subtables(binding) if dialect == "sqlite" or not cascades(sub)]


def _info_of(table: object) -> Binding | SubBinding | None:
    # A wrapped Table has its own __dict__; the policy is on the original.
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
    """Return the primary key of a table; TTLConfigurationError if it has none."""
    columns = list(table.primary_key.columns)
    if not columns:
        raise TTLConfigurationError(
            f"Table {table.fullname!r} has no primary key, so expired rows can't be identified: "
            "declare primary_key=True on its key columns."
        )
    return columns
