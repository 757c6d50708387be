"""Which policy a collection has, and whose ``__ttl__`` it is.

The policy is read from the class at each operation: a changed ``__ttl__`` acts at once. Which
class a collection belongs to is known to `ttl_odm.beanie.policy.registry`.

This module must not know what is done to filters, pipelines or documents.
"""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from ttl_odm.core.policy import TTL, ExpireAfter, ExpireAt, Policy, as_policy
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ttl_odm.beanie.policy.ttl_indexes import Purge

_NOTHING: Final = object()
_DAY: Final = 86_400


class Binding:
    """A collection's policy.

    Attributes:
        model: The class whose declaration counts: the root of those that share the collection.
        backend: "mongodb", or "cosmos" where the service itself expires documents.
    """

    def __init__(self, model: type, backend: Backend) -> None:
        """Remember the class; its ``__ttl__`` is read when a policy is asked for."""
        self.model = model
        self.backend: Backend = backend
        self._declaration: object = _NOTHING
        self._policy: Policy | None = None
        self._is_fixed = True

    @property
    def policy(self) -> Policy:
        """How documents expire at this moment; functions have been asked for their defaults.

        Raises:
            InvalidTTL: The declaration is no ttl.
        """
        policy = self.declared
        return policy if self._is_fixed else settled(policy)

    @property
    def declared(self) -> Policy:
        """How documents expire, as the class declares it at this moment.

        Raises:
            InvalidTTL: The declaration is no ttl.
        """
        found = declaration(self.model)
        if self._policy is None or found is not self._declaration:
            self._policy = declared_policy(self.model)
            self._declaration = found
            self._is_fixed = settled(self._policy) is self._policy
        return self._policy

    @property
    def purge(self) -> Purge:
        """Who deletes what has expired: "native" (MongoDB itself) or "sweeper".

        Raises:
            TTLConfigurationError: The class declares something else.
        """
        return purge_of(self.model)


def declaration(model: type) -> object:
    """Return what a class declares: its nearest ``__ttl__`` or ``Settings.ttl``, or None."""
    return _nearest(model, "__ttl__", "ttl", default=None)


def declared_policy(model: type) -> Policy:
    """Return the policy that a class declares, as it is meant for stored documents.

    Raises:
        InvalidTTL: The declaration is no ttl.
        TTLConfigurationError: It cannot be held by a field of dates.
    """
    return as_stored(model, as_policy(declaration(model), where=f"{model.__name__}.__ttl__"))


def as_stored(model: type, policy: Policy) -> Policy:
    """Return a policy for a class as it is meant for stored documents.

    Beanie stores a ``date`` as the midnight that begins it, but it lasts until the next one.

    Raises:
        TTLConfigurationError: It cannot be held by a field of dates.
    """
    created = policy.created if isinstance(policy, TTL) else None
    if created is not None and any(_holds_days(info) for info in _fields_named(model, created)):
        message = (
            f"{model.__name__}.__ttl__ = {policy!r}: {created!r} is a date without a time, which "
            "says nothing of the hour of the creation: let it be a datetime."
        )
        raise TTLConfigurationError(message)
    name = policy.last_modified if isinstance(policy, TTL) else policy.field
    if not any(_holds_days(info) for info in _fields_named(model, name)):
        return policy
    if isinstance(policy, ExpireAfter):
        return ExpireAfter(name, policy.seconds + _DAY)
    if isinstance(policy, ExpireAt) and policy.null == "never":
        return ExpireAfter(name, _DAY)
    message = (
        f"{model.__name__}.__ttl__ = {policy!r}: {name!r} is a date without a time. Such a field "
        "can be that of ExpireAfter or of ExpireAt(null='never')."
    )
    raise TTLConfigurationError(message)


def settled(policy: Policy) -> Policy:
    """Return the same policy as it is at this moment: functions have been asked."""
    return policy.settled if isinstance(policy, TTL) else policy


def _fields_named(model: Any, stored: str) -> Iterator[Any]:
    for name, info in getattr(model, "model_fields", {}).items():
        if (info.alias or name) == stored:
            yield info.annotation


def _holds_days(annotation: Any) -> bool:
    return annotation is date or any(map(_holds_days, get_args(annotation)))


def purge_of(model: type) -> Purge:
    """Return its nearest ``__ttl_purge__`` or ``Settings.ttl_purge``."""
    declared = _nearest(model, "__ttl_purge__", "ttl_purge", default="native")
    if declared == "native":
        return "native"
    if declared == "sweeper":
        return "sweeper"
    message = f"{model.__name__}.__ttl_purge__ = {declared!r}: give 'native' or 'sweeper'."
    raise TTLConfigurationError(message)


def _nearest(model: type, attribute: str, setting: str, *, default: object) -> object:
    # Not get_settings(): Beanie keeps what it knows, and drops `ttl`.
    for base in model.__mro__:
        own = base.__dict__
        if attribute in own:
            return own[attribute]
        declared = getattr(own.get("Settings"), setting, _NOTHING)
        if declared is not _NOTHING:
            return declared
    return default


Backend = Literal["mongodb", "cosmos"]
