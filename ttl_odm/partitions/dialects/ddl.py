"""`PartitionDDL`: the statements about partitions by time in a family of databases, as SQL texts.

A partition is a range of one column. Databases differ in how it is named, whether it is a table,
and which sessions block making or dropping one. What is done with partitions doesn't differ, and is
left to the adapters.

Percent signs are not doubled for drivers that format statements: callers do that.
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
    """A table that is cut into partitions; no name is quoted.

    Attributes:
        schema: The schema of the table and of new partitions; None for the connection's own.
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
        """The name of the partition for rows that belong in no other."""
        return derived_name(self.name, "rest")

    @property
    def past(self) -> str:
        """The name of the partition for NULLs and rows older than all other partitions."""
        return derived_name(self.name, "past")

    def bound(self, instant: datetime) -> str:
        """Return an aware datetime as the bound of a range."""
        if self.unit is None:
            # Bounds that are read from a database may have a fraction.
            return f"'{instant:%Y-%m-%d %H:%M:%S.%f}".rstrip("0").rstrip(".") + "+00'"
        microseconds = (instant - EPOCH) // timedelta(microseconds=1)
        return str(microseconds * PER_SECOND[self.unit] // 1_000_000)


@dataclass(frozen=True, slots=True)
class NewPartition:
    """A partition to make: its name, and its range of instants from `start` on, before `end`."""

    name: str
    start: datetime
    end: datetime


class PartitionDDL(ABC):
    """The statements that list and make partitions in a family of databases.

    How a partition is made and dropped later differs too much for one set of methods: with
    transactions of DDL it takes several statements, elsewhere one that is done whole or not at all.

    Attributes:
        has_past: Whether the lowest partition of a table that we cut is for NULLs, and for rows
            older than all other partitions.
        hands_over: Whether a partition can become one of another table.
        instant_unit: The unit of the columns that we add ("us"), if they are integers.
    """

    has_past: ClassVar[bool] = False
    hands_over: ClassVar[bool] = False
    instant_unit: ClassVar[str | None] = None

    def table(self, cut: Cut) -> str:
        """Return the table, quoted."""
        return self.quoted(cut.schema, cut.name)

    @abstractmethod
    def quoted(self, schema: str | None, name: str) -> str:
        """Return the name of a table or partition in a statement."""

    def bound(self, cut: Cut, instant: datetime) -> str:
        """Return an aware datetime as the bound of a range, or to compare the column with."""
        return cut.bound(instant)

    @abstractmethod
    def leaves(self, unit: str | None) -> str:
        """Return the query for a table's partitions; its parameters are `schema`, `name`, `column`.

        They name the table; a NULL for the schema is the connection's own. The query returns no row
        if the table isn't cut by ranges of this column alone. Otherwise it returns a row for each
        partition, or a single row with a NULL for `name` if there is none:

        - ``home``: the schema of the table;
        - ``schema``, ``name``: of the partition;
        - ``lower``, ``upper``: its bounds, in microseconds since 1970; NULL for an open end;
        - ``is_rest``: whether it is the partition for all other rows;
        - ``takes_nulls``: whether it also contains the rows with a NULL in the column;
        - ``hindrance``: why it can't go as a whole, a key of `HINDRANCES`; NULL if it can;
        - ``estimate``: how many rows it has, by the database's statistics; NULL if unknown;
        - ``is_heard``: whether rows that are inserted into the table fire a trigger;
        - ``columns``: the names of the columns that aren't generated.
        """

    @abstractmethod
    def first(self, cut: Cut, partitions: Sequence[NewPartition]) -> list[str]:
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
"""The reasons why a partition can't go as a whole, in the words of reports."""
