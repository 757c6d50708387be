"""Which policy a collection has, and the one way to it: from a class, or from a collection.

The policy is read from the class at each operation: a changed ``__ttl__`` acts at once. But where
MongoDB itself deletes, a life must not get longer before `ensure_indexes` has told the server, or
reads would show what its monitor deletes: until then the policy that it goes by is in force. A
default that isn't in code is the one that was noted last; who needs it has it noted before
(`DefaultSource.see`). A `Registry`, one for each client, knows which class a collection belongs to:
it has the collections of all databases by name, so that a pipeline which starts at any of them
finds the policies of those it looks into.

This module must not know what is done to filters, pipelines or documents.
"""

from __future__ import annotations

import logging
import math
import weakref
from contextlib import suppress
from datetime import date
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast, get_args

from beanie.exceptions import CollectionWasNotInitialized

from ttl_odm.beanie.policy.entries import GATED, Backend, Entry
from ttl_odm.beanie.policy.sources import Fixed, outline
from ttl_odm.beanie.policy.ttl_indexes import Purge, check_purge
from ttl_odm.beanie.time.clock import ServerClock
from ttl_odm.core.declaration import DeclaredTTL, shape_of, unenforced
from ttl_odm.core.extension import Extension
from ttl_odm.core.policy import (
    TTL,
    ExpireAfter,
    ExpireAt,
    Policy,
    default_extension,
    instant_field,
)
from ttl_odm.core.values import MAX_TTL, NEVER
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper import declarations

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ttl_odm.beanie.drivers import Collection
    from ttl_odm.beanie.policy.sources import DefaultSource

Model = TypeVar("Model")

logger: Final = logging.getLogger("ttl_odm.beanie")

_NOTHING: Final = object()
_DAY: Final = 86_400

PURGES: Final[tuple[Purge, ...]] = ("native", "sweeper")
"""What ``__ttl_purge__`` may be."""


class Binding(Entry):
    """A collection's policy, as the root of the classes that share the collection declares it.

    `source` is where the default comes from.
    `deleting` is the policy by which MongoDB itself deletes, as far as this process knows: what was
    declared in the beginning, and then what `ensure_indexes` sees to. None where it doesn't.
    """

    def __init__(self, model: type, backend: Backend) -> None:
        """Remember the class; its ``__ttl__`` is read when a policy is asked for."""
        self.model = model
        self.backend: Backend = backend
        self.deleting: Policy | None = None
        self._default = DeclaredTTL(model, read=partial(declaration, model), refine=self._refined)
        self._waiting: Policy | None = None
        self._outline: tuple[Policy, Policy] | None = None
        declared = default_extension(declared_policy(model))
        if declared is None:
            self.source: DefaultSource = Fixed(self._default)
        else:
            self.source = import_module(declared.package("beanie")).source(self, declared)

    @property
    def policy(self) -> Policy:
        """How documents expire at this moment; functions have been asked for their defaults.

        Of a default that isn't in code what was noted last.

        Raises:
            TTLError: Nothing was noted.
        """
        if not self.source.is_known:
            return self.source.policy
        policy, deleting = self._default.settled, self.deleting
        if deleting is None or policy is deleting or _lasts_no_longer(policy, deleting):
            return policy
        if policy != self._waiting:  # once
            self._waiting = policy
            name = self.model.__name__
            logger.warning(
                "%s: %r is not in force yet, because MongoDB deletes by %r: await "
                "ensure_indexes(%s).",
                *(name, policy, deleting, name),
            )
        return deleting

    @property
    def enforced(self) -> Policy | None:
        """The same; None where the service does it, or in a migration nobody."""
        return None if self.enforced_by_others else self.policy

    def judged(self, reader: str) -> Policy | None:
        """The same, wherever it is read from."""
        del reader
        return self.enforced

    def check_shared(self, model: type, declared: Policy | None) -> None:
        """Nothing: two policies are compared when the second class is bound."""

    @property
    def outline(self) -> Policy:
        """The same as `policy` in all that doesn't hang on a default which isn't in code."""
        if self.source.is_known:
            return self.policy
        declared = self.declared
        if self._outline is None or self._outline[0] is not declared:
            self._outline = declared, outline(declared)
        return self._outline[1]

    @property
    def scope(self) -> str | None:
        """The field whose values may have defaults of their own; None if there is none."""
        scoping = self.source.scoping
        return None if scoping is None else scoping.field

    @property
    def is_left_to_service(self) -> bool:
        """Whether the service stamps, hides and deletes its documents, and nobody else can."""
        return expires_itself(self.backend)

    @property
    def has_ranges(self) -> bool:
        """Whether its server finds documents by ranges of indexes (min and max)."""
        return self.backend != "documentdb"

    @property
    def wanted(self) -> Policy:
        """How they shall expire, as soon as MongoDB knows."""
        return self.source.policy

    @property
    def is_time_series(self) -> bool:
        """Whether the collection is one of MongoDB's time series."""
        settings: Any = getattr(self.model, "get_settings", dict)()
        return getattr(settings, "timeseries", None) is not None

    @property
    def declared(self) -> Policy:
        """How documents expire, as the class declares it at this moment.

        Raises:
            TTLConfigurationError: The default was in code before, and isn't now, or the reverse.
        """
        return self._default.policy

    def _refined(self, policy: Policy) -> Policy:
        if (default_extension(policy) is None) != self.source.is_known:
            raise TTLConfigurationError(
                f"{self.model.__name__}.__ttl__ became {policy!r}: whether the database stores "
                "the default can't change while the application runs."
            )
        return as_stored(self.model, policy)

    @property
    def purge(self) -> Purge:
        """Who deletes what has expired: "native" (MongoDB itself) or "sweeper"."""
        return purge_of(self.model)


def expires_itself(backend: Backend) -> bool:
    """Say whether a backend stamps, hides and deletes documents itself: Azure Cosmos DB (RU)."""
    return backend == "cosmos"


def declaration(model: type, *, default: object = None) -> object:
    """Return what a class declares: its nearest ``__ttl__`` or ``Settings.ttl``, or the default."""
    return _nearest(model, "__ttl__", "ttl", default=default)


def purge_of(model: type) -> Purge:
    """Return its nearest ``__ttl_purge__`` or ``Settings.ttl_purge``."""
    declared = _nearest(model, "__ttl_purge__", "ttl_purge", default="native")
    return declarations.purge_of(model, PURGES, declared)


def reject_partitions(model: type) -> None:
    """Reject ``__ttl_partition__`` or ``Settings.ttl_partition``: there are none in MongoDB."""
    declared = _nearest(model, "__ttl_partition__", "ttl_partition", default=None)
    declarations.reject_partitions(model, declared)


def declared_policy(model: type) -> Policy:
    """Return the policy that a class declares, as it is meant for stored documents."""
    return _declared(model).policy


def _lasts_no_longer(policy: Policy, other: Policy) -> bool:
    """Say whether no document lives longer by one policy than by another."""
    if isinstance(policy, TTL) and isinstance(other, TTL):
        if other.limit is not None:
            is_limited = policy.limit is not None and _lasts_no_longer(policy.limit, other.limit)
            return is_limited and _lasts_no_longer(policy.unlimited, other.unlimited)
        policy = policy.unlimited
    return shape_of(policy) == shape_of(other) and _length(policy) <= _length(other)


def _length(policy: Policy) -> float:
    """Return the seconds of a default, or what is longer than all others."""
    if not isinstance(policy, TTL):
        return policy.seconds if isinstance(policy, ExpireAfter) else 0
    if policy.default is None:  # ttls of documents don't count either
        return math.inf
    return MAX_TTL + 1 if policy.default == NEVER else policy.default


def _declared(model: type) -> DeclaredTTL:
    return DeclaredTTL(model, read=partial(declaration, model), refine=partial(as_stored, model))


def as_stored(model: type, policy: Policy) -> Policy:
    """Return a policy for a class as it is meant for stored documents.

    Beanie stores a ``date`` as the midnight that begins it, but it lasts until the next one.
    """

    def holds_days(field: str) -> bool:
        fields: Any = getattr(model, "model_fields", {})
        of_field = (info for name, info in fields.items() if (info.alias or name) == field)
        return any(_mentions_date(info.annotation) for info in of_field)

    created = policy.created if isinstance(policy, TTL) else None
    if created is not None and holds_days(created):
        raise TTLConfigurationError(
            f"{model.__name__}.__ttl__ = {policy!r}: {created!r} is a date without a time, so the "
            "time of creation is unknown: make it a datetime."
        )
    name = instant_field(policy)
    if not holds_days(name):
        return policy
    if isinstance(policy, ExpireAfter):
        return ExpireAfter(name, policy.seconds + _DAY)
    if isinstance(policy, ExpireAt) and policy.null == "never":
        return ExpireAfter(name, _DAY)
    raise TTLConfigurationError(
        f"{model.__name__}.__ttl__ = {policy!r}: {name!r} is a date without a time. Only "
        "ExpireAfter and ExpireAt(null='never') accept such a field."
    )


def _mentions_date(annotation: object) -> bool:
    return annotation is date or any(map(_mentions_date, get_args(annotation)))


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


class Registry:
    """The policies of one client's collections, and that client's view of the server's clock."""

    def __init__(self) -> None:
        """Start without policies."""
        self.clock = ServerClock()
        self.has_unknown = False
        """Whether any collection has, or had, a default that isn't in code."""
        self.without_ttl: set[tuple[str, str]] = set()
        """Collections without a policy in which nothing expires, as far as somebody has looked."""
        self.has_rules = False
        """Whether any collection has, or had, an entry that isn't a policy."""
        self._entries: dict[tuple[str, str], Entry] = {}
        self._left: dict[tuple[str, str], Policy] = {}

    def bind(self, model: type, database: str, collection: str, backend: Backend) -> Binding:
        """Put a class's policy on a collection."""
        place = database, collection
        known = self.find(*place)
        if known is not None and known.backend == "migrations":
            return known  # the application's class tells, not that of a migration
        binding = Binding(model, backend)
        if known is not None and not is_same_class(known.model, model):
            _check_same(known, binding, collection)
            binding = binding if issubclass(known.model, model) else known
        _check_same(binding, binding, collection)  # reads both, and so checks them
        entry = self._entries.get(place)
        if entry is not None and backend != "migrations":
            entry.check_shared(model, binding.declared)
        left = self._left.pop(place, None)
        deleting = left if known is None else known.deleting
        if not binding.source.is_known:
            # Who changes it, and `ensure_indexes`, see to it that MongoDB deletes by it.
            self.has_unknown, deleting = True, None
        elif deleting is None and binding.purge == "native" and backend in GATED:
            deleting = binding.declared
        binding.deleting = deleting
        self._entries[place] = binding
        return binding

    def bind_rule(self, database: str, collection: str, rule: Entry) -> None:
        """Put what isn't a policy on a collection, in the place of what was there."""
        self.unbind(database, collection)
        self._entries[database, collection] = rule
        self.has_rules = True

    def unbind(self, database: str, collection: str) -> None:
        """Take away what stands on a collection, but remember by what MongoDB deletes there."""
        entry = self._entries.pop((database, collection), None)
        if isinstance(entry, Binding) and entry.deleting is not None:
            self._left[database, collection] = entry.deleting

    def forget(self, database: str, collection: str) -> None:
        """Take note that MongoDB deletes nothing any more in a collection without a policy."""
        self._left.pop((database, collection), None)

    def entry(self, database: str, collection: str) -> Entry | None:
        """Return what stands on a collection, None where nothing does."""
        return self._entries.get((database, collection))

    def entries(self) -> tuple[Entry, ...]:
        """Return what stands on all collections."""
        return tuple(self._entries.values())

    def find(self, database: str, collection: str) -> Binding | None:
        """Return a collection's policy, None where it has none."""
        entry = self._entries.get((database, collection))
        return entry if type(entry) is Binding else None  # each operation asks


def registry_of(client: object) -> Registry:
    """Return the registry of a client, PyMongo's or Motor's."""
    key = id(client)
    if key not in _registries:
        _registries[key] = Registry()
        weakref.finalize(client, _registries.pop, key, None)
    return _registries[key]


# By id: a client's hash changes when it connects.
_registries: dict[int, Registry] = {}


def is_same_class(one: type, other: type) -> bool:
    """Say whether two classes are one: that of a notebook's cell, or of a module, read again."""
    names = [(model.__module__, model.__qualname__) for model in (one, other)]
    return one is other or names[0] == names[1]


def _check_same(one: Binding, other: Binding, collection: str) -> None:
    check_purge(one.declared, one.purge)
    if (one.declared, one.purge) != (other.declared, other.purge):
        raise TTLConfigurationError(
            f"{one.model.__name__} and {other.model.__name__} share the collection "
            f"{collection!r}, so they share one policy, but declare {one.declared!r} "
            f"(purge {one.purge!r}) and {other.declared!r} (purge {other.purge!r})."
        )


def subclasses_of(base: type[Model]) -> Iterator[type[Model]]:
    """Give all classes under a class that this process knows."""
    for model in base.__subclasses__():
        yield model
        yield from subclasses_of(model)


def collection_name(model: type) -> str:
    """Return the name of a class's collection, which Beanie itself knows from `init_beanie` on."""
    settings_of = (base.__dict__.get("Settings") for base in model.__mro__)
    roots = zip(model.__mro__, settings_of, strict=True)
    owner: Any = next((base for base, own in roots if getattr(own, "is_root", False)), model)
    owner = getattr(getattr(owner, "Settings", None), "union_doc", None) or owner
    return str(getattr(getattr(owner, "Settings", None), "name", None) or owner.__name__)


def collection_of(document: Any) -> Collection:
    """Return the gated collection of a document, or of its class."""
    is_motor = not hasattr(document, "get_pymongo_collection")
    name = "get_motor_collection" if is_motor else "get_pymongo_collection"
    collection: Collection = getattr(document, name)()
    return collection


def backend_of(collection: Collection) -> Backend | None:
    """Return the backend that `ttl_database` was given; None if the database isn't gated."""
    # A driver's database has any attribute: a collection.
    backend: Any = getattr(collection.database, "ttl_backend", None)
    return cast("Backend", backend) if isinstance(backend, str) else None


def policy_of(model: type) -> Policy:
    """Return how the documents of a class expire at this moment."""
    extension = extension_of(model)
    if extension is not None:
        raise TTLConfigurationError(
            f"{model.__name__} documents have no lifetime of their own: {extension!r}."
        )
    binding = None
    with suppress(CollectionWasNotInitialized, AttributeError):  # Beanie hasn't seen it yet
        binding = _binding_at(collection_of(model))
    return _declared(model).settled if binding is None else binding.policy


def extension_of(model: type) -> Extension | None:
    """Return what a class declares that isn't a lifetime, None where it is one, or nothing."""
    declared = declaration(model)
    return declared if isinstance(declared, Extension) else None


def check_enforced(model: type) -> None:
    """Reject a class that declares how long its documents live, but has no policy in force."""
    declared = declaration(model, default=_NOTHING)
    if declared is not _NOTHING and entry_of(model) is None:
        raise unenforced(model, declared, "TTLMixin", base="Document")


def entry_of(model: type) -> Entry | None:
    """Return what stands on the collection of a document class, None where nothing does."""
    try:
        collection = collection_of(model)
    except CollectionWasNotInitialized as error:
        raise TTLConfigurationError(
            f"{model.__name__} has no collection yet: call init_beanie() first."
        ) from error
    database = collection.database
    return registry_of(database.client).entry(database.name, collection.name)


def binding_of(model: type) -> Binding | None:
    """Return the policy of a document class, None where it has none."""
    entry = entry_of(model)
    return entry if type(entry) is Binding else None


def _binding_at(collection: Collection) -> Binding | None:
    database = collection.database
    return registry_of(database.client).find(database.name, collection.name)
