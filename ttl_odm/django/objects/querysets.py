"""`TTLQuerySet` and its manager: the flags of `ttl_odm.django.policy.options` as methods.

Convenience only. What hides expired rows is the gate, whatever manager a model has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from django.db import models

from ttl_odm.django.policy import options

if TYPE_CHECKING:
    from typing_extensions import Self

M = TypeVar("M", bound=models.Model)


class TTLQuerySet(models.QuerySet[M]):
    """A queryset that can say which rows it reads."""

    def include_expired(self) -> Self:
        """Read expired rows too, those of joined tables included; nothing revives them."""
        return options.include_expired(self)

    def only_expired(self) -> Self:
        """Read the expired rows that were not purged yet, and no others."""
        return options.only_expired(self)

    def keep_last_modified(self) -> Self:
        """Let ``update()`` and ``bulk_update()`` leave the rows' lifetime as it is."""
        return options.keep_last_modified(self)


if TYPE_CHECKING:

    class TTLManager(models.Manager[M]):
        """What `from_queryset` makes, as a type checker can see it."""

        def include_expired(self) -> TTLQuerySet[M]: ...  # noqa: D102
        def only_expired(self) -> TTLQuerySet[M]: ...  # noqa: D102
        def keep_last_modified(self) -> TTLQuerySet[M]: ...  # noqa: D102
else:
    TTLManager = models.Manager.from_queryset(TTLQuerySet, "TTLManager")
    """The manager of `TTLQuerySet`."""


class AllObjectsManager(TTLManager[M]):
    """A manager that reads expired rows too."""

    def get_queryset(self) -> models.QuerySet[M]:
        """All rows."""
        return options.include_expired(super().get_queryset())
