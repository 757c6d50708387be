"""The ``__ttl_*`` indexes of a collection: made, changed and removed; others' are left alone."""

from __future__ import annotations

import asyncio
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest
from pymongo import ASCENDING, monitoring
from pymongo.errors import OperationFailure

from tests.mongo.scratch import Scratch, scratch
from tests.mongo.sweeping import SCHEMA
from tests.mongo.sweeping import Commands as Sent
from ttl_odm import TTL, ExpireAfter, ExpireAt, TTLConfigurationError
from ttl_odm.beanie.indexes.ensure import IndexReport, ensure_collection
from ttl_odm.beanie.policy import ttl_indexes
from ttl_odm.core import MAX_TTL, Policy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    Document = dict[str, Any]

BOTH = ("__ttl_default", "__ttl_own")


@pytest.fixture
async def place(mongodb_url: str) -> AsyncIterator[Scratch]:
    """Give an empty collection."""
    async with scratch(mongodb_url) as made:
        yield made


def seconds(place: Scratch) -> dict[str, int | None]:
    return {name: each.get("expireAfterSeconds") for name, each in place.indexes().items()}


# What a policy needs


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (TTL(None), {}),
        (TTL(3600), {"__ttl_default": 3600, "__ttl_own": 0}),
        (TTL(-1), {"__ttl_default": MAX_TTL, "__ttl_own": 0}),
        (TTL(MAX_TTL), {"__ttl_default": MAX_TTL, "__ttl_own": 0}),
        (TTL(3600, override=None), {"__ttl_default": 3600}),
        (TTL(-1, override=None), {"__ttl_default": MAX_TTL}),
        (TTL(None, override=None), {}),
        (
            TTL(60, last_modified="issued", override="life", never=(0,)),
            {"__ttl_default": 60, "__ttl_own": 0},
        ),
        (ExpireAfter("at", 600), {"__ttl_date": 600}),
        (ExpireAfter("at", 1), {"__ttl_date": 1}),
        (ExpireAfter("meta.at", MAX_TTL), {"__ttl_date": MAX_TTL}),
        (ExpireAt("at"), {"__ttl_date": 0}),
        (ExpireAt("at", null="expired"), {"__ttl_date": 0}),
    ],
    ids=repr,
)
async def test_native_deletion_has_a_ttl_index_for_each_way_to_expire(
    place: Scratch, policy: Policy, expected: dict[str, int]
) -> None:
    report = await ensure_collection(place.ours, policy)

    assert seconds(place) == expected
    assert report.created == tuple(expected)
    again = await ensure_collection(place.ours, policy)
    assert (again.created, again.changed, again.removed) == ((), (), ())
    assert again.unchanged == tuple(expected)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (TTL(None), []),
        (TTL(3600), ["__ttl_sweep_default", "__ttl_sweep_own"]),
        (TTL(-1), ["__ttl_sweep_default", "__ttl_sweep_own"]),
        (TTL(3600, override=None), ["__ttl_sweep_default"]),
        (ExpireAfter("at", 600), ["__ttl_sweep_date"]),
        (ExpireAt("at", null="expired"), ["__ttl_sweep_date"]),
    ],
    ids=repr,
)
async def test_a_sweeper_gets_indexes_of_the_same_order_that_delete_nothing(
    place: Scratch, policy: Policy, expected: list[str]
) -> None:
    await ensure_collection(place.ours, policy, purge="sweeper")

    assert seconds(place) == dict.fromkeys(expected)


def test_the_filters_divide_all_numbers_around_the_values_that_mean_never() -> None:
    policy = TTL(60, override="life", never=(0, 600, 2**40, -5))

    assert ttl_indexes.own_branches(policy) == [
        {"life": {"$type": ["int", "long", "double"], "$gte": 1, "$lt": 600}},
        {"life": {"$type": ["int", "long", "double"], "$gt": 600, "$lte": MAX_TTL}},
    ]
    assert ttl_indexes.inheriting_branches(policy)[2:] == [
        {"life": {"$lt": -5}},
        {"life": {"$gt": -5, "$lt": -1}},
        {"life": {"$gt": -1, "$lt": 0}},
        {"life": {"$gt": 0, "$lt": 1}},
        {"life": {"$gt": MAX_TTL, "$lt": 2**40}},
        {"life": {"$gt": 2**40}},
    ]


async def test_a_query_of_one_branch_walks_just_its_part_of_a_sweepers_index(
    place: Scratch,
) -> None:
    policy = TTL(60)
    await ensure_collection(place.ours, policy, purge="sweeper")
    now = datetime.now(timezone.utc)
    queries = [
        *(("__ttl_sweep_default", "_ts", each) for each in ttl_indexes.inheriting_branches(policy)),
        *(("__ttl_sweep_own", "_exp", each) for each in ttl_indexes.own_branches(policy)),
    ]

    for index, field, branch in queries:
        find = {"find": "documents", "filter": {**branch, field: {"$lt": now}}, "hint": index}
        plan = place.database.command({"explain": find})["queryPlanner"]["winningPlan"]
        bounds = plan["inputStage"]["indexBounds"][field]
        assert "MaxKey" not in bounds[0], branch


async def test_no_query_is_answered_by_an_index_of_ours_by_chance(place: Scratch) -> None:
    await ensure_collection(place.ours, TTL(60, override=None))
    now = datetime.now(timezone.utc)

    find = {"find": "documents", "filter": {"name": "x", "_ts": {"$gt": now}}}

    plan = place.database.command({"explain": find})["queryPlanner"]["winningPlan"]
    assert plan["stage"] == "COLLSCAN"


# Changes


async def test_a_changed_default_is_one_collmod_by_name(mongodb_url: str) -> None:
    listener = Commands()
    async with scratch(mongodb_url, event_listeners=[listener]) as place:
        await ensure_collection(place.ours, TTL(3600))
        for default, expected in [(60, 60), (86_400, 86_400), (-1, MAX_TTL), (3600, 3600)]:
            listener.forget()

            report = await ensure_collection(place.ours, TTL(default))

            assert report.changed == ("__ttl_default",)
            assert report.unchanged == ("__ttl_own",)
            assert seconds(place) == {"__ttl_default": expected, "__ttl_own": 0}
            change = {"name": "__ttl_default", "expireAfterSeconds": expected}
            assert listener.writes == [("collMod", change)]


@pytest.mark.parametrize("policy", [TTL(None), None], ids=["off", "no __ttl__"])
async def test_the_ttl_indexes_go_when_ttl_is_off_or_no_longer_declared(
    place: Scratch, policy: Policy | None
) -> None:
    await ensure_collection(place.ours, TTL(3600))

    report = await ensure_collection(place.ours, policy)

    assert report.removed == BOTH
    assert place.indexes() == {}


async def test_the_indexes_follow_from_one_way_of_deleting_to_the_other_and_back(
    place: Scratch,
) -> None:
    await ensure_collection(place.ours, TTL(3600))

    swept = await ensure_collection(place.ours, TTL(3600), purge="sweeper")
    assert (swept.removed, swept.created) == (BOTH, ("__ttl_sweep_default", "__ttl_sweep_own"))
    back = await ensure_collection(place.ours, TTL(3600))

    assert back.created == BOTH
    assert seconds(place) == {"__ttl_default": 3600, "__ttl_own": 0}


@pytest.mark.parametrize(
    "policy",
    [
        TTL(3600, never=(0,)),
        TTL(3600, override=None),
        TTL(3600, override="life"),
        TTL(3600, last_modified="issued"),
    ],
    ids=repr,
)
async def test_another_filter_or_field_is_built_again_only_when_told_to(
    place: Scratch, policy: TTL
) -> None:
    await ensure_collection(place.ours, TTL(3600))
    before = place.indexes()

    with pytest.raises(TTLConfigurationError, match=r"'__ttl_default'.*rebuild=True"):
        await ensure_collection(place.ours, policy)
    assert place.indexes() == before
    report = await ensure_collection(place.ours, policy, rebuild=True)

    assert "__ttl_default" in report.removed
    assert "__ttl_default" in report.created
    for each in ttl_indexes.mongodb_indexes(policy, "native"):
        assert place.indexes()[each.name]["partialFilterExpression"] == each.filter


async def test_an_index_of_an_earlier_policy_goes_before_the_new_ones_are_built(
    mongodb_url: str,
) -> None:
    listener = Commands()
    async with scratch(mongodb_url, event_listeners=[listener]) as place:
        await ensure_collection(place.ours, TTL(3600, override=None))
        listener.forget()

        await ensure_collection(place.ours, TTL(3600), rebuild=True)

        assert [name for name, _ in listener.writes] == ["dropIndexes", "createIndexes"]


async def test_a_client_with_naive_dates_sees_the_same_indexes(mongodb_url: str) -> None:
    async with scratch(mongodb_url, tz_aware=False) as place:
        await ensure_collection(place.ours, TTL(3600))

        assert (await ensure_collection(place.ours, TTL(3600))).unchanged == BOTH


async def test_a_collection_that_does_not_exist_and_needs_nothing_is_not_made(
    place: Scratch,
) -> None:
    await ensure_collection(place.ours, TTL(None))
    await ensure_collection(place.ours, None)

    assert place.database.list_collection_names() == []


# Many at once


@pytest.mark.slow
async def test_many_processes_may_start_at_once(place: Scratch) -> None:
    place.theirs.insert_many([{"ttl": 5} for _ in range(2000)])
    for policy in (TTL(3600), TTL(60), TTL(60, override=None), TTL(None), TTL(-1)):
        await asyncio.gather(
            *(ensure_collection(place.ours, policy, rebuild=True) for _ in range(8))
        )

        wanted = ttl_indexes.mongodb_indexes(policy, "native")
        assert seconds(place) == {each.name: each.seconds for each in wanted}


async def test_old_and_new_processes_at_once_leave_one_of_their_defaults(place: Scratch) -> None:
    place.theirs.insert_many([{"ttl": 5} for _ in range(2000)])

    await asyncio.gather(
        *(ensure_collection(place.ours, TTL(60 + number % 2)) for number in range(8))
    )

    assert seconds(place)["__ttl_default"] in (60, 61)


# What others made


@pytest.mark.parametrize("policy", [TTL(60), TTL(60, override=None), ExpireAfter("_ts", 5)])
async def test_indexes_of_others_stay_as_they_are(place: Scratch, policy: Policy) -> None:
    place.theirs.create_index("_ts")
    place.theirs.create_index("name", unique=True)
    place.theirs.create_index([("seen", "hashed")], expireAfterSeconds=5)  # deletes nothing
    before = place.indexes()

    for each in (policy, TTL(None), None):
        await ensure_collection(place.ours, each)

        theirs = {name: each for name, each in place.indexes().items() if name in before}
        assert theirs == before


@pytest.mark.parametrize(
    ("policy", "theirs"),
    [
        (TTL(60), {"keys": "_ts", "expireAfterSeconds": 60}),
        (TTL(-1), {"keys": "_ts", "expireAfterSeconds": 60}),
        (TTL(None), {"keys": "_ts", "expireAfterSeconds": 60}),
        (TTL(60), {"keys": "_exp", "expireAfterSeconds": 0}),
        (TTL(60, override=None), {"keys": "_ts", "expireAfterSeconds": 59}),
        (ExpireAfter("_ts", 60), {"keys": "_ts", "expireAfterSeconds": 59}),
        (ExpireAt("_ts"), {"keys": "_ts", "expireAfterSeconds": 60}),
        (
            ExpireAfter("_ts", 60),
            {
                "keys": "_ts",
                "expireAfterSeconds": 60,
                "partialFilterExpression": {"kind": "short"},
            },
        ),
        (TTL(604_800), {"keys": "created_at", "expireAfterSeconds": 60}),
        (TTL(-1), {"keys": "created_at", "expireAfterSeconds": 60}),
        (TTL(None), {"keys": "created_at", "expireAfterSeconds": 60}),
        (TTL(60, override=None), {"keys": [("created_at", -1)], "expireAfterSeconds": 60}),
        (TTL(60, max_lifetime=90, created="at"), {"keys": "at", "expireAfterSeconds": 60}),
        (ExpireAfter("at", 604_800), {"keys": "made.at", "expireAfterSeconds": 0}),
        (ExpireAt("at"), {"keys": "created_at", "expireAfterSeconds": 60, "hidden": True}),
        (ExpireAt("at"), {"keys": "created_at", "expireAfterSeconds": 60, "sparse": True}),
        (
            ExpireAt("at", unit="s"),
            {
                "keys": "created_at",
                "expireAfterSeconds": 60,
                "partialFilterExpression": {"kind": "short"},
            },
        ),
    ],
    ids=repr,
)
@pytest.mark.parametrize("purge", ["native", "sweeper"])
async def test_a_ttl_index_that_says_otherwise_is_named_and_left(
    place: Scratch, policy: Policy, theirs: Document, purge: Any
) -> None:
    if policy.unit is not None:
        purge = "sweeper"
    name = place.theirs.create_index(**theirs, name="of_the_application")
    before = place.indexes()

    with pytest.raises(TTLConfigurationError, match=rf"'{name}' of 'documents'.*Drop it"):
        await ensure_collection(place.ours, policy, purge=purge)

    assert place.indexes() == before


async def test_a_ttl_index_is_nobodys_business_where_no_policy_is_declared(place: Scratch) -> None:
    place.theirs.create_index("created_at", expireAfterSeconds=60)

    await ensure_collection(place.ours, None)

    assert list(place.indexes()) == ["created_at_1"]


@pytest.mark.parametrize(
    ("policy", "expire_after"), [(ExpireAfter("at", 60), 60), (ExpireAt("at"), 0)], ids=repr
)
async def test_a_ttl_index_that_says_the_same_is_relied_on(
    place: Scratch, policy: Policy, expire_after: int
) -> None:
    place.theirs.create_index("at", expireAfterSeconds=expire_after)

    report = await ensure_collection(place.ours, policy)

    assert report == IndexReport(place.ours.full_name, relied_on=("at_1",))
    assert list(place.indexes()) == ["at_1"]
    with pytest.raises(TTLConfigurationError, match=r"'at_1'"):  # it would delete unseen
        await ensure_collection(place.ours, policy, purge="sweeper")


@pytest.mark.parametrize("kind", ["hashed", "2d", "2dsphere", "text"])
async def test_a_ttl_index_that_deletes_nothing_is_not_relied_on(place: Scratch, kind: str) -> None:
    name = place.theirs.create_index([("at", kind)], expireAfterSeconds=60)

    same = await ensure_collection(place.ours, ExpireAfter("at", 60))
    other = await ensure_collection(place.ours, ExpireAfter("at", 600))

    assert (same.created, same.relied_on, other.changed) == (("__ttl_date",), (), ("__ttl_date",))
    assert seconds(place) == {name: 60, "__ttl_date": 600}


async def test_a_descending_ttl_index_is_relied_on(place: Scratch) -> None:
    place.theirs.create_index([("at", -1)], expireAfterSeconds=60)

    report = await ensure_collection(place.ours, ExpireAfter("at", 60))

    assert report.relied_on == ("at_-1",)


async def test_an_index_in_the_way_is_named(place: Scratch) -> None:
    policy = TTL(60)
    wanted = ttl_indexes.mongodb_indexes(policy, "sweeper")[0]
    copy = {**wanted.document(), "name": "copied"}
    place.database.command({"createIndexes": "documents", "indexes": [copy]})

    with pytest.raises(TTLConfigurationError, match=r"'copied'.*drop it") as caught:
        await ensure_collection(place.ours, policy, purge="sweeper")

    assert isinstance(caught.value.__cause__, OperationFailure)


async def test_an_index_that_took_our_name_is_built_again_only_when_told_to(
    place: Scratch,
) -> None:
    place.theirs.create_index("name", name="__ttl_default")

    with pytest.raises(TTLConfigurationError, match=r"rebuild=True"):
        await ensure_collection(place.ours, TTL(60))
    await ensure_collection(place.ours, TTL(60), rebuild=True)

    assert place.indexes()["__ttl_default"]["key"] == {"_ts": ASCENDING}


async def test_a_sweepers_index_that_was_made_to_delete_is_built_again_when_told_to(
    place: Scratch,
) -> None:
    await ensure_collection(place.ours, TTL(60), purge="sweeper")
    change = {"name": "__ttl_sweep_default", "expireAfterSeconds": 60}
    place.database.command("collMod", "documents", index=change)

    with pytest.raises(TTLConfigurationError, match=r"'__ttl_sweep_default'.*rebuild=True"):
        await ensure_collection(place.ours, TTL(60), purge="sweeper")
    await ensure_collection(place.ours, TTL(60), purge="sweeper", rebuild=True)

    assert seconds(place) == {"__ttl_sweep_default": None, "__ttl_sweep_own": None}


# Collections that cannot


@pytest.mark.parametrize("policy", [TTL(60), ExpireAfter("at", 5), None], ids=repr)
async def test_a_view_is_refused(place: Scratch, policy: Policy | None) -> None:
    place.database.create_collection("recent", viewOn="documents", pipeline=[])

    with pytest.raises(TTLConfigurationError, match=r"\.recent' is a view.*'documents'"):
        await ensure_collection(place.at("recent"), policy)


async def test_a_capped_collection_is_left_to_the_sweeper(place: Scratch) -> None:
    place.database.create_collection("ring", capped=True, size=4096)

    with pytest.raises(
        TTLConfigurationError, match=r"\.ring' is a capped.*__ttl_purge__ = 'sweeper'"
    ):
        await ensure_collection(place.at("ring"), TTL(60))
    report = await ensure_collection(place.at("ring"), TTL(60), purge="sweeper")

    assert report.created == ("__ttl_sweep_default", "__ttl_sweep_own")


async def test_a_time_series_expires_by_its_time_field(place: Scratch) -> None:
    place.database.create_collection("series", timeseries={"timeField": "at"})

    def set_to() -> int | None:
        listed = next(iter(place.database.list_collections(filter={"name": "series"})))
        seconds: int | None = listed["options"].get("expireAfterSeconds")
        return seconds

    first = await ensure_collection(place.at("series"), ExpireAfter("at", 3600))
    assert (first.changed, set_to()) == (("expireAfterSeconds",), 3600)
    second = await ensure_collection(place.at("series"), ExpireAfter("at", 3600))
    assert second.changed == ()
    await ensure_collection(place.at("series"), ExpireAfter("at", 60))
    assert set_to() == 60
    await ensure_collection(place.at("series"), None)
    assert set_to() == 60


@pytest.mark.parametrize(
    ("policy", "purge"),
    [
        (TTL(60), "native"),
        (TTL(None), "native"),
        (TTL(60, last_modified="at", override=None), "native"),
        (ExpireAt("at"), "native"),
        (ExpireAfter("other", 60), "native"),
        (ExpireAfter("at", 60), "sweeper"),
        (ExpireAfter("at", MAX_TTL), "native"),  # MongoDB wants less than the seconds since 1970
    ],
    ids=repr,
)
async def test_a_time_series_can_have_no_other_policy(
    place: Scratch, policy: Policy, purge: Any
) -> None:
    place.database.create_collection("series", timeseries={"timeField": "at"})

    with pytest.raises(TTLConfigurationError, match=r"\.series'"):
        await ensure_collection(place.at("series"), policy, purge=purge)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (ExpireAfter("_id", 60), r"'_id' can't"),
        (TTL(60, last_modified="_id"), r"'_id' can't"),
        (ExpireAt("$**"), r"\$"),
        (ExpireAt("meta.$**"), r"'meta\.\$\*\*'"),
        (ExpireAt("meta..at"), r"'meta\.\.at'"),
        (ExpireAt("window.1"), r"'window\.1'.*an array"),
        (ExpireAfter("visits.0.at", 60), r"'visits\.0\.at'.*an array"),
        (TTL(60, last_modified="log.0"), r"'log\.0'.*an array"),
        (TTL(60, override="lives.0"), r"'lives\.0'.*an array"),
        (TTL({"a": 60}, by="kinds.0", other=-1), r"'kinds\.0'.*an array"),
        (TTL(60, max_lifetime=90, created="log.0"), r"'log\.0'.*an array"),
        (TTL(60, last_modified="_exp"), r"'_exp'"),
        (TTL(60, override="_exp"), r"'_exp'"),
        (TTL(60, timezone="Europe/Paris"), r"timezone"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("build", [ttl_indexes.mongodb_indexes, ttl_indexes.azure_indexes])
def test_a_field_that_no_ttl_index_can_be_on_is_refused(
    build: Any, policy: Policy, message: str
) -> None:
    with pytest.raises(TTLConfigurationError, match=message):
        build(policy, "sweeper")


# Azure Cosmos DB


@pytest.mark.parametrize(
    ("default", "expected"), [(None, []), (-1, [-1]), (1, [1]), (MAX_TTL, [MAX_TTL])]
)
def test_azure_gets_one_index_on_the_services_own_ts(
    default: int | None, expected: list[int]
) -> None:
    documents = [each.document() for each in ttl_indexes.azure_indexes(TTL(default), "native")]

    assert documents == [
        {"name": "__ttl_default", "key": {"_ts": 1}, "expireAfterSeconds": each}
        for each in expected
    ]


async def test_each_command_that_changes_a_schema_waits_for_a_majority(mongodb_url: str) -> None:
    commands = Sent()
    async with scratch(mongodb_url, event_listeners=[commands]) as place:
        for policy, is_on in ((TTL(3600), True), (TTL(60), True), (None, False)):
            await ensure_collection(place.ours, policy, guard=is_on, view=is_on)
        assert {name for name in SCHEMA if commands.of(name)} == SCHEMA
        for name in SCHEMA:
            for command in commands.of(name):
                assert command["writeConcern"]["w"] == "majority"
                quorum = "majority" if name == "createIndexes" else None
                assert command.get("commitQuorum") == quorum


async def test_azure_changes_the_default_by_drop_and_create(mongodb_url: str) -> None:
    listener = Commands()
    async with scratch(mongodb_url, event_listeners=[listener]) as place:
        for default in (3600, 60, 60, None):
            await ensure_collection(place.ours, TTL(default), backend="cosmos")

        made = [{"name": "__ttl_default", "key": {"_ts": 1}, "expireAfterSeconds": 3600}]
        made_again = [{**made[0], "expireAfterSeconds": 60}]
        assert listener.writes == [
            ("createIndexes", made),
            ("dropIndexes", "__ttl_default"),
            ("createIndexes", made_again),
            ("dropIndexes", "__ttl_default"),
        ]


async def test_azure_is_sent_minus_one_for_on_but_never_by_default(mongodb_url: str) -> None:
    listener = Commands()
    async with scratch(mongodb_url, event_listeners=[listener]) as place:
        # MongoDB itself knows no -1; what counts is what was sent.
        with pytest.raises(TTLConfigurationError, match=r"expireAfterSeconds"):
            await ensure_collection(place.ours, TTL(-1), backend="cosmos")

        made = [{"name": "__ttl_default", "key": {"_ts": 1}, "expireAfterSeconds": -1}]
        assert listener.writes == [("createIndexes", made)]


@pytest.mark.parametrize(
    ("policy", "purge", "message"),
    [
        (TTL(60, last_modified="issued"), "native", r"'issued'"),
        (TTL(60, override=None), "native", r"'ttl'"),
        (TTL(60, override="life"), "native", r"'life'"),
        (TTL(60, never=(0,)), "native", r"never=\(0,\)"),
        (TTL(60), "sweeper", r"__ttl_purge__ = 'native'"),
        (ExpireAfter("at", 60), "native", r"'at'.*its own '_ts'"),
        (ExpireAt("at"), "sweeper", r"'at'.*its own '_ts'"),
    ],
    ids=repr,
)
def test_what_azure_cannot_follow_is_refused(policy: Policy, purge: Any, message: str) -> None:
    with pytest.raises(TTLConfigurationError, match=message):
        ttl_indexes.azure_indexes(policy, purge)


# The report


def test_a_report_reads_as_a_sentence() -> None:
    report = IndexReport(
        "app.events",
        created=("__ttl_own",),
        changed=("__ttl_default",),
        left_to_sweeper=("documents that are odd",),
    )

    assert str(report) == (
        "app.events: created __ttl_own; changed __ttl_default. "
        "MongoDB doesn't delete documents that are odd: a sweeper does."
    )
    again = IndexReport("app.events", unchanged=BOTH, left_to_sweeper=("documents that are odd",))
    assert str(again) == "app.events: unchanged __ttl_default, __ttl_own"
    assert str(IndexReport("app.events")) == "app.events: nothing to do"


async def test_a_report_says_what_is_left_to_the_sweeper(place: Scratch) -> None:
    async def left(policy: Policy, **options: Any) -> Sequence[str]:
        return (await ensure_collection(place.ours, policy, **options)).left_to_sweeper

    assert await left(ExpireAt("at")) == ()
    assert "'at'" in (await left(ExpireAt("at", null="expired")))[0]
    assert len(await left(TTL(60))) == 2
    assert await left(TTL(-1)) == ()
    assert await left(TTL(60), purge="sweeper") == ()


class Commands(monitoring.CommandListener):
    """What was sent that changes indexes: the command, and what it says about them."""

    def __init__(self) -> None:
        self.writes: list[tuple[str, object]] = []

    def forget(self) -> None:
        self.writes.clear()

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        key = {"createIndexes": "indexes", "collMod": "index", "dropIndexes": "index"}
        if event.command_name in key:
            self.writes.append((event.command_name, event.command[key[event.command_name]]))

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        pass

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        pass
