"""Numbers of rows by scope: by the values of a field that have default ttls of their own.

Of a million scopes a report names the largest. The key of all others is
`ttl_odm.stored.rows.WHOLE_TABLE`, the empty text: no scope with a default of its own has that name,
and stored defaults have it for the table's default.

This module must not know where the rows are.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, cast

from ttl_odm.core.extension import largest
from ttl_odm.stored.rows import WHOLE_TABLE
from ttl_odm.sweeper.facts import Fact, Number, Reading, RowsFact
from ttl_odm.sweeper.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from typing_extensions import Self

    from ttl_odm.sweeper.facts import Reported

_NAMED_IN_BRIEF: Final = 5
"""The most scopes that an error names."""

_MOST_COUNTED: Final = 10_000
"""The most scopes that a sweep counts one by one, before it adds the smallest to the others."""

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
"""All numbers of these facts, for monitoring systems."""


@dataclass(frozen=True, slots=True)
class RowsByScope(RowsFact):
    """The numbers of rows of scopes that have a default of their own."""

    rows: Mapping[str, int]
    what: Literal["expired", "deleted"]

    def __bool__(self) -> bool:
        return bool(self.rows)

    def __str__(self) -> str:
        return f"{self.what} by scope: {listed(self.rows)}"

    def to_dict(self) -> Mapping[str, int]:
        """Return the numbers of rows by scope."""
        return dict(self.rows)

    def plus(self, earlier: RowsFact) -> Self:
        """Return the sums, of as many scopes as a sweep keeps."""
        return replace(self, rows=summed(cast("RowsByScope", earlier).rows, self.rows))

    def among(self, rows: int) -> Self:
        """Return the numbers of the largest scopes, and the sum of the others."""
        return replace(self, rows=largest(self.rows, rows))

    @property
    def brief(self) -> str:
        """The largest few scopes, as text."""
        named = {scope: rows for scope, rows in self.rows.items() if scope}
        few = largest(named, sum(self.rows.values()), _NAMED_IN_BRIEF)
        return f"by scope: {listed(few)}" if few else ""

    def numbers(self, target: Reported) -> Iterator[Reading]:
        """Yield the numbers of deleted rows, or of expired rows that are left."""
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
            yield Reading(_ROWS_DELETED, 0, scope)  # a counter begins with 0
            yield Reading(_ROWS_LEFT, due.get(scope, 0) - gone.get(scope, 0), scope)


def due_by_scope(rows: Mapping[str, int]) -> dict[str, Fact]:
    """Return the fact about expired rows, under its name.

    A table with scopes has it even if no scope has a default of its own.
    """
    return {_DUE: RowsByScope(rows, "expired")}


def deleted_by_scope(rows: Mapping[str, int]) -> dict[str, Fact]:
    """Return the fact about deleted rows, under its name."""
    return {_DELETED: RowsByScope(rows, "deleted")}


def _with_others(named: Mapping[str, int], total: int) -> dict[str, int]:
    """Return the numbers of rows by scope, with that of all other rows."""
    rows = {scope: number for scope, number in named.items() if scope}
    return {**rows, WHOLE_TABLE: total - sum(rows.values())}


def summed(some: Mapping[str, int], others: Mapping[str, int]) -> dict[str, int]:
    """Return the sums of two counts by scope, without the smallest if there are too many."""
    rows = Counter(some)
    rows.update(others)
    return dict(rows.most_common(_MOST_COUNTED // 2) if len(rows) > _MOST_COUNTED else rows)


def listed(by_scope: Mapping[str, int]) -> str:
    """Return numbers of rows by scope as text."""
    return ", ".join(
        f"{visible(scope)} {rows:,}" if scope else f"all others {rows:,}"
        for scope, rows in by_scope.items()
    )
