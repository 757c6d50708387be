"""Rows by scope: those with a default ttl of their own, by the value of a field, and all others.

A table may have a million scopes, and people have to read them, so only the largest are named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

OTHERS: Final = ""
"""In the place of a scope: all rows without a default of their own."""

_NAMED: Final = 20
"""Scopes that a report names, those with the most rows."""


def largest(own: Mapping[str, int], total: int, most: int = _NAMED) -> dict[str, int]:
    """Name the scopes with the most rows, the largest first, and sum the others up.

    Args:
        own: Rows by scope, for scopes with a default of their own.
        total: Rows of all scopes.
        most: How many are named.

    Returns:
        Rows by scope. `OTHERS`, the last one, has the others, if there are any. It is empty where
        `own` has no rows.
    """
    ranked = sorted(((-rows, scope) for scope, rows in own.items() if rows > 0 and scope))
    named = {scope: -rows for rows, scope in ranked[:most]}
    others = total - sum(named.values())
    return {**named, OTHERS: others} if named and others > 0 else named
