"""What reports say of a table's partitions, and the part of a sweep that makes and drops them.

This module must not know what a partition is in any database.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ttl_odm.sweeper.facts import Fact, Number, Reading
from ttl_odm.sweeper.store import Part
from ttl_odm.sweeper.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ttl_odm.sweeper.facts import Reported

PARTITIONS: Final = Part("partitions", whole=True)
"""Whole partitions: missing ones are made, and those without live rows are dropped.

This part comes first, even if no row has expired.
"""

NUMBERS: Final = {
    "there": Number(
        "partitions", "gauge", "Partitions of a table that is partitioned by time.", ("table",)
    ),
    "over": Number(
        "partitions_over",
        "gauge",
        "Partitions whose rows have outlived the default ttl; some rows may live longer.",
        ("table",),
    ),
    "dead": Number(
        "partitions_dead",
        "gauge",
        "Partitions without live rows, waiting to be dropped.",
        ("table",),
    ),
    "missing": Number(
        "partitions_missing", "gauge", "Partitions that are yet to be created.", ("table",)
    ),
}


@dataclass(frozen=True, slots=True)
class PartitionsCounted(Fact):
    """How many partitions a target has, and what the next sweep will do with them.

    Attributes:
        there: All existing partitions, except the default one for rows that fit no other.
        over: Those past the default ttl: they are dropped if they contain no live row.
        missing: Those that have yet to be created.
        dead: Those of `over` that can't contain a live row. If they remain, the report's notes say
            why.
    """

    there: int
    over: int
    missing: int
    dead: int = 0

    def __str__(self) -> str:
        to_make = f", {self.missing:,} more to be created" if self.missing else ""
        return f"{counted(self.there, 'partition')}, {self.over:,} over{to_make}"

    def to_dict(self) -> dict[str, int]:
        """Return plain values, for JSON."""
        return {
            "there": self.there,
            "over": self.over,
            "missing": self.missing,
            "dead": self.dead,
        }

    def numbers(self, target: Reported) -> Iterator[Reading]:  # noqa: ARG002 (the report's)
        """Return the gauges of these numbers."""
        for name, value in self.to_dict().items():
            yield Reading(NUMBERS[name], value)


def partitions(counts: PartitionsCounted | None) -> dict[str, Fact]:
    """Return the fact by its name; nothing for a table that isn't partitioned by time."""
    return {} if counts is None else {"partitions": counts}
