"""Inserts, updates, replacements and upserts, and whether they found their document.

Without TTL an upsert is one command; here it is two: update the live document; if there is none,
insert. (An upsert's filter can't contain the predicate, and a plain upsert would revive an expired
document.) The second command can't update, so no document can expire unseen between the two. If an
existing key blocks it, the upsert starts again.

Beanie's instance methods react in different ways to a write that matches nothing (`instance.set()`
ends with an AttributeError). So the mixin puts a `WriteWatch` into the context, in which the gate
notes the outcome.

This module must not know which driver is used, nor how the policy is found.
"""

# ruff: noqa: A002 - `filter` is the drivers' own name for it

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from bson import ObjectId
from bson.raw_bson import RawBSONDocument
from pymongo.errors import DuplicateKeyError

from ttl_odm.beanie.drivers import on_primary
from ttl_odm.beanie.gate.handle import is_collated, pop_keep
from ttl_odm.beanie.keys import KeyHolders, until_free
from ttl_odm.beanie.rewrite import filters
from ttl_odm.beanie.rewrite.operators import sent
from ttl_odm.beanie.time.formats import stored
from ttl_odm.core.policy import TTL

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from datetime import datetime

    from pymongo.results import InsertOneResult

    from ttl_odm.beanie.drivers import Document, Filter
    from ttl_odm.beanie.gate.handle import Handle
    from ttl_odm.beanie.purge.errors import ExpiredError
    from ttl_odm.beanie.rewrite.stamps import Update

    UnlessExpired: TypeAlias = Callable[[], Awaitable[ExpiredError | None]]
    """The check of an upsert that matches nothing, for a document that was stored before."""

_REPEATABLE: Final = frozenset(
    {"$addToSet", "$currentDate", "$max", "$min", "$pull", "$set", "$setOnInsert", "$unset"}
)
_AS_UPDATE: Final = {"replace_one": "update_one", "find_one_and_replace": "find_one_and_update"}
"""The update methods that send stamped replacements."""


@dataclass(frozen=True, slots=True)
class Change:
    """An update or a replacement, ready to be sent.

    Attributes:
        method: The driver's method.
        live: The update of an existing document.
        new: The update of an upsert that inserts.
        known: The fields of the resulting document that are known.
        is_repeatable: Whether applying it twice has the same effect as applying it once.
        is_stamped: Whether it sets the last modification.
    """

    method: str
    live: Update
    new: Update
    known: Document
    is_repeatable: bool = True
    is_stamped: bool = False


async def insert_one(handle: Handle, document: Document, options: Document) -> InsertOneResult:
    """Insert a document, replacing an expired one that has one of its keys."""
    keep = pop_keep(options)
    binding = handle.binding
    if binding is None or not isinstance(document, Mapping):
        return await handle.plain.insert_one(document, **options)
    new = await stamped(handle, document, keep=keep)
    plain = handle.acknowledged
    holders = KeyHolders(plain, binding, options.get("session"), [new], complete=True)
    await holders.make_way_beforehand()
    result = await until_free(lambda: plain.insert_one(new, **options), holders.make_way)
    watch, keys = _watch.get(), (None, new.get("_id"))
    if watch is not None and watch.collection == plain.full_name and watch.key in keys:
        note, watch.inserted = watch.inserted, None  # actions may insert other documents
        if note is not None:
            note(new)
    return result


async def update(
    handle: Handle, method: str, filter: Filter, update: Update, options: Document
) -> Any:
    """Update or replace live documents, by the driver's method of that name."""
    keep = pop_keep(options)
    if handle.binding is None:
        return await getattr(handle.plain, method)(filter, update, **options)
    change = await change_of(handle, method, update, keep=keep)
    return await send(handle, filter, change, options)


async def send(handle: Handle, filter: Filter, change: Change, options: Document) -> Any:
    """Send an update or a replacement."""
    upsert = options.pop("upsert", False) and may_insert(handle.plain.full_name, filter)
    binding = handle.binding
    if binding is None or handle.outline is None:
        method = getattr(handle.plain, change.method)
        in_one = upsert and change.live == change.new
        result = await sent(method(filter, change.live, upsert=in_one, **options))
        if upsert and not in_one and not _matched(result):
            only = filters.matching_nothing(filter)
            return await sent(method(only, change.new, upsert=True, **options))
        if getattr(result, "acknowledged", True):
            await note_match(handle.plain.full_name, filter, matched=upsert or _matched(result))
        return result
    plain = handle.acknowledged
    method = getattr(plain, change.method)
    known = {**filters.equalities(filter), **change.known} if upsert else change.known
    keys = KeyHolders(plain, binding, options.get("session"), [known], complete=upsert)
    may_repeat = change.is_repeatable or keys.in_transaction  # a conflict undoes a transaction
    since = None if may_repeat else await handle.now()
    unless_expired = unless_expired_of(plain.full_name, filter) if upsert else None

    async def attempt() -> object:
        # Made in each attempt: a conflict may have read another default.
        live = handle.filter_to_write(filter, collated=is_collated(options))
        try:
            result = await sent(method(live, change.live, **options))
        except DuplicateKeyError:
            if since is not None:
                untouched = change.is_stamped and await _is_untouched(handle, live, since, options)
                keys.are_worth_another_try = untouched
            raise
        if upsert and not _matched(result):
            await reject_expired(unless_expired)
            keys.are_worth_another_try = True
            only = filters.matching_nothing(filter)
            return await sent(method(only, change.new, upsert=True, **options))
        return result

    await make_way_beforehand(keys, unless_expired)
    # An upsert can lose to another client twice: to one that deletes the expired holder, and to one
    # that inserts first. After that there is a document that it can update.
    make_way = partial(make_way_for, keys, unless_expired)
    result = await until_free(attempt, make_way, patience=4 if upsert else 2)
    await note_match(handle.plain.full_name, filter, matched=upsert or _matched(result))
    return result


async def reject_expired(unless_expired: UnlessExpired | None) -> None:
    """Raise an `ExpiredError` if the document that would be inserted again has expired."""
    error = None if unless_expired is None else await unless_expired()
    if error is not None:
        raise error


async def make_way_beforehand(keys: KeyHolders, unless_expired: UnlessExpired | None) -> None:
    """In a transaction, delete expired holders of keys, unless the document itself is one.

    Outside of one, that is checked when nothing matches.
    """
    if keys.in_transaction:
        await reject_expired(unless_expired)
    await keys.make_way_beforehand()


async def make_way_for(
    keys: KeyHolders, unless_expired: UnlessExpired | None, conflict: Filter
) -> int | None:
    """Delete the expired holders of a key, unless the document itself is one."""
    await reject_expired(unless_expired)
    return await keys.make_way(conflict)


async def _is_untouched(handle: Handle, filter: Filter, since: datetime, options: Document) -> bool:
    """Return whether no matching document has been written since an instant.

    MongoDB doesn't report how many documents an update of many changed before a conflict, and an
    update that isn't repeatable must not be applied to a document twice.
    """
    policy = handle.policy
    if not isinstance(policy, TTL):
        return False
    written = {"$and": [filter, {policy.last_modified: {"$gte": stored(policy, since)}}]}
    session = options.get("session")
    return await on_primary(handle.plain).count_documents(written, limit=1, session=session) == 0


async def change_of(handle: Handle, method: str, update: Update, *, keep: bool) -> Change:
    """Stamp an update or a replacement."""
    now = await handle.now_to_stamp(update)
    stamping, fields = handle.stamping, update if isinstance(update, Mapping) else None
    if method in _AS_UPDATE:
        known = {} if fields is None else dict(fields)
        if stamping is None or fields is None:
            return Change(method, update, update, known)
        if not stamping.stamps:
            cleaned = stamping.insert(fields, None, keep=keep)
            return Change(method, cleaned, cleaned, known)
        return Change(
            _AS_UPDATE[method],
            live=stamping.replacement(fields, keep=keep, now=now),
            new=stamping.replacement(fields, keep=keep, inserts=True, now=now),
            known=known,
        )
    live = new = update
    if stamping is not None:
        live = stamping.update(update, keep=keep, now=now)
        new = stamping.update(update, keep=keep, inserts=True, now=now)
    is_repeatable = method != "update_many" or (fields is not None and fields.keys() <= _REPEATABLE)
    is_stamped = stamping is not None and stamping.stamps and not keep
    return Change(method, live, new, known_of(update), is_repeatable, is_stamped)


def known_of(update: object) -> Document:
    """Return the fields whose new values are known from an update."""
    known: Document = {}
    for operator in ("$setOnInsert", "$set", "$unset"):
        fields = update.get(operator) if isinstance(update, Mapping) else None
        if isinstance(fields, Mapping):
            known |= dict.fromkeys(fields) if operator == "$unset" else fields
    return known


async def stamped(handle: Handle, document: Filter, *, keep: bool) -> Document:
    """Return the document to insert; give the user's document an ``_id``, as the drivers do."""
    if not isinstance(document, RawBSONDocument) and "_id" not in document:
        document["_id"] = ObjectId()  # type: ignore[index]
    stamping = handle.stamping
    if stamping is None:
        return dict(document)
    now = await handle.now() if stamping.stamps else None
    return stamping.insert(document, now, keep=keep)


def _matched(result: object) -> bool:
    """Return whether an update matched, by its result: an UpdateResult, or a document."""
    return result is not None and bool(getattr(result, "matched_count", 1))


@dataclass(slots=True)
class WriteWatch:
    """One write of one document, and its outcome.

    Attributes:
        collection: The full name of the collection.
        key: The document's key, None while it has none.
        unmatched: Called if the write matches nothing; may raise an error.
        on_match: Called if it matches.
        unless_expired: Called by an upsert before it inserts.
        inserts: Whether an upsert may insert; otherwise it is sent as an update.
        matched: Whether the write matched; None as long as this is unknown.
        inserted: Called with the document that an insert has stored.
    """

    collection: str
    key: object
    unmatched: Callable[[], Awaitable[None]] | None = None
    unless_expired: UnlessExpired | None = None
    inserts: bool = True
    matched: bool | None = None
    inserted: Callable[[Filter], None] | None = None
    on_match: Callable[[], Awaitable[None]] | None = None


_watch: ContextVar[WriteWatch | None] = ContextVar("ttl_odm_watch", default=None)


@contextmanager
def watching(
    collection: str,
    key: object,
    unmatched: Callable[[], Awaitable[None]] | None = None,
    unless_expired: UnlessExpired | None = None,
    *,
    inserts: bool = True,
) -> Iterator[WriteWatch]:
    """Watch the write inside; if it is part of another that must not insert, it must not either."""
    outer = _watch.get()
    if outer is not None and (outer.collection, outer.key) == (collection, key):
        if unmatched is None and not outer.inserts:  # the outer watch does all the checks
            yield outer
            return
        inserts = inserts and outer.inserts
    watch = WriteWatch(collection, key, unmatched, unless_expired, inserts)
    token = _watch.set(watch)
    try:
        yield watch
    finally:
        _watch.reset(token)


async def note_match(collection: str, filter: Filter, *, matched: bool) -> None:
    """Note whether a write by this filter matched its document."""
    watch = _watch_of(collection, filter)
    if watch is not None:
        watch.matched = matched
        call = watch.on_match if matched else watch.unmatched
        if call is not None:
            await call()


def may_insert(collection: str, filter: Filter) -> bool:
    """Return whether an upsert by this filter may insert."""
    watch = _watch_of(collection, filter)
    return watch is None or watch.inserts


def unless_expired_of(collection: str, filter: Filter) -> UnlessExpired | None:
    """Return the check of an upsert by this filter before it inserts; None for no check."""
    watch = _watch_of(collection, filter)
    return None if watch is None else watch.unless_expired


def _watch_of(collection: str, filter: Filter) -> WriteWatch | None:
    watch = _watch.get()
    if watch is None or watch.collection != collection:
        return None
    return watch if filters.equalities(filter).get("_id") == watch.key else None
