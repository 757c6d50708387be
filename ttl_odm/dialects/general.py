"""`General`: any other database, for whoever brings a family of their own.

Instants are microseconds since 1970, in a BIGINT: no driver and no session's time zone has a say in
integers. How the database tells the time and shows an instant is what a subclass has to bring; all
else is standard SQL, and may be overridden where a database has other words.

What the database can do beside that (lock rows, compare keys as rows) is in attributes of `Family`,
which are the cautious ones here: a sweep walks a table by its primary key, and deletes by the keys
that it has seen, with the predicate in the deleting statement.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Final

from ttl_odm.core.values import MAX_TTL
from ttl_odm.dialects.family import Family
from ttl_odm.sweeper import Pace

_SECOND: Final = 1_000_000
_BIG_SECOND: Final = f"CAST({_SECOND} AS BIGINT)"
"""Its product with an INTEGER is a BIGINT, where a number that is written is an INTEGER itself."""


class General(Family):
    """A database that ttl_odm knows nothing of but what the subclass says.

    A subclass brings `names` (the first one as SQLAlchemy registers the dialect), `at_read`,
    `at_write`, and the methods that are abstract. No text has braces in it but the places of its
    arguments: templates are made of them.

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
        """Let products be as large as they have to be."""
        super().__init__()
        self.second = _BIG_SECOND

    @abstractmethod
    def microseconds(self, moment: str) -> str:
        """Microseconds since 1970, as a BIGINT, of what the database takes for an instant.

        That is its clock, a naive datetime (which is UTC) or one with a time zone; NULL of NULL,
        and of infinity where it has such a thing.
        """

    @abstractmethod
    def clock_face(self, microseconds: str) -> str:
        """What a clock in UTC shows then: a text, ``YYYY-MM-DD hh:mm:ss.ffffff``.

        It has to take any instant that a sum with a lifetime may come to. What is before the year
        1 may be any text that sorts before ``0001``.
        """

    def datetime(self, microseconds: str) -> str:
        """The same as a naive datetime."""
        return f"CAST({self.clock_face(microseconds)} AS TIMESTAMP)"

    def zoned(self, microseconds: str) -> str | None:  # noqa: ARG002 (most have no such type)
        """The same as a datetime with a time zone; None where the database has no type for it.

        Columns of ``DateTime(timezone=True)`` are then naive ones, in UTC.
        """
        return None

    def epoch(self, moment: str, per_second: int) -> str:
        """An integer since 1970."""
        factor = _SECOND // per_second
        whole = self.microseconds(moment)
        return whole if factor == 1 else f"({whole} {self.divide} {factor})"

    def date(self, moment: str) -> str:
        """A naive datetime, in UTC."""
        return self.datetime(self.microseconds(moment))

    def date_ago(self, moment: str, seconds: str) -> str:
        """Some seconds before."""
        return self.datetime(f"({self.microseconds(moment)} - {seconds} * {self.second})")

    def seconds_until(self, instant: str, now: str | None = None) -> str:
        """Whole seconds, rounded up."""
        left = f"({instant} - {now or self.now} + {_SECOND - 1}) {self.divide} {_SECOND}"
        return f"LEAST({MAX_TTL}, GREATEST(1, {left}))"

    def instant_of_column(self, column: str, *, zoned: bool) -> str:  # noqa: ARG002 (both are)
        """Either kind, as `microseconds` takes it."""
        return self.microseconds(column)
