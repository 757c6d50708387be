"""What a policy means for one table: which columns, and whose ``__ttl__`` is the default.

A `Binding` lives in ``Table.info`` under `INFO_KEY`, so that the compiler finds it from any
FROM element without knowing classes, sessions or engines. The default is read from the class
each time a statement *runs* (`ttl_odm.sqlalchemy.spans`): that is what makes a changed ``__ttl__``
act at once, on every row, with no statement compiled again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple
from weakref import WeakSet

from sqlalchemy import Table

from ttl_odm.core.policy import TTL, ExpireAfter, ExpireAt, Policy, as_policy
from ttl_odm.core.values import NEVER
from ttl_odm.errors import InvalidTTL
from ttl_odm.sqlalchemy.clock import FOREVER, OFF
from ttl_odm.sqlalchemy.tables import original
from ttl_odm.sqlalchemy.types import UnwrappedConfigurationError, UnwrappedInvalidTTL

if TYPE_CHECKING:
    from sqlalchemy import Column, ColumnElement, FromClause

    from ttl_odm.sqlalchemy.instants import Instants

INFO_KEY: Final = "ttl_odm"


class Lives(NamedTuple):
    """What a default ttl means, in seconds.

    Attributes:
        inherited_age: the age at which an inheriting row expires; `FOREVER` for never, `OFF`
            while TTL is off.
        inherited_life: the same as an instant is made of it; None for never.
        own_slack: how long a row's own ttl is overlooked: `OFF` while TTL is off.
        own_life: what is added to a row's own ttl: nothing; None while TTL is off.
        cap_age: the age since its creation at which any row expires; `OFF` for none.
        cap_life: the same as an instant is made of it; None for none.
    """

    inherited_age: int
    inherited_life: int | None
    own_slack: int
    own_life: int | None
    cap_age: int
    cap_life: int | None

    @classmethod
    def of(cls, default: int | None, longest: int | None = None) -> Lives:
        """For a default: ``None`` (TTL off), -1 (never by default) or seconds.

        Args:
            default: that.
            longest: the policy's `TTL.max_lifetime`.
        """
        if default is None:
            return cls(OFF, None, OFF, None, OFF, None)
        cap_age = OFF if longest is None else longest
        if default == NEVER:
            return cls(FOREVER, None, 0, 0, cap_age, longest)
        return cls(default, default, 0, 0, cap_age, longest)


_UNREAD: Final = object()
"""Stands for a declaration that has to be read each time: it asks a function."""


class DefaultTTL:
    """The default ttl as its owner declares it at this moment.

    For `ExpireAfter` it is the number of seconds; for `ExpireAt` 0, since the column holds the
    instant itself.

    Args:
        owner: the class whose ``__ttl__`` counts.
        columns: the policy the table was set up for; later values may change the seconds,
            not the columns.

    Attributes:
        declared: the ``__ttl__`` that was read last; another one asks for `read`.
        lives: what that means.
    """

    def __init__(self, owner: Any, columns: Policy) -> None:
        """Remember the owner; its ``__ttl__`` is read when a value is asked for."""
        self.owner = owner
        self._columns = _shape(columns)
        self._seconds: int | None = None
        self.lives = Lives.of(None)
        self.declared: object = _UNREAD
        if not isinstance(columns, TTL) or columns.is_fixed:
            self._remember(columns, self._of(columns))

    def __call__(self) -> int | None:
        """The default: ``None`` (TTL off), -1 (never by default) or seconds.

        Raises:
            InvalidTTL: ``__ttl__`` was set to something that isn't a ttl.
            TTLConfigurationError: ``__ttl__`` now names other columns.
        """
        self.read()
        return self._seconds

    @property
    def shape(self) -> Policy:
        """What of the declaration can't change while the application runs."""
        return self._columns

    @property
    def policy(self) -> Policy:
        """What the owner declares at this moment; raises as calling the default does."""
        return self._policy_of(getattr(self.owner, "__ttl__", None))

    def read(self) -> None:
        """Look what the owner declares; raises as calling the default does."""
        declared = getattr(self.owner, "__ttl__", None)
        if declared is self.declared:
            return
        policy = self._policy_of(declared)
        try:
            seconds = self._of(policy)
        except InvalidTTL as error:
            where = f"{self.owner.__name__}.__ttl__"
            raise UnwrappedInvalidTTL(f"{where}: {error}") from None
        is_fixed = not isinstance(policy, TTL) or policy.is_fixed
        self._remember(declared if is_fixed else _UNREAD, seconds)

    def _remember(self, declared: object, seconds: int | None) -> None:
        if seconds != self._seconds or declared is not self.declared:
            longest = self._columns.max_lifetime if isinstance(self._columns, TTL) else None
            self.lives = Lives.of(seconds, longest)
        self._seconds = seconds
        self.declared = declared

    def _of(self, policy: Policy) -> int | None:
        """The seconds that a policy gives these rows."""
        if isinstance(policy, TTL):
            return policy.default
        return policy.seconds if isinstance(policy, ExpireAfter) else 0

    def _policy_of(self, declared: object) -> Policy:
        where = f"{self.owner.__name__}.__ttl__"
        try:
            policy = as_policy(declared, where=where)
        except InvalidTTL as error:
            raise UnwrappedInvalidTTL(str(error)) from None
        is_policy = isinstance(declared, (TTL, ExpireAfter, ExpireAt))
        if isinstance(self._columns, TTL) and isinstance(policy, TTL) and not is_policy:
            return self._columns.with_default(policy.default)
        if _shape(policy) == self._columns:
            return policy
        raise UnwrappedConfigurationError(
            f"{where} became {declared!r}: only the default ttl can change while the "
            f"application runs, not the columns (they were set up as {self._columns!r})."
        )


class KindTTL(DefaultTTL):
    """The default ttl of one kind of rows, of a policy that tells kinds apart.

    Args:
        owner: see `DefaultTTL`.
        columns: see `DefaultTTL`.
        kind: what the column `TTL.by` holds.
    """

    def __init__(self, owner: Any, columns: TTL, kind: object) -> None:
        """Remember the kind too."""
        self._kind = kind
        super().__init__(owner, columns)

    def _of(self, policy: Policy) -> int | None:
        assert isinstance(policy, TTL)  # noqa: S101 (others have no kinds)
        return policy.default_of(self._kind)


def _shape(policy: Policy) -> Policy:
    """What of a policy can't change while the application runs."""
    if isinstance(policy, TTL):
        return policy.shape
    return replace(policy, seconds=0) if isinstance(policy, ExpireAfter) else policy


@dataclass(frozen=True, slots=True)
class Variant:
    """A default of its own for some rows of a table: a single-table subclass, or a kind.

    Attributes:
        default: that default.
        identities: what the discriminator says of these rows: the kind; or the subclass itself,
            and those under it that have no default of their own.
    """

    default: DefaultTTL
    identities: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Cap:
    """A limit to lives that no write prolongs: `TTL.max_lifetime`.

    Attributes:
        created: the column that it is counted from.
        instants: how that column keeps instants.
        seconds: the limit.
    """

    created: Column[Any]
    instants: Instants
    seconds: int


@dataclass(slots=True)
class Binding:
    """A table's policy.

    Attributes:
        table: the table that holds the columns.
        last_modified: the column that lives are counted from: of the row's last modification, or
            the date field of `ExpireAfter` and `ExpireAt`, which no write resets (see `stamps`).
        override: the column of the row's own ttl, or None where rows can't have one.
        policy: what was declared when the table was bound.
        instants: how `last_modified` keeps instants.
        cap: the limit to lives, however often they are prolonged; None for none.
        default: the container's default ttl.
        discriminator: the column that tells single-table subclasses, or kinds, apart.
        variants: subclasses, or kinds, that have a default of their own.
        sweep: how the sweeper finds expired rows: by the two indexes of
            `ttl_odm.sqlalchemy.schema`, or by walking the table. A column that isn't of the
            contract has one index, if it has one: then the sweeper looks whether it is there.
        default_before: what the column had for a default of SQLAlchemy's before it was stamped,
            to be put back when the table is unbound.
    """

    table: Table
    last_modified: Column[Any]
    override: Column[Any] | None
    default: DefaultTTL
    policy: Policy
    instants: Instants
    cap: Cap | None = None
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
        return has_kinds or self.cap is not None or not (self.stamps and self.instants.native)

    @property
    def nulls_expire(self) -> bool:
        """Whether a row without an instant is expired."""
        return isinstance(self.policy, ExpireAt) and self.policy.null == "expired"

    @property
    def nevers(self) -> tuple[int, ...]:
        """The values of `override` that mean "never"."""
        return (NEVER, *(self.policy.never if isinstance(self.policy, TTL) else ()))

    def columns_of(self, source: FromClause) -> SourceColumns:
        """The columns of this binding as an alias (or the table itself) spells them."""
        if source is self.table:
            created = None if self.cap is None else self.cap.created
            return SourceColumns(self.last_modified, self.override, self.discriminator, created)
        c = source.c
        return SourceColumns(
            c[self.last_modified.key],
            None if self.override is None else c[self.override.key],
            None if self.discriminator is None else c[self.discriminator.key],
            None if self.cap is None else c[self.cap.created.key],
        )

    def columns_from(self, columns: list[ColumnElement[Any]]) -> SourceColumns:
        """The inverse of `SourceColumns.given`."""
        rest = iter(columns)
        return SourceColumns(
            next(rest),
            None if self.override is None else next(rest),
            None if self.discriminator is None else next(rest),
            None if self.cap is None else next(rest),
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
    created: ColumnElement[Any] | None

    def given(self) -> list[ColumnElement[Any]]:
        """Those that there are, in order."""
        columns = (self.last_modified, self.override, self.discriminator, self.created)
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
