"""Bulk writes: every request does what its own method would do.

Inserts, updates and deletes are sent together, as without TTL. An upsert is two commands, the
second of which depends on the first, so each upsert is sent by itself.

This module must not know which driver is used, nor how the policy is found.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeGuard

from pymongo import DeleteMany, DeleteOne, InsertOne, ReplaceOne, UpdateMany, UpdateOne
from pymongo.errors import BulkWriteError, DuplicateKeyError, WriteError
from pymongo.results import BulkWriteResult, DeleteResult, InsertManyResult

from ttl_odm.beanie.gate import writes
from ttl_odm.beanie.gate.handle import pop_keep
from ttl_odm.beanie.keys import TRANSIENT, KeyHolders
from ttl_odm.beanie.rewrite import filters
from ttl_odm.beanie.rewrite.operators import operator_error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from pymongo.results import UpdateResult

    from ttl_odm.beanie.drivers import Document, Filter
    from ttl_odm.beanie.gate.handle import Handle
    from ttl_odm.beanie.gate.writes import UnlessExpired
    from ttl_odm.beanie.policy.bindings import Binding
    from ttl_odm.beanie.policy.rules import Rule

    UpdateRequest: TypeAlias = UpdateOne | UpdateMany | ReplaceOne[Document]
    """An update or a replacement; it may be an upsert."""
    Request: TypeAlias = InsertOne[Document] | DeleteOne | DeleteMany | UpdateRequest
    Run: TypeAlias = list[tuple[int, Request]]
    """Requests with their places in the whole bulk write."""

_DUPLICATE_KEY: Final = {11000, 11001, 12582}
_METHODS: Final = {UpdateOne: "update_one", UpdateMany: "update_many", ReplaceOne: "replace_one"}


async def insert_many(
    handle: Handle, documents: Sequence[Document], options: Document, *, ordered: bool
) -> InsertManyResult:
    """Insert documents, replacing expired ones that have one of their keys."""
    requests = [InsertOne(document) for document in documents]
    await write(handle, requests, options, ordered=ordered)
    return InsertManyResult([document.get("_id") for document in documents], acknowledged=True)


async def write(
    handle: Handle, requests: Sequence[Request], options: Document, *, ordered: bool
) -> BulkWriteResult:
    """Send requests. The details of a BulkWriteError count all of them."""
    keep = pop_keep(options)
    binding = handle.binding
    if binding is None or not isinstance(requests, list) or not requests:
        result: BulkWriteResult = await handle.plain.bulk_write(
            requests, ordered=ordered, **options
        )
        return result
    total = nothing_done()
    for run in _runs(requests, ordered=ordered):
        if _is_upsert(run[0][1]):
            part = await _upsert(handle, run[0][1], options, keep=keep)
        else:
            part = await Sending(handle, binding, options, ordered=ordered, keep=keep)(run)
        add_up(total, part, [index for index, _ in run])
        if ordered and total["writeErrors"]:
            break
    if total["writeErrors"] or total["writeConcernErrors"]:
        total["writeErrors"].sort(key=lambda error: error["index"])
        raise BulkWriteError(total)
    return BulkWriteResult(total, acknowledged=True)


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A request as it is sent, and the known fields of the resulting document."""

    request: Request
    known: Document
    is_repeatable: bool


class Sending:
    """Sends requests together, and again as long as one fails because of an expired document."""

    def __init__(
        self,
        handle: Handle,
        entry: Binding | Rule,
        options: Document,
        *,
        ordered: bool,
        keep: bool,
    ) -> None:
        self._handle = handle
        self._entry = entry
        self._plain = handle.acknowledged
        self._options = options
        self._ordered = ordered
        self._keep = keep
        self._failures: dict[int, int] = {}

    async def __call__(self, run: Run) -> Document:
        """Return the result, with errors by their place in the run."""
        prepared = [await _prepared(self._handle, request, keep=self._keep) for _, request in run]
        inserts = all(isinstance(entry.request, InsertOne) for entry in prepared)
        known = [entry.known for entry in prepared]
        session = self._options.get("session")
        keys = KeyHolders(self._plain, self._entry, session, known, complete=inserts)
        await keys.make_way_beforehand()
        total = nothing_done()
        pending = dict(enumerate(prepared))
        while pending:
            requests, places = [entry.request for entry in pending.values()], list(pending)
            try:
                result = await self._plain.bulk_write(
                    requests, ordered=self._ordered, **self._options
                )
                part = dict(result.bulk_api_result)
            except BulkWriteError as error:
                part = dict(error.details)
            part["writeErrors"] = [operator_error(error) for error in part["writeErrors"]]
            try:
                again = await self._again(part["writeErrors"], pending, keys)
            except DuplicateKeyError:  # in a transaction
                total["errorLabels"] = [TRANSIENT]
                again = set()
            part["writeErrors"] = [
                error for error in part["writeErrors"] if places[error["index"]] not in again
            ]
            add_up(total, part, places)
            if self._ordered and again:  # the requests after the failed one were not tried
                pending = {place: entry for place, entry in pending.items() if place >= min(again)}
            else:
                pending = {place: pending[place] for place in again}
        return total

    async def _again(
        self, errors: list[Document], pending: dict[int, _Prepared], keys: KeyHolders
    ) -> set[int]:
        """Free keys for the requests that failed; return those that are worth another try."""
        again: set[int] = set()
        freed: dict[str, int | None] = {}
        places = list(pending)
        for error in errors:
            place = places[error["index"]]
            may_repeat = pending[place].is_repeatable or keys.in_transaction
            if error["code"] not in _DUPLICATE_KEY or not may_repeat:
                continue
            pattern = repr(error.get("keyPattern"))
            if pattern not in freed:
                known = [
                    entry.known for at, entry in pending.items() if at >= place and entry.known
                ]
                same = [each for each in errors if repr(each.get("keyPattern")) == pattern]
                freed[pattern] = await keys.make_way(error, known, same[1:])
            self._failures[place] = 0 if freed[pattern] else self._failures.get(place, 0) + 1
            if freed[pattern] is not None and self._failures[place] <= 1:
                again.add(place)
        return again


async def _prepared(handle: Handle, request: Request, *, keep: bool) -> _Prepared:
    sent: Any = copy(request)
    if isinstance(request, InsertOne):
        sent._doc = await writes.stamped(handle, request._doc, keep=keep)
        return _Prepared(sent, sent._doc, is_repeatable=True)
    sent._filter = handle.filter_to_write(request._filter, collated=request._collation is not None)
    if isinstance(request, (DeleteOne, DeleteMany)):
        return _Prepared(sent, {}, is_repeatable=True)
    change = await writes.change_of(handle, method_of(request), request._doc, keep=keep)
    if isinstance(request, ReplaceOne) and change.method == "update_one":
        sent = UpdateOne(sent._filter, change.live)
        sent._collation, sent._hint = request._collation, request._hint
        if hasattr(request, "_sort"):  # since PyMongo 4.11; Motor 3.6 asks for one before 4.10
            sent._sort = request._sort
    sent._doc = change.live
    return _Prepared(sent, change.known, change.is_repeatable)


async def _upsert(
    handle: Handle, request: UpdateRequest, options: Document, *, keep: bool
) -> Document:
    options = {**options, **options_of(request), "upsert": True}
    change = await writes.change_of(handle, method_of(request), request._doc, keep=keep)

    async def send() -> Document:
        return await outcome(request, writes.send(handle, request._filter, change, options))

    return await unless_expired(handle.plain.full_name, request, send)


def method_of(request: UpdateRequest) -> str:
    """Return the name of the method for a single update or replacement like a request."""
    return next(name for kind, name in _METHODS.items() if isinstance(request, kind))


class SaveOne(UpdateOne):
    """An upsert of a document that was stored before, and isn't inserted if it has expired."""

    __slots__ = ("unless_expired",)
    unless_expired: UnlessExpired


def guarded(operation: Request, key: object, unless_expired: UnlessExpired) -> Request:
    """Return a bulk writer's operation, as a `SaveOne` if it comes from the document's `save()`."""
    if (
        not isinstance(operation, UpdateOne)
        or not operation._upsert
        or filters.equalities(operation._filter).get("_id") != key
    ):
        return operation
    save = SaveOne(operation._filter, operation._doc)
    for name in (name for base in UpdateOne.__mro__ for name in getattr(base, "__slots__", ())):
        setattr(save, name, getattr(operation, name))
    save.unless_expired = unless_expired
    return save


class _ExpiredError(Exception):
    """A document that would be inserted again has expired."""


async def unless_expired(
    collection: str, request: Request, write: Callable[[], Awaitable[Document]]
) -> Document:
    """Send one request; a `SaveOne` of an expired document matches nothing, as an update would."""
    if not isinstance(request, SaveOne):
        return await write()

    async def check() -> None:
        if await request.unless_expired() is not None:
            raise _ExpiredError

    key = filters.equalities(request._filter).get("_id")
    with writes.watching(collection, key, unless_expired=check):
        try:
            return await write()
        except _ExpiredError:
            return nothing_done()


def options_of(request: Request) -> Document:
    """Return the options of a request, as the methods for single writes accept them."""
    names = ("collation", "array_filters", "hint", "sort", "upsert")
    options = {name: getattr(request, f"_{name}", None) for name in names}
    return {name: value for name, value in options.items() if value is not None}


async def outcome(request: Request, write: Awaitable[UpdateResult | DeleteResult]) -> Document:
    """Await the write of one request, and return its result in the form of a bulk write's."""
    part = nothing_done()
    try:
        result = await write
    except WriteError as error:
        part["writeErrors"].append({**(error.details or {}), "index": 0, "op": request})
        if error.has_error_label(TRANSIENT):
            part["errorLabels"] = [TRANSIENT]
        return part
    if isinstance(result, DeleteResult):
        part["nRemoved"] = result.deleted_count
        return part
    part["nMatched"] = result.matched_count
    part["nModified"] = result.modified_count
    if result.upserted_id is not None:
        part["nUpserted"] = 1
        part["upserted"].append({"index": 0, "_id": result.upserted_id})
    return part


def _runs(requests: Sequence[Request], *, ordered: bool) -> Iterator[Run]:
    """Yield the requests to send together: upserts alone, and last if order doesn't matter."""
    run: Run = []
    upserts: list[Run] = []
    for place, request in enumerate(requests):
        if not _is_upsert(request):
            run.append((place, request))
            continue
        upserts.append([(place, request)])
        if ordered:
            if run:
                yield run
            yield upserts.pop()
            run = []
    if run:
        yield run
    yield from upserts


def _is_upsert(request: Request) -> TypeGuard[UpdateRequest]:
    return bool(getattr(request, "_upsert", False))


def nothing_done() -> Document:
    """Return the result of a bulk write without requests."""
    counts = dict.fromkeys(("nInserted", "nUpserted", "nMatched", "nModified", "nRemoved"), 0)
    return {"writeErrors": [], "writeConcernErrors": [], **counts, "upserted": []}


def add_up(total: Document, part: Filter, places: Sequence[int]) -> None:
    """Add a part's result to a total; `places` are those of the part's requests in the whole."""
    for name, value in part.items():
        if name in ("writeErrors", "upserted"):
            total[name] += [{**entry, "index": places[entry["index"]]} for entry in value]
        elif name == "errorLabels":
            total[name] = value
        elif name in total:
            total[name] += value
