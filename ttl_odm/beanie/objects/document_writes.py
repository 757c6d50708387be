"""Beanie's insert, save, update, replace and delete of documents with a lifetime.

Beanie reacts in different ways to a write that finds no document. Here it is always an
`ExpiredError` if the document has expired, and a `DocumentNotFound` if it is missing for another
reason. Each write also gives the document in memory its new ``_ts``. An upsert of a document that
was stored before (`save()`) inserts it only if it was deleted, not if it has expired.

This module must not know how the gate works.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Final

from beanie import DeleteRules
from beanie.exceptions import DocumentNotFound, RevisionIdWasChanged
from pymongo.results import DeleteResult

from ttl_odm.beanie.drivers import on_primary
from ttl_odm.beanie.gate.bulk import guarded
from ttl_odm.beanie.gate.writes import watching
from ttl_odm.beanie.objects.copies import copy_of, forget, key_of, learn, remember
from ttl_odm.beanie.objects.lifetime import clock_of, expiry_error, read_clock
from ttl_odm.beanie.policy.bindings import collection_of, policy_of
from ttl_odm.beanie.policy.predicate import deciding_fields
from ttl_odm.beanie.policy.rules import rule_of
from ttl_odm.beanie.purge.errors import ExpiredError
from ttl_odm.beanie.time.formats import stored
from ttl_odm.core.policy import TTL

_REPLACE: Final = ("ignore_revision", "session", "bulk_writer")
"""The first parameters of Beanie's replace."""

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from beanie import Document

    from ttl_odm.beanie.drivers import Filter, Method, Result, Session
    from ttl_odm.beanie.gate.writes import UnlessExpired
    from ttl_odm.beanie.objects.copies import Copy
    from ttl_odm.core.policy import Policy


async def insert(
    document: Document, method: Method[Result], *args: object, **kwargs: object
) -> Result:
    """Run Beanie's insert, and set the stamp on the document in memory.

    It is set as soon as the document is stored: actions after the insert may change it again.
    """
    with watching(collection_of(document).full_name, key_of(document)) as watch:
        watch.inserted = lambda row: learn(document, row, policy_of(type(document)))
        result = await method(*args, **kwargs)
    if _may_be_undone(kwargs):
        remember(document, is_certain=False)
    return result


async def insert_one(
    method: Method[Result], document: Document, *args: object, **kwargs: object
) -> Result:
    """Run Beanie's `insert_one`, which may pass the document to a bulk writer."""
    result = await method(document, *args, **kwargs)
    if kwargs.get("bulk_writer") is not None:
        await _remember_inserted([document], is_certain=False)
    return result


async def insert_many(
    method: Method[Result], documents: Iterable[Document], *args: object, **kwargs: object
) -> Result:
    """Run Beanie's `insert_many`, and note that the documents are stored."""
    documents = list(documents)
    result = await method(documents, *args, **kwargs)
    session = kwargs.get("session", args[0] if args else None)
    await _remember_inserted(documents, is_certain=not _may_be_undone({"session": session}))
    return result


async def _remember_inserted(documents: list[Document], *, is_certain: bool) -> None:
    for document in documents:
        policy = _own_policy(type(document))
        known: dict[str, object] = {}
        if isinstance(policy, TTL):
            await read_clock(document)
            known[policy.last_modified] = stored(policy, clock_of(document).reached())
        remember(document, is_certain=is_certain, **known)


def _may_be_undone(options: Filter) -> bool:
    """Return whether a write may not take effect: in a transaction, or with a bulk writer."""
    session = options.get("session")
    in_transaction = session is not None and bool(session.in_transaction)
    return in_transaction or options.get("bulk_writer") is not None


async def write(
    document: Document, method: Method[Result], *args: object, **kwargs: object
) -> Result:
    """Run one of Beanie's writes; raise an `ExpiredError` if the document has expired."""
    return await _write(document, partial(method, *args, **kwargs), kwargs)


async def _write(
    document: Document,
    method: Callable[[], Awaitable[Result]],
    options: Filter,
    on_match: Callable[[], Awaitable[None]] | None = None,
) -> Result:
    """Run a write; raise an `ExpiredError` if the document has expired.

    It is raised as soon as the gate finds no document, since Beanie may ignore that. `on_match` is
    called as soon as the gate has found and written it.
    """
    copy, session = copy_of(document), options.get("session")

    async def reject_expired() -> None:
        error = await expiry_error(document, session, copy)
        if error is not None:
            raise error

    with (
        _saving(document, copy, options) as unless_expired,
        watching(
            collection_of(document).full_name, key_of(document), reject_expired, unless_expired
        ) as watch,
    ):
        watch.on_match = on_match
        try:
            return await method()
        except ExpiredError:
            raise
        except (AttributeError, DocumentNotFound, RevisionIdWasChanged) as error:
            if isinstance(error.__context__, ExpiredError):  # Beanie replaced our error
                raise error.__context__ from None
            is_attribute = isinstance(error, AttributeError)  # Beanie merged None
            if watch.matched is True or (watch.matched is None and is_attribute):
                raise
            await reject_expired()
            if is_attribute:
                raise DocumentNotFound from error
            raise


async def save(
    document: Document, method: Method[Result], *args: object, **kwargs: object
) -> Result:
    """Run `save` for a class without the mixin, whose `update` is Beanie's own."""
    options = {"session": args[0] if args else None, **kwargs, "upsert": True}
    with (
        _saving(document, copy_of(document), options) as unless_expired,
        watching(collection_of(document).full_name, key_of(document), None, unless_expired),
    ):
        return await method(*args, **kwargs)


@contextmanager
def _saving(
    document: Document, copy: Copy | None, options: Filter
) -> Iterator[UnlessExpired | None]:
    """Yield the check that an upsert of a document does before it inserts; None for no check.

    The operations that a bulk writer gets inside do the same check when they are sent.
    """
    session, writer = options.get("session"), options.get("bulk_writer")

    async def unless_expired() -> ExpiredError | None:
        return await expiry_error(document, session, copy, inserts=True)

    asks = bool(options.get("upsert")) and copy is not None
    queued = 0 if writer is None else len(writer.operations)
    yield unless_expired if asks else None
    if writer is not None and asks:
        writer.operations[queued:] = [
            guarded(operation, key_of(document), unless_expired)
            for operation in writer.operations[queued:]
        ]
    if _may_be_undone(options) and not (copy is not None and copy.is_certain):
        remember(document, is_certain=False)


async def replace(
    document: Document, method: Method[Result], *args: object, **kwargs: object
) -> Result:
    """Run Beanie's replace, and read the stamp, which Beanie doesn't.

    It is read as soon as the document is stored: actions after the replace may change it again.
    """
    options = {**dict(zip(_REPLACE, args, strict=False)), **kwargs}
    policy = _own_policy(type(document))

    read = None
    if isinstance(policy, TTL) and options.get("bulk_writer") is None:
        read = partial(_read_stamp, document, policy, options.get("session"))
    return await _write(document, partial(method, *args, **kwargs), options, read)


async def _read_stamp(document: Document, policy: TTL, session: Session) -> None:
    row = await on_primary(collection_of(document)).find_one(
        {"_id": key_of(document)}, dict.fromkeys(deciding_fields(policy), 1), session=session
    )
    if row is not None:
        learn(document, row, policy)


async def delete(
    document: Document, method: Method[Result], *args: object, **kwargs: object
) -> Result | None:
    """Run Beanie's delete; also a soft one, which saves, and must not insert an expired document.

    If its links are deleted too, an expired document is not an error: Beanie deletes the documents
    one after the other, and would leave the rest.
    """
    with watching(collection_of(document).full_name, key_of(document), inserts=False):
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


def run_as(runs: Method[object], method: Method[object]) -> Any:
    """Return an instance method of Beanie's, run by a function of this module such as `delete`."""

    @wraps(method)
    async def run(document: Document, *args: object, **kwargs: object) -> object:
        return await runs(document, partial(method, document), *args, **kwargs)

    return run


def _own_policy(model: type) -> Policy | None:
    """Return the policy of a class, None if its documents have a rule."""
    return None if rule_of(model) is not None else policy_of(model)
