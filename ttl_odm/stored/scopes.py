"""Rows by scope, where values of a field have default ttls of their own: `ttl_odm.Stored.by`.

Of a million scopes a report names the largest. The key of all others is
`ttl_odm.stored.rows.WHOLE_TABLE`, the empty text: it is never the name of a scope with a default
of its own, and stands for the table's default where defaults are stored.

This module must not know where the rows are.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, cast

from ttl_odm.core.scopes import largest
from ttl_odm.stored.rows import WHOLE_TABLE
from ttl_odm.sweeper.facts import Fact, Number, Reading, RowsFact
from ttl_odm.sweeper.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from typing_extensions import Self

    from ttl_odm.sweeper.facts import Reported

_NAMED_IN_BRIEF: Final = 5
"""Scopes that an error names."""

_MOST_COUNTED: Final = 10_000
"""Scopes that a sweep counts apart, before it forgets the smallest."""

_DUE: Final = "due_by_scope"
_DELETED: Final = "deleted_by_scope"

_ROWS_DELETED: Final = Number(
    "scope_rows_deleted",
    "counter",
    "Rows deleted from scopes that have their own default; the empty scope stands for all others.",
    ("table", "scope"),
)
_ROWS_LEFT: Final = Number(
    "scope_expired_rows",
    "gauge",
    "Expired rows left in these scopes, where they were counted.",
    ("table", "scope"),
)
NUMBERS: Final = (_ROWS_DELETED, _ROWS_LEFT)
"""All numbers of these facts."""


@dataclass(frozen=True, slots=True)
class RowsByScope(RowsFact):
    """How many rows are of each scope that has a default of its own."""

    rows: Mapping[str, int]
    what: Literal["expired", "deleted"]

    def __bool__(self) -> bool:
        return bool(self.rows)

    def __str__(self) -> str:
        return f"{self.what} by scope: {listed(self.rows)}"

    def to_dict(self) -> Mapping[str, int]:
        """Return them by scope."""
        return dict(self.rows)

    def plus(self, earlier: RowsFact) -> Self:
        """Return the sums, of so many scopes as a sweep may remember."""
        return replace(self, rows=summed(cast("RowsByScope", earlier).rows, self.rows))

    def among(self, rows: int) -> Self:
        """Name the largest, and sum the others up."""
        return replace(self, rows=largest(self.rows, rows))

    @property
    def brief(self) -> str:
        """The largest few."""
        named = {scope: rows for scope, rows in self.rows.items() if scope}
        few = largest(named, sum(self.rows.values()), _NAMED_IN_BRIEF)
        return f"by scope: {listed(few)}" if few else ""

    def numbers(self, target: Reported) -> Iterator[Reading]:
        """Return how many rows were deleted, or are left."""
        if self.what == "deleted":
            for scope, rows in _with_others(self.rows, target.deleted).items():
                yield Reading(_ROWS_DELETED, rows, scope)
            return
        deleted = target.facts.get(_DELETED)
        gone = _with_others(
            deleted.rows if isinstance(deleted, RowsByScope) else {}, target.deleted
        )
        due = _with_others(self.rows, target.due or 0)
        for scope in dict.fromkeys((*due, *gone)):
            yield Reading(_ROWS_DELETED, 0, scope)  # a counter begins with nothing
            yield Reading(_ROWS_LEFT, due.get(scope, 0) - gone.get(scope, 0), scope)


def due_by_scope(rows: Mapping[str, int]) -> dict[str, Fact]:
    """Return the fact about expired rows by its name.

    A table whose scopes may have defaults has it even if none has any.
    """
    return {_DUE: RowsByScope(rows, "expired")}


def deleted_by_scope(rows: Mapping[str, int]) -> dict[str, Fact]:
    """Return the fact about deleted rows by its name, as `due_by_scope` does."""
    return {_DELETED: RowsByScope(rows, "deleted")}


def _with_others(named: Mapping[str, int], total: int) -> dict[str, int]:
    """Return rows by scope, with those of no named scope, if there are any."""
    rows = {scope: number for scope, number in named.items() if scope}
    return {**rows, WHOLE_TABLE: total - sum(rows.values())}


def summed(some: Mapping[str, int], others: Mapping[str, int]) -> dict[str, int]:
    """Return the sums of rows by scope, without the smallest if there are too many."""
    rows = Counter(some)
    rows.update(others)
    return dict(rows.most_common(_MOST_COUNTED // 2) if len(rows) > _MOST_COUNTED else rows)


def listed(by_scope: Mapping[str, int]) -> str:
    """Return what `largest` returned as people read it."""
    return ", ".join(
        f"{visible(scope)} {rows:,}" if scope else f"all others {rows:,}"
        for scope, rows in by_scope.items()
    )
