"""Locking the defaults by which a transaction deletes, where others may change them meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import connections

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ttl_odm.django.policy.bindings import Binding


def lock_defaults(bindings: Iterable[Binding], using: str) -> None:
    """Let the default ttls of tables stay as they are until the transaction ends.

    Those whose defaults Python knows are ignored.
    """
    sources = {
        _name_of(binding): binding.source for binding in bindings if not binding.source.is_known
    }
    if not sources or not connections[using].features.has_select_for_update:
        return
    for name in sorted(sources):  # in one order, or two transactions deadlock
        sources[name].lock(using)


def _name_of(binding: Binding) -> str:
    # How one names a table of another schema in Django: '"schema"."table"', or from its middle on.
    return str(binding.model._meta.db_table).replace('"', "")
