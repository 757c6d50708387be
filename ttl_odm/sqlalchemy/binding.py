"""What a policy means for one table: which columns, and whose ``__ttl__`` is the default.

A `Binding` lives in ``Table.info`` under `INFO_KEY`, so that the compiler finds it from any
FROM element without knowing classes, sessions or engines. The default is read from the class
each time a statement *runs* (`ttl_odm.sqlalchemy.spans`): that is what makes a changed ``__ttl__``
act at once, on every row, with no statement compiled again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple
from weakref import WeakSet

from sqlalchemy import Table

from ttl_odm.core.policy import TTL, as_policy
from ttl_odm.core.values import NEVER
from ttl_odm.errors import InvalidTTL
from ttl_odm.sqlalchemy.clock import FOREVER, OFF
from ttl_odm.sqlalchemy.tables import original
from ttl_odm.sqlalchemy.types import UnwrappedConfigurationError, UnwrappedInvalidTTL

if TYPE_CHECKING:
    from sqlalchemy import Column, ColumnElement, FromClause

INFO_KEY: Final = "ttl_odm"


class Lives(NamedTuple):
    """What a default ttl means, in seconds.

    Attributes:
        inherited_age: the age at which an inheriting row expires; `FOREVER` for never, `OFF`
            while TTL is off.
        inherited_life: the same as an instant is made of it; None for never.
        own_slack: how long a row's own ttl is overlooked: `OFF` while TTL is off.
        own_life: what is added to a row's own ttl: nothing; None while TTL is off.
    """

    inherited_age: int
    inherited_life: int | None
    own_slack: int
    own_life: int | None

    @classmethod
    def of(cls, default: int | None) -> Lives:
        """For a default: ``None`` (TTL off), -1 (never by default) or seconds."""
        if default is None:
            return cls(OFF, None, OFF, None)
        if default == NEVER:
            return cls(FOREVER, None, 0, 0)
        return cls(default, default, 0, 0)


class DefaultTTL:
    """The default ttl as its owner declares it at this moment.

    Args:
        owner: the class whose ``__ttl__`` counts.
        columns: the policy the table was set up for; later values may change the seconds,
            not the columns.

    Attributes:
        declared: the ``__ttl__`` that was read last; another one asks for `read`.
        lives: what that means.
    """

    def __init__(self, owner: type, columns: TTL) -> None:
        """Remember the owner; its ``__ttl__`` is read when a value is asked for."""
        self.owner = owner
        self._columns = columns.with_default(None)
        self._seconds = columns.default
        self.lives = Lives.of(columns.default)
        self.declared: object = columns

    def __call__(self) -> int | None:
        """The default: ``None`` (TTL off), -1 (never by default) or seconds.

        Raises:
            InvalidTTL: ``__ttl__`` was set to something that isn't a ttl.
            TTLConfigurationError: ``__ttl__`` now names other columns.
        """
        self.read()
        return self._seconds

    def read(self) -> None:
        """Look what the owner declares; raises as calling the default does."""
        declared = getattr(self.owner, "__ttl__", None)
        if declared is not self.declared:
            self._seconds = self._read(declared)
            self.lives = Lives.of(self._seconds)
            self.declared = declared

    def _read(self, declared: object) -> int | None:
        where = f"{self.owner.__name__}.__ttl__"
        try:
            policy = as_policy(declared, where=where)
        except InvalidTTL as error:
            raise UnwrappedInvalidTTL(str(error)) from None
        if isinstance(policy, TTL) and (
            not isinstance(declared, TTL) or policy.with_default(None) == self._columns
        ):
            return policy.default
        raise UnwrappedConfigurationError(
            f"{where} became {declared!r}: only the default ttl can change while the "
            f"application runs, not the columns (they were set up as {self._columns!r})."
        )


@dataclass(frozen=True, slots=True)
class Variant:
    """A default of its own for some rows of a table (a single-table subclass).

    Attributes:
        default: that default.
        identities: what the discriminator says of these rows: the subclass itself, and those
            under it that have no default of their own.
    """

    default: DefaultTTL
    identities: list[Any] = field(default_factory=list)


@dataclass(slots=True)
class Binding:
    """A table's policy.

    Attributes:
        table: the table that holds the contract columns.
        last_modified: the column of the row's last modification.
        override: the column of the row's own ttl, or None where rows can't have one.
        policy: how that column is read.
        default: the container's default ttl.
        discriminator: the column that tells single-table subclasses apart.
        variants: subclasses that declared a default of their own.
        sweep: how the sweeper finds expired rows: by the two indexes of
            `ttl_odm.sqlalchemy.schema`, or by walking the table.
    """

    table: Table
    last_modified: Column[Any]
    override: Column[Any] | None
    default: DefaultTTL
    policy: TTL
    discriminator: Column[Any] | None = None
    variants: list[Variant] = field(default_factory=list)
    sweep: Literal["index", "scan"] = "scan"

    @property
    def name(self) -> str:
        """The model's name, for messages."""
        return self.default.owner.__name__

    def columns_of(self, source: FromClause) -> SourceColumns:
        """The columns of this binding as an alias (or the table itself) spells them."""
        if source is self.table:
            return SourceColumns(self.last_modified, self.override, self.discriminator)
        c = source.c
        return SourceColumns(
            c[self.last_modified.key],
            None if self.override is None else c[self.override.key],
            None if self.discriminator is None else c[self.discriminator.key],
        )

    def columns_from(self, columns: list[ColumnElement[Any]]) -> SourceColumns:
        """The inverse of `SourceColumns.given`."""
        rest = iter(columns)
        return SourceColumns(
            next(rest),
            None if self.override is None else next(rest),
            None if self.discriminator is None else next(rest),
        )

    def variant_for(self, cls: type) -> Variant | None:
        """The nearest default of its own that a class has or inherits, None for the table's."""
        owners = {variant.default.owner: variant for variant in self.variants}
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

    It stands in ``Table.info`` where the base's table has its `Binding`.

    Attributes:
        table: the subclass's own table.
        base: the policy of the table at the root, which holds the contract columns.
        keys: each key column of this table, with the column of the root that it equals.
    """

    table: Table
    base: Binding
    keys: tuple[tuple[Column[Any], Column[Any]], ...]

    def keys_of(self, source: FromClause) -> list[tuple[ColumnElement[Any], Column[Any]]]:
        """The keys as an alias (or the table itself) spells them, with the root's columns."""
        if source is self.table:
            return list(self.keys)
        return [(source.c[own.key], root) for own, root in self.keys]


@dataclass(frozen=True, slots=True)
class SourceColumns:
    """The columns that the predicate reads, of one FROM element."""

    last_modified: ColumnElement[Any]
    override: ColumnElement[Any] | None
    discriminator: ColumnElement[Any] | None

    def given(self) -> list[ColumnElement[Any]]:
        """Those that there are, in order."""
        columns = (self.last_modified, self.override, self.discriminator)
        return [column for column in columns if column is not None]


bound_tables: WeakSet[Table] = WeakSet()
"""Every table with a policy, and every one that hangs on such a table, while it is in use."""


def bind(table: Table, found: Binding | SubBinding) -> None:
    """Put a policy on a table."""
    table.info[INFO_KEY] = found
    bound_tables.add(table)


def binding_of(table: object) -> Binding | None:
    """The policy of a table, or None where it has none."""
    found = _info_of(table)
    return found if isinstance(found, Binding) else None


def sub_binding_of(table: object) -> SubBinding | None:
    """What a table of a joined subclass hangs on, or None where it is something else."""
    found = _info_of(table)
    return found if isinstance(found, SubBinding) else None


def root_binding_of(table: object) -> Binding | None:
    """The policy of a class's table, or of the table at the root that it hangs on."""
    found = _info_of(table)
    if isinstance(found, SubBinding):
        return found.base
    return found if isinstance(found, Binding) else None


def _info_of(table: object) -> object:
    # A wrapped Table carries its own __dict__; the policy is on the original.
    return original(table).info.get(INFO_KEY) if isinstance(table, Table) else None
