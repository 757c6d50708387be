"""Rows by scope, where values of a field have default ttls of their own: `ttl_odm.Stored.by`.

A table may have a million scopes, and a report has to be read, so only the largest are named. The
key of all others is `ttl_odm.core.stored_rows.WHOLE_TABLE`, the empty text: it is never the name of
a scope with a default of its own, and stands for the table's default where defaults are stored.

This module must not know where the rows are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ttl_odm.core.stored_rows import WHOLE_TABLE
from ttl_odm.sweeper.text import visible

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Mapping

NAMED_SCOPES: Final = 20
"""Scopes that a report names, those with the most rows."""

_MOST_COUNTED: Final = 10_000
"""Scopes that a sweep counts apart, before it forgets the smallest."""


def largest(own: Mapping[str, int], total: int, most: int = NAMED_SCOPES) -> dict[str, int]:
    """Name the scopes with the most rows, the largest first, and sum the others up.

    Args:
        own: Rows by scope, for scopes with a default of their own.
        total: Rows of all scopes.
        most: How many are named.

    Returns:
        Rows by scope. `WHOLE_TABLE`, the last one, has the others, if there are any. It is empty
        where `own` has no rows.
    """
    ranked = sorted(((-rows, scope) for scope, rows in own.items() if rows > 0 and scope))
    named = {scope: -rows for rows, scope in ranked[:most]}
    others = total - sum(named.values())
    return {**named, WHOLE_TABLE: others} if named and others > 0 else named


def add(counted: Counter[str], own: Mapping[str, int]) -> None:
    """Add the rows of a batch to those of a sweep, whose memory stays small."""
    counted.update(own)
    if len(counted) > _MOST_COUNTED:
        for scope, _ in counted.most_common()[_MOST_COUNTED // 2 :]:
            del counted[scope]


def listed(by_scope: Mapping[str, int]) -> str:
    """Return what `largest` returned as people read it."""
    return ", ".join(
        f"{visible(scope)} {rows:,}" if scope else f"all others {rows:,}"
        for scope, rows in by_scope.items()
    )
