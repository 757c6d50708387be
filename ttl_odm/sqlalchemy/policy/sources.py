"""`DefaultSource`: where the default ttl of a table comes from, the class or the database.

A `Binding` has one. Statements, objects in memory, sweeps and the schema ask it without knowing
its class. `Fixed` is for models whose ``__ttl__`` states the default: the owner may declare
another one at any moment (`DefaultTTL`), so statements bind it as a value that is read whenever
they run (`SecondsParameter`), and SQLAlchemy's statement cache keeps one entry whatever it is. The
package of a `DefaultExtension` has another source, which is imported when the first model declares
such a default. Its other half, `SweptSource`, is in `ttl_odm.sqlalchemy.sweep.whereabouts`.

Rows with a default of their own, by the value of a column, are a *scope* (`Scoping`). All other
rows have the table's.

This module must not know which extensions there are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from sqlalchemy import BigInteger, BindParameter, ColumnElement, case, not_, or_, select

from ttl_odm.core.declaration import UNREAD, DeclaredTTL
from ttl_odm.core.policy import TTL, Policy
from ttl_odm.core.values import FOREVER, NEVER, OFF
from ttl_odm.errors import InvalidTTL, TTLConfigurationError
from ttl_odm.sqlalchemy.time.clock import UnwrappedConfigurationError, UnwrappedInvalidTTL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from sqlalchemy import Column, Connection, Select, Table
    from sqlalchemy.engine import Dialect

    from ttl_odm.sqlalchemy.time.clock import Clock
    from ttl_odm.sweeper import Fact

    SQL = ColumnElement[Any]
    Condition = ColumnElement[bool]
    Seconds = int | SQL
    """Seconds, or what looks them up in the database."""


class LifetimeSeconds(NamedTuple):
    """What a default ttl means, in seconds.

    Attributes:
        inherited_age: The age at which an inheriting row expires; `FOREVER` for never, `OFF`
            while TTL is off.
        inherited_life: `inherited_age` as part of an instant; None for never.
        own_slack: How long a row outlives its own ttl: 0, or `OFF` while TTL is off.
        own_life: The seconds added to a row's own ttl: 0; None while TTL is off.
        max_age: The age since its creation at which any row expires; `OFF` for no limit.
        max_life: `max_age` as part of an instant; None for no limit.
    """

    inherited_age: int
    inherited_life: int | None
    own_slack: int
    own_life: int | None
    max_age: int
    max_life: int | None

    @classmethod
    def of(cls, default: int | None, longest: int | None = None) -> LifetimeSeconds:
        """Return the meaning of a default (None: TTL off, -1: never, or seconds) and a limit."""
        if default is None:
            return cls(OFF, None, OFF, None, OFF, None)
        max_age = OFF if longest is None else longest
        if default == NEVER:
            return cls(FOREVER, None, 0, 0, max_age, longest)
        return cls(default, default, 0, 0, max_age, longest)


@contextmanager
def _unwrapped() -> Iterator[None]:
    """Keep SQLAlchemy from wrapping the errors of a declaration."""
    try:
        yield
    except InvalidTTL as error:
        raise UnwrappedInvalidTTL(str(error)) from None
    except TTLConfigurationError as error:
        raise UnwrappedConfigurationError(str(error)) from None


LifetimePart = Literal[
    "inherited_age", "inherited_life", "own_slack", "own_life", "max_age", "max_life"
]
"""A field of `LifetimeSeconds`."""


class DefaultTTL(DeclaredTTL):
    """The default ttl as its owner declares it at this moment, and its meaning in SQL.

    Its errors reach the caller of a running statement unwrapped.

    Attributes:
        declared: The declaration that was read last; `UNREAD` if it asks a function, which is
            called each time.
        lifetime: The meaning of that declaration.
    """

    def __init__(self, owner: Any, bound: Policy) -> None:
        """Read the declaration, so that no statement has to until it changes."""
        super().__init__(owner, bound)
        self._longest = bound.max_lifetime if isinstance(bound, TTL) else None
        self._default: int | None = None
        self.lifetime = LifetimeSeconds.of(None)
        self.declared: object = UNREAD
        policy = self.policy
        if not isinstance(policy, TTL) or policy.is_fixed:  # functions are asked by statements
            self.read()

    def read(self) -> None:
        """Read the owner's declaration; raise as calling the default does."""
        if getattr(self.owner, "__ttl__", None) is self.declared:
            return
        with _unwrapped():
            self._default = super().__call__()
        self.lifetime = LifetimeSeconds.of(self._default, self._longest)
        self.declared = self.seen if self.is_fixed else UNREAD

    def retire(self) -> None:
        """Keep the owner's present declaration, since it is about to get another policy.

        Statements that are running were compiled for this one, and end with it.
        """
        declared = getattr(self.owner, "__ttl__", None)
        self._read = lambda: declared

    def check(self) -> None:
        """Raise as `read` does if no statement can follow the declaration."""
        with _unwrapped():
            self.policy  # noqa: B018 (reads it)

    def __call__(self) -> int | None:
        """The default: ``None`` (TTL off), -1 (never by default) or seconds."""
        self.read()
        return self._default


class KindTTL(DefaultTTL):
    """The default ttl of one kind of rows (a value of the column `TTL.by`)."""

    def __init__(self, owner: Any, bound: TTL, kind: object) -> None:
        self._kind = kind
        super().__init__(owner, bound)

    def _default_of(self, policy: Policy) -> int | None:
        assert isinstance(policy, TTL)  # noqa: S101 (others have no kinds)
        return policy.default_of(self._kind)


class SecondsParameter(BindParameter[Any]):
    """Seconds that depend on a default ttl, read at each execution.

    They are a field of its `LifetimeSeconds`; `OFF` in an execution with the option `overruled_by`.
    """

    inherit_cache = True

    def __init__(self, default: DefaultTTL, part: LifetimePart, overruled_by: str) -> None:
        self._default = default
        self._part = part
        self.overruled_by = overruled_by
        super().__init__(part, None, unique=True, type_=BigInteger())

    @property
    def value(self) -> Any:
        """The seconds at this moment; SQLAlchemy reads them whenever the statement runs."""
        default = self._default
        # A SELECT costs nothing more than its SQL and this: so no call if nothing has changed.
        if getattr(default.owner, "__ttl__", None) is not default.declared:
            default.read()
        return getattr(default.lifetime, self._part)

    @value.setter
    def value(self, value: object) -> None:
        """SQLAlchemy's constructor sets one."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A default of its own for some rows of a table: a single-table subclass, or a kind.

    The identities are the discriminator's values for these rows: the kind; or the identity of the
    subclass, and of those below it without a default of their own.
    """

    default: DefaultTTL
    identities: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SourceColumns:
    """The columns that the predicate reads, of one FROM element."""

    last_modified: SQL
    override: SQL | None
    discriminator: SQL | None
    created: SQL | None

    def present(self) -> list[SQL]:
        """Return those that are not None, in order."""
        columns = (self.last_modified, self.override, self.discriminator, self.created)
        return [column for column in columns if column is not None]


@dataclass(frozen=True, slots=True)
class Moment:
    """The moment by which a statement judges rows.

    Attributes:
        clock: The database's clock.
        now: The moment, in the unit of ``_ts``.
        writing: Whether each row is judged when the statement has its lock.
        overruled_by: The option of an execution that makes the default `OFF`.
        locking: Whether the statement takes a shared lock on the defaults that it reads.
    """

    clock: Clock
    now: SQL
    writing: bool
    overruled_by: str
    locking: bool


class Scoping(ABC):
    """Distinguishes rows with a default of their own, and reports them."""

    __slots__ = ()

    @abstractmethod
    def of_row(self, columns: SourceColumns) -> SQL:
        """Return the scope of a row if that has a default of its own, else NULL."""

    @abstractmethod
    def tells_apart(self, value: SQL, dialect: Dialect) -> bool:
        """Return whether a column or parameter that equals a row's scope is surely the same scope.

        It isn't if the database takes Acme for acme, or compares numbers with text.
        """

    @abstractmethod
    def only(self, value: SQL) -> DefaultSource:
        """Return the source for the rows of one scope, by a parameter that `tells_apart` admits."""

    @abstractmethod
    def due(self, rows: Mapping[str, int]) -> Mapping[str, Fact]:
        """Return a count's facts about the expired rows of each scope."""

    @abstractmethod
    def deleted(self, rows: Mapping[str, int]) -> Mapping[str, Fact]:
        """Return a batch's facts about the rows of each scope that it has deleted."""


class DefaultSource(ABC):
    """Where the default ttl of a table comes from.

    Attributes:
        is_known: Whether Python knows the default. If so, the three methods for rows in memory and
            `lock` are never called.
        scoping: How rows with defaults of their own are distinguished; None if only their class or
            kind decides.
    """

    is_known: ClassVar[bool]
    scoping: Scoping | None = None

    # In statements

    @abstractmethod
    def seconds(self, columns: SourceColumns, part: LifetimePart, moment: Moment) -> SQL:
        """Return a field of `LifetimeSeconds` for the default that a row inherits."""

    @property
    @abstractmethod
    def tables(self) -> Sequence[Table]:
        """The tables that `seconds` reads, besides that of the rows."""

    @abstractmethod
    def once(self, expression: SQL) -> SQL:
        """Return an expression of `seconds` so that databases compute it once for all rows."""

    @abstractmethod
    def shortest(self) -> SQL | None:
        """Return an age that no default is below, if it is cheaper to look up than a row's own."""

    def ago(self, seconds: SQL, moment: Moment) -> SQL:
        """Return the instant a number of seconds ago.

        A read computes it once if the seconds are looked up. A write judges each row by the moment
        when it has the row's lock.
        """
        if moment.writing:
            return moment.now - moment.clock.span(self.once(seconds))
        return self.once(moment.now - moment.clock.span(seconds))

    def shortest_ago(self, moment: Moment) -> SQL | None:
        """Return the instant after which no expired row began by a default, if it's cheap."""
        shortest = self.shortest()
        if shortest is None:
            return None
        instant = moment.now - moment.clock.span(shortest)
        return instant if moment.writing else select(instant).correlate(None).scalar_subquery()

    @abstractmethod
    def live_by_age(self, columns: SourceColumns, moment: Moment) -> Condition | None:
        """Return the predicate by age if the usual form would cost too much, else None.

        Called on PostgreSQL, MariaDB and MySQL, for tables with our CHECK.
        """

    # For rows in memory

    @abstractmethod
    def see(self, connection: Connection, options: Mapping[str, object]) -> None:
        """Cache the default, unless that was done a moment ago.

        Args:
            connection: The connection of a statement on the table.
            options: The statement's execution options, which include the connection's.
        """

    @abstractmethod
    def policy_on(self, dialect: Dialect, scope: object) -> TTL | None:
        """Return the policy with the default cached lately for a scope; None if none was."""

    @abstractmethod
    def policy_as_noted(self, dialect: Dialect | None, scope: object) -> Policy:
        """Return the policy with the default that was cached last, however long ago.

        Args:
            dialect: The engine's; None for the one that was used last.
            scope: The value of the row's column; None for rows of no scope.

        Raises:
            TTLError: No default was cached.
        """

    # In transactions that delete

    @abstractmethod
    def lock(self, execute: Callable[[Any], object]) -> None:
        """Keep other transactions from changing the default until this one ends.

        Args:
            execute: Executes a statement in the transaction.

        Raises:
            DBAPIError: The database's error, with a detail that names the missing right, if any.
        """

    @property
    def locked_row(self) -> Select[Any] | None:
        """The SELECT of the row that `lock` locks; None if it locks none."""
        return None

    # In sweeps

    @abstractmethod
    def defaults(self, connection: Connection) -> Iterable[int | None]:
        """Return every default that rows may inherit at this moment."""

    @abstractmethod
    def ages(self) -> Iterator[tuple[Seconds, list[Condition]]]:
        """Yield each age at which rows that inherit expire, with the conditions for such rows."""

    @abstractmethod
    def shortest_age(self) -> Seconds | None:
        """Return the age at which the first rows that inherit expire; None if none ever does."""

    # In the schema

    @abstractmethod
    def prepare_schema(self) -> None:
        """Add to the table what ``create_all()`` has to create for the source."""


@dataclass(frozen=True, eq=False)
class Fixed(DefaultSource):
    """The default as a class declares it, and those of its subclasses or kinds."""

    default: DefaultTTL
    variants: Sequence[Variant]
    discriminator: Column[object] | None

    is_known: ClassVar[bool] = True

    def seconds(self, columns: SourceColumns, part: LifetimePart, moment: Moment) -> SQL:
        """Return a bound value, or one for each variant."""
        otherwise = SecondsParameter(self.default, part, moment.overruled_by)
        # An abstract class has no rows of its own.
        variants = [variant for variant in self.variants if variant.identities]
        kind = columns.discriminator
        if kind is None or not variants:
            return otherwise
        return case(
            *(
                (
                    or_(*(kind == identity for identity in variant.identities)),
                    SecondsParameter(variant.default, part, moment.overruled_by),
                )
                for variant in variants
            ),
            else_=otherwise,
        )

    @property
    def tables(self) -> Sequence[Table]:
        """None."""
        return ()

    def once(self, expression: SQL) -> SQL:
        """Return the expression itself."""
        return expression

    def shortest(self) -> None:
        """Return None: nothing is looked up."""

    def live_by_age(self, columns: SourceColumns, moment: Moment) -> None:
        """Return None: the usual form serves."""

    def see(self, connection: Connection, options: Mapping[str, object]) -> None:
        """Do nothing."""

    def policy_on(self, dialect: Dialect, scope: object) -> TTL | None:  # noqa: ARG002 (the seam's)
        """Return the policy as its owner declares it now."""
        policy = self.default.policy
        return policy if isinstance(policy, TTL) else None

    def policy_as_noted(self, dialect: Dialect | None, scope: object) -> Policy:  # noqa: ARG002 (as above)
        """Return the policy as its owner declares it now, whichever kind it is."""
        return self.default.policy

    def lock(self, execute: Callable[[Any], object]) -> None:
        """Do nothing: no transaction changes a class."""

    def defaults(self, connection: Connection) -> Iterator[int | None]:  # noqa: ARG002 (as above)
        """Yield the defaults as they are declared now."""
        yield self.default()
        for variant in self.variants:
            yield variant.default()

    def ages(self) -> Iterator[tuple[int, list[Condition]]]:
        """Yield each default that lets rows expire."""
        kind = self.discriminator
        variants = [variant for variant in self.variants if variant.identities and kind is not None]
        of_variants = [
            or_(*(kind == identity for identity in variant.identities)) for variant in variants
        ]
        others = []
        if variants and kind is not None:
            others = [or_(kind.is_(None), not_(or_(*of_variants)))]
        lives = [(self.default, others)]
        lives += [
            (variant.default, [rows]) for variant, rows in zip(variants, of_variants, strict=True)
        ]
        for default, rows in lives:
            seconds = default()
            if seconds is not None and seconds != NEVER:
                yield seconds, rows

    def shortest_age(self) -> int | None:
        """Return the least of the defaults that let rows expire."""
        every = [self.default, *(variant.default for variant in self.variants)]
        return min(finite_defaults(default() for default in every), default=None)

    def prepare_schema(self) -> None:
        """Do nothing."""


def finite_defaults(defaults: Iterable[int | None]) -> list[int]:
    """Return the defaults that let rows expire, in seconds."""
    return [seconds for seconds in defaults if seconds is not None and seconds != NEVER]
