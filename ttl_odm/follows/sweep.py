"""What sweeps of all adapters have in common: how many followers went, orphans, and reports.

This module must not know where the rows are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

from ttl_odm.sweeper.facts import Fact, RowsFact
from ttl_odm.sweeper.store import Part
from ttl_odm.sweeper.text import counted, visible

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Mapping

    from typing_extensions import Self

    from ttl_odm.sweeper import BatchRequest

ORPHANS: Final = Part("orphans", last=True)
"""Rows of other tables that follow rows of the target, and whose parent is missing."""


class Removal:
    """Counts the rows that are removed, up to a limit.

    Attributes:
        limit: How many rows may be removed; None for any number.
        removed: The rows removed so far, by table.
    """

    __slots__ = ()

    limit: int | None
    removed: Counter[str]

    @property
    def is_done(self) -> bool:
        """Whether all rows were removed; otherwise the limit was reached."""
        return self.limit is None or self.removed.total() < self.limit

    def next_size(self, most: int) -> int:
        """Return how many rows to remove next: at most so many, none once the limit is reached."""
        return most if self.limit is None else min(self.limit - self.removed.total(), most)

    def resume(self, request: BatchRequest, *, has_more: bool = False) -> int | None:
        """Return where the next batch of orphans goes on; None after the last one.

        It is the number of rows removed by all batches, so each batch has another one.
        """
        before = request.resume if isinstance(request.resume, int) else 0
        removed = self.removed.total()
        return before + removed if removed and (has_more or not self.is_done) else None


@dataclass(frozen=True, slots=True)
class Followers(RowsFact):
    """Rows of other tables that follow expired rows and will be deleted with them, by table."""

    rows: Mapping[str, int]

    def __bool__(self) -> bool:
        return bool(self.rows)

    def __str__(self) -> str:
        return "\n".join(
            f"{counted(rows, 'row')} of {visible(table)} would be deleted as well, because their "
            "parents have expired"
            for table, rows in self.rows.items()
        )

    def to_dict(self) -> Mapping[str, int]:
        """Return the numbers of rows by table, for JSON."""
        return dict(self.rows)

    def plus(self, earlier: RowsFact) -> Self:
        """Return the sums by table."""
        both = (cast("Followers", earlier).rows, self.rows)
        tables = dict.fromkeys(table for rows in both for table in rows)
        sums = {table: sum(rows.get(table, 0) for rows in both) for table in tables}
        return replace(self, rows=sums)

    @property
    def along(self) -> int:
        """The rows of all tables together."""
        return sum(self.rows.values())


def due_followers(rows: Mapping[str, int]) -> dict[str, Fact]:
    """Return the fact that dry runs report, by its name."""
    return {"due_followers": Followers(rows)}
