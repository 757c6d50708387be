"""The one way from a class or a collection to its policy.

A `Registry` belongs to a client and knows the collections of its databases by name, so that a
pipeline which starts at any collection finds the policies of those it looks into.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from beanie.exceptions import CollectionWasNotInitialized

from ttl_odm.beanie.gate.views import Views
from ttl_odm.beanie.policy.binding import Binding, declared_policy, settled
from ttl_odm.beanie.policy.ttl_indexes import check_purge
from ttl_odm.beanie.time.clock import ServerClock
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from ttl_odm.beanie.policy.binding import Backend
    from ttl_odm.core.policy import Policy


def collection_of(document: Any) -> Any:
    """Return the gated collection of a document, or of its class."""
    if hasattr(document, "get_pymongo_collection"):
        return document.get_pymongo_collection()
    return document.get_motor_collection()


def policy_of(model: type) -> Policy:
    """Return the policy that a class declares at this moment.

    Raises:
        InvalidTTL: The declaration is no ttl.
    """
    return settled(declared_policy(model))


def binding_of(model: Any) -> Binding | None:
    """Return the policy of a document class, None where it has none.

    Raises:
        TTLConfigurationError: `init_beanie` has not seen it.
    """
    try:
        collection = collection_of(model)
    except CollectionWasNotInitialized as error:
        raise TTLConfigurationError(
            f"{model.__name__} has no collection yet: call init_beanie() first."
        ) from error
    database = collection.database
    return registry_of(database.client).find(database.name, collection.name)


class Registry:
    """The policies of one client's collections, and that client's view of the server's clock."""

    def __init__(self) -> None:
        """Start without policies."""
        self.clock = ServerClock()
        self.views = Views()
        self._bindings: dict[tuple[str, str], Binding] = {}

    def bind(self, model: type, database: str, collection: str, backend: Backend) -> Binding:
        """Put a class's policy on a collection.

        Raises:
            InvalidTTL: The declaration is no ttl.
            TTLConfigurationError: The collection has another policy already.
        """
        found = self._bindings.get((database, collection))
        if found is None or _is_defined_again(found.model, model):
            found = Binding(model, backend)
        elif issubclass(found.model, model):
            _check_same(found, Binding(model, backend), collection)
            found = Binding(model, backend)
        else:
            _check_same(found, Binding(model, backend), collection)
        _check_same(found, found, collection)  # reads both, and so checks them
        self._bindings[database, collection] = found
        return found

    def unbind(self, database: str, collection: str) -> None:
        """Take a collection's policy away."""
        self._bindings.pop((database, collection), None)

    def find(self, database: str, collection: str) -> Binding | None:
        """Return a collection's policy, None where it has none."""
        return self._bindings.get((database, collection))


def registry_of(client: Any) -> Registry:
    """Return the registry of a client, PyMongo's or Motor's."""
    key = id(client)
    if key not in _registries:
        _registries[key] = Registry()
        weakref.finalize(client, _registries.pop, key, None)
    return _registries[key]


# By id: a client's hash changes when it connects.
_registries: dict[int, Registry] = {}


def _is_defined_again(old: type, new: type) -> bool:
    """Say whether it is the same class, from a notebook's cell or a module that was reloaded."""
    names = (old.__module__, old.__qualname__), (new.__module__, new.__qualname__)
    return names[0] == names[1]


def _check_same(one: Binding, other: Binding, collection: str) -> None:
    check_purge(one.declared, one.purge)
    if (one.declared, one.purge) != (other.declared, other.purge):
        message = (
            f"{one.model.__name__} and {other.model.__name__} share the collection "
            f"{collection!r}, so they share one policy, but declare {one.declared!r} "
            f"(purge {one.purge!r}) and {other.declared!r} (purge {other.purge!r})."
        )
        raise TTLConfigurationError(message)
