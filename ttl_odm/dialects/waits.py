"""How long a change of a stored default waits for others: in short tries."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

TRIES: Final = 24
"""To get a lock, each of a second at most: half a minute with the pauses in between."""

WAITED: Final = 1205
"""MariaDB's and MySQL's code for a statement that has waited for a lock for too long."""

NOT_AVAILABLE: Final = "55P03"
"""PostgreSQL's."""

_FIRST: Final = 50
_LONGEST: Final = 1_000


def waits() -> Iterator[tuple[bool, int]]:
    """Yield each try: whether it is the last one, and its milliseconds."""
    wait = _FIRST
    for left in reversed(range(TRIES)):
        yield not left, wait
        wait = min(2 * wait, _LONGEST)


_RACES: Final = 10
"""How often a change is begun that loses a race against another one."""


def races() -> Iterator[tuple[bool, float]]:
    """Yield each attempt: whether it is the last one, and how many seconds to pause if it loses.

    Where a default isn't stored yet, MariaDB and MySQL lock the gap for all who want to insert it,
    and end all but one of them as deadlocks. Those who began again at once would meet once more.
    """
    for attempt in range(_RACES):
        yield attempt == _RACES - 1, random.uniform(0, 0.01 * 2**attempt)  # noqa: S311 (no secret)
