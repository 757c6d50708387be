"""Recording events: a hook of the document classes, in the transaction that deletes documents."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from beanie import Document
from bson import DBRef
from bson.binary import UUID_SUBTYPE, Binary

from ttl_odm.beanie.policy.binding import (
    binding_of,
    collection_name,
    collection_of,
    declaration,
    extension_of,
    purge_of,
)
from ttl_odm.beanie.policy.predicate import deciding_fields, end_of, value_at
from ttl_odm.core import expiry
from ttl_odm.core.policy import instant_field
from ttl_odm.errors import TTLConfigurationError, TTLError
from ttl_odm.events.beanie.collections import (
    EventCollections,
    add_deliveries,
    collections_of,
    document_of,
    prepare,
)
from ttl_odm.events.expiry import EXPIRED, Expiry
from ttl_odm.events.handlers import handlers
from ttl_odm.events.outbox import EVERY_TABLE
from ttl_odm.sweeper import Hook, Hooks, Purged

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ttl_odm.beanie.drivers import Filter
    from ttl_odm.beanie.policy.binding import Binding
    from ttl_odm.core import Policy

_NOTHING: Final = object()

recorders: WeakSet[Recorder] = WeakSet()
"""Those of all classes that have events."""


class Recorder:
    """Records the events of one collection; a hook that runs in the deleting transaction.

    Attributes:
        model: The class that has the hook: the root of those that share the collection.
        table: The name of the collection.
    """

    def __init__(self, model: type[Document]) -> None:
        self.model = model
        self.table = collection_name(model)
        self._included: dict[str, None] = {}
        recorders.add(self)

    def include(self, model: type[Document], names: Sequence[str]) -> None:
        """Have the events carry further fields of a class, by their names in the collection."""
        fields: Any = model.model_fields
        stored = {name: info.alias or name for name, info in fields.items()}
        known = {**stored, **{name: name for name in stored.values()}}
        takes_all = model.model_config.get("extra") == "allow"
        missing = [name for name in names if name not in known and not takes_all]
        if missing:
            raise TTLConfigurationError(
                f"include = {list(names)!r}: {model.__name__} has no field {missing[0]!r}; it has "
                f"{', '.join(stored)}."
            )
        self._included |= dict.fromkeys(known.get(name, name) for name in names)

    async def __call__(self, purged: Purged) -> None:
        """Record the events of a batch."""
        if purged.table != self.table:
            return  # that of a class which inherits the hooks, but has a collection of its own
        binding = binding_of(self.model)
        assert binding is not None  # noqa: S101 (its documents have just expired)
        collections = collections_of(collection_of(self.model).database)
        await prepare(collections)
        session, outbox = purged.transaction, collections.events
        events = {event.id: event for event in self._events(binding, purged)}
        ids = {"_id": {"$in": [*events]}}
        for known in await outbox.find(ids, {"_id": 1}, session=session).to_list(None):
            del events[known["_id"]]  # a document that was put back as it was
        if events:
            documents = [document_of(event, purged.as_of) for event in events.values()]
            await outbox.insert_many(documents, session=session)
            consumers = await self._consumers(collections)
            recorded = dict.fromkeys(events, purged.as_of)
            await add_deliveries(collections, recorded, consumers, session)

    async def _consumers(self, collections: EventCollections) -> list[str]:
        """Who is told: those that the database knows, and this process's own handlers.

        Not in the session: its transaction may have begun before a consumer came.
        """
        wanted = {"table": {"$in": [self.table, EVERY_TABLE]}, "kind": EXPIRED}
        stored = await collections.consumers.find(wanted).to_list(None)
        this = self.table, EXPIRED
        own = (one.consumer for one in handlers if (one.table, one.wanted.kind) == this)
        return sorted({*(row["consumer"] for row in stored), *own})

    def _events(self, binding: Binding, purged: Purged) -> Iterator[Expiry]:
        assert purged.rows is not None  # noqa: S101 (the hook asks for them)
        policy = binding.outline
        names = dict.fromkeys(("_id", *deciding_fields(policy), *self._included))
        for document in map(readable, purged.rows):
            yield Expiry.of(
                self.table,
                (document["_id"],),
                {name: value_at(document, name) for name in names},
                last_modified=_began(policy, document),
                expires_at=_ended(binding, document, purged.as_of),
            )


def _began(policy: Policy, document: Filter) -> datetime | None:
    """When a document's life began; of several dates the earliest counts, as in MongoDB."""
    value = value_at(document, instant_field(policy))
    values = value if isinstance(value, list) else [value]
    instants = (expiry.instant_of(policy, one) for one in values)
    return min((instant for instant in instants if instant is not None), default=None)


def _ended(binding: Binding, document: Filter, now: datetime) -> datetime:
    """When a document has expired: not after it was deleted, whatever is known of its default."""
    try:
        end = end_of(document, binding.policy)
    except TTLError:  # a default that the database stores, and nobody has read yet
        return now
    return now if end is None else min(end, now)


def readable(value: Any) -> Any:
    """Return a value that JSON can have, where the driver's own means something else there.

    Dates are in UTC whether the driver says so or not; a link is the key of its document.
    """
    match value:
        case datetime():
            return value if value.tzinfo is not None else value.replace(tzinfo=timezone.utc)
        case Mapping():
            return {name: readable(value[name]) for name in value}
        case list():
            return [readable(one) for one in value]
        case DBRef():
            return value.id
        case Binary() if value.subtype == UUID_SUBTYPE:
            return value.as_uuid()
    return value


def record(target: Any, include: Sequence[str]) -> str:
    """Put a recorder among a class's hooks, unless it has one; see `record_expired`."""
    model = _model_of(target)
    owner = _root_of(model)
    hooks = Hooks.of(getattr(owner, "__ttl_on_purged__", None))
    recorder = recorder_among(hooks)
    if recorder is None or recorder.model is not owner:
        recorder = Recorder(owner)
    recorder.include(model, include)
    if recorder_among(hooks) is not recorder:
        known = [hook for _, hook in hooks.entries]
        declared: Any = owner
        declared.__ttl_on_purged__ = [*known, Hook(recorder, rows=True)]
    return recorder.table


def recorder_among(hooks: Hooks) -> Recorder | None:
    """The recorder that a class has, if it has one; the last, since others are inherited."""
    found = [hook.call for _, hook in hooks.entries if isinstance(hook.call, Recorder)]
    return found[-1] if found else None


def _model_of(target: Any) -> type[Document]:
    """Return a class that can have events."""
    if not (isinstance(target, type) and issubclass(target, Document)):
        raise TTLConfigurationError(f"{target!r} can't have events: give a Beanie document class.")
    name = target.__name__
    if declaration(target, default=_NOTHING) is _NOTHING:
        raise TTLConfigurationError(
            f"{name} has no TTL, so its documents never expire: make it a TTLMixin and declare "
            "__ttl__, or enable() it."
        )
    if extension_of(target) is not None:
        raise TTLConfigurationError(
            f"{name} can't have events: its documents follow their parent, and are deleted with "
            "it. Handle the events of the parent."
        )
    if getattr(getattr(target, "Settings", None), "union_doc", None) is not None:
        raise TTLConfigurationError(
            f"{name} can't have events: it shares the collection of a UnionDoc with classes that "
            "don't share its hooks. Give it a collection of its own, or a common base with is_root."
        )
    if purge_of(target) == "native":
        raise TTLConfigurationError(
            f"{name} can't have events: MongoDB itself deletes its documents, and calls no hook. "
            "Declare __ttl_purge__ = 'sweeper' on the class."
        )
    return target


def _root_of(model: type[Document]) -> type[Document]:
    """Return the class whose hooks are called: that of `is_root`, if the class is below one."""
    roots = (base for base in model.__mro__ if _is_root(base))
    return next(roots, model)


def _is_root(base: type) -> bool:
    return getattr(base.__dict__.get("Settings"), "is_root", False) is True
