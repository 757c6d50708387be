"""Reads and writes of documents that follow others, whose filters can't judge them.

A write's filter can't look into another collection, but a pipeline can. So a pipeline chooses live
documents first, and these are written by their keys, with the user's filter once more; documents
that changed in between are chosen again. Every document written had a live parent at some moment
after the call began.

Documents that get a parent name it. Before the write the parents are read, and the write is
rejected if one has expired. After an insert or a move they are read again: documents that lost
their parent meanwhile are deleted, so that they don't appear under the next parent with its key. In
a transaction there is no second read, since it would return the same.

This module must not know which driver it is.
"""

# ruff: noqa: A002 - `filter` is the drivers' own name for it

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pymongo import DeleteMany, DeleteOne, InsertOne
from pymongo.errors import BulkWriteError
from pymongo.results import BulkWriteResult, DeleteResult, InsertManyResult, UpdateResult

from ttl_odm.beanie.drivers import on_primary
from ttl_odm.beanie.gate import bulk, writes
from ttl_odm.beanie.gate.handle import pop_expired, pop_keep
from ttl_odm.beanie.keys import KeyHolders, until_free
from ttl_odm.beanie.rewrite import filters
from ttl_odm.beanie.rewrite.lookups import expression
from ttl_odm.beanie.rewrite.operators import sent
from ttl_odm.errors import TTLError
from ttl_odm.follows.beanie import stages
from ttl_odm.follows.beanie.parents import Parents, aggregate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pymongo.results import InsertOneResult

    from ttl_odm.beanie.drivers import Document, Filter
    from ttl_odm.beanie.gate.handle import Handle
    from ttl_odm.beanie.gate.writes import Change
    from ttl_odm.beanie.rewrite.stamps import Update
    from ttl_odm.follows.beanie.follower import Following

_CHUNK: Final = 1_000
"""Keys in one command."""
_READ_OPTIONS: Final = ("session", "collation", "hint", "comment", "maxTimeMS", "let")
_ONLY_TO_CHOOSE: Final = ("hint", "sort")


class FollowersMethods:
    """The methods of a collection whose documents follow others, for one call."""

    def __init__(self, handle: Handle, following: Following) -> None:
        """Take the handle of a collection, and its rule."""
        self.handle = handle
        self.following = following
        self.plain = handle.acknowledged

    # Reading

    async def count_documents(self, filter: Filter, **options: Any) -> int:
        """Count live documents."""
        if pop_expired(options):
            return await self.plain.count_documents(filter, **options)
        judgement = stages.judged(self.following)
        skip, limit = (int(options.pop(name, 0) or 0) for name in ("skip", "limit"))
        pipeline = stages.find_pipeline(judgement, filter, skip=skip, limit=limit)
        pipeline.append({"$group": {"_id": None, "n": {"$sum": 1}}})
        return sum([int(row["n"]) for row in await aggregate(self.plain, pipeline, **options)])

    async def estimated_document_count(self, **options: Any) -> int:
        """Count live documents, one by one."""
        if pop_expired(options):
            return await self.plain.estimated_document_count(**options)
        return await self.count_documents({}, **options)

    async def distinct(
        self, key: str, filter: Filter | None = None, **options: Any
    ) -> list[object]:
        """Return the values of a field in live documents."""
        expired = pop_expired(options)
        condition = options.pop("query", filter) or {}
        if expired:
            return await self.plain.distinct(key, condition, **options)
        if any(part.isdigit() for part in key.split(".")):
            raise TTLError(
                f"distinct({key!r}) addresses an array by position, which pipelines don't "
                "support, and documents that follow others are read by pipelines: use "
                "$arrayElemAt in aggregate()."
            )
        value = expression(key)
        values = {"$cond": [{"$isArray": [value]}, value, [value]]}
        pipeline = [
            *stages.find_pipeline(stages.judged(self.following), condition),
            {"$match": {key: {"$exists": True}}},
            {"$project": {"_id": 0, "value": values}},
            {"$unwind": "$value"},
            {"$group": {"_id": "$value"}},
        ]
        return [row["_id"] for row in await aggregate(self.plain, pipeline, **options)]

    async def _choose(self, filter: Filter, options: Document, *, one: bool) -> list[Document]:
        """Return live documents with their keys, and the fields that lead to their parents."""
        judgement = stages.judged(self.following)
        sort: Any = options.get("sort")
        order = dict(sort) if sort is not None and not isinstance(sort, Mapping) else sort
        tops = {path.partition(".")[0]: 1 for path in self.following.links.own}
        pipeline = [
            *stages.find_pipeline(judgement, filter, sort=order, limit=1 if one else 0),
            {"$project": {"_id": 1, **tops}},
        ]
        clauses = {name: options[name] for name in _READ_OPTIONS if options.get(name) is not None}
        return await aggregate(on_primary(self.plain), pipeline, **clauses)

    # Inserting

    def _parents(self, options: Document) -> Parents:
        return Parents(self.handle, self.following, options.get("session"))

    async def insert_one(self, document: Any, **options: Any) -> InsertOneResult:
        """Insert a document under a live parent, in place of an expired document with its key."""
        keep = pop_keep(options)
        if not isinstance(document, Mapping):
            return await self.plain.insert_one(document, **options)
        new = await writes.stamped(self.handle, document, keep=keep)
        parents = self._parents(options)
        live = await parents.check([new])
        keys = KeyHolders(self.plain, self.following, options.get("session"), [new], complete=True)
        await keys.make_way_beforehand()
        result = await until_free(lambda: self.plain.insert_one(new, **options), keys.make_way)
        await parents.keep_or_take_back([new], live)
        await parents.renew([new], keep=keep)
        return result

    async def insert_many(
        self, documents: Iterable[Document], *, ordered: bool = True, **options: Any
    ) -> InsertManyResult:
        """Insert documents under live parents."""
        if isinstance(documents, Mapping) or not documents:
            pop_keep(options)
            return await self.plain.insert_many(documents, ordered=ordered, **options)
        rows = list(documents)
        requests = [InsertOne(document) for document in rows]
        await self.bulk_write(requests, ordered=ordered, **options)
        return InsertManyResult([document.get("_id") for document in rows], acknowledged=True)

    # Deleting

    async def delete_one(self, filter: Filter, **options: object) -> DeleteResult:
        """Delete a live document."""
        result = await self._write_one("delete_one", filter, (), options)
        result = result or DeleteResult({"n": 0}, acknowledged=True)
        matched = result.deleted_count > 0
        await writes.note_match(self.plain.full_name, filter, matched=matched)
        return result

    async def delete_many(self, filter: Filter, **options: object) -> DeleteResult:
        """Delete live documents."""
        keep = pop_keep(options)
        rows = await self._choose(filter, options, one=False)
        deleted = 0
        for some in _chunks(rows):
            result = await self.plain.delete_many(self._of(filter, some), **_to_write(options))
            deleted += result.deleted_count
        await self._parents(options).renew(rows, keep=keep)
        return DeleteResult({"n": deleted}, acknowledged=True)

    async def find_one_and_delete(self, filter: Filter, **options: object) -> Document | None:
        """Delete a live document and return it."""
        result: Document | None = await self._write_one("find_one_and_delete", filter, (), options)
        return result

    async def _write_one(
        self, method: str, filter: Filter, arguments: tuple[Update, ...], options: Document
    ) -> Any:
        """Write the first live document; None if there is none.

        Tries again if another client changes that document in between.
        """
        keep = pop_keep(options)
        while rows := await self._choose(filter, options, one=True):
            write = getattr(self.plain, method)
            result = await sent(write(self._of(filter, rows), *arguments, **_to_write(options)))
            if _has_matched(result):
                await self._parents(options).renew(rows, keep=keep)
                return result
        return None

    @staticmethod
    def _of(filter: Filter, rows: Sequence[Filter]) -> Document:
        """Return the filter for these documents only."""
        return filters.with_keys(filter, [row["_id"] for row in rows])

    # Changing

    async def update_one(self, filter: Filter, update: Update, **options: object) -> UpdateResult:
        """Update a live document; an upsert inserts where none matches."""
        result: UpdateResult = await self._change("update_one", filter, update, options)
        return result

    async def update_many(self, filter: Filter, update: Update, **options: object) -> UpdateResult:
        """Update live documents; an upsert inserts where none matches."""
        result: UpdateResult = await self._change("update_many", filter, update, options)
        return result

    async def replace_one(
        self, filter: Filter, replacement: Filter, **options: object
    ) -> UpdateResult:
        """Replace a live document; an upsert inserts where none matches."""
        result: UpdateResult = await self._change("replace_one", filter, replacement, options)
        return result

    async def find_one_and_update(
        self, filter: Filter, update: Update, **options: object
    ) -> Document | None:
        """Update a live document and return it; an upsert inserts where none matches."""
        result: Document | None = await self._change("find_one_and_update", filter, update, options)
        return result

    async def find_one_and_replace(
        self, filter: Filter, replacement: Filter, **options: object
    ) -> Document | None:
        """Replace a live document and return it; an upsert inserts where none matches."""
        result: Document | None = await self._change(
            "find_one_and_replace", filter, replacement, options
        )
        return result

    async def _change(self, method: str, filter: Filter, update: Update, options: Document) -> Any:
        keep = pop_keep(options)
        upsert = options.pop("upsert", False)
        upsert = bool(upsert) and writes.may_insert(self.plain.full_name, filter)
        change = await writes.change_of(self.handle, method, update, keep=keep)
        known = {**filters.equalities(filter), **change.known} if upsert else change.known
        session = options.get("session")
        keys = KeyHolders(self.plain, self.following, session, [known], complete=upsert)
        operation = _ChangeOfFollowers(self, filter, change, known, options, keep)
        name = self.plain.full_name
        unless_expired = writes.unless_expired_of(name, filter) if upsert else None
        await writes.make_way_beforehand(keys, unless_expired)

        async def attempt() -> object:
            keys.are_worth_another_try = change.is_repeatable
            result = await operation.update()
            if result is not None or not upsert:
                return result
            await writes.reject_expired(unless_expired)
            keys.are_worth_another_try = True
            return await operation.insert()

        make_way = partial(writes.make_way_for, keys, unless_expired)
        result = await until_free(attempt, make_way, patience=4 if upsert else 2)
        matched = upsert or _has_matched(result)
        await writes.note_match(self.plain.full_name, filter, matched=matched)
        if result is None and not method.startswith("find_one"):
            return _updated(0, 0)
        return None if result is _INSERTED else result

    # Many at once

    async def bulk_write(
        self, requests: Sequence[bulk.Request], *, ordered: bool = True, **options: Any
    ) -> BulkWriteResult:
        """Send many requests: successive inserts together, all others one by one."""
        keep = pop_keep(options)
        if not isinstance(requests, list) or not requests:
            return await self.plain.bulk_write(requests, ordered=ordered, **options)
        inserts = [request._doc for request in requests if isinstance(request, InsertOne)]
        parents = self._parents(options)
        live = await parents.check([new for new in inserts if isinstance(new, Mapping)])
        total = bulk.nothing_done()
        for run in _runs(requests):
            if isinstance(run[0][1], InsertOne):
                sending = bulk.Sending(
                    self.handle, self.following, options, ordered=ordered, keep=keep
                )
                part = await sending(run)
                # Failed inserts wrote nothing; if `ordered`, nor did those after the first failure.
                failed = {error["index"] for error in part["writeErrors"]}
                end = min(failed) if ordered and failed else len(run)
                documents = [
                    insert._doc
                    for number, (_, insert) in enumerate(run[:end])
                    if isinstance(insert, InsertOne) and number not in failed
                ]
                await parents.keep_or_take_back(documents, live)
                await parents.renew(documents, keep=keep)
            else:
                part = await self._single(run[0][1], options, keep=keep)
            bulk.add_up(total, part, [place for place, _ in run])
            if ordered and total["writeErrors"]:
                break
        if total["writeErrors"] or total["writeConcernErrors"]:
            total["writeErrors"].sort(key=lambda error: error["index"])
            raise BulkWriteError(total)
        return BulkWriteResult(total, acknowledged=True)

    async def _single(
        self, request: DeleteOne | DeleteMany | bulk.UpdateRequest, options: Document, *, keep: bool
    ) -> Document:
        """Send one request, by its own method."""
        own = {**options, **bulk.options_of(request), "keep_last_modified": keep}
        if isinstance(request, (DeleteOne, DeleteMany)):
            own.pop("bypass_document_validation", None)  # of a bulk write, for its inserts only
            delete = self.delete_one if isinstance(request, DeleteOne) else self.delete_many
            return await bulk.outcome(request, delete(request._filter, **own))
        change = getattr(self, bulk.method_of(request))

        async def write() -> Document:
            return await bulk.outcome(request, change(request._filter, copy(request._doc), **own))

        return await bulk.unless_expired(self.plain.full_name, request, write)


_INSERTED: Final = object()
"""The result of a find_one_and_... that returned None because it has inserted a document."""


@dataclass(frozen=True, slots=True)
class _ChangeOfFollowers:
    """An update or a replacement of documents that follow others.

    `known` are the fields that a change, or an upsert, gives to documents.
    """

    followers: FollowersMethods
    filter: Filter
    change: Change
    known: Document
    options: Document
    keep: bool

    async def update(self) -> object:
        """Change live documents; None if there is none."""
        if self.change.method == "update_many":
            return await self._update_many()
        followers, parents = self.followers, self.followers._parents(self.options)
        write = getattr(followers.plain, self.change.method)
        while rows := await followers._choose(self.filter, self.options, one=True):
            live = await parents.check_moves(rows, self.change.known)
            chosen = followers._of(self.filter, rows)
            result = await sent(write(chosen, self.change.live, **_to_write(self.options)))
            if _has_matched(result):
                await self._settle(parents, rows, live)
                return result
        return None

    async def _update_many(self) -> UpdateResult | None:
        followers, parents = self.followers, self.followers._parents(self.options)
        rows = await followers._choose(self.filter, self.options, one=False)
        live = await parents.check_moves(rows, self.change.known)
        matched = modified = 0
        for some in _chunks(rows):
            chosen = followers._of(self.filter, some)
            write = followers.plain.update_many
            result = await sent(write(chosen, self.change.live, **_to_write(self.options)))
            matched += result.matched_count
            modified += result.modified_count
        await self._settle(parents, rows, live)
        return _updated(matched, modified) if matched else None

    async def _settle(self, parents: Parents, rows: Sequence[Filter], live: set[object]) -> None:
        """Check and renew the parents that the changed documents had, and those they have now."""
        moved = [{**row, **self.change.known} for row in rows]
        await parents.keep_or_take_back(moved, live, are_new=False)
        await parents.renew([*rows, *moved], keep=self.keep)

    async def insert(self) -> object:
        """Insert a document, since none matches."""
        followers, parents = self.followers, self.followers._parents(self.options)
        live = await parents.check([self.known])
        nothing, options = filters.matching_nothing(self.filter), _to_write(self.options)
        write = getattr(followers.plain, self.change.method)
        result = await sent(write(nothing, self.change.new, upsert=True, **options))
        key = getattr(result, "upserted_id", None)
        if key is None:
            key = (result if isinstance(result, Mapping) else self.known).get("_id")
        await parents.keep_or_take_back([{**self.known, "_id": key}], live)
        await parents.renew([self.known], keep=self.keep)
        return _INSERTED if result is None else result


def _runs(requests: Sequence[bulk.Request]) -> list[bulk.Run]:
    """Return the requests in runs: successive inserts together, each of the others alone."""
    runs: list[bulk.Run] = []
    for place, request in enumerate(requests):
        is_insert = isinstance(request, InsertOne)
        if is_insert and runs and isinstance(runs[-1][0][1], InsertOne):
            runs[-1].append((place, request))
        else:
            runs.append([(place, request)])
    return runs


def _to_write(options: Document) -> Document:
    return {name: value for name, value in options.items() if name not in _ONLY_TO_CHOOSE}


def _has_matched(result: object) -> bool:
    """Say whether a write of one document matched it."""
    if result is None:
        return False
    if isinstance(result, DeleteResult):
        return result.deleted_count > 0
    return bool(getattr(result, "matched_count", 1))


def _updated(matched: int, modified: int) -> UpdateResult:
    raw = {"n": matched, "nModified": modified, "updatedExisting": matched > 0}
    return UpdateResult(raw, acknowledged=True)


def _chunks(rows: list[Document]) -> list[list[Document]]:
    return [rows[start : start + _CHUNK] for start in range(0, len(rows), _CHUNK)]
