"""When documents expire, and the functions that change it: `touch`, `expire_in` and others.

The server decides each change, in the filter of the update: nothing is lost if two clients change a
document at the same time. These are functions of documents, so they also serve classes that have
their policy from `enable`.

On Azure Cosmos DB for MongoDB (RU) the last modification is the service's own: no command sets
``_ts``, or reads it. It documents that any modification of a document restarts its lifetime.

This module must not know how the gate works.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from beanie.exceptions import DocumentNotFound
from pymongo import ReturnDocument, UpdateOne

from ttl_odm.beanie.drivers import on_primary
from ttl_odm.beanie.objects.copies import copy_of, key_of, learn, lifetime_of
from ttl_odm.beanie.policy import predicate
from ttl_odm.beanie.policy.bindings import binding_of, collection_of, policy_of, registry_of
from ttl_odm.beanie.policy.predicate import change_is, deciding_fields, modified_within
from ttl_odm.beanie.policy.rules import rule_of
from ttl_odm.beanie.purge.errors import ExpiredError
from ttl_odm.beanie.time import formats
from ttl_odm.beanie.time.formats import stored, stored_expr
from ttl_odm.core.expiry import instant_of, is_expired
from ttl_odm.core.lifetime import (
    check_only_if,
    end_instant,
    interval,
    is_recent,
    life_seconds,
    seconds_until,
)
from ttl_odm.core.policy import TTL
from ttl_odm.core.values import NEVER
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from beanie import Document

    from ttl_odm.beanie import drivers
    from ttl_odm.beanie.drivers import Session
    from ttl_odm.beanie.objects.copies import Copy
    from ttl_odm.beanie.time.clock import ServerClock
    from ttl_odm.beanie.time.formats import Instant
    from ttl_odm.core.lifetime import OnlyIf
    from ttl_odm.core.policy import Policy

MILLISECOND: Final = timedelta(milliseconds=1)
_TOUCHED: Final = "__ttl_touched"
"""The field that a document on Azure has for a moment while it is touched."""


def end_of(document: Document) -> datetime | None:
    """Return the instant at which a document expires by its values in memory, None for never."""
    rule = rule_of(type(document))
    if rule is not None:
        return rule.end_in_memory(document, end_of)
    policy = policy_of(type(document))
    return predicate.end_of(lifetime_of(document, policy), policy)


def latest_now(document: Document) -> datetime:
    """Return an upper bound of the server's clock, by its last reading."""
    return clock_of(document).at_most()


async def expires_at(document: Document, *, session: Session = None) -> datetime | None:
    """Return the instant at which a document expires, as the database has it at this moment.

    For documents that expire with a parent, it is the expiry of the parent at the top of the
    chain; for those with a lifetime of their own, that of the stored document.

    Args:
        document: A document that is stored.
        session: The session of a transaction.

    Returns:
        The instant (aware, UTC), None for never.

    Raises:
        ExpiredError: The document has expired, or isn't there.
    """
    collection, model = collection_of(document), type(document)
    rule = rule_of(model)
    if rule is not None:
        return await rule.end_of(document, session)
    binding = binding_of(model)
    if binding is None:
        raise TTLConfigurationError(f"{model.__name__} has no TTL: declare __ttl__ on it.")
    await binding.source.see(collection)
    row = await on_primary(collection).find_one(
        {"_id": key_of(document)},
        dict.fromkeys(deciding_fields(binding.policy), 1),
        session=session,
    )
    if row is None:
        raise ExpiredError(model=model.__name__, key=document.id)
    return predicate.end_of(row, binding.policy)


async def touch(
    document: Document,
    *,
    at_most_every: float | timedelta | None = None,
    only_if: OnlyIf | None = None,
    session: Session = None,
) -> bool:
    """Restart a document's lifetime, without changing anything else.

    Works for documents of any class with a policy, including one from `enable`. On Azure Cosmos DB
    it is one command with two writes, which set a field and remove it again.

    Args:
        document: The document.
        at_most_every: Seconds, or a timedelta: nothing is written if its last modification is more
            recent than that.
        only_if: A condition for the write: the document would live "longer" or "shorter" than now,
            or it expires at all ("has_ttl") or never ("no_ttl").
        session: The session of a transaction.

    Returns:
        Whether it was written.

    Raises:
        ExpiredError: It has expired.
        DocumentNotFound: It doesn't exist for another reason.
        TTLConfigurationError: Its policy doesn't count from the last modification, or an argument
            is invalid. On Azure Cosmos DB also if a condition is given, or if the class forbids
            undeclared fields.
    """
    policy = await policy_now(type(document))
    if not isinstance(policy, TTL):
        raise TTLConfigurationError(
            f"{type(document).__name__} documents can't be touched: {policy!r}."
        )
    if is_on_azure(type(document)):
        if at_most_every is not None or only_if is not None:
            what, instead = "a condition of touch()", "compare with an instant of your own"
            raise azure_error(type(document), what, instead=instead)
        return await _touch_on_azure(document, session)
    conditions = []
    if at_most_every is not None:
        apart = interval(at_most_every)
        await read_clock(document)
        # The document in memory may suffice to know that it is live and was written recently.
        last = instant_of(policy, lifetime_of(document, policy)[policy.last_modified])
        end, latest = end_of(document), latest_now(document)
        lives = end is None or not is_expired(end, latest)
        if lives and last is not None and is_recent(last, latest, apart):
            return False
        conditions.append({"$not": [modified_within(policy, round(apart / MILLISECOND))]})
    if only_if is not None:
        check_only_if(only_if)
        conditions.append(change_is(only_if, policy))
    return await _change(document, policy, {"$set": {}}, conditions, session)


async def expire_in(
    document: Document,
    life: float | timedelta,
    *,
    only_if: OnlyIf | None = None,
    session: Session = None,
) -> bool:
    """Let a document live for this long from now.

    Args:
        document: The document.
        life: Whole seconds. With zero or less it expires now.
        only_if: As for `touch`.
        session: The session of a transaction.

    Returns:
        Whether it was written.

    Raises:
        InvalidTTL: The number isn't whole, or is over 2147483647.
        ExpiredError: It has expired.
        TTLConfigurationError: Its policy has no ttl per document, or ``only_if`` isn't a condition.
    """
    policy, field = await _with_own_ttl(document)
    seconds = life_seconds(life, where=f"{type(document).__name__}.{field}")
    if (not seconds or only_if is not None) and is_on_azure(type(document)):
        what, instead = "expire_in(0) and only_if", "delete it, or set its ttl"
        raise azure_error(type(document), what, instead=instead)
    fields, end = own_life(policy, field, seconds)
    conditions = _conditions(only_if, policy, end)
    stage = {"$set": fields}
    if seconds:
        return await _change(document, policy, stage, conditions, session)
    return await _change(document, policy, [stage], conditions, session, keeps_stamp=True)


def own_life(policy: TTL, field: str, seconds: int) -> tuple[dict[str, object], Instant]:
    """Return the fields that give documents their own ttl from now on, and their end.

    With zero seconds these include the last modification.
    """
    now = formats.server_now()
    if seconds:
        return {field: seconds}, {"$add": [now, seconds * 1000]}
    return {field: 1, policy.last_modified: just_passed(policy)}, now


def just_passed(policy: Policy) -> Instant:
    """Return an instant, as a field stores it, since which a ttl of one second is over.

    It is two seconds ago, because a field that stores whole seconds rounds it up.
    """
    return stored_expr(policy, {"$subtract": [formats.server_now(), 2000]})


async def expire_at(
    document: Document, instant: datetime, *, only_if: OnlyIf | None = None, session: Session = None
) -> bool:
    """Let a document expire at exactly this instant, to the millisecond.

    It stores the remaining seconds as the ttl, rounded up, and a ``_ts`` that many seconds before
    the instant. A later write restarts that ttl, as any write does.

    Args:
        document: The document.
        instant: An aware datetime; if it is in the past, the document expires now.
        only_if: As for `touch`.
        session: The session of a transaction.

    Returns:
        Whether it was written.

    Raises:
        InvalidTTL: The datetime is naive, or more than 68 years from now.
        ExpiredError: It has expired.
        TTLConfigurationError: As for `expire_in`.
    """
    policy, field = await _with_own_ttl(document)
    if is_on_azure(type(document)):
        instead = "use expire_in() with the remaining seconds"
        raise azure_error(type(document), "expire_at()", instead=instead)
    await read_clock(document)
    now = clock_of(document).reached
    instant = end_instant(instant, where=f"{type(document).__name__}.{field}", now=now)
    seconds = seconds_until(instant, now())
    born = stored(policy, instant - timedelta(seconds=seconds))
    stage = {"$set": {field: seconds, policy.last_modified: born}}
    conditions = _conditions(only_if, policy, instant)
    return await _change(document, policy, [stage], conditions, session, keeps_stamp=True)


async def persist(document: Document, *, session: Session = None) -> None:
    """Let a document live forever (ttl -1), regardless of the default.

    Raises:
        ExpiredError: It has expired.
        TTLConfigurationError: Its policy has no ttl per document.
    """
    policy, field = await _with_own_ttl(document)
    await _change(document, policy, {"$set": {field: NEVER}}, [], session)


async def inherit_ttl(document: Document, *, session: Session = None) -> None:
    """Remove a document's own ttl, so that the default applies again.

    Raises:
        ExpiredError: It has expired.
        TTLConfigurationError: Its policy has no ttl per document.
    """
    policy, field = await _with_own_ttl(document)
    await _change(document, policy, {"$unset": {field: ""}}, [], session)


async def policy_now(model: type[Document]) -> Policy:
    """Return the policy of a class, after reading a default that the database stores."""
    rule = rule_of(model)
    if rule is not None:
        raise rule.rejected("lifetime", model.__name__)
    binding = binding_of(model)
    if binding is None:
        return policy_of(model)
    await binding.source.see(collection_of(model))
    return binding.policy


async def _with_own_ttl(document: Document) -> tuple[TTL, str]:
    """Return the policy of a document and the field of its own ttl."""
    policy = await policy_now(type(document))
    if isinstance(policy, TTL) and policy.override is not None:
        return policy, policy.override
    raise TTLConfigurationError(
        f"{type(document).__name__} documents have no ttl of their own: {policy!r}."
    )


def _conditions(only_if: OnlyIf | None, policy: TTL, end: Instant) -> list[drivers.Document]:
    check_only_if(only_if)
    return [] if only_if is None else [change_is(only_if, policy, end)]


async def _change(  # noqa: PLR0913 (all but one by place, from five callers)
    document: Document,
    policy: TTL,
    update: drivers.Document | drivers.Pipeline,
    conditions: list[drivers.Document],
    session: Session,
    *,
    keeps_stamp: bool = False,
) -> bool:
    """Update the stored document, and the fields in memory that decide when it expires.

    Unless all conditions are true, write nothing and return False.
    """
    collection, fields = collection_of(document), dict.fromkeys(deciding_fields(policy), 1)
    condition = {"$expr": {"$and": conditions}} if conditions else {}
    changed = await collection.find_one_and_update(
        {"_id": key_of(document), **condition},
        update,
        projection=fields,
        return_document=ReturnDocument.AFTER,
        session=session,
        keep_last_modified=keeps_stamp,
    )
    row = changed
    if changed is None and conditions:
        row = await on_primary(collection).find_one(
            {"_id": key_of(document)}, fields, session=session
        )
    if row is None:
        raise await expiry_error(document, session, copy_of(document)) or DocumentNotFound
    learn(document, row, policy)
    return changed is not None


async def expiry_error(
    document: Document, session: Session, copy: Copy | None, *, inserts: bool = False
) -> ExpiredError | None:
    """Return the `ExpiredError` for a document that was not found; None if it has not expired.

    Before an insert (`inserts`) only the stored document counts that the copy was made of. If the
    transaction that wrote it was rolled back, an earlier document may have expired under its key.
    """
    model = type(document)
    error = ExpiredError(model=model.__name__, key=document.id)
    rule = rule_of(model)
    if rule is not None:
        is_gone = await rule.is_gone(document, session, copy, inserts=inserts)
        return error if is_gone else None
    collection = on_primary(collection_of(document))
    row = await collection.find_one(
        {"_id": key_of(document)}, session=session, include_expired=True
    )
    await read_clock(document)
    policy, latest = policy_of(model), latest_now(document)
    known = predicate.end_of(lifetime_of(document, policy, copy), policy)
    if row is None:  # MongoDB may have deleted it already: use the ends known in memory
        ends = (known, predicate.end_of(lifetime_of(document, policy), policy))
        return error if any(end is not None and is_expired(end, latest) for end in ends) else None
    end = predicate.end_of(row, policy)
    if end is None or not is_expired(end, latest):
        return None
    is_doubtful = inserts and copy is not None and not copy.is_certain
    return None if is_doubtful and (known is None or end < known) else error


def is_on_azure(model: type[Document]) -> bool:
    """Return whether the documents of a class are on Azure Cosmos DB (RU)."""
    binding = binding_of(model)
    return binding is not None and binding.is_left_to_service


def azure_error(model: type[Document], what: str, *, instead: str) -> TTLConfigurationError:
    """Return the error for an operation that needs ``_ts``."""
    return TTLConfigurationError(
        f"{model.__name__}: {what} is not available on Azure Cosmos DB, which manages '_ts' "
        f"itself: {instead}."
    )


async def _touch_on_azure(document: Document, session: Session) -> bool:
    """Change a document and undo the change, in one command; `DocumentNotFound` if it is gone.

    Whether the service counts a ``$set`` of an equal value as a modification is documented nowhere,
    and MongoDB doesn't. Adding a field and removing it are two modifications. If the second is
    lost, the next touch removes the field.
    """
    if type(document).model_config.get("extra") == "forbid":
        what, instead = "touch() of a class with extra='forbid'", "write a field of its own"
        raise azure_error(type(document), what, instead=instead)
    own = {"_id": key_of(document)}
    add, remove = {"$set": {_TOUCHED: True}}, {"$unset": {_TOUCHED: ""}}
    requests = [UpdateOne(own, add), UpdateOne(own, remove)]
    result = await collection_of(document).bulk_write(requests, session=session)
    if result.matched_count < len(requests):
        raise DocumentNotFound
    return True


def clock_of(document: Document) -> ServerClock:
    """Return the estimate of the clock of a document's server."""
    return registry_of(collection_of(document).database.client).clock


async def read_clock(document: Document) -> None:
    """Read the clock of a document's server, if the estimate is old."""
    await clock_of(document).refresh(collection_of(document).database)
