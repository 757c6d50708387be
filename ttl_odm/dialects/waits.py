"""How long a change of a stored default waits for whoever deletes by it: in short tries."""

from __future__ import annotations

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
