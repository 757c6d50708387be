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

from ttl_odm.dialects.family import EPOCH, MAX_NAME, index_name

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
        return leaf_name(self.name, "rest")

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

    How it is done. Making: `make`. Dropping: `enter`, then the catalogue and the clock decide
    again, then `drop`; before it `lock`, and a look for a live row, where the bounds alone don't
    say that there is none. Moving: the same with `move`. Handing over: `prepare_handover`, and
    after `enter` `hand_over`.

    A list of statements is part of one transaction where the database has transactions of DDL, and
    a single statement where it hasn't: either all of it happens, or nothing. The names of
    partitions come as `quoted` gives them.

    Attributes:
        has_rest: Whether a partition can hold the rows that belong in no other.
        locks: Whether a table can be locked against writers while it is looked through, in the
            transaction that drops it.
    """

    has_rest: ClassVar[bool] = False
    locks: ClassVar[bool] = False

    def table(self, cut: Cut) -> str:
        """The table, quoted."""
        return self.quoted(cut.schema, cut.name)

    @abstractmethod
    def quoted(self, schema: str | None, name: str) -> str:
        """A table's, or a partition's, name in a statement."""

    @abstractmethod
    def clause(self, column: str) -> str:
        """What stands behind ``PARTITION BY`` when the table is created."""

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
        - ``hindrance``: why it can't go as a whole, a key of `HINDRANCES`; NULL if it can;
        - ``rows``: how many it has, by the database's statistics; NULL where these know nothing;
        - ``is_heard``: whether a trigger hears of rows that are inserted into the table;
        - ``columns``: the names of those that are written, not generated.
        """

    @abstractmethod
    def enter(self, cut: Cut) -> str:
        """Keep others off the table until the transaction ends."""

    @abstractmethod
    def lock(self, cut: Cut, leaf: str) -> list[str]:
        """Keep writers off a partition until the transaction ends; readers go on."""

    @abstractmethod
    def first(self, cut: Cut, ranges: Sequence[Range]) -> list[str]:
        """Make the partitions of a table that was created just now."""

    @abstractmethod
    def make(self, cut: Cut, leaf: Range, rest: str | None, columns: Sequence[str]) -> list[str]:
        """Make a partition while others use the table.

        `rest` is the one for all other rows if it has some that belong into the new one: they are
        moved, with these columns. None if it has none.
        """

    @abstractmethod
    def within(self, cut: Cut, leaf: Range) -> str:
        """The condition for rows that belong into a partition."""

    @abstractmethod
    def drop(self, cut: Cut, leaf: str) -> list[str]:
        """Drop a partition with its rows; an error if it is none of this table any more."""

    @abstractmethod
    def move(self, cut: Cut, leaf: str, places: str, columns: Sequence[str]) -> list[str]:
        """Move rows of a partition to the one for the rest, and drop it with all others.

        The second statement moves them, so that its count of rows says how many there were.
        `places` is what the database's ``ctid`` are as an array, `columns` are those to write.
        """

    @abstractmethod
    def prepare_handover(self, cut: Cut, leaf: str, edges: Edges) -> list[list[str]]:
        """What makes `hand_over` short: transactions, of which each may be done again."""

    @abstractmethod
    def hand_over(self, cut: Cut, leaf: tuple[str, str], into: Cut, edges: Edges) -> list[str]:
        """Make a partition, by its schema and name, one of another table, with the same bounds."""


HINDRANCES: Final = {
    "reference": "foreign keys refer to the table, and would not be asked",
    "trigger": "triggers for DELETE or TRUNCATE would not hear of it",
    "policy": "row-level security may hide rows of it",
    "owner": "the table or the partition belongs to another user",
    "shape": "it is cut into partitions itself, or is a foreign table",
}
"""Why a partition can't go as a whole, as reports say it."""


def leaf_name(table: str, suffix: str) -> str:
    """The name of a table's partition, short enough for every database."""
    name = f"{table}_{suffix}"
    return name if len(name) <= MAX_NAME else index_name(table, suffix).removeprefix("ix_")
