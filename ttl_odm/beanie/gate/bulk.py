"""Bulk writes through the gate: every request as its own method would do it.

Inserts, updates and deletes go out together, as they do without TTL. An upsert is two commands, of
which the second depends on the first, so each is sent by itself. This module must not know which
driver it is, nor how the policy is found.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pymongo import DeleteMany, DeleteOne, InsertOne, ReplaceOne, UpdateMany, UpdateOne
from pymongo.errors import BulkWriteError, WriteError
from pymongo.results import BulkWriteResult, DeleteResult, InsertManyResult

from ttl_odm.beanie.gate import writes
from ttl_odm.beanie.gate.handle import takes_keep
from ttl_odm.beanie.keys import KeyHolders
from ttl_odm.beanie.rewrite import filters
from ttl_odm.beanie.rewrite.operators import refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from pymongo.results import UpdateResult

    from ttl_odm.beanie.drivers import Document, Filter
    from ttl_odm.beanie.gate.handle import Handle
    from ttl_odm.beanie.gate.writes import UnlessExpired
    from ttl_odm.beanie.policy.bindings import Binding
    from ttl_odm.beanie.policy.rules import Rule

Request = Any
"""PyMongo's InsertOne and so on."""
Run = list[tuple[int, Request]]
"""Requests with their places in the whole."""

_DUPLICATE_KEY: Final = {11000, 11001, 12582}
_METHODS: Final = {UpdateOne: "update_one", UpdateMany: "update_many", ReplaceOne: "replace_one"}


async def insert_many(
    handle: Handle, documents: Sequence[Any], options: Document, *, ordered: bool
) -> InsertManyResult:
    """Insert documents, in the place of expired ones that hold keys of them."""
    requests = [InsertOne(document) for document in documents]
    await write(handle, requests, options, ordered=ordered)
    return InsertManyResult([document.get("_id") for document in documents], acknowledged=True)


async def write(
    handle: Handle, requests: Any, options: Document, *, ordered: bool
) -> BulkWriteResult:
    """Send requests. The details of a BulkWriteError count all of them."""
    keep = takes_keep(options)
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
    """A request as it is sent; of the resulting document, what is known."""

    request: Request
    known: Document
    is_repeatable: bool


class Sending:
    """Sends requests together, again and again until none fails for an expired document's sake."""

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
        self._in_vain: dict[int, int] = {}

    async def __call__(self, run: Run) -> Document:
        """Return the result, with errors by their place in the run."""
        prepared = [await _prepared(self._handle, made, keep=self._keep) for _, made in run]
        inserts = all(isinstance(made.request, InsertOne) for made in prepared)
        known = [made.known for made in prepared]
        session = self._options.get("session")
        keys = KeyHolders(self._plain, self._entry, session, known, complete=inserts)
        await keys.make_way_beforehand()
        total = nothing_done()
        pending = dict(enumerate(prepared))
        while pending:
            requests, places = [made.request for made in pending.values()], list(pending)
            try:
                result = await self._plain.bulk_write(
                    requests, ordered=self._ordered, **self._options
                )
                part = dict(result.bulk_api_result)
            except BulkWriteError as error:
                part = dict(error.details)
            part["writeErrors"] = [refused(error) for error in part["writeErrors"]]
            again = await self._again(part["writeErrors"], pending, keys)
            part["writeErrors"] = [
                error for error in part["writeErrors"] if places[error["index"]] not in again
            ]
            add_up(total, part, places)
            if self._ordered and again:  # what stands behind the one that failed was not tried
                pending = {place: made for place, made in pending.items() if place >= min(again)}
            else:
                pending = {place: pending[place] for place in again}
        return total

    async def _again(
        self, errors: list[Document], pending: dict[int, _Prepared], keys: KeyHolders
    ) -> set[int]:
        """Make way for the requests that failed; return those that are worth another try."""
        again: set[int] = set()
        freed: dict[str, int | None] = {}
        places = list(pending)
        for error in errors:
            place = places[error["index"]]
            if error["code"] not in _DUPLICATE_KEY or not pending[place].is_repeatable:
                continue
            pattern = repr(error.get("keyPattern"))
            if pattern not in freed:
                left = [made.known for at, made in pending.items() if at >= place and made.known]
                freed[pattern] = await keys.make_way(error, left)
            self._in_vain[place] = 0 if freed[pattern] else self._in_vain.get(place, 0) + 1
            if freed[pattern] is not None and self._in_vain[place] <= 1:
                again.add(place)
        return again


async def _prepared(handle: Handle, request: Request, *, keep: bool) -> _Prepared:
    made = copy(request)
    if isinstance(request, InsertOne):
        made._doc = await writes.stamped(handle, request._doc, keep=keep)
        return _Prepared(made, made._doc, is_repeatable=True)
    made._filter = handle.filter_to_write(request._filter, collated=request._collation is not None)
    if isinstance(request, (DeleteOne, DeleteMany)):
        return _Prepared(made, {}, is_repeatable=True)
    change = await writes.change_of(handle, method_of(request), request._doc, keep=keep)
    if isinstance(request, ReplaceOne) and change.method == "update_one":
        made = UpdateOne(made._filter, change.live)
        made._collation, made._hint = request._collation, request._hint
        if hasattr(request, "_sort"):  # since PyMongo 4.11; Motor 3.6 asks for one before 4.10
            made._sort = request._sort
    made._doc = change.live
    return _Prepared(made, change.known, change.is_repeatable)


async def _upsert(handle: Handle, request: Request, options: Document, *, keep: bool) -> Document:
    options = {**options, **options_of(request), "upsert": True}
    change = await writes.change_of(handle, method_of(request), request._doc, keep=keep)

    async def send() -> Document:
        return await outcome(request, writes.send(handle, request._filter, change, options))

    return await unless_expired(handle.plain.full_name, request, send)


def method_of(request: Request) -> str:
    """Return the name of the method for a single update or replacement like a request."""
    return next(name for kind, name in _METHODS.items() if isinstance(request, kind))


class SaveOne(UpdateOne):
    """An upsert of a document that was stored before: it doesn't insert what has expired."""

    __slots__ = ("unless_expired",)
    unless_expired: UnlessExpired


def guarded(operation: Any, key: object, unless_expired: UnlessExpired) -> Any:
    """Return what a bulk writer got by a document's `save()`, as a `SaveOne`; all else as it is."""
    is_save = isinstance(operation, UpdateOne) and _is_upsert(operation)
    if not is_save or filters.equalities(operation._filter).get("_id") != key:
        return operation
    made = SaveOne(operation._filter, operation._doc)
    for name in (name for base in UpdateOne.__mro__ for name in getattr(base, "__slots__", ())):
        setattr(made, name, getattr(operation, name))
    made.unless_expired = unless_expired
    return made


class _ExpiredError(Exception):
    """A document has expired that would be inserted again."""


async def unless_expired(
    collection: str, request: Request, write: Callable[[], Awaitable[Document]]
) -> Document:
    """Do what one request wants; a `SaveOne` of what has expired matches nothing, as an update."""
    if not isinstance(request, SaveOne):
        return await write()

    async def refuse() -> None:
        if await request.unless_expired() is not None:
            raise _ExpiredError

    key = filters.equalities(request._filter).get("_id")
    with writes.watching(collection, key, unless_expired=refuse):
        try:
            return await write()
        except _ExpiredError:
            return nothing_done()


def options_of(request: Any) -> Document:
    """The options of one request of a bulk write, as the methods for single writes take them."""
    names = ("collation", "array_filters", "hint", "sort", "upsert")
    given = {name: getattr(request, f"_{name}", None) for name in names}
    return {name: value for name, value in given.items() if value is not None}


async def outcome(request: Any, write: Awaitable[UpdateResult | DeleteResult]) -> Document:
    """Wait for the write of one request, and say what it did as a bulk write does."""
    part = nothing_done()
    try:
        result = await write
    except WriteError as error:
        part["writeErrors"].append({**(error.details or {}), "index": 0, "op": request})
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


def _runs(requests: list[Request], *, ordered: bool) -> Iterator[Run]:
    """Give what goes out together: upserts by themselves, and last if order doesn't matter."""
    run: Run = []
    last: list[Run] = []
    for place, request in enumerate(requests):
        if not _is_upsert(request):
            run.append((place, request))
            continue
        last.append([(place, request)])
        if ordered:
            if run:
                yield run
            yield last.pop()
            run = []
    if run:
        yield run
    yield from last


def _is_upsert(request: Request) -> bool:
    return bool(getattr(request, "_upsert", False))


def nothing_done() -> Document:
    """Return the result of nothing."""
    counts = dict.fromkeys(("nInserted", "nUpserted", "nMatched", "nModified", "nRemoved"), 0)
    return {"writeErrors": [], "writeConcernErrors": [], **counts, "upserted": []}


def add_up(total: Document, part: Filter, places: Sequence[int]) -> None:
    """Add to a total a part's result, which counts errors by their place among its requests."""
    for name, value in part.items():
        if name in ("writeErrors", "upserted"):
            total[name] += [{**entry, "index": places[entry["index"]]} for entry in value]
        elif name in total:
            total[name] += value
