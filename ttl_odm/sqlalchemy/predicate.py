"""The one predicate: whether a row is live or expired, as a SQL expression.

Reads, writes, the purge of keys and the sweeper all build their condition here, and nowhere
else. The form is an OR of ranges rather than a COALESCE, because PostgreSQL's planner
estimates it best. Values that raw SQL put into ``ttl`` where no CHECK kept them out (0, -2)
read as "no override", so the default applies to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, and_, case, literal_column, or_, type_coerce
from sqlalchemy.sql.elements import Grouping
from sqlalchemy.types import Integer

from ttl_odm.core.values import NEVER
from ttl_odm.sqlalchemy.clock import FOREVER
from ttl_odm.sqlalchemy.options import INCLUDE_EXPIRED
from ttl_odm.sqlalchemy.spans import BASE_ROW_WRITTEN, Part, span_of

if TYPE_CHECKING:
    from ttl_odm.sqlalchemy.binding import Binding, SourceColumns
    from ttl_odm.sqlalchemy.clock import Clock


class Verdicts:
    """Builds predicates for one database.

    Args:
        clock: the database's clock.
        writing: the predicate goes into an UPDATE or DELETE: it is judged at the moment of
            the write.
        overridable: ``include_expired`` makes it true for every row.
    """

    def __init__(self, clock: Clock, *, writing: bool = False, overridable: bool = False) -> None:
        """Prepare the now of this kind of statement."""
        self._clock = clock
        self._now = clock.literal(clock.now_at_write if writing else clock.now)
        self._overruled_by = INCLUDE_EXPIRED if overridable else BASE_ROW_WRITTEN

    def live(self, binding: Binding, columns: SourceColumns) -> ColumnElement[bool]:
        """True for rows that have not expired."""
        age = self._seconds(binding, columns, "inherited_age")
        inherited = self._stamp(columns) > self._now - self._clock.span(age)
        if columns.override is None:
            return inherited
        own = self._own(columns)
        return or_(
            # A "never" may pass here: the last condition lets it in anyway.
            and_(or_(own.is_(None), own <= _integer(0)), inherited),
            and_(own > _integer(0), self._own_end(columns) > self._now),
            # TTL is off. By the same bound value, since each costs more than the comparison does.
            or_(_is_never(binding, own), age > _integer(FOREVER)),
        )

    def expired(self, binding: Binding, columns: SourceColumns) -> ColumnElement[bool]:
        """True for rows that have expired: what `live` is not.

        Spelled out, since ``NOT live`` would be NULL for a row whose ttl is NULL.
        """
        inherited = self.inherited_end_passed(binding, columns)
        if columns.override is None:
            return inherited
        return or_(
            and_(_inherits(binding, self._own(columns)), inherited),
            self.own_end_passed(binding, columns),
        )

    def inherited_end_passed(self, binding: Binding, columns: SourceColumns) -> ColumnElement[bool]:
        """True where a row that inherits the default would have expired."""
        return self._stamp(columns) <= self._inheriting_cutoff(binding, columns)

    def own_end_passed(self, binding: Binding, columns: SourceColumns) -> ColumnElement[bool]:
        """True where a row has its own ttl and has outlived it."""
        return and_(
            _has_own(binding, self._own(columns)),
            self._own_end(columns) <= self._own_cutoff(binding, columns),
        )

    def expires_at(self, binding: Binding, columns: SourceColumns) -> ColumnElement[Any]:
        """The instant of expiry in the storage type; NULL for never."""
        stamp = self._stamp(columns)
        inherited = stamp + self._clock.span(self._seconds(binding, columns, "inherited_life"))
        if columns.override is None:
            return inherited
        own = self._own(columns)
        own_life = self._clock.span(self._seconds(binding, columns, "own_life"))
        return case(
            (_inherits(binding, own), inherited),
            (_has_own(binding, own), self._own_end(columns) + own_life),
        )

    def _seconds(self, binding: Binding, columns: SourceColumns, part: Part) -> ColumnElement[Any]:
        """What the default that a row inherits means, as a bound value."""
        return span_of(binding, columns, part, self._overruled_by)

    def _stamp(self, columns: SourceColumns) -> ColumnElement[Any]:
        return type_coerce(columns.last_modified, self._clock.storage)

    def _own(self, columns: SourceColumns) -> ColumnElement[Any]:
        return type_coerce(columns.override, Integer())

    def _inheriting_cutoff(self, binding: Binding, columns: SourceColumns) -> ColumnElement[Any]:
        age = self._seconds(binding, columns, "inherited_age")
        return self._now - self._clock.span(age)

    def _own_end(self, columns: SourceColumns) -> ColumnElement[Any]:
        return self._stamp(columns) + self._clock.span(self._own(columns))

    def _own_cutoff(self, binding: Binding, columns: SourceColumns) -> ColumnElement[Any]:
        slack = self._seconds(binding, columns, "own_slack")
        return self._now - self._clock.span(slack)


def grouped(conditions: tuple[Any, ...]) -> tuple[Any, ...]:
    """A user's conditions, so that the predicate can follow with AND.

    SQLAlchemy puts no parentheses around text, nor around what a user's own construct renders:
    ``a OR b AND live`` would let a row in by ``a``.
    """
    return (Grouping(and_(*conditions)),) if conditions else ()


def _inherits(binding: Binding, own: ColumnElement[Any]) -> ColumnElement[bool]:
    no_override = and_(own <= _integer(0), *(own != _integer(n) for n in _nevers(binding)))
    return or_(own.is_(None), no_override)


def _has_own(binding: Binding, own: ColumnElement[Any]) -> ColumnElement[bool]:
    return and_(own > _integer(0), *(own != _integer(n) for n in _nevers(binding) if n > 0))


def _is_never(binding: Binding, own: ColumnElement[Any]) -> ColumnElement[bool]:
    return or_(*(own == _integer(n) for n in _nevers(binding)))


def _nevers(binding: Binding) -> tuple[int, ...]:
    return (NEVER, *binding.policy.never)


def _integer(value: int) -> ColumnElement[Any]:
    return literal_column(str(value), Integer())
