"""A replica set of MongoDB whose members fail, fall behind and come back while documents expire."""

# ruff: noqa: D106 - Beanie's Settings are plain class attributes

from __future__ import annotations

import asyncio
import inspect
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pytest
from beanie import Document, init_beanie
from pymongo import MongoClient, WriteConcern
from pymongo.errors import DuplicateKeyError, PyMongoError

from tests.clusters.members import PATIENCE, once, revive, running, until
from tests.mongo import following
from tests.mongo.models import collection_of, opened
from tests.mongo.scratch import connect
from tests.mongo.sweeping import Commands, fixed
from ttl_odm.beanie import TTLMixin, ensure_indexes, touch, ttl_database
from ttl_odm.beanie.sweep.leases import CollectionLeases
from ttl_odm.beanie.sweep.store import MongoStore
from ttl_odm.cli.application import Application
from ttl_odm.cli.check import check_replicas
from ttl_odm.errors import ExpiredError
from ttl_odm.replication import ReplicationLag
from ttl_odm.sweeper import AsyncSweeper, Server, TransientStoreError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator

    from pymongo.database import Database

    from tests.mongo.models import World

    Raw = dict[str, Any]

T = TypeVar("T")

pytestmark = [pytest.mark.slow, pytest.mark.starts("mongodb")]

LIVE: Final = range(1_000, 1_020)
MAJORITY: Final = WriteConcern("majority")


class Cart(TTLMixin, Document):
    __ttl__ = 3600
    __ttl_purge__ = "sweeper"
    id: int
    score: int = 0

    class Settings:
        name = "carts"


@pytest.fixture(scope="module")
def started() -> Iterator[Any]:
    with running("mongodb_members", "MONGODB_MEMBERS") as members:
        yield members


@pytest.fixture
def cluster(started: Any) -> Iterator[Any]:
    """Give the cluster, and start again afterwards what is down."""
    yield started
    revive(started)


def put(world: World, keys: Iterable[int], *, age: int) -> None:
    """Store documents of an age in seconds, on a majority of the members."""
    carts = world.of(Cart).with_options(write_concern=MAJORITY)
    carts.insert_many([{"_id": key, "score": 0} for key in keys])
    past = {"$subtract": ["$$NOW", age * 1000]}
    carts.update_many({"_id": {"$in": list(keys)}}, [{"$set": {"_ts": past}}])


@contextmanager
def at(member: Any) -> Iterator[MongoClient[Raw]]:
    """Connect to one member, whatever its role."""
    with MongoClient[Any](member.url, tz_aware=True) as client:
        yield client


@contextmanager
def falling_behind(members: Iterable[Any]) -> Iterator[None]:
    """Let members answer, but apply nothing of what is written meanwhile."""
    clients = [MongoClient[Any](member.url) for member in members]
    try:
        for client in clients:
            client.admin.command({"fsync": 1, "lock": True})
        yield
    finally:
        for client in clients:
            client.admin.command("fsyncUnlock")
            client.close()


@pytest.mark.parametrize("moment", ["delete", "commitTransaction"])
async def test_a_sweep_goes_on_with_the_primary_that_the_others_elect(
    cluster: Any, moment: str
) -> None:
    commands = Commands()
    async with opened(cluster.url, [Cart], listeners=[commands]) as world:
        await ensure_indexes(Cart)
        put(world, range(300), age=7200)
        put(world, LIVE, age=1800)
        kill = once(lambda: commands.before.update({moment: [cluster.fail_over]}))
        told, before = list[Server](), cluster.primary().url
        sweeper = AsyncSweeper(
            world.database, [Cart], pace=fixed(50), on_progress=kill, on_server=told.append
        )
        report = await sweeper.run_once()
        assert not report.problems
        assert report.deleted == 300
        assert world.keys(Cart) == [*LIVE]
        assert {cart.id for cart in await Cart.find_all().to_list()} == {*LIVE}
        await sweeper.run_once()  # the driver may have followed the election by itself
        first, *_, last = told
        assert first.address in before
        assert last.address in cluster.primary().url
        assert last.takes_writes


async def test_a_sweep_goes_on_after_a_primary_has_stepped_down(cluster: Any) -> None:
    commands = Commands()
    async with opened(cluster.url, [Cart], listeners=[commands]) as world:
        await ensure_indexes(Cart)
        put(world, range(300), age=7200)
        put(world, LIVE, age=1800)

        def step_down() -> None:
            with at(cluster.primary()) as client:
                client.admin.command({"replSetStepDown": 10, "force": True})

        kill = once(lambda: commands.before.update({"commitTransaction": [step_down]}))
        report = await AsyncSweeper(
            world.database, [Cart], pace=fixed(50), on_progress=kill
        ).run_once()
        assert not report.problems
        assert world.keys(Cart) == [*LIVE]


async def patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask, as often as the answer is that there is no primary just now."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return await ask()
        except TransientStoreError:
            assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


async def test_a_sweeper_takes_its_lease_though_the_primary_dies_meanwhile(cluster: Any) -> None:
    commands = Commands()
    async with opened(cluster.url, [Cart], listeners=[commands]) as world:
        await ensure_indexes(Cart)
        put(world, range(10), age=7200)
        commands.before["findAndModify"] = [cluster.fail_over]
        report = await AsyncSweeper(world.database, [Cart]).run_once()
        assert (str(report.ended), report.deleted) == (str(report.ended.FINISHED), 10)


async def test_what_a_rollback_undoes_was_not_acknowledged_by_a_majority(cluster: Any) -> None:
    async with opened(cluster.url, [Cart]) as world:
        await ensure_indexes(Cart)
        put(world, range(50), age=7200)
        put(world, LIVE, age=1800)
        report = await AsyncSweeper(world.database, [Cart]).run_once()
        assert report.deleted == 50
        lease = await CollectionLeases(world.database).acquire("sweep", "ours", 600)
        assert lease is not None
        cut_off = write_alone(cluster, world)
        with at(cluster.primary()) as client:
            carts = client[world.raw.name]["carts"]
            assert {cart["_id"] for cart in carts.find()} == {*LIVE}
        cluster.start(cut_off)
        for member in cluster.members:
            with at(member) as client:
                carts = client[world.raw.name]["carts"]
                until(lambda carts=carts: {cart["_id"] for cart in carts.find()} == {*LIVE})
                assert all("lost" not in cart for cart in carts.find())
        leases = CollectionLeases(world.database)
        assert await patiently(lambda: leases.acquire("sweep", "theirs", 600)) is None
        assert await leases.renew(lease)
        await leases.release(lease)
        theirs = await leases.acquire("sweep", "theirs", 600)
        assert theirs is not None
        assert theirs.token > lease.token
        assert not await leases.renew(lease)
        assert {cart.id for cart in await Cart.find_all().to_list()} == {*LIVE}


def write_alone(cluster: Any, world: World) -> Any:
    """Write on a primary whose followers are dead, kill it too, and return it.

    Frozen ones would read it out of their sockets when they go on. A primary gives up its role when
    it has been alone for a while: then all begins anew.
    """
    while True:
        primary, replicas = cluster.primary(), cluster.replicas()
        is_written = False
        with MongoClient[Any](
            primary.url, retryWrites=False, serverSelectionTimeoutMS=1_000
        ) as client:
            client.admin.command("ping")
            for replica in replicas:
                cluster.kill(replica)
            with suppress(PyMongoError):
                durable = WriteConcern(1, j=True)
                carts = client[world.raw.name].get_collection("carts", write_concern=durable)
                carts.insert_one({"_id": 5_000, "lost": True})
                carts.update_one({"_id": LIVE[0]}, {"$set": {"lost": True}})
                carts.delete_one({"_id": LIVE[1]})
                is_written = True
        if is_written:
            cluster.kill(primary)
        with ThreadPoolExecutor() as pool:  # neither becomes the primary without the other
            list(pool.map(cluster.start, replicas))
        if is_written:
            return primary


async def test_a_secondary_hides_what_has_expired_by_its_own_clock(cluster: Any) -> None:
    url = f"{cluster.url}&readPreference=secondary&maxStalenessSeconds=90"
    async with opened(url, [Cart]) as world:
        await ensure_indexes(Cart)
        put(world, LIVE, age=1800)
        put(world, [1], age=3598)  # expires in a moment
        replicas = cluster.replicas()
        until(lambda: all("_ts" in (stored_at(each, world, 1) or {}) for each in replicas))
        with falling_behind(replicas):
            deadline = time.monotonic() + PATIENCE
            while await world.database["carts"].find_one({"_id": 1}) is not None:
                assert time.monotonic() < deadline
            assert all(stored_at(each, world, 1) for each in replicas)
            shown = await world.database["carts"].find({}).to_list(None)
            assert {cart["_id"] for cart in shown} == {*LIVE}
            assert await world.database["carts"].count_documents({}) == len(LIVE)
            assert await world.database["carts"].distinct("_id") == [*LIVE]


async def test_a_sweep_waits_for_a_secondary_that_is_behind(cluster: Any) -> None:
    async with opened(cluster.url, [Cart]) as world:
        await ensure_indexes(Cart)
        put(world, range(50), age=7200)
        throttle: Any = ReplicationLag(world.database, at_most=0.2)
        waits = asyncio.Event()

        async def watched() -> Any:
            seconds = await throttle()
            if seconds is not None:
                waits.set()
            return seconds

        with falling_behind(cluster.replicas()[-1:]):
            put(world, [50], age=7200)
            deadline = time.monotonic() + PATIENCE
            while await throttle() is None:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)
            sweeper = AsyncSweeper(world.database, [Cart], throttle=watched)
            sweeping = asyncio.create_task(sweeper.run_once())
            await asyncio.wait_for(waits.wait(), PATIENCE)
            assert world.keys(Cart) == [*range(51)]
        report = await sweeping
        assert (report.problems, report.deleted) == ((), 51)
        assert report.waited["throttle"] > 0


def stored_at(member: Any, world: World, key: int) -> Any:
    with at(member) as client:
        return client[world.raw.name]["carts"].find_one({"_id": key})


@asynccontextmanager
async def reading_behind(
    cluster: Any, models: list[Any], before: Callable[[World], Awaitable[object]]
) -> AsyncIterator[Database[Raw]]:
    """Let an application read from secondaries, which know nothing but what was done before.

    Gives the database as the primary has it.
    """
    url = f"{cluster.url}&readPreference=secondaryPreferred&w=1"
    async with opened(url, models) as world:
        for model in models:
            await ensure_indexes(model)
        await before(world)
        replicas = cluster.replicas()
        all_members = world.raw.get_collection("marks", write_concern=WriteConcern(w=3))
        all_members.insert_one({})
        with at(cluster.primary()) as client, falling_behind(replicas):
            yield client.get_database(world.raw.name, write_concern=WriteConcern(w=1))


async def test_writes_of_documents_go_by_what_the_primary_has(cluster: Any) -> None:
    async def before(_: World) -> None:
        await Cart.insert_many([Cart(id=1, score=1), Cart(id=2, score=2)])

    async with reading_behind(cluster, [Cart], before) as primary:
        carts = primary["carts"]
        new = Cart(id=3)
        await new.insert()
        assert await Cart.get(3) is None  # a read, which goes where it was sent to
        assert not await touch(new, only_if="no_ttl")
        one, two = await Cart.get(1), await Cart.get(2)
        assert one is not None
        assert two is not None
        carts.update_many({}, [{"$set": {"_ts": {"$subtract": ["$$NOW", 1_800_000]}}}])
        await one.replace()
        (stored,) = carts.find({"_id": 1})
        assert one.expires_at == stored["_ts"] + timedelta(hours=1)
        carts.update_one({"_id": 2}, [{"$set": {"_ts": {"$subtract": ["$$NOW", 7_200_000]}}}])
        with pytest.raises(ExpiredError):
            await two.save()


async def test_followers_are_written_by_what_the_primary_has(cluster: Any) -> None:
    async def before(_: World) -> None:
        await following.Cart(id=1).insert()

    models = [following.Cart, following.Item]
    async with reading_behind(cluster, models, before) as primary:
        items = primary["items"]
        await following.Item(id=1, cart=following.Cart(id=1)).insert()
        await following.Item.find_one(following.Item.id == 1).update({"$set": {"name": "new"}})
        assert [item["name"] for item in items.find()] == ["new"]
        deleted = await following.Item.find(following.Item.id == 1).delete()
        assert deleted is not None
        assert deleted.deleted_count == 1
        assert not list(items.find())
        await following.Item(id=2, cart=following.Cart(id=1)).insert()
        found = await following.Item.find_one(following.Item.id == 2).delete()
        assert found is not None
        assert found.deleted_count == 1


async def test_what_an_update_of_many_has_changed_is_read_from_the_primary(cluster: Any) -> None:
    async def before(world: World) -> None:
        world.of(Cart).create_index("score", unique=True)
        await Cart.insert_many([Cart(id=key, score=key) for key in (1, 2, 9)])

    async with reading_behind(cluster, [Cart], before) as primary:
        carts = primary["carts"]
        carts.update_one({"_id": 9}, {"$set": {"score": 12}})
        carts.update_one({"_id": 9}, [{"$set": {"_ts": {"$subtract": ["$$NOW", 7_200_000]}}}])
        # 1 gets 11; 2 meets the expired holder of 12, after the first has been changed.
        with pytest.raises(DuplicateKeyError):
            await collection_of(Cart).update_many({}, {"$inc": {"score": 10}})
        assert [cart["score"] for cart in carts.find({"_id": 1})] == [11]


async def test_a_session_that_is_causally_consistent_reads_its_own_writes(cluster: Any) -> None:
    url = f"{cluster.url}&readPreference=secondary&w=majority&readConcernLevel=majority"
    async with opened(url, [Cart]) as world, session_of(world) as session:
        for key in range(20):
            await Cart(id=key, score=key).insert(session=session)
            found = await Cart.get(key, session=session)
            assert found is not None
            assert found.score == key
            await found.expire_in(-1, session=session)
            assert await Cart.get(key, session=session) is None


@asynccontextmanager
async def session_of(world: World) -> AsyncIterator[Any]:
    """Give a session of the application's client, of either driver."""
    starting = world.database.client.start_session(causal_consistency=True)
    session = await starting if inspect.isawaitable(starting) else starting
    try:
        yield session
    finally:
        ending = session.end_session()
        if inspect.isawaitable(ending):
            await ending


async def test_an_aggregation_that_writes_takes_what_lives(cluster: Any) -> None:
    url = f"{cluster.url}&readPreference=secondaryPreferred"
    async with opened(url, [Cart]) as world:
        put(world, [1, 2], age=7200)
        put(world, LIVE, age=1800)
        replicas = cluster.replicas()
        stamped = {"_ts": {"$exists": True}}
        for each in replicas:
            with at(each) as client:
                carts = client[world.raw.name]["carts"]
                until(lambda carts=carts: carts.count_documents(stamped) == len(LIVE) + 2)
        await Cart.aggregate([{"$out": "copies"}]).to_list()
        with at(cluster.primary()) as client:
            copies = client[world.raw.name]["copies"]
            assert {copy["_id"] for copy in copies.find()} == {*LIVE}


@pytest.mark.parametrize("lease", [True, False])
async def test_a_sweeper_that_reaches_a_secondary_only_reports_it_and_deletes_nothing(
    cluster: Any,
    lease: bool,  # noqa: FBT001
) -> None:
    async with opened(cluster.url, [Cart]) as world:
        await ensure_indexes(Cart)
        put(world, [1, 2], age=7200)
        (member, *_) = cluster.replicas()
        until(lambda: "_ts" in (stored_at(member, world, 2) or {}))
        name = world.raw.name
        client = connect(member.url)
        try:
            database = ttl_database(client[name])
            await init_beanie(database=database, document_models=[Cart], skip_indexes=True)
            sweeper = AsyncSweeper(database, [Cart], lease=lease, standby="exit")
            report = await sweeper.run_once()
            server = await MongoStore(database, [Cart]).server()
            replica = member.url.replace("/?", f"/{name}?")
            assert await check_replicas(Application(world.database), [replica]) == []
        finally:
            closing = client.close()
            if inspect.isawaitable(closing):
                await closing
        assert (report.outcome, report.problems, report.deleted) == ("standby", (), 0)
        assert not server.takes_writes
        assert server.address is not None
        assert server.address in member.url
        assert world.keys(Cart) == [1, 2]
