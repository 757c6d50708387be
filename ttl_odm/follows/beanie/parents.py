"""The parents of written documents: whether they live, and the restart of their lifetimes.

They are read in their own collection, on the primary. A missing parent may have expired and been
deleted, so it rejects a write as an expired one does, unless orphans are live. Otherwise a write
would fail or not depending on the sweeper, and its document would appear under the next parent with
that key.

This module must not know what is written, nor how.
"""

from __future__ import annotations

from dataclasses import dataclass
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final

import bson
from pymongo import ReadPreference

from ttl_odm.beanie.gate.handle import Handle
from ttl_odm.beanie.policy.predicate import modified_within
from ttl_odm.beanie.purge.errors import ExpiredError
from ttl_odm.beanie.rewrite import filters
from ttl_odm.beanie.rewrite.lookups import expression
from ttl_odm.core.policy import TTL
from ttl_odm.follows.beanie.stages import having, judged, keys_in, mentions_links

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ttl_odm.beanie.drivers import Collection, Document, Filter, Pipeline, Session
    from ttl_odm.follows.beanie.follower import Following

    Key = tuple[object, ...]

_CHUNK: Final = 1_000


@dataclass(frozen=True, slots=True)
class Parents:
    """The parents of documents that are written to a collection, for one write."""

    handle: Handle
    following: Following
    session: Session = None

    async def check(self, documents: Iterable[Filter]) -> set[object]:
        """Return the live parents that documents would have.

        Raises:
            ExpiredError: One of them has expired, or is missing while orphans are expired.
        """
        keys = self._keys(documents)
        lives = await self._lives(keys)
        orphans_live = self.following.declared.orphan == "live"
        for name, key in keys.items():
            if not lives.get(name, orphans_live):
                raise self._error(key, exists=name in lives)
        return {name for name, is_live in lives.items() if is_live}

    async def check_moves(self, rows: Sequence[Filter], known: Document) -> set[object]:
        """Return the live parents that a change gives to documents, none if it moves no document.

        Raises:
            ExpiredError: One of them has expired, or is missing while orphans are expired.
        """
        if not mentions_links(known, self.following.links.own):
            return set()
        changed = [{**row, **known} for row in rows]
        if self._keys(changed).keys() <= self._keys(rows).keys():
            return set()
        return await self.check(changed)

    async def keep_or_take_back(
        self, documents: Sequence[Filter], live: set[object], *, are_new: bool = True
    ) -> None:
        """Delete written documents whose parent was live before the write and isn't any more.

        Documents that existed before (not `are_new`) stay if they live as orphans.

        Raises:
            ExpiredError: A parent has expired meanwhile.
        """
        if not live or (self.session is not None and self.session.in_transaction):
            return
        expected = {name: key for name, key in self._keys(documents).items() if name in live}
        lives = await self._lives(expected)
        may_be_orphans = not are_new and self.following.declared.orphan == "live"
        lost = {name for name in expected if not lives.get(name, may_be_orphans)}
        if not lost:
            return
        paths = self.following.links.own
        keys = [
            document["_id"]
            for document in documents
            if document.get("_id") is not None
            and (key := keys_in(document, paths)) is not None
            and self._name(key) in lost
        ]
        condition = having(paths, [expected[name] for name in lost])
        for start in range(0, len(keys), _CHUNK):
            some = {**condition, "_id": {"$in": keys[start : start + _CHUNK]}}
            await self.handle.plain.delete_many(some, session=self.session)
        raise self._error(expected[min(lost, key=repr)])

    async def renew(self, documents: Iterable[Filter], *, keep: bool) -> None:
        """Restart the lifetime of parents, or of their roots, if the class declares ``renews``."""
        following, declared = self.following, self.following.declared
        if keep or not declared.renews:
            return
        keys = list(self._keys(documents).values())
        while keys and (above := following.above) is not None:
            keys, following = await self._keys_above(following, keys, above), above
        policy = following.root.policy
        if not keys or not isinstance(policy, TTL):
            return
        condition: Document = {}
        if declared.at_most_every is not None:
            recent = modified_within(policy, declared.at_most_every * 1000)
            condition = {"$expr": {"$not": [recent]}}
        database, name = following.place
        plain = self._collection(name)
        root = Handle(plain, self.handle.registry, database, backend=self.handle.backend)
        stamping = root.stamping
        if stamping is None:
            return
        now = await root.now_to_stamp({})
        for start in range(0, len(keys), _CHUNK):
            parents = having(following.links.theirs, keys[start : start + _CHUNK])
            live = root.filter_to_write({**parents, **condition})
            touch = stamping.update({"$set": {}}, keep=False, now=now)
            await plain.update_many(live, touch, session=self.session)

    async def _keys_above(
        self, following: Following, keys: list[Key], above: Following
    ) -> list[Key]:
        """Return the keys of the parents that parents have in turn."""
        parents = having(following.links.theirs, keys)
        tops = {path.partition(".")[0]: 1 for path in above.links.own}
        collection = self._collection(following.links.collection)
        rows = await collection.find(parents, tops, session=self.session).to_list(None)
        return list(Parents(self.handle, above, self.session)._keys(rows).values())

    async def _lives(self, keys: dict[object, Key]) -> dict[object, bool]:
        """Say of each existing parent whether a document with its key lives."""
        lives: dict[object, bool] = {}
        links, above = self.following.links, self.following.above
        judgement = None if above is None else judged(above)
        live = None if judgement is not None else filters.live(self.following.root.policy)
        condition: object = judgement.condition if judgement is not None else live
        fields: Document = {
            "_id": 0,
            "key": [expression(path) for path in links.theirs],
            "lives": {"$literal": True} if condition is None else condition,
        }
        distinct = list(keys.values())
        for start in range(0, len(distinct), _CHUNK):
            pipeline = [
                {"$match": having(links.theirs, distinct[start : start + _CHUNK])},
                *(judgement.stages if judgement is not None else ()),
                {"$project": fields},
            ]
            collection = self._collection(links.collection)
            for row in await aggregate(collection, pipeline, session=self.session):
                name = self._name(tuple(row["key"]))
                lives[name] = lives.get(name, False) or row["lives"]
        return lives

    def _keys(self, documents: Iterable[Filter]) -> dict[object, Key]:
        """Return the keys of the parents of documents, by their `_name`."""
        paths = self.following.links.own
        keys = (keys_in(document, paths) for document in documents)
        return {self._name(key): key for key in keys if key is not None}

    def _name(self, key: Key) -> object:
        """Return a hashable form of a key, the same for the value that the driver reads.

        A driver may store an aware datetime and read a naive one, or a binary and read a UUID.
        """
        options = self.handle.plain.codec_options
        return tuple(
            +value  # so that an enumeration is its number
            if isinstance(value, (int, float)) and not isinstance(value, bool)
            else bson.encode({"": value}, codec_options=options)
            for value in key
        )

    def _collection(self, name: str) -> Collection:
        """Return another collection of the database, ungated."""
        own = self.handle.plain
        collection: Collection = own.database.client[self.handle.database].get_collection(
            name,
            codec_options=own.codec_options.with_options(document_class=dict),
            read_preference=ReadPreference.PRIMARY,
        )
        return collection

    def _error(self, key: Key, *, exists: bool = True) -> ExpiredError:
        why = "which has expired" if exists else "which doesn't exist, or was deleted"
        name = key[0] if len(key) == 1 else key
        model, parent = self.following.model.__name__, self.following.links.collection
        return ExpiredError(
            f"A document of {model} can't be put under {parent} {name!r}, {why}.",
            model=model,
            key=name,
        )


async def aggregate(collection: Collection, pipeline: Pipeline, **options: Any) -> list[Document]:
    """Run an aggregation of either driver, and return its documents."""
    cursor: Any = collection.aggregate(pipeline, **options)
    if isawaitable(cursor):  # PyMongo returns a coroutine, Motor a cursor
        cursor = await cursor
    rows: list[Document] = await cursor.to_list(None)
    return rows
