"""Counts of rows by scope: the value of a field that gives rows a default ttl of their own.

A table may have a million scopes; reports for people name only the largest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

OTHERS: Final = ""
"""In place of a scope: all rows without a default of their own."""

_NAMED: Final = 20
"""The number of scopes that a report names."""


def largest(own: Mapping[str, int], total: int, most: int = _NAMED) -> dict[str, int]:
    """Return the scopes with the most rows, the largest first, and the sum of the others.

    Args:
        own: Rows by scope, for scopes with a default of their own.
        total: Rows of all scopes.
        most: How many scopes are named.

    Returns:
        Rows by scope, with the sum of all other rows, if there are any, under `OTHERS` as the last
        item. Empty if `own` has no rows.
    """
    ranked = sorted(((-rows, scope) for scope, rows in own.items() if rows > 0 and scope))
    named = {scope: -rows for rows, scope in ranked[:most]}
    others = total - sum(named.values())
    return {**named, OTHERS: others} if named and others > 0 else named
