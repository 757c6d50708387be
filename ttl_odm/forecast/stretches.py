"""Which stretches of a table make a sample: one at random of each of its parts.

Pure but for chance. A table is cut into parts in some order of its rows: pages, a rowid, a key.
That order mostly follows the age of rows; so every age is met in its share, which a few random
places would not give.
"""

from __future__ import annotations

import secrets
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from ttl_odm.forecast.estimates import Drawn, Measured

if TYPE_CHECKING:
    from collections.abc import Sequence

PARTS: Final = 500
ROWS: Final = 100
"""How many parts there are, and how many rows a stretch has, about."""

TOO_MANY: Final = 50 * ROWS
"""Rows that no stretch may have: there are rows in one place only, and it would be half of them."""

_TOO_FEW: Final = PARTS * ROWS // 4


def drawn(first: int, places: int, width: int) -> tuple[list[tuple[int, int]], int]:
    """Draw a stretch of each part.

    Args:
        first: The first place in the order.
        places: How many there are.
        width: How many of them a stretch has, at least.

    Returns:
        The stretches, each by its first place and the one after its last, and the number of all
        those that could have been drawn.
    """
    parts = min(PARTS, places)
    found, every = [], 0
    for low, high in pairwise(first + part * places // parts for part in range(parts + 1)):
        choices = max(1, (high - low) // width)
        chosen = secrets.randbelow(choices)
        ends = [low + each * (high - low) // choices for each in (chosen, chosen + 1)]
        found.append((ends[0], ends[1]))
        every += choices
    return found, every


def width_of(places: int, rows: int) -> int:
    """Return how many places a stretch must have for its number of rows.

    Args:
        places: Of the table.
        rows: Of the table, about.
    """
    return max(1, places * ROWS // rows)


def measured(
    asked: Sequence[str], clusters: Sequence[Sequence[int]], every: int
) -> Measured | None:
    """Return what was counted; None where rows are spread so unevenly that it says too little.

    Args:
        asked: The questions.
        clusters: The answers for each stretch, or for those up to one that is too large.
        every: What `drawn` said.
    """
    sizes = [each[0] for each in clusters]
    if max(sizes) >= TOO_MANY or sum(sizes) < _TOO_FEW:
        return None
    return Measured(asked, clusters, Drawn.STRETCHES, every)
