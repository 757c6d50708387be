"""The one predicate: whether a row is live or expired, as a SQL expression; and the ways around it.

Reads, writes, the purge of keys and the sweeper all build their condition here, and nowhere
else. It is made of ranges rather than of a COALESCE, which no planner can estimate. Values that raw
SQL put into ``ttl`` where no CHECK kept them out (0, -2; text and fractions on SQLite) read as "no
override", so the default applies to them.

A single execution can go around the contract by the options ``include_expired`` and
``keep_last_modified``. SQLAlchemy's statement cache doesn't look at execution options, so they act
on bound values (`overruled`), and the SQL stays the same. `include_expired` exists as a loader
option too: that one is part of the cache key, takes the predicate out of the SQL, and travels with
the loaded objects into their lazy loads.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    BindParameter,
    Boolean,
    ColumnElement,
    and_,
    case,
    literal_column,
    or_,
    type_coerce,
)
from sqlalchemy.orm import UserDefinedOption
from sqlalchemy.sql.elements import Grouping
from sqlalchemy.types import Integer

from ttl_odm.core.values import FOREVER, MAX_TTL, OFF
from ttl_odm.dialects.mysql import MySQL
from ttl_odm.dialects.postgresql import PostgreSQL
from ttl_odm.dialects.sqlite import SQLite
from ttl_odm.sqlalchemy.compat import SQLTemplate, all_options
from ttl_odm.sqlalchemy.policy.sources import Moment
from ttl_odm.sqlalchemy.time.clock import Native, clock_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection, FromClause
    from sqlalchemy.sql.compiler import SQLCompiler

    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sqlalchemy.policy.sources import LifetimePart, SourceColumns
    from ttl_odm.sqlalchemy.time.clock import Clock, Instants

    SQL = ColumnElement[Any]
    Condition = ColumnElement[bool]
    Row = dict[str, object]

INCLUDE_EXPIRED: Final = "include_expired"
KEEP_LAST_MODIFIED: Final = "keep_last_modified"
"""The execution options, which work for every kind of statement."""

BASE_ROW_WRITTEN: Final = "ttl_odm_base_row_written"
"""The counterpart of these options that overrules the seconds of a write: see below."""

base_row_written: ContextVar[bool] = ContextVar("ttl_odm_base_row_written", default=False)
"""True while a flush writes sub-tables of rows that it has just written at the root.

Their lifetime was judged and set there; the flush may have let them expire.
"""

unlinking: ContextVar[bool] = ContextVar("ttl_odm_unlinking", default=False)
"""True while a flush of a purge sets references to NULL: those rows keep their ``_ts``."""


class IncludeExpired(UserDefinedOption):
    """The loader option behind `include_expired`."""

    propagate_to_loaders = True

    # Without it SQLAlchemy leaves the option out of the cache key, and the statement would share
    # its cached SQL with the same statement without the option.
    _is_has_cache_key = True

    def _gen_cache_key(self, *_: object) -> tuple[type[IncludeExpired]]:
        return (IncludeExpired,)


_OPTION: Final = IncludeExpired()


def include_expired() -> IncludeExpired:
    """Read expired rows too: ``select(Model).options(include_expired())``.

    This covers the whole statement and everything lazily loaded from its results. It affects reads
    only: UPDATE and DELETE never see an expired row.
    """
    return _OPTION


def includes_expired(statement: Any) -> bool:
    """Return whether a SELECT has the loader option."""
    return any(isinstance(option, IncludeExpired) for option in all_options(statement))


class KeepFlag(BindParameter[Any]):
    """True when the statement runs with ``keep_last_modified``."""

    inherit_cache = True
    overruled_by = KEEP_LAST_MODIFIED

    def __init__(self) -> None:
        super().__init__("ttl_keep", False, unique=True, type_=Boolean())  # noqa: FBT003 (SQLAlchemy's signature)


def overruled(
    compiled: SQLCompiler, parameters: list[Row], execution_options: Mapping[str, object]
) -> list[Row]:
    """Return the parameters of an execution, overruled as its options ask for."""
    options = (INCLUDE_EXPIRED, KEEP_LAST_MODIFIED)
    asked = {option for option in options if execution_options.get(option)}
    if base_row_written.get():
        asked.add(BASE_ROW_WRITTEN)
    if unlinking.get():
        asked.add(KEEP_LAST_MODIFIED)
    forced = {
        name: isinstance(parameter, KeepFlag) or OFF
        for parameter, name in compiled.bind_names.items()
        if getattr(parameter, "overruled_by", None) in asked
    }
    return [{**row, **forced} for row in parameters or [{}]] if forced else parameters


class Predicate:
    """Builds predicates for one database.

    Args:
        clock: The database's clock.
        writing: Judge at the moment of the write, as an UPDATE or DELETE has to.
        overridable: Let ``include_expired`` make it true for every row.
        locking: Take shared locks on the defaults that it reads, if the database locks rows.
        now: SQL for another instant to judge by, in the unit of ``_ts``.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        writing: bool = False,
        overridable: bool = False,
        locking: bool = False,
        now: str | None = None,
    ) -> None:
        self._clock = clock
        self._now = clock.literal(now or (clock.now_at_write if writing else clock.now))
        overruled_by = INCLUDE_EXPIRED if overridable else BASE_ROW_WRITTEN
        locking = locking and clock.locks_rows
        self._moment = Moment(clock, self._now, writing, overruled_by, locking)

    def live(
        self, binding: Binding, columns: SourceColumns, *, in_schema: bool = False
    ) -> Condition:
        """Return the condition for rows that have not expired.

        With `in_schema` the database keeps the text, as that of a view: its spelling stays the same
        in every version.
        """
        is_mysql = isinstance(self._clock, MySQL)
        for_planner = isinstance(self._clock, PostgreSQL) and not in_schema
        live = None
        if binding.is_checked and (is_mysql or for_planner):
            live = binding.source.live_by_age(columns, self._moment)
        if live is not None:
            live = self._presumed(live) if for_planner else live
        elif is_mysql and binding.is_checked:
            live = self._live_by_age(binding, columns)
        else:
            live = self._live_by_ranges(binding, columns, for_planner=for_planner)
        if binding.max_lifetime is not None:
            column_format, created = binding.max_lifetime.instants.on(self._clock), columns.created
            assert created is not None  # noqa: S101 (a binding with a limit has it)
            live = and_(live, column_format.ahead(created, self._too_old(binding, columns)))
        return live

    def _live_by_age(self, binding: Binding, columns: SourceColumns) -> Condition:
        """Return the condition for rows younger than the age at which they expire: one comparison.

        MariaDB and MySQL parse and plan a statement each time that it runs, which is most of the
        work of a read by key; this form takes half of what ranges take. It is a negation, since
        planners expect a comparison that they can't estimate to be true for a third of the rows.
        Seconds become a span in an expression of their own, which is computed once if they are
        bound.
        """
        own, span = self._own(columns), self._clock.span
        age = case(
            (or_(*(own == _integer(never) for never in binding.nevers)), span(_integer(FOREVER))),
            (own > self._seconds(binding, columns, "own_slack"), span(own)),
            else_=span(binding.source.once(self._seconds(binding, columns, "inherited_age"))),
        )
        reached = binding.instants.on(self._clock).reached(columns.last_modified, self._now - age)
        return SQLTemplate("(({0}) IS NOT TRUE)", Boolean(), reached)

    def _live_by_ranges(
        self, binding: Binding, columns: SourceColumns, *, for_planner: bool
    ) -> Condition:
        """Return the condition for rows that have not expired, without the policy's limit.

        With `for_planner` in the spelling that PostgreSQL's planner estimates best.
        """
        age, span = self._seconds(binding, columns, "inherited_age"), self._clock.span
        column_format, start = binding.instants.on(self._clock), columns.last_modified
        inherited = column_format.ahead(start, binding.source.ago(age, self._moment))
        shortest_ago = binding.source.shortest_ago(self._moment)
        if shortest_ago is not None:  # young rows need no look-up of their own default
            inherited = or_(column_format.ahead(start, shortest_ago), inherited)
        if binding.nulls_expire:
            inherited = and_(inherited, or_(start.is_not(None), age > _integer(FOREVER)))
        # By the same bound value, since each costs more than the comparison.
        is_off = binding.source.once(age) > _integer(FOREVER)
        if columns.override is None:
            # Nothing is added to a range of `_ts` alone, so that an index can serve it.
            if for_planner and not isinstance(column_format, Native):
                inherited = or_(inherited, self._presumed(is_off))
            return inherited
        if shortest_ago is not None and binding.instants.native:
            # A second look-up, which inheriting rows don't need after the first one.
            before_all = column_format.reached(start, self._now - span(_integer(FOREVER)))
            is_off = and_(or_(self._own(columns).is_not(None), before_all), is_off)
        if for_planner:
            return or_(self._live_by_halves(binding, columns, inherited), self._presumed(is_off))
        return self._live_by_kinds(binding, columns, inherited, is_off)

    def _live_by_kinds(
        self, binding: Binding, columns: SourceColumns, inherited: Condition, is_off: Condition
    ) -> Condition:
        """Return an OR of the rows that inherit, that have their own ttl, and that never expire."""
        own = self._own(columns)
        # A "never" may be among the invalid ttls here: the last condition lets it in anyway.
        inherits, odd = own.is_(None), self._no_ttl(binding, own)
        late = []
        if isinstance(self._clock, SQLite) and binding.is_checked:
            # Values that only tables from before the CHECK hold are checked last: a check before
            # would cost each row with a ttl of its own half as much again as all the rest.
            late, odd = [and_(or_(*odd), inherited)], []
        return or_(
            and_(or_(inherits, *odd), inherited),
            and_(
                own > _integer(0),
                self._own_ahead(binding, columns),
                *self._counting(binding, own),
            ),
            *late,
            or_(*(own == _integer(never) for never in binding.nevers), is_off),
        )

    def _live_by_halves(
        self, binding: Binding, columns: SourceColumns, inherited: Condition
    ) -> Condition:
        """Return an AND: the row outlives neither the default nor a ttl of its own.

        PostgreSQL's planner takes conditions for independent of each other. A row's age and the
        kind of its ttl are; the three kinds exclude each other, so for an OR of them it would
        expect up to a quarter too few rows.
        """
        own = self._own(columns)
        nevers = [own == _integer(never) for never in binding.nevers]
        positive = [own == _integer(never) for never in binding.nevers if never > 0]
        has_own = and_(own > _integer(0), *self._counting(binding, own))
        by_default = [inherited, has_own]
        if binding.source.scoping is not None:  # rows with their own ttl need no look-up
            by_default.reverse()
        return and_(
            or_(*by_default, *nevers),
            or_(
                own.is_(None),
                *self._no_ttl(binding, own),
                *positive,
                self._presumed(self._own_ahead(binding, columns)),
            ),
        )

    def _own_ahead(self, binding: Binding, columns: SourceColumns) -> Condition:
        """Return the condition that the end of a row's own ttl, if it has one, is yet to come."""
        life = self._life(binding, self._own(columns))
        column_format = binding.instants.on(self._clock)
        return column_format.ahead_after(columns.last_modified, life, self._now)

    def _presumed(self, condition: Condition) -> Condition:
        """Make PostgreSQL's planner expect a condition to hold for nearly all rows.

        It would expect an inequality of a sum of two columns, or of a parameter in a generic plan,
        to hold for a third of them. Values that it knows it evaluates all the same.
        """
        return SQLTemplate("(NULLIF({0}, FALSE) IS NOT NULL)", Boolean(), condition)

    def expired(self, binding: Binding, columns: SourceColumns) -> Condition:
        """Return the condition for rows that have expired: the opposite of `live`.

        Spelled out, since ``NOT live`` would be NULL for a row whose ttl is NULL.
        """
        expired = self.inherited_end_passed(binding, columns)
        if columns.override is not None:
            expired = or_(
                and_(self._inherits(binding, self._own(columns)), expired),
                self.own_end_passed(binding, columns),
            )
        if binding.max_lifetime is not None:
            expired = or_(expired, self.max_lifetime_passed(binding, columns))
        return expired

    def inherited_end_passed(self, binding: Binding, columns: SourceColumns) -> Condition:
        """Return the condition for rows that have expired if they inherit the default."""
        age = self._seconds(binding, columns, "inherited_age")
        start = columns.last_modified
        column_format = binding.instants.on(self._clock)
        passed = column_format.reached(start, binding.source.ago(age, self._moment))
        shortest_ago = binding.source.shortest_ago(self._moment)
        if shortest_ago is not None:
            passed = and_(column_format.reached(start, shortest_ago), passed)
        if binding.nulls_expire:
            passed = or_(passed, and_(self._is_null(start), age <= _integer(FOREVER)))
        return passed

    def own_end_passed(self, binding: Binding, columns: SourceColumns) -> Condition:
        """Return the condition for rows that have a ttl of their own and have outlived it."""
        own, start = self._own(columns), columns.last_modified
        slack = self._seconds(binding, columns, "own_slack")
        column_format = binding.instants.on(self._clock)
        return and_(
            self._has_own(binding, own),
            column_format.reached_after(
                start, self._life(binding, own), binding.source.ago(slack, self._moment)
            ),
        )

    def max_lifetime_passed(self, binding: Binding, columns: SourceColumns) -> Condition:
        """Return the condition for rows older than the policy's limit."""
        assert binding.max_lifetime is not None  # noqa: S101 (callers check)
        assert columns.created is not None  # noqa: S101 (a binding with a limit has it)
        column_format = binding.max_lifetime.instants.on(self._clock)
        return column_format.reached(columns.created, self._too_old(binding, columns))

    def expires_at(self, binding: Binding, columns: SourceColumns) -> SQL:
        """Return the instant of expiry in the storage type; NULL for never."""
        span = self._clock.span
        start = self._clamped(binding.instants, columns.last_modified)
        end = start + span(self._seconds(binding, columns, "inherited_life"))
        if binding.nulls_expire:
            earliest = self._clock.literal(self._clock.earliest)
            end = case((self._is_null(columns.last_modified), earliest), else_=end)
        if columns.override is not None:
            own = self._own(columns)
            own_life = span(self._seconds(binding, columns, "own_life"))
            own_end = start + span(self._life(binding, own)) + own_life
            end = case((self._inherits(binding, own), end), (self._has_own(binding, own), own_end))
        end = self._in_calendar(end)
        if binding.max_lifetime is None:
            return end
        assert columns.created is not None  # noqa: S101 (a binding with a limit has it)
        created = self._clamped(binding.max_lifetime.instants, columns.created)
        limit = created + span(self._seconds(binding, columns, "max_life"))
        limit = self._in_calendar(limit)
        return case((limit < end, limit), (end.is_(None), limit), else_=end)

    def overdue(self, binding: Binding, columns: SourceColumns) -> SQL:
        """Return how many seconds a row has been expired; NULL if that is unknown.

        NULL for instants before the year 1, with which PostgreSQL can't compute a difference.
        """
        end, earliest = self.expires_at(binding, columns), self._clock.literal(self._clock.earliest)
        is_known = end >= earliest
        if binding.nulls_expire:
            is_known = and_(columns.last_modified.is_not(None), is_known)
        return case((is_known, self._clock.length(end, self._now)))

    def _seconds(self, binding: Binding, columns: SourceColumns, part: LifetimePart) -> SQL:
        """Return a field of `LifetimeSeconds` for the default that a row inherits."""
        return binding.source.seconds(columns, part, self._moment)

    def _too_old(self, binding: Binding, columns: SourceColumns) -> SQL:
        """Return the latest instant of creation whose rows are older than the policy's limit."""
        return binding.source.ago(self._seconds(binding, columns, "max_age"), self._moment)

    def _is_null(self, column: SQL) -> Condition:
        return SQLTemplate(self._clock.is_null("{0}"), Boolean(), column)

    def _own(self, columns: SourceColumns) -> SQL:
        return type_coerce(columns.override, Integer())

    def _life(self, binding: Binding, own: SQL) -> SQL:
        """Return a row's own ttl as seconds to calculate with."""
        if binding.is_checked:
            return own
        # A column that is not ours may hold numbers too large for a sum with an instant.
        return case((own <= _integer(MAX_TTL), own), else_=_integer(MAX_TTL))

    def _no_ttl(self, binding: Binding, own: SQL) -> list[Condition]:
        """Return the conditions for values of the own ttl that are invalid, and don't count."""
        return [own <= _integer(0), *self._counting(binding, own, "(NOT {})")]

    def inherits(self, binding: Binding, columns: SourceColumns) -> Condition:
        """Return the condition for rows that live by the default; others have their own ttl."""
        return self._inherits(binding, self._own(columns))

    def _inherits(self, binding: Binding, own: SQL) -> Condition:
        nevers = (own != _integer(never) for never in binding.nevers)
        return or_(own.is_(None), and_(or_(*self._no_ttl(binding, own)), *nevers))

    def _has_own(self, binding: Binding, own: SQL) -> Condition:
        nevers = (own != _integer(never) for never in binding.nevers if never > 0)
        return and_(own > _integer(0), *self._counting(binding, own), *nevers)

    def _counting(self, binding: Binding, own: SQL, form: str = "{}") -> list[Condition]:
        text = self._clock.counting[binding.is_checked]
        return [] if text is None else [SQLTemplate(form.format(f"({text})"), Boolean(), own)]

    def _clamped(self, instants: Instants, column: SQL) -> SQL:
        """Return the instant in a column, or the nearest that sums can be calculated with."""
        instant = instants.on(self._clock).instant(column)
        first, beyond = map(self._clock.literal, (self._clock.earliest, self._clock.latest))
        return case((instant < first, first), (instant > beyond, beyond), else_=instant)

    def _in_calendar(self, end: SQL) -> SQL:
        """Return the instant; NULL if Python has no datetime for it."""
        return case((end < self._clock.literal(self._clock.latest), end))


def grouped(conditions: tuple[Condition, ...]) -> tuple[Condition, ...]:
    """Group a user's conditions, so that the predicate can follow with AND.

    SQLAlchemy puts no parentheses around text, nor around the SQL of a user's own construct:
    ``a OR b AND live`` would let a row in by ``a``.
    """
    return (Grouping(and_(*conditions)),) if conditions else ()


def _integer(value: int) -> SQL:
    return literal_column(str(value), Integer())


def expired_in(
    connection: Connection,
    binding: Binding,
    source: FromClause | None = None,
    *,
    locking: bool = False,
) -> ColumnElement[bool]:
    """Return the predicate for rows of a table, or of a child of it, in a statement that deletes.

    `locking` is for transactions of the application, which may have an old snapshot: see
    `Predicate`.
    """
    predicate = Predicate(clock_of(connection.dialect), writing=True, locking=locking)
    return predicate.expired(
        binding, binding.columns_of(binding.table if source is None else source)
    )
