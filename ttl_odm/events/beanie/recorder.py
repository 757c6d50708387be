"""`Recorder`, a hook that records the events of documents in the transaction that deletes them.

And `DocumentEvents`: the event of a document, expired or about to expire.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from beanie import Document
from bson import DBRef
from bson.binary import UUID_SUBTYPE, Binary

from ttl_odm.beanie.policy.bindings import (
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
    collections_of,
    document_of,
    insert_events,
    prepare,
)
from ttl_odm.events.expiry import Expiry
from ttl_odm.events.outbox import Subscription
from ttl_odm.sweeper import Hook, Hooks, Purged

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from ttl_odm.beanie.drivers import Filter
    from ttl_odm.beanie.policy.bindings import Binding
    from ttl_odm.core import Policy

_NOTHING: Final = object()

recorders: WeakSet[Recorder] = WeakSet()
"""The recorders of all classes that have events."""


class DocumentEvents:
    """The events of one collection.

    Attributes:
        model: The class; of several classes that share the collection, the root.
        table: The name of the collection.
    """

    def __init__(self, model: type[Document]) -> None:
        self.model = model
        self.table = collection_name(model)
        self._included: dict[str, None] = {}

    @property
    def binding(self) -> Binding:
        """The policy of the collection."""
        binding = binding_of(self.model)
        assert binding is not None  # noqa: S101 (Beanie has initialized the class)
        return binding

    def include(self, model: type[Document], names: Sequence[str]) -> None:
        """Add further fields of a class to the events, by their names in the collection."""
        stored = {name: info.alias or name for name, info in model.model_fields.items()}
        known = {**stored, **{name: name for name in stored.values()}}
        takes_all = model.model_config.get("extra") == "allow"
        missing = [name for name in names if name not in known and not takes_all]
        if missing:
            raise TTLConfigurationError(
                f"include = {list(names)!r}: {model.__name__} has no field {missing[0]!r}; it has "
                f"{', '.join(stored)}."
            )
        self._included |= dict.fromkeys(known.get(name, name) for name in names)

    def event(self, document: Filter, end: datetime, before: timedelta | None = None) -> Expiry:
        """Return the event of a document, in the form of `readable`, that ends at an instant."""
        policy = self.binding.outline
        names = dict.fromkeys(("_id", *deciding_fields(policy), *self._included))
        return Expiry.of(
            self.table,
            (document["_id"],),
            {name: value_at(document, name) for name in names},
            last_modified=_began(policy, document),
            expires_at=end,
            before=before,
        )


def _began(policy: Policy, document: Filter) -> datetime | None:
    """When a document's life began; the earliest of several dates, as MongoDB decides."""
    value = value_at(document, instant_field(policy))
    values = value if isinstance(value, list) else [value]
    instants = (expiry.instant_of(policy, date) for date in values)
    return min((instant for instant in instants if instant is not None), default=None)


def readable(value: object) -> Any:
    """Convert a value of the driver's for JSON, where its own form would mean something else.

    A date is aware and in UTC, even if the driver's isn't aware; a link is its document's key.
    """
    match value:
        case datetime():
            return value if value.tzinfo is not None else value.replace(tzinfo=timezone.utc)
        case Mapping():
            return {name: readable(value[name]) for name in value}
        case list():
            return [readable(item) for item in value]
        case DBRef():
            return value.id
        case Binary() if value.subtype == UUID_SUBTYPE:
            return value.as_uuid()
    return value


class Recorder(DocumentEvents):
    """Records the events of one collection; a hook that runs in the deleting transaction."""

    def __init__(self, model: type[Document]) -> None:
        super().__init__(model)
        recorders.add(self)

    async def __call__(self, purged: Purged) -> None:
        """Record the events of a batch.

        A document that was restored unchanged, and has expired again, gets no second event.
        """
        if purged.table != self.table:
            return  # a class that inherits the hooks, but has a collection of its own
        assert purged.rows is not None  # noqa: S101 (the hook asks for them)
        collections = collections_of(collection_of(self.model).database)
        binding, now = self.binding, purged.as_of
        rows = [readable(row) for row in purged.rows]
        events = [self.event(row, _ended(binding, row, now)) for row in rows]
        documents = [document_of(event, now) for event in events]
        await insert_events(collections, documents, Subscription(self.table), purged.transaction)

    async def prepare(self, purged: Purged) -> None:
        """Create the indexes after the first batch, unless a worker has created them.

        Not before the batch: a transaction can create a collection, but it can't read a collection
        that was created after it began.
        """
        if purged.table == self.table:
            await prepare(collections_of(collection_of(self.model).database))


def _ended(binding: Binding, document: Filter, now: datetime) -> datetime:
    """When a document has expired: not after its deletion, whatever default is cached."""
    try:
        end = end_of(document, binding.policy)
    except TTLError:  # a stored default that this process hasn't read yet
        return now
    return now if end is None else min(end, now)


def record(target: object, include: Sequence[str]) -> str:
    """Add a recorder to a class's hooks, unless it has one; see `record_expired`."""
    model = model_of(target)
    if purge_of(model) == "native":
        raise TTLConfigurationError(
            f"{model.__name__} can't have events: MongoDB itself deletes its documents, and "
            "calls no hook. Declare __ttl_purge__ = 'sweeper' on the class."
        )
    owner = root_of(model)
    hooks = Hooks.of(getattr(owner, "__ttl_on_purged__", None))
    recorder = recorder_among(hooks)
    if recorder is None or recorder.model is not owner:
        recorder = Recorder(owner)
    recorder.include(model, include)
    if recorder_among(hooks) is not recorder:
        known = [hook for _, hook in hooks.entries]
        declared: Any = owner
        ours = [Hook(recorder, rows=True), Hook(recorder.prepare, when="commit")]
        declared.__ttl_on_purged__ = [*known, *ours]
    return recorder.table


def recorder_among(hooks: Hooks) -> Recorder | None:
    """Return the recorder among a class's hooks; the last one, since others are inherited."""
    calls = [hook.call for _, hook in hooks.entries if isinstance(hook.call, Recorder)]
    return calls[-1] if calls else None


def model_of(target: object) -> type[Document]:
    """Return a class that can have events.

    Raises:
        TTLConfigurationError: The target can't have events.
    """
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
    return target


def root_of(model: type[Document]) -> type[Document]:
    """Return the class whose hooks are called: the base with `is_root` if there is one."""
    roots = (base for base in model.__mro__ if _is_root(base))
    return next(roots, model)


def _is_root(base: type) -> bool:
    return getattr(base.__dict__.get("Settings"), "is_root", False) is True
