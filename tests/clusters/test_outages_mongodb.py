"""A replica set of MongoDB: `ensure_indexes` while a member is down, or the primary fails."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import pytest
from pymongo.errors import PyMongoError

from tests.clusters.members import PATIENCE, revive, running, until
from tests.clusters.test_mongodb import at, falling_behind
from tests.mongo.scratch import Scratch, scratch
from tests.mongo.sweeping import Commands
from ttl_odm import TTL
from ttl_odm.beanie.indexes.ensure import IndexReport, ensure_collection

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pymongo import MongoClient

    from ttl_odm.core import Policy

pytestmark = pytest.mark.slow

HOUR: Final = TTL(3600)
MINUTE: Final = TTL(60)


@pytest.fixture(scope="module")
def started() -> Iterator[Any]:
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
    looking = [{"$currentOp": {}}, {"$match": {"command.$db": place.database.name}}]
    return sum("createIndexes" in each["command"] for each in client.admin.aggregate(looking))


def is_waiting(client: MongoClient[Any], place: Scratch) -> bool:
    """Whether a change has been made that other members don't have yet."""
    looking = [{"$currentOp": {}}, {"$match": {"command.$db": place.database.name}}]
    return any("collMod" in each["command"] for each in client.admin.aggregate(looking))
