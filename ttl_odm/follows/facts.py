"""What a sweep says of rows that follow others, and the part of it that deletes orphans.

This module must not know where the rows are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

from ttl_odm.sweeper.facts import Fact, RowsFact
from ttl_odm.sweeper.store import Part
from ttl_odm.sweeper.text import counted, visible

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Self

ORPHANS: Final = Part("orphans", last=True)
"""Rows of other tables that follow rows of the target, and whose parent is missing."""


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
        """Return them by table."""
        return dict(self.rows)

    def plus(self, earlier: RowsFact) -> Self:
        """Return the sums by table."""
        both = (cast("Followers", earlier).rows, self.rows)
        tables = dict.fromkeys(table for rows in both for table in rows)
        sums = {table: sum(rows.get(table, 0) for rows in both) for table in tables}
        return replace(self, rows=sums)

    @property
    def along(self) -> int:
        """All of them."""
        return sum(self.rows.values())


def due_followers(rows: Mapping[str, int]) -> dict[str, Fact]:
    """Return the fact that dry runs report, by its name."""
    return {"due_followers": Followers(rows)}
