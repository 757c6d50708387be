"""What saving an instance of an expired row comes to: an error, never a new row.

Django's ``save()`` runs an UPDATE, and an INSERT if that matched nothing. For an instance that was
read from a row which has expired since, the INSERT would bring it back to life. So where a policy
is, an instance that came from the database is only ever updated; if its row is gone, it raises.
"""

from __future__ import annotations

import functools
from typing import Any, Final

from django.db import DatabaseError

from ttl_odm import errors
from ttl_odm.django.policy import options
from ttl_odm.django.policy.binding import place_of

_MARK: Final = "_ttl_odm_guard"


class ExpiredError(errors.ExpiredError, DatabaseError):
    """The row has expired, so it no longer exists and can't be saved.

    What is raised is also the model's own ``DoesNotExist``, and the ``DatabaseError`` that Django
    raises where ``save(force_update=True)`` matches nothing.
    """


@functools.cache
def _error_of(model: Any) -> Any:
    """The error for a model's rows."""
    members = {"__module__": __name__, "__doc__": ExpiredError.__doc__}
    return type(f"{model.__name__}Expired", (ExpiredError, model.DoesNotExist), members)


def guard(model: Any) -> None:
    """Let instances of a model raise instead of coming back to life."""
    original = model._do_update
    if getattr(original, _MARK, False):
        return

    @functools.wraps(original)
    def _do_update(self: Any, base_qs: Any, using: str, pk_val: Any, *args: Any) -> Any:
        # What follows is: values, update_fields, forced_update, and whatever Django adds.
        place = place_of(base_qs.model._meta.concrete_model._meta.db_table)
        if place is not None and place.link is not None and _writes_root(place, args[1]):
            base_qs = options.after_root(options.include_expired(base_qs))
        updated = original(self, base_qs, using, pk_val, *args)
        is_root = place is not None and place.link is None and not place.binding.is_off
        if not updated and is_root and not self._state.adding and self._state.db == using:
            raise _error_of(type(self))(model=self._meta.label, key=pk_val)
        return updated

    setattr(_do_update, _MARK, True)
    model._do_update = _do_update


def _writes_root(place: Any, update_fields: Any) -> bool:
    if update_fields is None:
        return True
    names = {
        name
        for field in place.binding.model._meta.local_concrete_fields
        for name in (field.name, field.attname)
    }
    return not names.isdisjoint(update_fields)
