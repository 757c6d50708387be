"""What documents do to themselves: Beanie's instance methods, and changes of the lifetime.

Beanie makes different things of a write that found nothing; here it is an `ExpiredError` where the
document has expired, and a `DocumentNotFound` where it is missing for another reason. And a
document in memory learns its new ``_ts`` from each of its writes.

Functions over documents, so that `ttl_odm.beanie.declare.mixin` stays a list of what there is. This
module must not know how the gate works.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from enum import Enum
from typing import TYPE_CHECKING, Any

from beanie.exceptions import DocumentNotFound, RevisionIdWasChanged
from pymongo import ReturnDocument

from ttl_odm import errors
from ttl_odm.beanie.gate import cursors
from ttl_odm.beanie.gate.writes import watching
from ttl_odm.beanie.keys import value_at
from ttl_odm.beanie.policy.binding import collection_of, policy_of, registry_of
from ttl_odm.beanie.policy.predicate import modified_within, touching_is
from ttl_odm.beanie.time import instants
from ttl_odm.beanie.time.instants import stored, stored_expr
from ttl_odm.core.expiry import instant_of, is_expired
from ttl_odm.core.lifetime import grants, interval, is_recent
from ttl_odm.core.policy import TTL
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from ttl_odm.beanie.time.clock import ServerClock
    from ttl_odm.core.lifetime import OnlyIf
    from ttl_odm.core.policy import Policy

_MILLISECOND = timedelta(milliseconds=1)

Method = Callable[..., Awaitable[Any]]


class ExpiredError(errors.ExpiredError, DocumentNotFound):
    """The document has expired, so it no longer exists."""


def end_of(document: Any) -> datetime | None:
    """Return the instant at which a document in memory expires, None for never."""
    policy = policy_of(type(document))
    return cursors.end_of(_lifetime_of(document, policy), policy)


def latest_now(document: Any) -> datetime:
    """Return an upper bound of the server's clock, as it was last read."""
    return _clock(document).at_most()


async def now(document: Any) -> datetime:
    """Return an instant that the server has reached."""
    await _clock(document).refresh(collection_of(document).database)
    return _clock(document).reached()


def ttl_field(document: Any) -> str:
    """Return the field of the document's own ttl.

    Raises:
        TTLConfigurationError: The policy has none.
    """
    policy = policy_of(type(document))
    if isinstance(policy, TTL) and policy.override is not None:
        return policy.override
    message = f"{type(document).__name__} documents have no ttl of their own: {policy!r}."
    raise TTLConfigurationError(message)


async def touch(
    document: Any,
    *,
    at_most_every: float | timedelta | None = None,
    only_if: OnlyIf | None = None,
    session: Any = None,
) -> bool:
    """Start a document's lifetime again, without another change.

    For documents of any class with a policy, also one from `enable`.

    Args:
        document: The document.
        at_most_every: Seconds, or a timedelta: nothing is written if its last modification is
            younger than that.
        only_if: Nothing is written unless the instant at which it expires would be "longer" or
            "shorter" away, it "has_ttl" (expires at all), or has none ("no_ttl").
        session: That of a transaction.

    Returns:
        Whether it was written.

    Raises:
        ExpiredError: It has expired.
        DocumentNotFound: It is missing for another reason.
        TTLConfigurationError: Its policy counts from no last modification, or an argument is
            none of these.
    """
    policy = policy_of(type(document))
    if not isinstance(policy, TTL):
        message = f"{type(document).__name__} documents can't be touched: {policy!r}."
        raise TTLConfigurationError(message)
    conditions = []
    if at_most_every is not None:
        apart = interval(at_most_every)
        await now(document)  # reads the clock
        if _is_known_recent(document, policy, apart):
            return False
        conditions.append({"$not": [modified_within(policy, round(apart / _MILLISECOND))]})
    if only_if is not None:
        grants(only_if, None, None)  # refuses what is no condition
        conditions.append(touching_is(only_if, policy))
    return await change_lifetime(document, {"$set": {}}, session=session, conditions=conditions)


def _is_known_recent(document: Any, policy: TTL, apart: timedelta) -> bool:
    """Say whether memory suffices to know that it lives, and was written a moment ago."""
    last = instant_of(policy, _lifetime_of(document, policy)[policy.last_modified])
    end, latest = end_of(document), latest_now(document)
    lives = end is None or not is_expired(end, latest)
    return lives and last is not None and is_recent(last, latest, apart)


async def change_lifetime(
    document: Any,
    update: Any,
    *,
    session: Any,
    keep_last_modified: bool = False,
    conditions: Sequence[Mapping[str, Any]] = (),
) -> bool:
    """Update the stored document, and of the one in memory the fields that say when it expires.

    Args:
        document: The document.
        update: What to change.
        session: That of a transaction.
        keep_last_modified: Whether its last modification stays.
        conditions: Expressions; nothing is written unless all of them are true.

    Returns:
        Whether it was written.

    Raises:
        ExpiredError: It has expired.
        DocumentNotFound: It is missing for another reason.
    """
    policy = policy_of(type(document))
    fields = cursors.deciding_fields(policy)
    collection, shown = collection_of(document), dict.fromkeys(fields, 1)
    wanted = {"$expr": {"$and": list(conditions)}} if conditions else {}
    found = changed = await collection.find_one_and_update(
        {"_id": document.id, **wanted},
        update,
        projection=shown,
        return_document=ReturnDocument.AFTER,
        session=session,
        keep_last_modified=keep_last_modified,
    )
    if found is None and conditions:
        found = await collection.find_one({"_id": document.id}, shown, session=session)
    if found is None:
        raise await _is_gone(document, session) or DocumentNotFound
    _learn(document, found, policy)
    return changed is not None


async def expire_now(document: Any, *, session: Any) -> None:
    """Let the document expire at this moment: a ttl of one second that is over."""
    policy, field = policy_of(type(document)), ttl_field(document)
    # Two, for a field that keeps whole seconds is rounded up.
    seconds_ago = stored_expr(policy, {"$subtract": [instants.server_now(), 2000]})
    stage = {"$set": {field: 1, policy.last_modified: seconds_ago}}  # type: ignore[union-attr]
    await change_lifetime(document, [stage], session=session, keep_last_modified=True)


async def expire_at(document: Any, instant: datetime, seconds: int | None, *, session: Any) -> None:
    """Let the document expire at an instant, with an own ttl of so many seconds."""
    policy, field = policy_of(type(document)), ttl_field(document)
    born = instant - timedelta(seconds=seconds or 0)
    last_modified = stored(policy, born)
    stage = {"$set": {field: seconds, policy.last_modified: last_modified}}  # type: ignore[union-attr]
    await change_lifetime(document, [stage], session=session, keep_last_modified=True)


async def insert(document: Any, method: Method, args: Any, kwargs: Any) -> Any:
    """Run Beanie's insert, and learn the stamp."""
    with watching(collection_of(document).full_name, document.id) as watch:
        result = await method(*args, **kwargs)
    if watch.inserted is not None:
        _learn(document, watch.inserted, policy_of(type(document)))
    return result


async def write(document: Any, method: Method, args: Any, kwargs: Any) -> Any:
    """Run one of Beanie's writes.

    Raises:
        ExpiredError: The document has expired.
        DocumentNotFound: It is missing for another reason, and Beanie says so in no other way.
    """
    with watching(collection_of(document).full_name, document.id) as watch:
        try:
            result = await method(*args, **kwargs)
        except (AttributeError, DocumentNotFound, RevisionIdWasChanged) as error:
            if watch.found is True or (watch.found is None and isinstance(error, AttributeError)):
                raise
            gone = await _is_gone(document, kwargs.get("session"))
            if gone is not None:
                raise gone from error
            if isinstance(error, AttributeError):  # Beanie merges a result that is None
                raise DocumentNotFound from error
            raise
    if watch.found is False:
        gone = await _is_gone(document, kwargs.get("session"))
        if gone is not None:
            raise gone
    return result


async def replace(document: Any, method: Method, args: Any, kwargs: Any) -> Any:
    """Run Beanie's replace, and read the stamp, which it doesn't.

    Raises:
        ExpiredError: The document has expired.
    """
    result = await write(document, method, args, kwargs)
    policy = policy_of(type(document))
    if isinstance(policy, TTL) and kwargs.get("bulk_writer") is None:
        found = await collection_of(document).find_one(
            {"_id": document.id},
            dict.fromkeys(cursors.deciding_fields(policy), 1),
            session=kwargs.get("session"),
        )
        if found is not None:
            _learn(document, found, policy)
    return result


async def _is_gone(document: Any, session: Any) -> ExpiredError | None:
    """Return the error that says so, if a document that was not found has expired."""
    found = await collection_of(document).find_one(
        {"_id": document.id}, session=session, include_expired=True
    )
    await now(document)  # reads the clock
    # Where it is missing, MongoDB may have deleted it already: what memory has, counts.
    end = end_of(document) if found is None else cursors.end_of(found, policy_of(type(document)))
    if end is None or not is_expired(end, latest_now(document)):
        return None
    return ExpiredError(model=type(document).__name__, key=document.id)


def _learn(document: Any, stored: Any, policy: Policy) -> None:
    """Take over what the database has in the fields that say when a document expires."""
    created = policy.created if isinstance(policy, TTL) else None  # no write of ours changes it
    for field in cursors.deciding_fields(policy):
        name = None if field == created else _attribute(type(document), field)
        if name is None:
            continue
        value = stored.get(field)
        if isinstance(value, datetime) and value.tzinfo is None:
            value = value.replace(tzinfo=timezone.utc)
        setattr(document, name, value)
        if document._saved_state is not None and field in document._saved_state:
            document._saved_state[field] = value


def _lifetime_of(document: Any, policy: Policy) -> dict[str, Any]:
    """Return the fields that say when a document expires, as it has them in memory."""
    fields = cursors.deciding_fields(policy)
    names = {field: _attribute(type(document), field) for field in fields}
    if None in names.values():  # a field of an embedded document
        dumped = document.model_dump(by_alias=True)
        found = {field: value_at(dumped, field) for field in fields}
    else:
        found = {field: getattr(document, str(name)) for field, name in names.items()}
    return {field: _as_stored(value) for field, value in found.items()}


def _as_stored(value: Any) -> Any:
    """Return what Beanie stores for a value, as far as that decides when a document expires."""
    if isinstance(value, list):
        return [_as_stored(each) for each in value]
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day, tzinfo=timezone.utc)
    return value.value if isinstance(value, Enum) else value


def _clock(document: Any) -> ServerClock:
    return registry_of(collection_of(document).database.client).clock


def _attribute(model: Any, field: str) -> str | None:
    """Return the attribute that stands for a stored field."""
    for name, info in model.model_fields.items():
        if (info.alias or name) == field:
            return str(name)
    return None
