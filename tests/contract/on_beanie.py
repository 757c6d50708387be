"""Beanie on MongoDB as a `DocumentSubject`, through PyMongo or, before Beanie 2, Motor."""

from __future__ import annotations

import asyncio
import warnings
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar
from unittest import mock
from uuid import uuid4

from beanie import Document, Link, TimeSeriesConfig, init_beanie
from beanie.exceptions import DocumentNotFound, RevisionIdWasChanged
from beanie.operators import In
from bson import DatetimeMS, DBRef, Timestamp
from pymongo import InsertOne, MongoClient, UpdateOne, message
from pymongo.errors import BulkWriteError, DuplicateKeyError
from pymongo.monitoring import CommandListener

from tests.contract import documents
from tests.contract.documents import MODELS, Line
from tests.contract.subject import CONTAINERS, DocumentSubject
from tests.mongo.models import collection_of
from tests.mongo.scratch import BEANIE, backend_of, connect
from ttl_odm import TTL
from ttl_odm.beanie import (
    ExpiredError,
    TTLMixin,
    ensure_indexes,
    keep_last_modified,
    ttl_database,
)
from ttl_odm.beanie.policy.bindings import policy_of
from ttl_odm.beanie.time.clock import ServerClock
from ttl_odm.sweeper import AsyncSweeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime

    from pymongo.database import Database

    from tests.contract.subject import Loaded

    Raw = dict[str, Any]

ASKING = {"find", "aggregate", "update", "delete", "findAndModify"}
"""The commands that evaluate `$$NOW`."""


class _Deletes(CommandListener):
    """Does something once, before documents are deleted."""

    def __init__(self) -> None:
        self.actions: list[Callable[[], object]] = []

    def started(self, event: Any) -> None:
        if event.command_name == "delete" and self.actions:
            self.actions.pop()()

    def succeeded(self, event: Any) -> None: ...

    def failed(self, event: Any) -> None: ...


class OnBeanie(DocumentSubject):
    """Documents in a database of their own."""

    adapter = "Beanie"
    database = "MongoDB"
    checked = "checked"
    unchecked = "carts"
    remembering = "cached"
    gone = (ExpiredError,)
    missing = (DocumentNotFound,)
    # Beanie 1.30 takes any duplicate key in an update of an instance for a changed revision.
    duplicate = (DuplicateKeyError, BulkWriteError, RevisionIdWasChanged)

    def __init__(self, url: str) -> None:
        self.driver = "Motor" if BEANIE < 2 else "PyMongo, async"
        self.tick = timedelta(milliseconds=1)
        self._loop = asyncio.new_event_loop()
        self._deletes = _Deletes()
        self._behind: MongoClient[Raw] = MongoClient(url, tz_aware=True)
        self._there: Database[Raw] = self._behind[f"ttl_odm_{uuid4().hex}"]
        self._client = self._wait(self._connect(url))
        self._backend = backend_of(url)
        self._ours = ttl_database(self._client[self._there.name], backend=self._backend)
        models = [*MODELS.values(), Line]
        self._wait(init_beanie(database=self._ours, document_models=models))
        self._used: set[str] = set()

    async def _connect(self, url: str) -> Any:
        return connect(url, event_listeners=[self._deletes])

    def _wait(self, awaitable: Any) -> Any:
        return self._loop.run_until_complete(awaitable)

    def server(self) -> str:
        return str(self._behind.server_info()["version"])

    # Past the gate

    def clear(self) -> None:
        for name in self._used:
            self._there[name].delete_many({})
        self._used.clear()
        documents.told.clear()
        for name, model in MODELS.items():
            model.__ttl__ = CONTAINERS[name].policy

    def _at(self, container: str) -> Any:
        self._used.add(container)
        return self._there[container]

    def now(self) -> datetime:
        options = self._there.codec_options
        reply: Raw = self._there.command({"hello": 1}, codec_options=options)
        now: datetime | int = reply["localTime"]
        # A gateway to documentdb gives a number.
        return DatetimeMS(now).as_datetime(options)

    @contextmanager
    def stopped(self, instant: datetime) -> Iterator[None]:
        """Send each command with what `$$NOW` is to be, as mongos does to its shards.

        The gate's estimate of the server's clock, for what can't use `$$NOW`, is exact meanwhile.
        """
        constants = {"localNow": instant, "clusterTime": Timestamp(1, 1)}

        def sending(send: Callable[..., Any]) -> Callable[..., Any]:
            def sent(first: Any, command: Any, *rest: Any, **options: Any) -> Any:
                if next(iter(command)) in ASKING:
                    command = {**command, "runtimeConstants": constants}
                return send(first, command, *rest, **options)

            return sent

        with (
            mock.patch.object(message, "_op_msg", sending(message._op_msg)),
            mock.patch.object(message, "_do_batched_op_msg", sending(message._do_batched_op_msg)),
            mock.patch.object(ServerClock, "at_most", return_value=instant),
            mock.patch.object(ServerClock, "reached", return_value=instant),
        ):
            yield

    @contextmanager
    def before_delete(self, action: Callable[[], object]) -> Iterator[None]:
        self._deletes.actions.append(action)
        yield
        assert not self._deletes.actions

    def put_at(self, container: str, key: int, at: Any, **values: Any) -> None:
        declared = CONTAINERS[container]
        fields = {"name": f"n{key}", "views": 0, **values}
        if "ttl" in fields and declared.own:
            fields[declared.own] = fields.pop("ttl")
        if at is not None and getattr(declared.policy, "unit", None) == "s":
            at = int(at.timestamp())
        self._at(container).insert_one({"_id": key, declared.at: at, **fields})

    def put_document(self, container: str, document: Raw) -> None:
        self._at(container).insert_one({"views": 0, **document})

    def move_to(self, container: str, key: int, at: datetime) -> None:
        moved = {"$set": {CONTAINERS[container].at: at}}
        self._at(container).update_one({"_id": key}, moved)

    def stored(self, container: str, key: int) -> Mapping[str, Any] | None:
        found = self._at(container).find_one({"_id": key})
        if found is None:
            return None
        declared = CONTAINERS[container]
        return {**found, "at": found.get(declared.at), "ttl": found.get(declared.own or "")}

    def keys(self, container: str) -> set[int]:
        return {each["_id"] for each in self._at(container).find({}, {"_id": 1})}

    def put_line(self, key: int, cart: int) -> None:
        self._at("lines").insert_one({"_id": key, "cart": DBRef("carts", cart)})

    # What an application does

    def set_policy(self, container: str, declared: Any) -> None:
        MODELS[container].__ttl__ = declared

    def declare(self, declared: Any) -> None:
        class Thing(TTLMixin, Document):
            __ttl__: ClassVar[Any] = declared
            id: int
            at: Any = None

    def declare_series(self, declared: Any) -> None:
        class Reading(TTLMixin, Document):
            __ttl__: ClassVar[Any] = declared

            class Settings:
                timeseries = TimeSeriesConfig(time_field="at")

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Beanie 1.30's own
            self._wait(init_beanie(database=self._ours, document_models=[Reading]))

    def readings(self, container: str) -> Mapping[str, set[int] | int]:
        model = MODELS[container]
        stored = self.keys(container)

        async def read() -> dict[str, set[int] | int]:
            handle = collection_of(model)
            return {
                "get": {key for key in stored if await model.get(key) is not None},
                "find": {each.id for each in await model.find().to_list()},
                "find_all": {each.id async for each in model.find_all()},
                "find_one": {
                    key for key in stored if await model.find_one(model.id == key) is not None
                },
                "aggregate": {each["_id"] for each in await model.aggregate([]).to_list()},
                "distinct": set(await model.distinct("_id")),
                "the handle": {each["_id"] async for each in handle.find({})},
                "count": await model.count(),
                "find.count": await model.find({"_id": {"$gte": 0}}).count(),
                "count_documents": await handle.count_documents({}),
                "estimated_document_count": await handle.estimated_document_count(),
            }

        found: dict[str, set[int] | int] = self._wait(read())
        if self._backend == "documentdb" and policy_of(model) == TTL(None):
            # Where nothing expires the engine is asked, which estimates by old statistics.
            del found["estimated_document_count"]
        return found

    def keys_with_expired(self, container: str) -> set[int]:
        async def read() -> set[int]:
            found = await MODELS[container].find(include_expired=True).to_list()
            return {each.id for each in found}

        found: set[int] = self._wait(read())
        return found

    def writes(self, container: str) -> Mapping[str, Callable[[int], object]]:
        model = MODELS[container]
        more = {"$inc": {"views": 1}}

        def of_an_instance(work: Callable[[Any], Any]) -> Callable[[int], Any]:
            async def write(key: int) -> None:
                found = await model.get(key)
                if found is not None:
                    found.views += 1
                    await work(found)

            return write

        def of_a_query(work: Callable[[int], Any]) -> Callable[[int], Any]:
            async def write(key: int) -> None:
                await work(key)

            return write

        works = {
            "save": of_an_instance(lambda found: found.save()),
            "replace": of_an_instance(lambda found: found.replace()),
            "set": of_an_instance(lambda found: found.set({"views": found.views})),
            "inc": of_an_instance(lambda found: found.inc({"views": 1})),
            "find_one.update": of_a_query(lambda key: model.find_one(model.id == key).update(more)),
            "find.update": of_a_query(lambda key: model.find(model.id == key).update(more)),
            "a pipeline": of_a_query(
                lambda key: model.find(model.id == key).update(
                    [{"$set": {"views": {"$add": ["$views", 1]}}}]
                )
            ),
            "find_one_and_update": of_a_query(
                lambda key: collection_of(model).find_one_and_update({"_id": key}, more)
            ),
            "bulk_write": of_a_query(
                lambda key: collection_of(model).bulk_write([UpdateOne({"_id": key}, more)])
            ),
        }
        return {
            name: lambda key, work=work: self._wait(work(key))  # type: ignore[misc]
            for name, work in works.items()
        }

    def keeping_writes(self, container: str) -> Mapping[str, Callable[[int], object]]:
        def kept(write: Callable[[int], object]) -> Callable[[int], object]:
            def keeping(key: int) -> None:
                with keep_last_modified():
                    write(key)

            return keeping

        return {name: kept(write) for name, write in self.writes(container).items()}

    def update_all(self, container: str, **values: Any) -> int:
        async def update() -> int:
            result = await MODELS[container].find().update({"$set": values})
            matched: int = result.matched_count
            return matched

        count: int = self._wait(update())
        return count

    def touch(self, container: str, *keys: int, **arguments: Any) -> int:
        model = MODELS[container]
        query = model.find(In(model.id, keys)) if keys else model.find()
        renewed: int = self._wait(query.touch(**arguments))
        return renewed

    def touched(self, container: str, key: int, **arguments: Any) -> int | None:
        model = MODELS[container]
        found = self._wait(model.find_one(model.id == key).touch(**arguments))
        return None if found is None else found.id

    def delete_all(self, container: str) -> int:
        async def delete() -> int:
            deleted: int = (await MODELS[container].find().delete()).deleted_count
            return deleted

        count: int = self._wait(delete())
        return count

    def inserts(self, container: str) -> Mapping[str, Callable[..., object]]:
        model = MODELS[container]
        self._used.add(container)
        self._used.add("old_seats")

        def made(key: int, values: Raw) -> Any:
            return model(id=key, **{"name": f"n{key}", **values})

        def as_stored(key: int, values: Raw) -> Raw:
            return {"_id": key, "name": f"n{key}", "views": 0, **values}

        async def insert(key: int, values: Raw) -> None:
            await made(key, values).insert()

        async def insert_one(key: int, values: Raw) -> None:
            await model.insert_one(made(key, values))

        async def insert_many(key: int, values: Raw) -> None:
            await model.insert_many([made(key, values)])

        async def raw(key: int, values: Raw) -> None:
            await collection_of(model).insert_one(as_stored(key, values))

        async def bulk(key: int, values: Raw) -> None:
            await collection_of(model).bulk_write([InsertOne(as_stored(key, values))])

        works = {
            "insert": insert,
            "insert_one": insert_one,
            "insert_many": insert_many,
            "the handle's insert_one": raw,
            "bulk_write": bulk,
        }
        return {
            name: lambda key, work=work, **values: self._wait(work(key, values))  # type: ignore[misc]
            for name, work in works.items()
        }

    def upserts(self, container: str) -> Mapping[str, Callable[..., object]]:
        model = MODELS[container]

        async def update_one(key: int, values: Raw) -> None:
            await collection_of(model).update_one({"_id": key}, {"$set": values}, upsert=True)

        async def bulk(key: int, values: Raw) -> None:
            update = UpdateOne({"_id": key}, {"$set": values}, upsert=True)
            await collection_of(model).bulk_write([update])

        async def of_beanie(key: int, values: Raw) -> None:
            new = model(id=key, **{"name": f"n{key}", **values})
            await model.find_one(model.id == key).upsert({"$set": values}, on_insert=new)

        works = {"update_one": update_one, "bulk_write": bulk, "Beanie's": of_beanie}
        return {
            name: lambda key, work=work, **values: self._wait(work(key, values))  # type: ignore[misc]
            for name, work in works.items()
        }

    def ways_to_set_ttl(self, container: str) -> Mapping[str, Callable[[int, Any], object]]:
        model, own = MODELS[container], CONTAINERS[container].own or ""

        async def save(key: int, value: Any) -> None:
            found = await model.get(key)
            setattr(found, own, value)
            await found.save()

        async def give(key: int, value: Any) -> None:
            await (await model.get(key)).set({own: value})

        async def update(key: int, value: Any) -> None:
            await model.find(model.id == key).update({"$set": {own: value}})

        async def insert(key: int, value: Any) -> None:
            await model.find(model.id == key).delete()
            await model(id=key, **{own: value}).insert()

        async def insert_many(key: int, value: Any) -> None:
            await model.find(model.id == key).delete()
            await model.insert_many([model(id=key, **{own: value})])

        async def raw(key: int, value: Any) -> None:
            await model.find(model.id == key).delete()
            # A driver takes no timedelta; documents turn one that is a ttl into seconds.
            own_ttl = value.total_seconds() if _is_long(value) else value
            await collection_of(model).insert_one({"_id": key, own: own_ttl})

        works = {
            "save": save,
            "set": give,
            "find.update": update,
            "insert": insert,
            "insert_many": insert_many,
            "the handle's insert_one": raw,
        }
        return {
            name: lambda key, value, work=work: self._wait(work(key, value))  # type: ignore[misc]
            for name, work in works.items()
        }

    @contextmanager
    def loaded(self, container: str, key: int) -> Iterator[Loaded]:
        found = self._wait(MODELS[container].get(key))
        assert found is not None
        yield _Loaded(found, key, self._wait)

    def reached(self, line: int) -> Mapping[str, int | None]:
        async def read() -> dict[str, Any]:
            found = await Line.get(line)
            assert found is not None
            await found.fetch_link(Line.cart)
            (listed,) = await Line.find(Line.id == line, fetch_links=True).to_list()
            fetched = await Line.get(line, fetch_links=True)
            lookup = {
                "$lookup": {
                    "from": "carts",
                    "localField": "cart.$id",
                    "foreignField": "_id",
                    "as": "carts",
                }
            }
            (joined,) = await Line.aggregate([{"$match": {"_id": line}}, lookup]).to_list()
            return {
                "fetch_link": found.cart,
                "find(fetch_links=True)": listed.cart,
                "get(fetch_links=True)": fetched and fetched.cart,
                "$lookup": next(iter(joined["carts"]), None),
            }

        def key(end: Any) -> int | None:
            if end is None or isinstance(end, Link):
                return None
            found: int = end["_id"] if isinstance(end, dict) else end.id
            return found

        return {way: key(end) for way, end in self._wait(read()).items()}

    def sweep(self, container: str) -> int:
        self._used.add("old_seats")
        sweeper = AsyncSweeper(self._ours, [MODELS[container]], lease=False)
        deleted: int = self._wait(sweeper.run_once()).deleted
        return deleted

    def told(self) -> list[tuple[str, set[int]]]:
        return [(each.reason, {key for (key,) in each.keys}) for each in documents.told]

    def archived(self) -> set[int]:
        found = self._at("old_seats").find()
        return {each.get("_original_id", each["_id"]) for each in found}

    def archived_lives(self, key: int) -> int:
        known = {"$or": [{"_id": key}, {"_original_id": key}]}
        return self._at("old_seats").count_documents(known)

    def make_indexes(self) -> Mapping[str, Any]:
        self._wait(ensure_indexes(MODELS["natives"]))
        return {
            name: index["expireAfterSeconds"]
            for name, index in self._there["natives"].index_information().items()
            if "expireAfterSeconds" in index
        }

    def close(self) -> None:
        self.clear()
        self._behind.drop_database(self._there.name)
        self._behind.close()

        async def close() -> None:
            closing = self._client.close()
            if closing is not None:
                await closing

        self._wait(close())
        self._loop.close()


def _is_long(value: Any) -> bool:
    return isinstance(value, timedelta) and value >= timedelta(seconds=1)


class _Loaded:
    """A document in memory."""

    def __init__(self, found: Any, key: int, wait: Callable[[Any], Any]) -> None:
        self._found = found
        self._key = key
        self._wait = wait

    @property
    def expires_at(self) -> datetime | None:
        end: datetime | None = self._found.expires_at
        return end

    def write(self, **values: Any) -> None:
        if "last_modified" in values:
            values["_ts"] = values.pop("last_modified")
        self._wait(self._found.set(values))

    def write_nothing(self) -> None:
        self._wait(self._found.save())

    def delete(self) -> int:
        self._wait(self._found.delete())
        return 1

    def refresh(self) -> None:
        self._wait(self._found.sync())

    def touch(self) -> None:
        self.help("touch")

    def help(self, name: str, *arguments: Any) -> None:
        self._wait(getattr(self._found, name)(*arguments))

    def is_still_served(self) -> bool:
        model = type(self._found)

        async def find() -> bool:
            return await model.find_one(model.id == self._key) is not None

        served: bool = self._wait(find())
        return served
