"""What a policy means for one table: which columns, and whose ``__ttl__`` is the default.

A `Binding` lives in ``Table.info`` under `INFO_KEY`, so that the compiler finds it from any
FROM element without knowing classes, sessions or engines. The default is read from the class
each time a statement *runs* (`ttl_odm.sqlalchemy.policy.parameters`): that is what makes a changed
``__ttl__`` act at once, on every row, with no statement compiled again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal
from weakref import WeakSet

from sqlalchemy import Table

from ttl_odm.core.policy import TTL, ExpireAt, Policy
from ttl_odm.core.values import NEVER
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sqlalchemy.compat import ANNOTATED
from ttl_odm.sqlalchemy.policy.parameters import DefaultTTL, KindTTL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Column, ColumnElement, FromClause

    from ttl_odm.sqlalchemy.time.column_types import Instants

INFO_KEY: Final = "ttl_odm"


@dataclass(frozen=True, slots=True)
class Variant:
    """A default of its own for some rows of a table: a single-table subclass, or a kind.

    The identities are what the discriminator says of these rows: the kind; or the subclass itself,
    and those under it that have no default of their own.
    """

    default: DefaultTTL
    identities: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class MaxLifetime:
    """A limit, in seconds since creation, to lives that no write prolongs: `TTL.max_lifetime`."""

    created: Column[Any]
    instants: Instants
    seconds: int


@dataclass(slots=True)
class Binding:
    """A table's policy.

    Attributes:
        last_modified: The column that lives are counted from: of the row's last modification, or
            the date field of `ExpireAfter` and `ExpireAt`, which no write resets (see `stamps`).
        override: The column of the row's own ttl, or None where rows can't have one.
        policy: What was declared when the table was bound.
        discriminator: The column that tells single-table subclasses, or kinds, apart.
        sweep: How the sweeper finds expired rows: by the two indexes of
            `ttl_odm.sqlalchemy.policy.schema`, or by walking the table. A column that isn't of the
            contract has one index, if it has one: then the sweeper looks whether it is there.
        default_before: What the column had for a default of SQLAlchemy's before it was stamped,
            to be put back when the table is unbound.
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
    default_before: Any = None

    @property
    def name(self) -> str:
        """The model's name, for messages."""
        return str(self.default.owner.__name__)

    @property
    def stamps(self) -> bool:
        """Whether writes reset `last_modified`."""
        return isinstance(self.policy, TTL)

    @property
    def sweeps_by_column(self) -> bool:
        """Whether the sweeper looks for an index on the column itself, and not for ours."""
        return self.sweep == "index" and self.override is None

    @property
    def is_adopted(self) -> bool:
        """Whether it is anything but one default, or several by subclass, over ``_ts`` alone."""
        has_kinds = isinstance(self.policy, TTL) and self.policy.by is not None
        return (
            has_kinds or self.max_lifetime is not None or not (self.stamps and self.instants.native)
        )

    @property
    def nulls_expire(self) -> bool:
        """Whether a row without an instant is expired."""
        return isinstance(self.policy, ExpireAt) and self.policy.null == "expired"

    @property
    def nevers(self) -> tuple[int, ...]:
        """The values of `override` that mean "never"."""
        return (NEVER, *(self.policy.never if isinstance(self.policy, TTL) else ()))

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

    def keys_of(self, source: FromClause) -> list[tuple[ColumnElement[Any], Column[Any]]]:
        """The keys as an alias (or the table itself) has them, with the root's columns."""
        if source is self.table:
            return list(self.keys)
        return [(source.c[own.key], root) for own, root in self.keys]


@dataclass(frozen=True, slots=True)
class SourceColumns:
    """The columns that the predicate reads, of one FROM element."""

    last_modified: ColumnElement[Any]
    override: ColumnElement[Any] | None
    discriminator: ColumnElement[Any] | None
    created: ColumnElement[Any] | None

    def present(self) -> list[ColumnElement[Any]]:
        """Those that there are, in order."""
        columns = (self.last_modified, self.override, self.discriminator, self.created)
        return [column for column in columns if column is not None]


bound_tables: WeakSet[Table] = WeakSet()
"""Every table with a policy, and every one that hangs on such a table, while it is in use."""


def bind(table: Table, binding: Binding | SubBinding) -> None:
    """Put a policy on a table."""
    table.info[INFO_KEY] = binding
    bound_tables.add(table)


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


def _info_of(table: object) -> Binding | SubBinding | None:
    # A wrapped Table carries its own __dict__; the policy is on the original.
    original = getattr(table, ANNOTATED, table)
    return original.info.get(INFO_KEY) if isinstance(original, Table) else None


def key_columns(table: Table) -> Sequence[Column[Any]]:
    """The primary key of a table; TTLConfigurationError where it has none."""
    columns = list(table.primary_key.columns)
    if not columns:
        raise TTLConfigurationError(
            f"Table {table.fullname!r} has no primary key, so its expired rows can't be named; "
            "declare primary_key=True on its key columns."
        )
    return columns
