"""What a policy means for one table: which columns, and whose ``__ttl__`` is the default.

A `Binding` lives in ``Table.info`` under `INFO_KEY`, so that the compiler finds it from any
FROM element without knowing classes, sessions or engines. The default is read from the class
each time a statement *runs*: that is what makes a changed ``__ttl__`` act at once, on every
row, with no statement compiled again.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal
from weakref import WeakSet

from sqlalchemy import BigInteger, Table, bindparam, case, or_

from ttl_odm.core.policy import TTL, as_policy
from ttl_odm.core.values import NEVER
from ttl_odm.errors import InvalidTTL
from ttl_odm.sqlalchemy.clock import FOREVER, Clock
from ttl_odm.sqlalchemy.types import UnwrappedConfigurationError, UnwrappedInvalidTTL

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Column, ColumnElement, FromClause

INFO_KEY: Final = "ttl_odm"

including_expired: ContextVar[bool] = ContextVar("ttl_odm_including_expired", default=False)
"""True while the values of a statement that runs with ``include_expired`` are collected."""

keeping_last_modified: ContextVar[bool] = ContextVar("ttl_odm_keeping", default=False)
"""True while the values of a statement that runs with ``keep_last_modified`` are collected."""

base_row_written: ContextVar[bool] = ContextVar("ttl_odm_base_row_written", default=False)
"""True while a flush writes sub-tables of rows that it has just written at the root.

Their lifetime was judged and set there; the flush may have let them expire.
"""


class DefaultTTL:
    """The default ttl as its owner declares it at this moment.

    Args:
        owner: the class whose ``__ttl__`` counts.
        columns: the policy the table was set up for; later values may change the seconds,
            not the columns.
    """

    def __init__(self, owner: type, columns: TTL) -> None:
        """Remember the owner; its ``__ttl__`` is read when a value is asked for."""
        self.owner = owner
        self._columns = columns.with_default(None)
        self._declared: object = columns
        self._seconds = columns.default

    def __call__(self) -> int | None:
        """The default: ``None`` (TTL off), -1 (never by default) or seconds.

        Raises:
            InvalidTTL: ``__ttl__`` was set to something that isn't a ttl.
            TTLConfigurationError: ``__ttl__`` now names other columns.
        """
        declared = getattr(self.owner, "__ttl__", None)
        if declared is not self._declared:
            self._seconds = self._read(declared)
            self._declared = declared
        return self._seconds

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

    def inherited_age(self) -> int:
        """Seconds after which an inheriting row has expired; `FOREVER` for never."""
        life = self.inherited_life()
        return FOREVER if life is None else life

    def inherited_life(self) -> int | None:
        """Seconds that an inheriting row lives; None for never expiring."""
        seconds = self()
        return None if seconds == NEVER else seconds

    def own_slack(self) -> int:
        """Seconds that a row's own ttl is overlooked: none, or `FOREVER` while TTL is off."""
        return FOREVER if self() is None else 0

    def own_life(self) -> int | None:
        """What is added to a row's own ttl: nothing; None while TTL is off."""
        return None if self() is None else 0


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


class BoundSpans:
    """The default ttl as bound values, for the statement that is being compiled.

    Values are collected each time the statement runs, so a changed default and a changed
    ``include_expired`` need no other SQL: the cache keeps one entry.

    Args:
        clock: tells the unit.
        overridable: whether ``include_expired`` is honoured.
    """

    def __init__(self, clock: Clock, *, overridable: bool) -> None:
        """Nothing is bound yet."""
        self._clock = clock
        self._overridable = overridable

    def of(
        self,
        binding: Binding,
        columns: SourceColumns,
        seconds: Callable[[DefaultTTL], int | None],
    ) -> ColumnElement[Any]:
        """A number of seconds that depends on the default which a row inherits."""
        otherwise = self._bind(binding.default, seconds)
        discriminator = columns.discriminator
        # An abstract class has no rows of its own.
        variants = [variant for variant in binding.variants if variant.identities]
        if discriminator is None or not variants:
            return otherwise
        return case(
            *(
                (
                    or_(*(discriminator == identity for identity in variant.identities)),
                    self._bind(variant.default, seconds),
                )
                for variant in variants
            ),
            else_=otherwise,
        )

    def _bind(
        self, default: DefaultTTL, seconds: Callable[[DefaultTTL], int | None]
    ) -> ColumnElement[Any]:
        overridable = self._overridable

        def value() -> int | None:
            if (including_expired if overridable else base_row_written).get():
                return FOREVER
            return seconds(default)

        bound = bindparam(seconds.__name__, callable_=value, unique=True, type_=BigInteger())
        return self._clock.span(bound)


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
    if not isinstance(table, Table):
        return None
    # An annotated Table carries its own __dict__; the policy is on the original.
    original: Table = getattr(table, "_Annotated__element", table)
    return original.info.get(INFO_KEY)
