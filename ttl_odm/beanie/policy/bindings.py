"""Which policy each collection has, by its class and in its client's registry.

The policy is read from the class at each operation, so a changed ``__ttl__`` applies at once. There
is one exception: if MongoDB itself deletes, documents must not live longer before `ensure_indexes`
has changed the indexes, or reads would show documents that MongoDB deletes. Until then the policy
of the indexes stays in force.

A default that isn't in code is the one that was read last; an operation that needs it reads it
before (`DefaultSource.see`).

A `Registry`, one per client, has the collections of all databases by name, so that a pipeline which
starts at any of them finds the policies of those it looks into. Its entries (`Entry`) are a
`Binding` if the documents have a policy, or the `Rule` of an extension if they expire with the
documents of another collection. Either tells reads how to judge documents: by a policy, which
becomes a filter, or by stages (`StageJudge`), if no filter can decide.

This module must not know what is done to filters, pipelines or documents.
"""

from __future__ import annotations

import logging
import math
import weakref
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast, get_args

from beanie import Document
from beanie.exceptions import CollectionWasNotInitialized

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
from ttl_odm.core.values import MAX_TTL, NEVER, short_repr
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper import hooks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ttl_odm.beanie import drivers
    from ttl_odm.beanie.drivers import Backend, Collection, Pipeline
    from ttl_odm.beanie.policy.sources import DefaultSource

Model = TypeVar("Model")

logger: Final = logging.getLogger("ttl_odm.beanie")

_NOTHING: Final = object()
_DAY: Final = 86_400

GATED: Final = ("mongodb", "documentdb")
"""The backends on which the gate enforces policies."""

PURGES: Final[tuple[Purge, ...]] = ("native", "sweeper")
"""The values of ``__ttl_purge__``."""


@dataclass(frozen=True, slots=True)
class StageJudge:
    """Stages and an expression that judge documents where no filter can.

    `hide` is the stage that removes the fields which the other stages add.
    """

    stages: Pipeline
    condition: drivers.Document
    hide: drivers.Document

    @property
    def live(self) -> Pipeline:
        """The stages that keep live documents only."""
        return [*self.stages, {"$match": {"$expr": self.condition}}]

    @property
    def expired(self) -> Pipeline:
        """The stages that keep expired documents only."""
        return [*self.stages, {"$match": {"$expr": {"$not": [self.condition]}}}]


Judge: TypeAlias = "Policy | StageJudge | None"
"""How the documents of a collection are judged; None if ttl_odm doesn't judge them."""


class Entry(ABC):
    """The policy or rule of a collection, declared by a class."""

    __slots__ = ()

    model: type
    backend: Backend

    @property
    @abstractmethod
    def declared(self) -> Policy | Extension:
        """The class's declaration at this moment."""

    @property
    def enforced_by_others(self) -> bool:
        """Whether the service enforces it, or, in a migration, nothing does."""
        return self.backend not in GATED

    @abstractmethod
    def judged(self, reader: str) -> Judge:
        """Return how to judge the documents at this moment, for a read in a database.

        None if ttl_odm doesn't enforce it.

        Raises:
            TTLError: A read in that database can't judge them.
        """

    @abstractmethod
    def check_shared(self, model: type, declared: Policy | None) -> None:
        """Reject another class on the collection, with this policy or without one.

        Raises:
            TTLConfigurationError: Its documents would expire by this entry.
        """


class Binding(Entry):
    """A collection's policy, as declared by the root of the classes that share the collection.

    Attributes:
        model: The class.
        backend: Who enforces the policy.
        source: Where the default comes from.
        deleting: The policy by which MongoDB itself deletes, as far as this process knows: first
            the declared one, later that of the last `ensure_indexes`. None if it doesn't delete.
    """

    def __init__(self, model: type, backend: Backend) -> None:
        """Store the class; its ``__ttl__`` is read at each use of the policy."""
        self.model = model
        self.backend: Backend = backend
        self.deleting: Policy | None = None
        self._default = DeclaredTTL(model, read=partial(declaration, model), refine=self._refined)
        self._announced: Policy | None = None
        self._outline: tuple[Policy, Policy] | None = None
        declared = default_extension(declared_policy(model))
        if declared is None:
            self.source: DefaultSource = Fixed(self._default)
        else:
            self.source = import_module(declared.package("beanie")).source(self, declared)

    @property
    def policy(self) -> Policy:
        """The policy in force at this moment, with the results of functions as defaults.

        A default that isn't in code is the one that was read last.

        Raises:
            TTLError: It was never read.
        """
        if not self.source.is_known:
            return self.source.policy
        policy, deleting = self._default.settled, self.deleting
        if deleting is None or policy is deleting or _lasts_no_longer(policy, deleting):
            return policy
        if policy != self._announced:  # log it once
            self._announced = policy
            name = self.model.__name__
            logger.warning(
                "%s: %r is not in force yet, because MongoDB deletes by %r: await "
                "ensure_indexes(%s).",
                *(name, policy, deleting, name),
            )
        return deleting

    @property
    def enforced(self) -> Policy | None:
        """The policy in force; None if ttl_odm doesn't enforce it."""
        return None if self.enforced_by_others else self.policy

    def judged(self, reader: str) -> Policy | None:
        """Return the policy in force, whatever the reading database."""
        del reader
        return self.enforced

    def check_shared(self, model: type, declared: Policy | None) -> None:
        """Do nothing: `Registry.bind` compares the policies of two classes."""

    @property
    def outline(self) -> Policy:
        """The policy in force, but with -1 for a default that isn't in code."""
        if self.source.is_known:
            return self.policy
        declared = self.declared
        if self._outline is None or self._outline[0] is not declared:
            self._outline = declared, outline(declared)
        return self._outline[1]

    @property
    def scope(self) -> str | None:
        """The field whose values may have their own defaults; None if there is none."""
        scoping = self.source.scoping
        return None if scoping is None else scoping.field

    @property
    def is_left_to_service(self) -> bool:
        """Whether the service stamps, hides and deletes the documents; nothing else can."""
        return expires_itself(self.backend)

    @property
    def has_ranges(self) -> bool:
        """Whether the server supports ranges of indexes in finds (min and max)."""
        return self.backend != "documentdb"

    @property
    def is_time_series(self) -> bool:
        """Whether the collection is one of MongoDB's time series."""
        settings: Any = getattr(self.model, "get_settings", dict)()
        return getattr(settings, "timeseries", None) is not None

    @property
    def declared(self) -> Policy:
        """The policy that the class declares at this moment.

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
        """Who deletes expired documents: "native" (MongoDB itself) or "sweeper"."""
        return purge_of(self.model)


def expires_itself(backend: Backend) -> bool:
    """Return whether a backend stamps, hides and deletes itself: Azure Cosmos DB (RU)."""
    return backend == "cosmos"


def declaration(model: type, *, default: object = None) -> object:
    """Return a class's nearest ``__ttl__`` or ``Settings.ttl``, or the default."""
    return _nearest(model, "__ttl__", "ttl", default=default)


def purge_of(model: type) -> Purge:
    """Return a class's nearest ``__ttl_purge__`` or ``Settings.ttl_purge``, "native" for none."""
    declared = _nearest(model, "__ttl_purge__", "ttl_purge", default="native")
    return hooks.purge_of(model, PURGES, declared)


def reject_partitions(model: type) -> None:
    """Reject ``__ttl_partition__`` and ``Settings.ttl_partition``: MongoDB has no partitions."""
    declared = _nearest(model, "__ttl_partition__", "ttl_partition", default=None)
    hooks.reject_partitions(model, declared)


def declared_policy(model: type) -> Policy:
    """Return the policy that a class declares, adapted to what Beanie stores (`as_stored`)."""
    return _declared(model).policy


def _lasts_no_longer(policy: Policy, other: Policy) -> bool:
    """Return whether no document lives longer by one policy than by the other."""
    if isinstance(policy, TTL) and isinstance(other, TTL):
        if other.limit is not None:
            is_limited = policy.limit is not None and _lasts_no_longer(policy.limit, other.limit)
            return is_limited and _lasts_no_longer(policy.unlimited, other.unlimited)
        policy = policy.unlimited
    return shape_of(policy) == shape_of(other) and _length(policy) <= _length(other)


def _length(policy: Policy) -> float:
    """Return the seconds of a default; for no end, a number greater than all of them."""
    if not isinstance(policy, TTL):
        return policy.seconds if isinstance(policy, ExpireAfter) else 0
    if policy.default is None:  # TTL is off, also for documents with a ttl
        return math.inf
    return MAX_TTL + 1 if policy.default == NEVER else policy.default


def _declared(model: type) -> DeclaredTTL:
    return DeclaredTTL(model, read=partial(declaration, model), refine=partial(as_stored, model))


def as_stored(model: type, policy: Policy) -> Policy:
    """Return a class's policy, adapted to what Beanie stores.

    Beanie stores a ``date`` as its first midnight, but the day ends at the next one.
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
    # Not get_settings(): Beanie drops settings that it doesn't know, such as `ttl`.
    for base in model.__mro__:
        own = base.__dict__
        if attribute in own:
            return own[attribute]
        declared = getattr(own.get("Settings"), setting, _NOTHING)
        if declared is not _NOTHING:
            return declared
    return default


class Registry:
    """The policies of one client's collections, and its estimate of the server's clock."""

    def __init__(self) -> None:
        """Start without policies."""
        self.clock = ServerClock()
        self.has_unknown = False
        """Whether any collection has, or had, a default that isn't in code."""
        self.without_ttl: set[tuple[str, str]] = set()
        """Collections without a policy, by database and name, that show no sign of expiry."""
        self.has_rules = False
        """Whether any collection has, or had, an entry that isn't a policy."""
        self._entries: dict[tuple[str, str], Entry] = {}
        self._remaining: dict[tuple[str, str], Policy] = {}
        """Policies by which MongoDB still deletes in collections that have none any more."""

    def bind(self, model: type, database: str, collection: str, backend: Backend) -> Binding:
        """Put a class's policy on a collection."""
        place = database, collection
        known = self.find(*place)
        if known is not None and known.backend == "migrations":
            return known  # the application's class decides, not the migration's
        binding = Binding(model, backend)
        if known is not None and not is_same_class(known.model, model):
            _check_same(known, binding, collection)
            binding = binding if issubclass(known.model, model) else known
        _check_same(binding, binding, collection)  # checks the binding by reading its attributes
        entry = self._entries.get(place)
        if entry is not None and backend != "migrations":
            entry.check_shared(model, binding.declared)
        remaining = self._remaining.pop(place, None)
        deleting = remaining if known is None else known.deleting
        if not binding.source.is_known:
            # Here `ensure_indexes` and each change of the default adapt the indexes.
            self.has_unknown, deleting = True, None
        elif deleting is None and binding.purge == "native" and backend in GATED:
            deleting = binding.declared
        binding.deleting = deleting
        self._entries[place] = binding
        return binding

    def bind_rule(self, database: str, collection: str, rule: Entry) -> None:
        """Put a rule on a collection, replacing its policy or earlier rule."""
        self.unbind(database, collection)
        self._entries[database, collection] = rule
        self.has_rules = True

    def unbind(self, database: str, collection: str) -> None:
        """Remove the policy or rule of a collection, but remember how MongoDB deletes there."""
        entry = self._entries.pop((database, collection), None)
        if isinstance(entry, Binding) and entry.deleting is not None:
            self._remaining[database, collection] = entry.deleting

    def forget(self, database: str, collection: str) -> None:
        """Record that MongoDB no longer deletes from a collection without a policy."""
        self._remaining.pop((database, collection), None)

    def entry(self, database: str, collection: str) -> Entry | None:
        """Return the policy or rule of a collection, None if it has neither."""
        return self._entries.get((database, collection))

    def entries(self) -> tuple[Entry, ...]:
        """Return the policies and rules of all collections."""
        return tuple(self._entries.values())

    def find(self, database: str, collection: str) -> Binding | None:
        """Return a collection's policy, None if it has none."""
        entry = self._entries.get((database, collection))
        return entry if type(entry) is Binding else None  # runs in each operation


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
    """Return whether two classes are the same, defined again by a notebook's cell or a reload."""
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
    """Yield all subclasses of a class, direct or not."""
    for model in base.__subclasses__():
        yield model
        yield from subclasses_of(model)


def forgotten_class(collection: str) -> type | None:
    """Return a class with a policy for this collection that `init_beanie` hasn't seen, if any."""
    for model in subclasses_of(Document):
        if collection_name(model) != collection or declaration(model) is None:
            continue
        try:
            collection_of(model)
        except (CollectionWasNotInitialized, AttributeError):
            return model
    return None


def collection_name(model: type) -> str:
    """Return the name of a class's collection, also before `init_beanie`."""
    settings_of = (base.__dict__.get("Settings") for base in model.__mro__)
    roots = zip(model.__mro__, settings_of, strict=True)
    owner: Any = next((base for base, own in roots if getattr(own, "is_root", False)), model)
    owner = getattr(getattr(owner, "Settings", None), "union_doc", None) or owner
    return str(getattr(getattr(owner, "Settings", None), "name", None) or owner.__name__)


def collection_of(document: object) -> Collection:
    """Return the gated collection of a document or of its class."""
    is_motor = not hasattr(document, "get_pymongo_collection")
    name = "get_motor_collection" if is_motor else "get_pymongo_collection"
    collection: Collection = getattr(document, name)()
    return collection


def backend_of(collection: Collection) -> Backend | None:
    """Return the backend that `ttl_database` was given; None if the database isn't gated."""
    # On a driver's database every unknown attribute is a collection.
    backend: object = getattr(collection.database, "ttl_backend", None)
    return cast("Backend", backend) if isinstance(backend, str) else None


def policy_of(model: type) -> Policy:
    """Return the policy of a class at this moment, also before `init_beanie`."""
    extension = extension_of(model)
    if extension is not None:
        raise TTLConfigurationError(
            f"{model.__name__} documents have no lifetime of their own: {extension!r}."
        )
    binding = None
    with suppress(CollectionWasNotInitialized, AttributeError):  # before init_beanie()
        collection = collection_of(model)
        database = collection.database
        binding = registry_of(database.client).find(database.name, collection.name)
    return _declared(model).settled if binding is None else binding.policy


def extension_of(model: type) -> Extension | None:
    """Return the extension that a class declares instead of a lifetime, if any."""
    declared = declaration(model)
    return declared if isinstance(declared, Extension) else None


def check_enforced(model: type) -> None:
    """Reject a class that declares how long its documents live, but has no policy in force."""
    entry = entry_of(model)
    declared = declaration(model, default=_NOTHING)
    if declared is not _NOTHING and entry is None:
        raise unenforced(model, declared, "TTLMixin", base="Document")


def entry_of(model: object) -> Entry | None:
    """Return the policy or rule of a document class's collection, None if it has neither.

    Raises:
        TTLConfigurationError: It is not a document class.
    """
    if not (isinstance(model, type) and hasattr(model, "get_settings")):
        raise TTLConfigurationError(
            f"{short_repr(model)} is not a document class: pass classes, not a list of them."
        )
    try:
        collection = collection_of(model)
    except CollectionWasNotInitialized as error:
        raise TTLConfigurationError(
            f"{model.__name__} has no collection yet: call init_beanie() first."
        ) from error
    database = collection.database
    return registry_of(database.client).entry(database.name, collection.name)


def binding_of(model: type) -> Binding | None:
    """Return the policy of a document class, None if it has none."""
    entry = entry_of(model)
    return entry if type(entry) is Binding else None
