"""Counting documents by those scopes that have a stored default of their own: `Stored.by`.

This module must not know how documents are found or deleted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ttl_odm.beanie.policy.predicate import kind_number
from ttl_odm.core.policy import TTL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ttl_odm.beanie.policy.binding import Binding
    from ttl_odm.beanie.policy.predicate import Expression
    from ttl_odm.core.policy import Policy


@dataclass(frozen=True, slots=True)
class OwnScopes:
    """The names of these scopes, and the expression for the number of a document's; -1: none."""

    names: tuple[str, ...]
    number: Expression

    def named(self, counted: Mapping[int, int]) -> Counter[str]:
        """Return what was counted by number by name, without all others."""
        by_scope: Counter[str] = Counter()
        for number, documents in counted.items():
            if number >= 0:
                by_scope[self.names[number]] += documents
        return by_scope


def own_scopes(binding: Binding, policy: Policy) -> OwnScopes | None:
    """Return the scopes by which documents are counted under a policy; None where nothing is."""
    by = binding.scope
    if by is None:
        return None
    if not isinstance(policy, TTL) or not policy.kinds:
        return None
    names = tuple(str(scope) for scope, _ in policy.kinds)
    return OwnScopes(names, kind_number(policy, by))
