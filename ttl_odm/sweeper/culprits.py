"""The search for the rows that keep a batch from being deleted: how large the next batch is.

A trigger refuses a row, an archive doesn't take it, a hook chokes on it: the whole batch is undone.
It is halved until what can't go stands alone; that is left, and the rest goes. Where many such rows
follow each other, as after an earlier sweep took all between them, only the first few are singled
out. From then on batches that fail are left whole, each twice as large as the one before it, until
something goes again; then the last of them is gone through once more. So a thousand rows cost some
thirty batches more than ten, and none that can go stays.

This module must not know a store, nor why a batch failed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ttl_odm.sweeper.store import BatchResult

SINGLED_OUT: Final = 5
"""Rows in a row of which each is found by itself."""


@dataclass(slots=True)
class CulpritSearch:
    """What is known while one part of a target is purged.

    Attributes:
        limit: Rows that the next batch may have, at most; None while nothing is wrong.
        last_left: The last batch that was left whole, and where it began; None if a batch went
            since, or if it had a single row.
    """

    limit: int | None = None
    last_left: tuple[object, BatchResult] | None = None
    _in_a_row: int = 0
    _may_grow: bool = False

    def cap(self, size: int) -> int:
        """Return the rows that a batch may have, which would otherwise have `size`."""
        return size if self.limit is None else min(size, self.limit)

    @property
    def _least(self) -> int:
        """Rows of a batch that is left whole."""
        return 1 << max(0, self._in_a_row - SINGLED_OUT)

    def leaves(self, begin: object, size: int, result: BatchResult) -> bool:
        """Whether to leave a batch that has failed; otherwise it is to be tried with fewer rows."""
        rows = min(size, sum(result.skipped.values()))
        self._may_grow = False
        if rows > self._least:
            self.limit = max(rows // 2, self._least)
            return False
        self._in_a_row += 1
        self.limit = self._least
        self.last_left = (begin, result) if rows > 1 else None
        return True

    def goes_on(self, size: int) -> None:
        """Note a batch that has not failed; all is well once batches have `size` rows again."""
        self._in_a_row = 0
        if self.limit is not None:
            # The half beside one that went has what the whole has failed for.
            self.limit *= 2 if self._may_grow else 1
            self._may_grow = True
            if self.limit >= size:
                self.limit = None

    def go_back(self) -> tuple[object, BatchResult] | None:
        """Return the last batch that was left whole, to go through it again; None if none was."""
        last, self.last_left = self.last_left, None
        if last is not None:
            self._in_a_row, self.limit = 0, 1
        return last
