"""`PartitionDDL`: what a family of databases says of partitions by time, as SQL texts.

A partition is a range of one column. What it is called, whether it is a table, and who may not be
in the way of making or dropping one differ; what is done about it does not, and is the adapters'.

Nothing here is doubled for drivers that format statements; who hands a text to one doubles it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, ClassVar, Final

from ttl_odm.dialects.family import EPOCH, derived_name

if TYPE_CHECKING:
    from collections.abc import Sequence

Edges = tuple[datetime | None, datetime | None]
"""The bounds of a partition; None for an open end."""

PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000}


@dataclass(frozen=True, slots=True)
class Cut:
    """A table that is cut, with what its statements need; no name is quoted.

    Attributes:
        schema: Where the table is, and its partitions are made; None for the connection's own.
        name: Its name.
        column: The column that partitions are ranges of.
        unit: "s", "ms" or "us" where the column holds epoch integers; None where it holds dates.
    """

    schema: str | None
    name: str
    column: str
    unit: str | None = None

    @property
    def rest(self) -> str:
        """The name of the partition for what belongs in no other."""
        return derived_name(self.name, "rest")

    @property
    def past(self) -> str:
        """The name of the partition for NULLs and what is older than all others, where one is."""
        return derived_name(self.name, "past")

    def bound(self, instant: datetime) -> str:
        """An aware datetime as the bound of a range."""
        if self.unit is None:
            # What is read from a database may have a fraction.
            return f"'{instant:%Y-%m-%d %H:%M:%S.%f}".rstrip("0").rstrip(".") + "+00'"
        microseconds = (instant - EPOCH) // timedelta(microseconds=1)
        return str(microseconds * PER_SECOND[self.unit] // 1_000_000)


@dataclass(frozen=True, slots=True)
class Range:
    """A partition that is to be made: its name, and its instants from `start` on, before `end`."""

    name: str
    start: datetime
    end: datetime


class PartitionDDL(ABC):
    """The statements by which a family of databases makes, drops and lists partitions.

    How one is made and dropped differs too much for one set of statements: where there are
    transactions of DDL these have several each, and elsewhere each statement is all or nothing.
    What every database has is here.

    Attributes:
        has_past: Whether the lowest partition of a table that we make is for NULLs, and for what is
            older than all others.
        hands_over: Whether a partition can become one of another table.
        instant_unit: The unit of the model's own instants ("us"), where these are integers.
    """

    has_past: ClassVar[bool] = False
    hands_over: ClassVar[bool] = False
    instant_unit: ClassVar[str | None] = None

    def table(self, cut: Cut) -> str:
        """The table, quoted."""
        return self.quoted(cut.schema, cut.name)

    @abstractmethod
    def quoted(self, schema: str | None, name: str) -> str:
        """A table's, or a partition's, name in a statement."""

    def bound(self, cut: Cut, instant: datetime) -> str:
        """An aware datetime as the bound of a range, and to compare the column with."""
        return cut.bound(instant)

    @abstractmethod
    def leaves(self, unit: str | None) -> str:
        """The query for the partitions of a table, with the parameters `schema`, `name`, `column`.

        They are the table's; a NULL for the schema is the connection's own. No row at all says that
        the table isn't cut by ranges of this column alone. Otherwise it has a row for each, or a
        single one with a NULL for `name` where there is none:

        - ``home``: the schema of the table;
        - ``schema``, ``name``: of the partition;
        - ``lower``, ``upper``: its bounds, in microseconds since 1970; NULL for an open end;
        - ``is_rest``: whether it is the one for all other rows;
        - ``takes_nulls``: whether rows with a NULL in the column are in it, besides its own;
        - ``hindrance``: why it can't go as a whole, a key of `HINDRANCES`; NULL if it can;
        - ``estimate``: how many rows it has, by the database's statistics; NULL if unknown;
        - ``is_heard``: whether a trigger hears of rows that are inserted into the table;
        - ``columns``: the names of those that are written, not generated.
        """

    @abstractmethod
    def first(self, cut: Cut, ranges: Sequence[Range]) -> list[str]:
        """Make the partitions of a table that was created just now."""


HINDRANCES: Final = {
    "reference": "foreign keys refer to the table, and dropping a partition would bypass them",
    "trigger": "triggers for DELETE or TRUNCATE would not fire",
    "policy": "row-level security may hide some of its rows",
    "owner": "the table or the partition belongs to another user",
    "unseen": "only users with the TRIGGER privilege can see whether triggers would have to fire",
    "last": "it is the last partition of its table, and a table must have one",
    "shape": "it is partitioned itself, or is a foreign table",
    "detaching": "another session is detaching it",
}
"""Why a partition can't go as a whole, as reports say it."""
