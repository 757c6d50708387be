"""Rows in memory: saving one that has expired is an error, never a new row; querysets of live rows.

Django's ``save()`` runs an UPDATE, and an INSERT if that matched nothing. For an instance that was
read from a row which has expired since, the INSERT would bring it back to life. So where a policy
is, an instance that came from the database is only ever updated; if its row is gone, it raises.

`TTLQuerySet` has the flags of `ttl_odm.django.policy.options` as methods, for convenience only:
what hides expired rows is the gate, whatever manager a model has.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final, TypeVar

from django.db import models

from ttl_odm.django.policy import options
from ttl_odm.django.policy.binding import table_policy
from ttl_odm.django.purge.errors import error_of

if TYPE_CHECKING:
    from django.db.models import Model as Instance
    from typing_extensions import Self

    from ttl_odm.django.policy.binding import AnyQuerySet, Model, TablePolicy

M = TypeVar("M", bound=models.Model)

_MARK: Final = "_ttl_odm_guard"


def guard(model: Model) -> None:
    """Let instances of a model raise instead of coming back to life."""
    owner: Any = model
    original = owner._do_update
    if getattr(original, _MARK, False):
        return

    @functools.wraps(original)
    def _do_update(self: Instance, base_qs: AnyQuerySet, using: str, *args: Any) -> Any:
        # What follows is: pk_val, values, update_fields, forced_update, and what Django adds.
        policy = table_policy(base_qs.model._meta.db_table)
        if policy is None:
            return original(self, base_qs, using, *args)
        if policy.link is not None:
            fields = policy.binding.model._meta.local_concrete_fields
            names = {name for field in fields for name in (field.name, field.attname)}
            if args[2] is None or not names.isdisjoint(args[2]):  # the root was written before
                base_qs = options.after_root(options.include_expired(base_qs))
            return original(self, base_qs, using, *args)
        updated = original(self, base_qs, using, *args)
        is_known = not self._state.adding and self._state.db == using
        if not updated and is_known and not _is_off_for(policy, self, using):
            raise error_of(type(self))(model=self._meta.label, key=self.pk)
        return updated

    setattr(_do_update, _MARK, True)
    owner._do_update = _do_update


def _is_off_for(policy: TablePolicy, obj: Instance, using: str) -> bool:
    if policy.follows is not None:  # the instance isn't of the model with the default
        return policy.binding.is_off
    return policy.binding.is_off_for(obj, using)


class TTLQuerySet(models.QuerySet[M]):
    """A queryset with methods that choose whether it reads live or expired rows."""

    def include_expired(self) -> Self:
        """Read expired rows too, also those of joined tables; nothing revives them."""
        return options.include_expired(self)

    def only_expired(self) -> Self:
        """Read only expired rows that have not been purged yet."""
        return options.only_expired(self)

    def keep_last_modified(self) -> Self:
        """Keep ``update()`` and ``bulk_update()`` from restarting the rows' lifetime."""
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
