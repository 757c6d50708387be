"""The database's clock in SQLAlchemy's expressions: `Clock`, and which one a dialect has.

How each database is asked for its now, stamps a row and takes seconds from an instant is in
`ttl_odm.dialects`; here those texts get SQLAlchemy's types. It knows nothing of policies or
statements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import BigInteger, ColumnElement, Interval, literal_column
from sqlalchemy.dialects.postgresql import TIMESTAMP

from ttl_odm.dialects import FAMILIES, Family
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from sqlalchemy.engine import Dialect
    from sqlalchemy.types import TypeEngine

FOREVER: Final = 100_000_000_000
"""Seconds (about 3,170 years) that no instant is older than; "never" as a bound value.

Small enough for 64-bit microseconds and for PostgreSQL's first year, 4713 BC.
"""

OFF: Final = 2 * FOREVER
"""Like `FOREVER`, and says that rows' own ttls don't count either."""


class Clock(Family):
    """A family of databases whose texts can be expressions too."""

    @property
    def storage(self) -> TypeEngine[Any]:
        """The column type that ``_ts`` has on this database."""
        if self.per_second is None:
            return TIMESTAMP(timezone=True)
        return BigInteger()

    def span(self, seconds: ColumnElement[Any]) -> ColumnElement[Any]:
        """A number of seconds as an expression that can be added to ``_ts`` or taken from it.

        Never a bound interval: drivers send a ``timedelta`` of a day as ``1 day``, and PostgreSQL
        takes a day off in the session's time zone, where it may have 23 or 25 hours.
        """
        unit = Interval() if self.per_second is None else BigInteger()
        return seconds.op("*", return_type=unit)(literal_column(self.second))

    def literal(self, sql: str) -> ColumnElement[Any]:
        """One of this clock's SQL texts as an expression of the storage type."""
        return literal_column(sql, self.storage)


_CLOCKS: Final[dict[str, Clock]] = {
    # The class of each family with the expressions added, so that no text stands here again.
    name: clock
    for family in FAMILIES
    for clock in [type("Clock", (Clock, type(family)), {})()]
    for name in family.names
}


def clock_of(dialect: Dialect) -> Clock:
    """The clock of a dialect.

    Raises:
        TTLConfigurationError: The dialect is not one that ttl_odm supports. Failing is the
            only safe answer: a statement without the predicate would show expired rows.
    """
    clock = _CLOCKS.get(dialect.name)
    if clock is not None:
        return clock
    if dialect.name == "default":  # str(statement) without an engine: readable, never executed
        return _CLOCKS["postgresql"]
    raise TTLConfigurationError(
        f"ttl_odm doesn't support the SQLAlchemy dialect {dialect.name!r}; "
        f"it supports {', '.join(sorted(_CLOCKS))}."
    )
