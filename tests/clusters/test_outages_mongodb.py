"""A replica set of MongoDB: `ensure_indexes` while a member is down, or the primary fails."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import pytest
from pymongo import MongoClient
from pymongo.errors import AutoReconnect, PyMongoError

from tests.clusters.members import PATIENCE, TOOLS, revive, running, until
from tests.clusters.test_mongodb import LIVE, Cart, at, falling_behind, put
from tests.mongo.models import opened
from tests.mongo.scratch import Scratch, scratch
from tests.mongo.sweeping import Commands
from ttl_odm import TTL, ExpireAt
from ttl_odm.beanie import ensure_indexes
from ttl_odm.beanie.indexes.ensure import IndexReport, ensure_collection
from ttl_odm.cli.application import Target
from ttl_odm.cli.checks_mongodb import check
from ttl_odm.sweeper import AsyncSweeper

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

    from ttl_odm.core import Policy

pytestmark = [pytest.mark.slow, pytest.mark.starts("mongodb")]

HOUR: Final = TTL(3600)
MINUTE: Final = TTL(60)

BEGUN: Final = "hangAfterInitializingIndexBuild"
"""Where a member is held that has begun to build an index, which no majority has built then."""

INDEXES: Final = {"__ttl_default", "__ttl_own"}


@pytest.fixture(scope="module")
def started() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(TOOLS)
        from local_servers import mongodb

        # Lets a test hold a server where it chooses: see `held`.
        settings = (*mongodb._SETTINGS, "--setParameter", "enableTestCommands=1")
        patch.setattr(mongodb, "_SETTINGS", settings)
        with running("mongodb_members", "MONGODB_MEMBERS") as members:
            yield members


@pytest.fixture
def cluster(started: Any) -> Iterator[Any]:
    """Give the cluster, and start again afterwards what is down."""
    yield started
    revive(started)


async def ensured(place: Scratch, *policies: Policy | None) -> list[IndexReport]:
    """Bring a collection's indexes, guard and view to one policy after the other."""
    ours = [(policy, policy is not None) for policy in policies]
    return [
        await ensure_collection(place.ours, policy, guard=is_on, view=is_on)
        for policy, is_on in ours
    ]


def fill(place: Scratch) -> None:
    """Store documents: an empty collection's indexes need no building."""
    place.theirs.insert_many([{"_id": key} for key in range(100)])


def schema(client: MongoClient[Any], place: Scratch) -> Any:
    """What a server has of a collection: indexes, validator, view."""
    database = client[place.database.name]
    listed = database.command({"listIndexes": place.theirs.name})["cursor"]["firstBatch"]
    parts = database.command({"listCollections": 1})["cursor"]["firstBatch"]
    named = {each["name"]: each["options"] for each in parts if each["name"] != "system.views"}
    return sorted(listed, key=lambda index: str(index["name"])), named


async def see_on_all(cluster: Any, place: Scratch, expected: Any) -> None:
    """Start what is down, and wait until each member has what is expected."""
    await asyncio.to_thread(revive, cluster)
    for member in cluster.members:
        with at(member) as client:
            await asyncio.to_thread(until, lambda client=client: schema(client, place) == expected)


async def undisturbed(cluster: Any, policies: Sequence[Policy | None]) -> Any:
    async with scratch(cluster.url) as place:
        fill(place)
        await ensured(place, *policies)
        return schema(place.theirs.database.client, place)


async def test_indexes_are_built_while_a_member_is_down(cluster: Any) -> None:
    expected = await undisturbed(cluster, [HOUR])
    async with scratch(cluster.url) as place:
        fill(place)
        await asyncio.to_thread(cluster.kill, cluster.replicas()[0])
        await asyncio.wait_for(ensured(place, HOUR), PATIENCE)
        await see_on_all(cluster, place, expected)


STEPS: Final = {
    "indexes": ("createIndexes", [HOUR]),
    "guard": ("collMod", [HOUR]),
    "changed": ("collMod", [HOUR, MINUTE]),
    "dropped": ("dropIndexes", [HOUR, None]),
}
"""Commands before which the primary fails, and the policies, of which the last meets that."""


@pytest.mark.parametrize("step", STEPS)
async def test_what_an_election_interrupts_is_done_by_the_next_call(
    cluster: Any, step: str
) -> None:
    command, policies = STEPS[step]
    expected = await undisturbed(cluster, policies)
    commands = Commands()
    async with scratch(cluster.url, event_listeners=[commands]) as place:
        fill(place)
        await ensured(place, *policies[:-1])
        commands.before[command] = [cluster.fail_over]
        with pytest.raises(PyMongoError):
            await ensured(place, policies[-1])
        assert not commands.before[command]
        await ensured(place, policies[-1])
        assert schema(place.theirs.database.client, place) == expected
        await see_on_all(cluster, place, expected)


async def test_what_is_reported_as_done_outlives_the_primary(cluster: Any) -> None:
    expected = await undisturbed(cluster, [HOUR, MINUTE])
    async with scratch(cluster.url) as place:
        fill(place)
        await ensured(place, HOUR)
        primary, replicas = cluster.primary(), cluster.replicas()
        with at(primary) as client:
            # As in a set with an arbiter, where a majority has to be asked for.
            client.admin.command(
                {"setDefaultRWConcern": 1, "defaultWriteConcern": {"w": 1, "wtimeout": 0}}
            )
            try:
                with falling_behind(replicas):
                    ensuring = asyncio.create_task(ensured(place, MINUTE))
                    await asyncio.to_thread(until, lambda: is_waiting(client, place))
                    assert not ensuring.done()
                (report,) = await ensuring
                assert "__ttl_default" in report.changed
            finally:
                client.admin.command(
                    {"setDefaultRWConcern": 1, "defaultWriteConcern": {"w": "majority"}}
                )
        await asyncio.to_thread(cluster.kill, primary)
        await see_on_all(cluster, place, expected)


async def test_an_index_that_is_being_built_is_waited_for(cluster: Any) -> None:
    async with (
        scratch(cluster.url) as place,
        scratch(cluster.url, name=place.database.name) as again,
    ):
        fill(place)
        places = [place, again]
        with at(cluster.primary()) as client, falling_behind(cluster.replicas()):
            ensuring = []
            for number, one in enumerate(places, start=1):
                ensuring.append(asyncio.create_task(ensure_collection(one.ours, HOUR)))
                await asyncio.to_thread(
                    until, lambda number=number: building(client, place) == number
                )
        reports = [await one for one in ensuring]
        assert [set(report.created) for report in reports] == [{"__ttl_default", "__ttl_own"}] * 2
        assert {*place.indexes()} == {"__ttl_default", "__ttl_own"}


def building(client: MongoClient[Any], place: Scratch) -> int:
    """How many clients wait for indexes of a database."""
    return running_in(client, place.database.name).count("createIndexes")


def is_waiting(client: MongoClient[Any], place: Scratch) -> bool:
    """Whether a change has been made that other members don't have yet."""
    return "collMod" in running_in(client, place.database.name)


def running_in(client: MongoClient[Any], database: str) -> list[str]:
    """The names of the commands that clients wait for."""
    looking = [{"$currentOp": {}}, {"$match": {"command.$db": database}}]
    return [next(iter(each["command"])) for each in client.admin.aggregate(looking)]


@contextmanager
def held(members: Sequence[Any], point: str) -> Iterator[Callable[[], Awaitable[None]]]:
    """Hold members at a point of their own code; give what waits until each has reached it.

    A member that is down by the end isn't held any more when it starts again.
    """
    with ExitStack() as stack:
        clients = [
            stack.enter_context(MongoClient[Any](member.url, serverSelectionTimeoutMS=5_000))
            for member in members
        ]
        command = {"configureFailPoint": point, "mode": "alwaysOn"}
        entered = [client.admin.command(command)["count"] for client in clients]

        def reach() -> None:
            for client, before in zip(clients, entered, strict=True):
                client.admin.command(
                    {"waitForFailPoint": point, "timesEntered": before + 1, "maxTimeMS": 60_000}
                )

        try:
            yield lambda: asyncio.to_thread(reach)
        finally:
            for client in clients:
                with suppress(PyMongoError):
                    client.admin.command({"configureFailPoint": point, "mode": "off"})


def unfinished(member: Any, database: str) -> set[str]:
    """The names of a database's indexes that are being built."""
    listing = {"listIndexes": "documents", "includeBuildUUIDs": True}
    with at(member) as client:
        listed = client[database].command(listing)["cursor"]["firstBatch"]
    return {index["spec"]["name"] for index in listed if "buildUUID" in index}


@asynccontextmanager
async def interrupted(cluster: Any, place: Scratch, fault: str = "kill") -> AsyncIterator[Any]:
    """Fill a collection, interrupt the building of its indexes, and give the next primary.

    That one goes on building them, but is held until the end.
    """
    fill(place)
    before, database = cluster.primary(), place.database.name
    with held(cluster.replicas(), BEGUN) as reached:
        ensuring = asyncio.create_task(ensured(place, HOUR))
        await reached()
        assert unfinished(before, database) == INDEXES
        primary = await asyncio.to_thread(cluster.fail_over, fault)
        with pytest.raises(AutoReconnect):
            await ensuring
        assert unfinished(primary, database) == INDEXES
        yield primary
    if fault == "partition":
        await asyncio.to_thread(cluster.thaw, before)


async def waiting(primary: Any, place: Scratch, policy: Policy | None) -> Any:
    """Bring a collection to a policy; return once this waits for an index."""
    ensuring = asyncio.create_task(ensured(place, policy))
    with at(primary) as client:
        await asyncio.to_thread(until, lambda: building(client, place) == 1)
    assert not ensuring.done()
    return ensuring


@pytest.mark.parametrize("fault", ["kill", "switchover", "partition"])
async def test_indexes_that_another_primary_goes_on_building_are_waited_for(
    cluster: Any, fault: str
) -> None:
    expected = await undisturbed(cluster, [HOUR])
    async with scratch(cluster.url) as place:
        async with interrupted(cluster, place, fault) as primary:
            ensuring = await waiting(primary, place, HOUR)
        (report,) = await ensuring
        assert {*report.created} == {*INDEXES, "__ttl_guard"}
        assert schema(place.theirs.database.client, place) == expected
        await see_on_all(cluster, place, expected)


async def test_such_indexes_get_the_seconds_of_a_policy_that_has_changed(cluster: Any) -> None:
    expected = await undisturbed(cluster, [MINUTE])
    async with scratch(cluster.url) as place:
        async with interrupted(cluster, place) as primary:
            ensuring = await waiting(primary, place, MINUTE)
        (report,) = await ensuring
        assert "__ttl_default" in report.changed
        await see_on_all(cluster, place, expected)


@pytest.mark.parametrize("policy", [None, ExpireAt("at")], ids=repr)
async def test_such_indexes_are_dropped_before_mongodb_deletes_by_them(
    cluster: Any, policy: Policy | None
) -> None:
    expected = await undisturbed(cluster, [policy])
    async with scratch(cluster.url) as place:
        async with interrupted(cluster, place) as primary:
            ensuring = asyncio.create_task(ensured(place, policy))
            database = place.database.name
            await asyncio.to_thread(until, lambda: not unfinished(primary, database) & INDEXES)
        (report,) = await ensuring
        assert {*report.removed} >= INDEXES
        await see_on_all(cluster, place, expected)


async def test_neither_a_sweep_nor_a_check_takes_such_indexes_for_finished(cluster: Any) -> None:
    async with opened(cluster.url, [Cart]) as world:
        put(world, range(300), age=7200)
        put(world, LIVE, age=1800)
        with held(cluster.replicas(), BEGUN) as reached:
            ensuring = asyncio.create_task(ensure_indexes(Cart))
            await reached()
            assert not ensuring.done()
            findings = await check(world.database, [Target("carts", "Cart", Cart)], deep=False)
            report = await AsyncSweeper(world.database, [Cart]).run_once()
        await ensuring
        assert {finding.message for finding in findings} == {
            f"index __ttl_sweep_{name} is still being built" for name in ("default", "own")
        }
        assert not report.problems
        assert report.deleted == 300
        assert world.keys(Cart) == [*LIVE]


async def test_a_build_that_only_had_to_be_committed_is_finished(cluster: Any) -> None:
    expected = await undisturbed(cluster, [HOUR])
    async with scratch(cluster.url) as place:
        fill(place)
        primary = cluster.primary()
        with held([primary], "hangIndexBuildBeforeCommit") as reached:
            ensuring = asyncio.create_task(ensured(place, HOUR))
            await reached()
            await asyncio.to_thread(cluster.kill, primary)
        with pytest.raises(AutoReconnect):
            await ensuring
        await ensured(place, HOUR)
        assert schema(place.theirs.database.client, place) == expected
        await see_on_all(cluster, place, expected)


async def test_a_build_that_no_other_member_has_heard_of_begins_anew(cluster: Any) -> None:
    async with scratch(cluster.url) as other:
        fill(other)
        await ensure_collection(other.ours, HOUR)
        expected = schema(other.theirs.database.client, other)
    async with scratch(cluster.url) as place:
        fill(place)
        primary, replicas = cluster.primary(), cluster.replicas()
        with held(replicas, "stopReplProducer") as reached:
            await reached()
            ensuring = asyncio.create_task(ensure_collection(place.ours, HOUR))
            database = place.database.name
            await asyncio.to_thread(until, lambda: unfinished(primary, database) == INDEXES)
            await asyncio.to_thread(cluster.kill, primary)
        with pytest.raises(AutoReconnect):
            await ensuring
        assert {*(await ensure_collection(place.ours, HOUR)).created} == INDEXES
        await see_on_all(cluster, place, expected)
