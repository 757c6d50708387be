"""What documents do to themselves: Beanie's instance methods, and changes of the lifetime.

Beanie makes different things of a write that found nothing; here it is an `ExpiredError` where the
document has expired, and a `DocumentNotFound` where it is missing for another reason. And a
document in memory learns its new ``_ts`` from each of its writes. An upsert of a document that was
stored before (`save()`) inserts it only if it has been deleted, not if it has expired.

What is done to a lifetime (`touch` and its like) is decided by the server, in the filter of the
change: nothing is lost where two do it at once. These are functions over documents, for classes
that have their policy from `enable`, too. This module must not know how the gate works.
"""

from __future__ import annotations

from contextlib import contextmanager
from datetime import date, datetime, timedelta, timezone
from enum import Enum
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from beanie import DeleteRules
from beanie.exceptions import DocumentNotFound, RevisionIdWasChanged
from pydantic import BaseModel
from pymongo import ReturnDocument
from pymongo.results import DeleteResult

from ttl_odm.beanie.drivers import on_primary
from ttl_odm.beanie.gate.bulk import guarded
from ttl_odm.beanie.gate.writes import watching
from ttl_odm.beanie.objects import azure
from ttl_odm.beanie.objects.copies import copy_of, forget, remember
from ttl_odm.beanie.policy import predicate
from ttl_odm.beanie.policy.bindings import (
    binding_of,
    collection_of,
    policy_of,
    registry_of,
)
from ttl_odm.beanie.purge.errors import ExpiredError
from ttl_odm.beanie.policy.predicate import change_is, deciding_fields, modified_within, value_at
from ttl_odm.beanie.policy.rules import rule_of
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

Result = TypeVar("Result")

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

    from beanie import Document

    from ttl_odm.beanie import drivers
    from ttl_odm.beanie.drivers import Session
    from ttl_odm.beanie.gate.writes import UnlessExpired
    from ttl_odm.beanie.objects.copies import Copy
    from ttl_odm.beanie.time.clock import ServerClock
    from ttl_odm.beanie.time.formats import Instant
    from ttl_odm.core.lifetime import OnlyIf
    from ttl_odm.core.policy import Policy

    Method: TypeAlias = Callable[..., Awaitable[Result]]

MILLISECOND = timedelta(milliseconds=1)


def end_of(document: Document) -> datetime | None:
    """Return the instant at which a document in memory expires, None for never."""
    rule = rule_of(type(document))
    if rule is not None:
        return rule.end_in_memory(document, end_of)
    policy = policy_of(type(document))
    return predicate.end_of(_lifetime_of(document, policy), policy)


def latest_now(document: Document) -> datetime:
    """Return an upper bound of the server's clock, as it was last read."""
    return _clock(document).at_most()


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
    if azure.holds(type(document)):
        if at_most_every is not None or only_if is not None:
            what, instead = "a condition of touch()", "compare with an instant of your own"
            raise azure.refusal(type(document), what, instead=instead)
        return await azure.touch(document, session)
    conditions = []
    if at_most_every is not None:
        apart = interval(at_most_every)
        await _read_clock(document)
        # Memory may suffice to know that it lives, and was written a moment ago.
        last = instant_of(policy, _lifetime_of(document, policy)[policy.last_modified])
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
    if (not seconds or only_if is not None) and azure.holds(type(document)):
        what, instead = "expire_in(0) and only_if", "delete it, or set its ttl"
        raise azure.refusal(type(document), what, instead=instead)
    fields, end = own_life(policy, field, seconds)
    conditions = _conditions(only_if, policy, end)
    stage = {"$set": fields}
    if seconds:
        return await _change(document, policy, stage, conditions, session)
    return await _change(document, policy, [stage], conditions, session, keeps_stamp=True)


def own_life(policy: TTL, field: str, seconds: int) -> tuple[dict[str, Any], Instant]:
    """Return what gives documents a ttl of their own from now on, and their end.

    With zero seconds it sets their stamp, too.
    """
    now = formats.server_now()
    if seconds:
        return {field: seconds}, {"$add": [now, seconds * 1000]}
    return {field: 1, policy.last_modified: just_passed(policy)}, now


def just_passed(policy: Policy) -> Any:
    """Return the instant at which a ttl of one second began that is over, as a field keeps it.

    Two seconds ago: in a field that keeps whole seconds it is rounded up.
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
    if azure.holds(type(document)):
        instead = "use expire_in() with the remaining seconds"
        raise azure.refusal(type(document), "expire_at()", instead=instead)
    await _read_clock(document)
    now = _clock(document).reached
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
    """Return how documents expire; a default that the database stores is asked for."""
    rule = rule_of(model)
    if rule is not None:
        raise rule.rejected("lifetime", model.__name__)
    binding = binding_of(model)
    if binding is None:
        return policy_of(model)
    await binding.source.see(collection_of(model))
    return binding.policy


def _own_policy(model: type) -> Policy | None:
    """Return how the documents of a class expire, None where those of another say so."""
    return None if rule_of(model) is not None else policy_of(model)


async def _with_own_ttl(document: Document) -> tuple[TTL, str]:
    """Return the policy of a document, and the field of its own ttl."""
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
    """Update the stored document, and of the one in memory the fields that say when it expires.

    Nothing is written, and False returned, unless all conditions are true.
    """
    collection, fields = collection_of(document), dict.fromkeys(deciding_fields(policy), 1)
    condition = {"$expr": {"$and": conditions}} if conditions else {}
    changed = await collection.find_one_and_update(
        {"_id": document.id, **condition},
        update,
        projection=fields,
        return_document=ReturnDocument.AFTER,
        session=session,
        keep_last_modified=keeps_stamp,
    )
    now = changed
    if changed is None and conditions:
        now = await on_primary(collection).find_one({"_id": document.id}, fields, session=session)
    if now is None:
        raise await _is_gone(document, session, copy_of(document)) or DocumentNotFound
    _learn(document, now, policy)
    return changed is not None


async def insert(document: Document, method: Method[Result], *args: Any, **kwargs: Any) -> Result:
    """Run Beanie's insert, and learn the stamp."""
    with watching(collection_of(document).full_name, document.id) as watch:
        result = await method(*args, **kwargs)
    if watch.inserted is not None:
        _learn(document, watch.inserted, policy_of(type(document)))
    if _may_be_undone(kwargs):
        remember(document, is_certain=False)
    return result


async def insert_one(method: Method[Result], document: Any, *args: Any, **kwargs: Any) -> Result:
    """Run Beanie's insert of a document, which may leave it to a bulk writer."""
    result = await method(document, *args, **kwargs)
    if kwargs.get("bulk_writer") is not None:
        await _remember_inserted([document], is_certain=False)
    return result


async def insert_many(
    method: Method[Result], documents: Iterable[Any], *args: Any, **kwargs: Any
) -> Result:
    """Run Beanie's insert of many documents, which then know that they are stored."""
    documents = list(documents)
    result = await method(documents, *args, **kwargs)
    session = kwargs.get("session", args[0] if args else None)
    await _remember_inserted(documents, is_certain=not _may_be_undone({"session": session}))
    return result


async def _remember_inserted(documents: list[Any], *, is_certain: bool) -> None:
    for document in documents:
        policy = _own_policy(type(document))
        known: dict[str, object] = {}
        if isinstance(policy, TTL):
            await _read_clock(document)
            known[policy.last_modified] = stored(policy, _clock(document).reached())
        remember(document, is_certain=is_certain, **known)


def _may_be_undone(options: Mapping[str, Any]) -> bool:
    """Say whether a write may come to nothing: in a transaction, or left to a bulk writer."""
    session = options.get("session")
    in_transaction = session is not None and bool(session.in_transaction)
    return in_transaction or options.get("bulk_writer") is not None


async def write(document: Document, method: Method[Result], *args: Any, **kwargs: Any) -> Result:
    """Run one of Beanie's writes; an `ExpiredError` is raised where the document has expired.

    At once, where the gate finds no document: Beanie tells nobody of what hasn't happened then.
    """
    copy, session = copy_of(document), kwargs.get("session")

    async def refuse_if_gone() -> None:
        gone = await _is_gone(document, session, copy)
        if gone is not None:
            raise gone

    with (
        _saving(document, copy, kwargs) as unless_expired,
        watching(
            collection_of(document).full_name, document.id, refuse_if_gone, unless_expired
        ) as watch,
    ):
        try:
            return await method(*args, **kwargs)
        except ExpiredError:
            raise
        except (AttributeError, DocumentNotFound, RevisionIdWasChanged) as error:
            if isinstance(error.__context__, ExpiredError):  # Beanie has made another of it
                raise error.__context__ from None
            is_attribute = isinstance(error, AttributeError)  # Beanie merges a result that is None
            if watch.matched is True or (watch.matched is None and is_attribute):
                raise
            await refuse_if_gone()  # Beanie may have made another error of ours
            if is_attribute:
                raise DocumentNotFound from error
            raise


async def save(document: Document, method: Method[Result], *args: Any, **kwargs: Any) -> Result:
    """Run the `save` of a class without the mixin, whose `update` is Beanie's own."""
    options = {"session": args[0] if args else None, **kwargs, "upsert": True}
    with (
        _saving(document, copy_of(document), options) as unless_expired,
        watching(collection_of(document).full_name, document.id, None, unless_expired),
    ):
        return await method(*args, **kwargs)


@contextmanager
def _saving(
    document: Document, copy: Copy | None, options: Mapping[str, Any]
) -> Iterator[UnlessExpired | None]:
    """Give what an upsert of a document asks before it inserts; None where it needn't.

    What a bulk writer gets inside asks the same, when its time has come.
    """
    session, writer = options.get("session"), options.get("bulk_writer")

    async def unless_expired() -> ExpiredError | None:
        return await _is_gone(document, session, copy, inserts=True)

    asks = bool(options.get("upsert")) and copy is not None
    queued = 0 if writer is None else len(writer.operations)
    yield unless_expired if asks else None
    if writer is not None and asks:
        writer.operations[queued:] = [
            guarded(operation, document.id, unless_expired)
            for operation in writer.operations[queued:]
        ]
    if _may_be_undone(options) and not (copy is not None and copy.is_certain):
        remember(document, is_certain=False)


async def replace(document: Document, method: Method[Result], *args: Any, **kwargs: Any) -> Result:
    """Run Beanie's replace, and read the stamp, which it doesn't."""
    result = await write(document, method, *args, **kwargs)
    policy = _own_policy(type(document))
    if isinstance(policy, TTL) and kwargs.get("bulk_writer") is None:
        now = await on_primary(collection_of(document)).find_one(
            {"_id": document.id},
            dict.fromkeys(deciding_fields(policy), 1),
            session=kwargs.get("session"),
        )
        if now is not None:
            _learn(document, now, policy)
    return result


async def delete(
    document: Document, method: Method[Result], *args: Any, **kwargs: Any
) -> Result | None:
    """Run Beanie's delete, also a soft one, which saves: it must not store what has expired anew.

    With its links a document is deleted as far as it is there: Beanie deletes one after the other,
    and an error in between would leave the rest.
    """
    with watching(collection_of(document).full_name, document.id, inserts=False):
        try:
            result = await write(document, method, *args, **kwargs)
        except ExpiredError:
            if DeleteRules.DELETE_LINKS not in (*args, *kwargs.values()):
                raise
            return None
    session = kwargs.get("session", args[0] if args else None)
    if isinstance(result, DeleteResult) and not _may_be_undone({"session": session}):
        forget(document)
    return result


def run_as(runs: Any, method: Any) -> Any:
    """Return an instance method of Beanie's, run by a function of this module: `delete`, `save`."""

    @wraps(method)
    async def run(document: Document, *args: Any, **kwargs: Any) -> Any:
        return await runs(document, partial(method, document), *args, **kwargs)

    return run


async def _is_gone(
    document: Document, session: Session, copy: Copy | None, *, inserts: bool = False
) -> ExpiredError | None:
    """Return the error that says so, if a document that was not found has expired.

    Before an insert that is only said of the document that the copy is of: one that expired before
    has the same key, if the transaction came to nothing in which the copy was written.
    """
    model = type(document)
    gone = ExpiredError(model=model.__name__, key=document.id)
    rule = rule_of(model)
    if rule is not None:
        is_gone = await rule.is_gone(document, session, copy, inserts=inserts)
        return gone if is_gone else None
    collection: Any = on_primary(collection_of(document))
    row = await collection.find_one({"_id": document.id}, session=session, include_expired=True)
    await _read_clock(document)
    policy, latest = policy_of(model), latest_now(document)
    known = predicate.end_of(_lifetime_of(document, policy, copy), policy)
    if row is None:  # MongoDB may have deleted it already: what memory has, and had, counts
        ends = (known, predicate.end_of(_lifetime_of(document, policy), policy))
        return gone if any(end is not None and is_expired(end, latest) for end in ends) else None
    end = predicate.end_of(row, policy)
    if end is None or not is_expired(end, latest):
        return None
    is_doubtful = inserts and copy is not None and not copy.is_certain
    return None if is_doubtful and (known is None or end < known) else gone


def _learn(document: Document, row: drivers.Filter, policy: Policy) -> None:
    """Take over what the database has in the fields that say when a document expires."""
    created = policy.created if isinstance(policy, TTL) else None  # no write of ours changes it
    for field in deciding_fields(policy):
        name = None if field == created else _attribute(type(document), field)
        if name is None:
            continue
        value = row.get(field)
        if isinstance(value, datetime) and value.tzinfo is None:
            value = value.replace(tzinfo=timezone.utc)
        setattr(document, name, value)
        if document._saved_state is not None and field in document._saved_state:
            document._saved_state[field] = value
    copy = copy_of(document)
    remember(document, is_certain=copy is None or copy.is_certain)


def _lifetime_of(document: Document, policy: Policy, copy: Copy | None = None) -> drivers.Document:
    """Return the fields that say when a document expires, as it has them in memory.

    Or as the stored document has them, as far as the copy knows.
    """
    fields = deciding_fields(policy)
    names = {field: _attribute(type(document), field) for field in fields}
    if None in names.values():  # a field of an embedded document
        dumped = document.model_dump(by_alias=True)
        held = {field: value_at(dumped, field) for field in fields}
    else:
        held = {field: getattr(document, str(name)) for field, name in names.items()}
    if copy is not None:
        row = {name: _dumped(value) for name, value in copy.row(type(document)).items()}
        held |= {field: value_at(row, field) for field in fields if field.partition(".")[0] in row}
    return {field: _as_stored(value) for field, value in held.items()}


def _dumped(value: object) -> object:
    return value.model_dump(by_alias=True) if isinstance(value, BaseModel) else value


def _as_stored(value: object) -> object:
    """Return what Beanie stores for a value, as far as that decides when a document expires."""
    if isinstance(value, list):
        return [_as_stored(element) for element in value]
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day, tzinfo=timezone.utc)
    return value.value if isinstance(value, Enum) else value


def _clock(document: Document) -> ServerClock:
    return registry_of(collection_of(document).database.client).clock


async def _read_clock(document: Document) -> None:
    await _clock(document).refresh(collection_of(document).database)


def _attribute(model: type[Document], field: str) -> str | None:
    """Return the attribute that stands for a stored field."""
    fields = model.model_fields.items()
    return next((name for name, info in fields if (info.alias or name) == field), None)
