"""`General`: the base of a family for any other database.

Instants are microseconds since 1970, in a BIGINT, because integers depend on no driver and no
session's time zone. A subclass brings how the database tells the time and shows an instant;
everything else is standard SQL, to override where a database has other words.

The attributes of `Family` for further abilities (locking rows, comparing keys as rows) have their
cautious values here: a sweep walks a table by its primary key, and deletes by the keys that it has
seen, with the predicate in the deleting statement.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Final

from ttl_odm.core.values import MAX_TTL
from ttl_odm.dialects.family import Family
from ttl_odm.sweeper import Pace

_SECOND: Final = 1_000_000
_BIG_SECOND: Final = f"CAST({_SECOND} AS BIGINT)"
"""A cast, because the product of an INTEGER and a plain literal would be an INTEGER."""


class General(Family):
    """A database of which ttl_odm knows only what the subclass says.

    A subclass brings `names` (the first one as SQLAlchemy registers the dialect), `at_read`,
    `at_write`, and the abstract methods. The texts become templates, so they may have no braces
    except for the places of arguments.

    Attributes:
        divide: The operator that divides two integers above 0 and rounds down.
    """

    instant_type = "bigint"
    per_second = _SECOND
    earliest = "-62135510400000000"
    latest = "253402300800000000"
    own_end = f"({{stamp}} + {{ttl}} * {_BIG_SECOND})"
    pace = Pace(start=1_000, lowest=100, highest=5_000, target=0.1)
    divide: ClassVar[str] = "/"

    def __init__(self) -> None:
        """Make products of `second` a BIGINT."""
        super().__init__()
        self.second = _BIG_SECOND

    @abstractmethod
    def microseconds(self, moment: str) -> str:
        """Convert an instant to microseconds since 1970, as a BIGINT.

        The instant is the database's clock, a naive datetime (which is UTC) or one with a time
        zone. The result is NULL for NULL, and for infinity where the database has that.
        """

    @abstractmethod
    def clock_face(self, microseconds: str) -> str:
        """Convert microseconds since 1970 to a text in UTC, ``YYYY-MM-DD hh:mm:ss.ffffff``.

        It must accept any sum of an instant and a lifetime. Instants before the year 1 may be any
        text that sorts before ``0001``.
        """

    def datetime(self, microseconds: str) -> str:
        """Convert microseconds since 1970 to a naive datetime in UTC."""
        return f"CAST({self.clock_face(microseconds)} AS TIMESTAMP)"

    def zoned(self, microseconds: str) -> str | None:  # noqa: ARG002 (most have no such type)
        """Convert microseconds since 1970 to a datetime with a time zone.

        None where the database has no type for it. Columns of ``DateTime(timezone=True)`` are then
        naive, in UTC.
        """
        return None

    def epoch(self, moment: str, per_second: int) -> str:
        """Convert an instant to an integer since 1970."""
        factor = _SECOND // per_second
        whole = self.microseconds(moment)
        return whole if factor == 1 else f"({whole} {self.divide} {factor})"

    def date(self, moment: str) -> str:
        """Convert an instant to a naive datetime in UTC."""
        return self.datetime(self.microseconds(moment))

    def date_ago(self, moment: str, seconds: str) -> str:
        """Return the naive datetime some seconds before an instant."""
        return self.datetime(f"({self.microseconds(moment)} - {seconds} * {self.second})")

    def seconds_until(self, instant: str, now: str | None = None) -> str:
        """Return the whole seconds until an instant, rounded up."""
        left = f"({instant} - {now or self.now} + {_SECOND - 1}) {self.divide} {_SECOND}"
        return f"LEAST({MAX_TTL}, GREATEST(1, {left}))"

    def instant_of_column(self, column: str, *, zoned: bool) -> str:  # noqa: ARG002 (both are)
        """Return the instant in a column of either kind, by `microseconds`."""
        return self.microseconds(column)
