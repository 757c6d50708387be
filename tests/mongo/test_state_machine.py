"""Random sequences of everything that can happen to documents agree with a plain Python model.

mongod's clock cannot be stopped. So time passes by moving all stored dates into the past, in steps
of 100 seconds, and every ttl ends in 50: no document is ever near its instant of expiry, however
long the machine takes for an example.
"""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import pytest
from beanie import Document, Indexed, init_beanie
from beanie.exceptions import RevisionIdWasChanged
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from pymongo import MongoClient
from pymongo.errors import BulkWriteError, DuplicateKeyError

from tests.mongo.models import collection_of
from tests.mongo.scratch import connect
from ttl_odm import Stored
from ttl_odm.beanie import ExpiredError, TTLMixin, ensure_indexes, set_policy, ttl_database
from ttl_odm.core import effective_ttl

if TYPE_CHECKING:
    from collections.abc import Coroutine

KEYS = st.sampled_from("abcd")
NAMES = st.sampled_from(["x", "y", "z"])
TTLS = st.sampled_from([None, -1, 50, 150, 250, 0, "20", 20.5])
DEFAULTS = st.sampled_from([None, -1, 50, 150])
# Beanie 1 takes a duplicate key in save() for a changed revision.
TAKEN = (DuplicateKeyError, BulkWriteError, RevisionIdWasChanged)
VALID = (-1, 50, 150, 250, 350)


class Event(TTLMixin, Document):
    __ttl__ = 150
    __ttl_purge__ = "sweeper"  # the default gets longer without ensure_indexes()
    id: str
    name: Annotated[str, Indexed(unique=True)]
    score: int = 0

    class Settings:  # noqa: D106
        name = "events"


class StoredEvent(TTLMixin, Document):
    __ttl__ = Stored(150)
    __ttl_purge__ = "sweeper"
    id: str
    name: Annotated[str, Indexed(unique=True)]
    score: int = 0

    class Settings:  # noqa: D106
        name = "events"


@dataclass
class Row:
    age: int
    ttl: object
    name: str
    score: int = 0


class World:
    """The Python model: what is stored, how old it is, and the default."""

    def __init__(self) -> None:
        self.default: int | None = 150
        self.rows: dict[str, Row] = {}

    def is_live(self, row: Row) -> bool:
        own = row.ttl if isinstance(row.ttl, int) and row.ttl in VALID else None
        seconds = effective_ttl(self.default, own)
        return seconds is None or row.age < seconds

    def live(self) -> dict[str, Row]:
        return {key: row for key, row in self.rows.items() if self.is_live(row)}

    def holders(self, key: str | None, name: str, *, but: str | None = None) -> set[str]:
        return {
            held
            for held, row in self.rows.items()
            if held != but and (held == key or row.name == name)
        }

    def is_free(self, key: str | None, name: str, *, but: str | None = None) -> bool:
        return not self.holders(key, name, but=but) & self.live().keys()

    def make_room(self, key: str | None, name: str, *, but: str | None = None) -> None:
        for held in self.holders(key, name, but=but):
            del self.rows[held]


def machine(  # noqa: C901 - a list of rules
    loop: asyncio.AbstractEventLoop, raw: Any, model: Any
) -> type[RuleBasedStateMachine]:
    def run(work: Coroutine[Any, Any, Any]) -> Any:
        return loop.run_until_complete(work)

    def change_default(default: int | None, way: str) -> None:
        if model is not StoredEvent:
            model.__ttl__ = default
        elif way == "ours":
            run(set_policy(model, default, by="machine"))
        else:  # another process
            raw.database["ttl_odm_policies"].update_one({}, {"$set": {"ttl": default}})

    class Machine(RuleBasedStateMachine):
        @initialize()
        def begin(self) -> None:
            raw.delete_many({})
            change_default(150, "theirs")
            self.world = World()

        @rule(hundreds=st.integers(1, 2))
        def time_passes(self, hundreds: int) -> None:
            earlier = {"$subtract": ["$_ts", hundreds * 100_000]}
            raw.update_many({}, [{"$set": {"_ts": earlier}}, {"$unset": "_exp"}])
            for row in self.world.rows.values():
                row.age += hundreds * 100

        @rule(default=DEFAULTS, way=st.sampled_from(["ours", "theirs"]))
        def the_default_changes(self, default: int | None, way: str) -> None:
            change_default(default, way)
            self.world.default = default

        @rule(key=KEYS, ttl=TTLS, name=NAMES, way=st.sampled_from(["insert", "many", "raw"]))
        def insert(self, key: str, ttl: object, name: str, way: str) -> None:
            free = self.world.is_free(key, name)
            event = model(id=key, ttl=ttl, name=name)
            try:
                if way == "insert":
                    run(event.insert())
                elif way == "many":
                    run(model.insert_many([event]))
                else:
                    collection = collection_of(model)
                    run(collection.insert_one({"_id": key, "ttl": ttl, "name": name, "score": 0}))
            except TAKEN:
                assert not free
                return
            assert free
            self.world.make_room(key, name)
            self.world.rows[key] = Row(0, ttl, name)

        @rule(key=KEYS, ttl=TTLS, name=NAMES)
        def save_a_new_object(self, key: str, ttl: object, name: str) -> None:
            """An upsert by its key: of what lives, or instead of what has expired."""
            free = self.world.is_free(None, name, but=key)
            try:
                run(model(id=key, ttl=ttl, name=name, score=7).save())
            except TAKEN:
                assert not free
                return
            assert free
            self.world.make_room(None, name, but=key)
            self.world.rows[key] = Row(0, ttl, name, 7)

        @rule(
            key=KEYS,
            change=st.sampled_from(
                ["set", "inc", "save", "replace", "touch", "persist", "inherit", "in", "delete"]
            ),
        )
        def change_a_held_object(self, key: str, change: str) -> None:  # noqa: C901 - a list
            """Load with include_expired, so that the object is held even if it has expired."""
            row = self.world.rows.get(key)
            if row is None:
                return
            held = run(model.get(key, include_expired=True))
            was_live = self.world.is_live(row)
            after = replace(row, age=0)
            if change == "set":
                work, after.score = held.set({"score": 3}), 3
            elif change == "inc":
                work, after.score = held.inc({"score": 1}), row.score + 1
            elif change in ("save", "replace"):
                held.score = after.score = 9
                work = held.save() if change == "save" else held.replace()
            elif change == "touch":
                work = held.touch()
            elif change == "persist":
                work, after.ttl = held.persist(), -1
            elif change == "inherit":
                work, after.ttl = held.inherit_ttl(), None
            elif change == "in":
                work, after.ttl = held.expire_in(350), 350
            else:
                work = held.delete()
            try:
                run(work)
            except ExpiredError:
                assert not was_live
                return
            assert was_live
            if change == "delete":
                del self.world.rows[key]
            else:
                self.world.rows[key] = after

        @rule(way=st.sampled_from(["operators", "pipeline", "raw"]))
        def update_all(self, way: str) -> None:
            live = self.world.live()
            if way == "raw":
                result = run(collection_of(model).update_many({}, {"$inc": {"score": 1}}))
            elif way == "operators":
                result = run(model.find_all().update({"$inc": {"score": 1}}))
            else:
                result = run(
                    model.find_all().update([{"$set": {"score": {"$add": ["$score", 1]}}}])
                )
            assert result.matched_count == len(live)
            for row in live.values():
                row.score += 1
                row.age = 0

        @rule(key=KEYS, name=NAMES)
        def take_a_unique_value(self, key: str, name: str) -> None:
            row = self.world.live().get(key)
            free = self.world.is_free(None, name, but=key)
            try:
                result = run(model.find_one({"_id": key}).update({"$set": {"name": name}}))
            except TAKEN:
                assert row is not None
                assert not free
                return
            assert result.matched_count == (row is not None)
            if row is not None:
                assert free
                self.world.make_room(None, name, but=key)
                row.name, row.age = name, 0

        @rule(key=KEYS)
        def upsert(self, key: str) -> None:
            row = self.world.live().get(key)
            name = f"only {key}"
            new = model(id=key, name=name, score=1)
            run(model.find_one({"_id": key}).upsert({"$inc": {"score": 5}}, on_insert=new))
            if row is None:
                self.world.make_room(key, name)
                self.world.rows[key] = Row(0, None, name, 1)
            else:
                row.score += 5
                row.age = 0

        @rule(key=KEYS)
        def delete(self, key: str) -> None:
            live = key in self.world.live()
            result = run(model.find({"_id": key}).delete())
            assert result.deleted_count == int(live)
            if live:
                del self.world.rows[key]

        @invariant()
        def every_read_agrees(self) -> None:
            if not hasattr(self, "world"):
                return
            live = self.world.live()
            found = run(model.find_all().to_list())
            assert {e.id: (e.ttl, e.name, e.score) for e in found} == {
                key: (row.ttl, row.name, row.score) for key, row in live.items()
            }
            assert run(model.find_all().count()) == len(live)
            assert run(model.count()) == len(live)
            ids = run(model.aggregate([{"$group": {"_id": "$_id"}}]).to_list())
            assert {each["_id"] for each in ids} == live.keys()
            assert set(run(model.distinct("_id"))) == live.keys()
            for key in "abcd":
                assert (run(model.get(key)) is not None) == (key in live)
            stored = {e.id for e in run(model.find_all(include_expired=True).to_list())}
            assert live.keys() <= stored <= self.world.rows.keys()
            # A write that fails on a live document may have made way among expired ones before.
            self.world.rows = {key: row for key, row in self.world.rows.items() if key in stored}

    return Machine


async def connected(url: str) -> Any:
    """Connect inside of the loop, which Motor takes for its own."""
    return connect(url)


@pytest.mark.in_turns
@pytest.mark.slow
@pytest.mark.parametrize("model", [Event, StoredEvent])
def test_any_sequence_of_steps_agrees_with_the_model(mongodb_url: str, model: Any) -> None:
    name = f"ttl_odm_{uuid4().hex[:16]}"
    loop = asyncio.new_event_loop()
    client = loop.run_until_complete(connected(mongodb_url))
    plain: MongoClient[dict[str, Any]] = MongoClient(mongodb_url)
    try:
        database = ttl_database(client[name])
        loop.run_until_complete(init_beanie(database=database, document_models=[model]))
        loop.run_until_complete(ensure_indexes(model))
        run_state_machine_as_test(
            machine(loop, plain[name]["events"], model),
            settings=settings(
                max_examples=20,
                stateful_step_count=30,
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        plain.drop_database(name)
        plain.close()
        closing = client.close()
        if inspect.isawaitable(closing):
            loop.run_until_complete(closing)
        loop.close()
