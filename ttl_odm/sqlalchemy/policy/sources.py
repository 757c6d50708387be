"""`DefaultSource`: where the default ttl of a table comes from, the class or the database.

A `Binding` has one. Statements, objects in memory, sweeps and the schema ask it without knowing
its class. `Fixed` is for models whose ``__ttl__`` states the default: the owner may declare
another one at any moment (`DefaultTTL`), so statements bind it as a value that is read whenever
they run (`SecondsParameter`), and SQLAlchemy's statement cache keeps one entry whatever it is. The
package of a `DefaultExtension` has another source, which is imported when the first model declares
such a default. Its other half, `SweptSource`, is in
`ttl_odm.sqlalchemy.sweep.whereabouts`.

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
        inherited_life: The same as an instant is made of it; None for never.
        own_slack: How long a row's own ttl is overlooked: `OFF` while TTL is off.
        own_life: What is added to a row's own ttl: nothing; None while TTL is off.
        max_age: The age since its creation at which any row expires; `OFF` for none.
        max_life: The same as an instant is made of it; None for none.
    """

    inherited_age: int
    inherited_life: int | None
    own_slack: int
    own_life: int | None
    max_age: int
    max_life: int | None

    @classmethod
    def of(cls, default: int | None, longest: int | None = None) -> LifetimeSeconds:
        """For a default (None: TTL off, -1: never by default, or seconds) and a longest life."""
        if default is None:
            return cls(OFF, None, OFF, None, OFF, None)
        max_age = OFF if longest is None else longest
        if default == NEVER:
            return cls(FOREVER, None, 0, 0, max_age, longest)
        return cls(default, default, 0, 0, max_age, longest)


@contextmanager
def _unwrapped() -> Iterator[None]:
    """Let the errors of a declaration rise as they are."""
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
    """The default ttl as its owner declares it at this moment, and what that means in SQL.

    Its errors rise through SQLAlchemy as they are, out of a statement that runs. `declared` is what
    was read last (`UNREAD` where that asks a function, to be read each time), `lifetime` its
    meaning.
    """

    def __init__(self, owner: Any, bound: Policy) -> None:
        """Read the declaration now, so that no statement has to while it stays the same."""
        super().__init__(owner, bound)
        self._longest = bound.max_lifetime if isinstance(bound, TTL) else None
        self._default: int | None = None
        self.lifetime = LifetimeSeconds.of(None)
        self.declared: object = UNREAD
        policy = self.policy
        if not isinstance(policy, TTL) or policy.is_fixed:  # functions are asked by statements
            self.read()

    def read(self) -> None:
        """Look what the owner declares; raises as calling the default does."""
        if getattr(self.owner, "__ttl__", None) is self.declared:
            return
        with _unwrapped():
            self._default = super().__call__()
        self.lifetime = LifetimeSeconds.of(self._default, self._longest)
        self.declared = self.seen if self.is_fixed else UNREAD

    def retire(self) -> None:
        """Stay with what the owner declares now: it is about to get another policy.

        Statements that run meanwhile were compiled for this one, and end by it.
        """
        declared = getattr(self.owner, "__ttl__", None)
        self._read = lambda: declared

    def check(self) -> None:
        """Raise as `read` does for a declaration that no statement can follow."""
        with _unwrapped():
            self.policy  # noqa: B018 (reads it)

    def __call__(self) -> int | None:
        """The default: ``None`` (TTL off), -1 (never by default) or seconds."""
        self.read()
        return self._default


class KindTTL(DefaultTTL):
    """The default ttl of one kind of rows (what the column `TTL.by` holds)."""

    def __init__(self, owner: Any, bound: TTL, kind: object) -> None:
        self._kind = kind
        super().__init__(owner, bound)

    def _default_of(self, policy: Policy) -> int | None:
        assert isinstance(policy, TTL)  # noqa: S101 (others have no kinds)
        return policy.default_of(self._kind)


class SecondsParameter(BindParameter[Any]):
    """Seconds that hang on a default ttl, asked for at each execution.

    They are a part of its `LifetimeSeconds`; `OFF` in an execution that asks for `overruled_by`.
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
        # All that a read costs beside its SQL is here: hence no call while nothing has changed.
        if getattr(default.owner, "__ttl__", None) is not default.declared:
            default.read()
        return getattr(default.lifetime, self._part)

    @value.setter
    def value(self, value: object) -> None:
        """SQLAlchemy's constructor sets one."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A default of its own for some rows of a table: a single-table subclass, or a kind.

    The identities are what the discriminator says of these rows: the kind; or the subclass itself,
    and those under it that have no default of their own.
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
        """Those that there are, in order."""
        columns = (self.last_modified, self.override, self.discriminator, self.created)
        return [column for column in columns if column is not None]


@dataclass(frozen=True, slots=True)
class Moment:
    """By which moment a statement judges rows.

    Attributes:
        clock: The database's clock.
        now: The moment, in the unit of ``_ts``.
        writing: Whether each row is judged when the statement has its lock.
        overruled_by: The parameter of an execution that makes the default `OFF`.
        locking: Whether the statement locks what it reads of defaults, shared.
    """

    clock: Clock
    now: SQL
    writing: bool
    overruled_by: str
    locking: bool


class Scoping(ABC):
    """Tells rows with a default of their own apart, and reports them."""

    __slots__ = ()

    @abstractmethod
    def of_row(self, columns: SourceColumns) -> SQL:
        """The scope of a row where that has a default of its own; else NULL."""

    @abstractmethod
    def tells_apart(self, value: SQL, dialect: Dialect) -> bool:
        """Whether a column or parameter that equals a row's scope is sure to be of the same scope.

        It isn't where the database takes Acme for acme, or compares numbers with text.
        """

    @abstractmethod
    def only(self, value: SQL) -> DefaultSource:
        """The source for the rows of one scope, by a parameter that `tells_apart` has admitted."""

    @abstractmethod
    def due(self, rows: Mapping[str, int]) -> Mapping[str, Fact]:
        """What a count reports of the expired rows of each scope."""

    @abstractmethod
    def deleted(self, rows: Mapping[str, int]) -> Mapping[str, Fact]:
        """What a batch reports of the rows of each scope that it has deleted."""


class DefaultSource(ABC):
    """Where the default ttl of a table comes from.

    Attributes:
        is_known: Whether Python knows the default. Where it does, nobody asks the four methods for
            rows in memory, nor `lock`.
        scoping: How rows with defaults of their own are told apart; None where only their class or
            kind decides.
    """

    is_known: ClassVar[bool]
    scoping: Scoping | None = None

    # In statements

    @abstractmethod
    def seconds(self, columns: SourceColumns, part: LifetimePart, moment: Moment) -> SQL:
        """What the default that a row inherits means: a part of `LifetimeSeconds`."""

    @property
    @abstractmethod
    def tables(self) -> Sequence[Table]:
        """The tables that `seconds` reads, besides that of the rows."""

    @abstractmethod
    def once(self, expression: SQL) -> SQL:
        """An expression of `seconds`, in the form that databases compute once for all rows."""

    @abstractmethod
    def shortest(self) -> SQL | None:
        """An age that no default is below, if it is cheaper to look up than a row's own."""

    def ago(self, seconds: SQL, moment: Moment) -> SQL:
        """The instant so many seconds ago.

        Where these are looked up, a read computes it once. A write judges each row by the moment
        when it has the row's lock.
        """
        if moment.writing:
            return moment.now - moment.clock.span(self.once(seconds))
        return self.once(moment.now - moment.clock.span(seconds))

    def shortest_ago(self, moment: Moment) -> SQL | None:
        """The instant since which no row has begun that a default lets expire, if it's cheap."""
        shortest = self.shortest()
        if shortest is None:
            return None
        instant = moment.now - moment.clock.span(shortest)
        return instant if moment.writing else select(instant).correlate(None).scalar_subquery()

    @abstractmethod
    def live_by_age(self, columns: SourceColumns, moment: Moment) -> Condition | None:
        """The predicate by age, where the usual form would cost too much; None where it is good.

        Asked on PostgreSQL, MariaDB and MySQL, of tables with our CHECK.
        """

    # For rows in memory

    @abstractmethod
    def see(self, connection: Connection) -> None:
        """Note what the default is, unless that was done a moment ago."""

    @abstractmethod
    def policy_on(self, dialect: Dialect, scope: object) -> TTL | None:
        """The policy with the default that was noted of late, for a scope; None if none was."""

    @abstractmethod
    def policy_as_noted(self, dialect: Dialect | None, scope: object) -> Policy:
        """The same by what was noted last, however long ago.

        Args:
            dialect: The engine's; None for the one that was asked last.
            scope: As the row's column has it; None for all others.

        Raises:
            TTLError: Nothing was.
        """

    # In transactions that delete

    @abstractmethod
    def lock(self, execute: Callable[[Any], object]) -> None:
        """Let nobody change the default until the transaction ends, by what executes a statement.

        Raises:
            DBAPIError: The database's, with a detail that says what its user lacks, if it does.
        """

    @property
    def locked_row(self) -> Select[Any] | None:
        """What selects the row that `lock` locks; None where it locks none."""
        return None

    # In sweeps

    @abstractmethod
    def defaults(self, connection: Connection) -> Iterable[int | None]:
        """Every default that rows may inherit at this moment."""

    @abstractmethod
    def ages(self) -> Iterator[tuple[Seconds, list[Condition]]]:
        """Each age at which rows that inherit begin to expire, with the condition for such rows."""

    @abstractmethod
    def shortest_age(self) -> Seconds | None:
        """The age at which the first rows that inherit expire; None if none ever does."""

    # In the schema

    @abstractmethod
    def prepare_schema(self) -> None:
        """See to what ``create_all()`` adds to the table."""


@dataclass(frozen=True, eq=False)
class Fixed(DefaultSource):
    """The default as a class declares it, and those of its subclasses or kinds."""

    default: DefaultTTL
    variants: Sequence[Variant]
    discriminator: Column[Any] | None

    is_known: ClassVar[bool] = True

    def seconds(self, columns: SourceColumns, part: LifetimePart, moment: Moment) -> SQL:
        """A bound value, or one for each variant."""
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
        """As it is."""
        return expression

    def shortest(self) -> None:
        """None: nothing is looked up."""

    def live_by_age(self, columns: SourceColumns, moment: Moment) -> None:
        """None: the usual form."""

    def see(self, connection: Connection) -> None:
        """Do nothing."""

    def policy_on(self, dialect: Dialect, scope: object) -> TTL | None:  # noqa: ARG002 (the seam's)
        """The policy as its owner declares it now."""
        policy = self.default.policy
        return policy if isinstance(policy, TTL) else None

    def policy_as_noted(self, dialect: Dialect | None, scope: object) -> Policy:  # noqa: ARG002 (as above)
        """The same, whichever policy it is."""
        return self.default.policy

    def lock(self, execute: Callable[[Any], object]) -> None:
        """Do nothing: no transaction changes a class."""

    def defaults(self, connection: Connection) -> Iterator[int | None]:  # noqa: ARG002 (as above)
        """As they are declared now."""
        yield self.default()
        for variant in self.variants:
            yield variant.default()

    def ages(self) -> Iterator[tuple[int, list[Condition]]]:
        """Each default that lets rows expire."""
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
        """The least of the defaults that let rows expire."""
        every = [self.default, *(variant.default for variant in self.variants)]
        return min(finite_defaults(default() for default in every), default=None)

    def prepare_schema(self) -> None:
        """Do nothing."""


def finite_defaults(defaults: Iterable[int | None]) -> list[int]:
    """Those of some defaults, in seconds, that let rows expire."""
    return [seconds for seconds in defaults if seconds is not None and seconds != NEVER]
