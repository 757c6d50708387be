"""`TTLQuerySet` and its manager: the flags of `ttl_odm.django.policy.options` as methods.

Convenience only. What hides expired rows is the gate, whatever manager a model has.
"""

from __future__ import annotations

from typing import Any

from django.db import models

from ttl_odm.django.policy import options


class TTLQuerySet(models.QuerySet):
    """A queryset that can say which rows it reads."""

    def include_expired(self) -> Any:
        """Read expired rows too, those of joined tables included; nothing revives them."""
        return options.include_expired(self)

    def only_expired(self) -> Any:
        """Read the expired rows that were not purged yet, and no others."""
        return options.only_expired(self)

    def keep_last_modified(self) -> Any:
        """Let ``update()`` and ``bulk_update()`` leave the rows' lifetime as it is."""
        return options.keep_last_modified(self)


TTLManager: Any = models.Manager.from_queryset(TTLQuerySet, "TTLManager")
"""The manager of `TTLQuerySet`."""


class AllObjectsManager(TTLManager):
    """A manager that reads expired rows too."""

    def get_queryset(self) -> Any:
        """All rows."""
        return options.include_expired(super().get_queryset())
