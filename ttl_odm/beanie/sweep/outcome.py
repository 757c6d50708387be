"""What came of a batch whose documents go by their keys: all at once, or as many as will go."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pymongo.errors import OperationFailure

from ttl_odm.beanie.purge.errors import is_conflict, is_passing
from ttl_odm.beanie.purge.removal import RefusedError, Rows
from ttl_odm.sweeper import BatchResult, HookError, Purged, Skip

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ttl_odm.beanie.purge.removal import Removed

_INVALID: Final = 121
"""A validator refused a document."""


@dataclass(slots=True)
class Outcome:
    """What was done, in transactions that were committed, and what wasn't.

    Attributes:
        deleted: Documents.
        archived: Documents of these that were archived.
        purged: What the hooks after the commit are to be told.
        left: Documents that are still there.
        skipped: How many, by reason.
        failure: What a hook or an archive raised.
    """

    deleted: int = 0
    archived: int = 0
    purged: list[Purged] = field(default_factory=list)
    left: Rows = field(default_factory=list)
    skipped: Counter[Skip] = field(default_factory=Counter)
    failure: HookError | None = None

    async def reach(self, rows: Rows, work: Callable[[Rows], Awaitable[Removed]]) -> None:
        """Do work on documents; where that can't be done on all of them, on ever fewer.

        Args:
            rows: The documents.
            work: Does it and commits, or raises and has done nothing.
        """
        waiting = [rows] if rows else []
        while waiting:
            some = waiting.pop()
            try:
                removed = await work(some)
            except Exception as error:
                if len(some) > 1 and _is_about_some(error):
                    middle = len(some) // 2
                    waiting += [some[middle:], some[:middle]]
                elif not self._can_leave(some, error):
                    raise
            else:
                self._add(removed)
                if removed.rest and removed.deleted:
                    waiting.append(removed.rest)

    def _add(self, removed: Removed) -> None:
        self.deleted += removed.deleted
        self.archived += removed.archived
        if removed.purged is not None:
            self.purged.append(removed.purged)

    def _can_leave(self, rows: Rows, error: Exception) -> bool:
        if isinstance(error, HookError):
            self.failure = self.failure or error
            reason = Skip.HOOK
        elif _is_about_some(error) or (self.deleted and is_passing(error)):
            reason = Skip.LOCKED  # if only time ran out: what is done can't be undone any more
        else:
            return False
        self.left += rows
        self.skipped[reason] += len(rows)
        return True

    def result(self, resume: Any) -> BatchResult:
        """Return it as the sweeper wants it."""
        return BatchResult(
            self.deleted,
            resume,
            archived=self.archived,
            skipped=dict(self.skipped),
            purged=tuple(self.purged),
            failure=self.failure,
        )


def _is_about_some(error: Exception) -> bool:
    """Whether it may be the fault of a single document."""
    if isinstance(error, RefusedError) or is_conflict(error):
        return True
    return isinstance(error, OperationFailure) and error.code == _INVALID
