"""What other programs leave behind is found, and fixed where it follows from the document."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from bson import Int64, ObjectId
from bson.datetime_ms import DatetimeMS
from pymongo.errors import WriteError

from tests.mongo.scratch import Scratch, scratch
from tests.mongo.test_predicate import DATES, JUNK, MISSING, NOT_DATES, VALID, document, named
from ttl_odm import TTL, ExpireAfter, ExpireAt, TTLConfigurationError
from ttl_odm.beanie.indexes.ensure import ensure_collection
from ttl_odm.beanie.indexes.strays import Inconsistency, StrayReport, Strays, find_in, repair_in
from ttl_odm.beanie.indexes.validator import validator
from ttl_odm.beanie.policy.ttl_indexes import own_expiry
from ttl_odm.core import MAX_TTL, own_ttl

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ttl_odm.core import Policy

    Document = dict[str, Any]

BORN = datetime(2024, 1, 15, 12, tzinfo=timezone.utc)
AT_600 = BORN + timedelta(seconds=600)
MILLISECOND = timedelta(milliseconds=1)


@pytest.fixture
async def place(mongodb_url: str) -> AsyncIterator[Scratch]:
    """Give an empty collection."""
    async with scratch(mongodb_url) as made:
        yield made


async def kinds_of(place: Scratch, policy: Policy, fields: Document) -> set[str]:
    """Return the kinds of stray that a document with these fields is."""
    place.theirs.replace_one({"_id": 1}, fields, upsert=True)
    return {each.kind.name for each in (await find_in(place.ours, policy)).found}


# _exp itself


@pytest.mark.parametrize("policy", [TTL(60), TTL(None), TTL(60, never=(20, 0))], ids=repr)
async def test_exp_is_there_for_a_valid_ttl_of_its_own_and_only_then(
    place: Scratch, policy: TTL
) -> None:
    values = [*VALID, *JUNK]
    place.theirs.insert_many([document(n, _ts=BORN, ttl=each) for n, each in enumerate(values)])
    place.theirs.insert_many(
        [
            document(f"undated {n}", _ts=each, ttl=5)
            for n, each in enumerate(["", None, [BORN], DatetimeMS(2**63 - 1)])
        ]
    )

    place.theirs.update_many({}, [{"$set": {"_exp": own_expiry(policy)}}])

    expected = {}
    for number, value in enumerate(values):
        own = own_ttl(policy, value)
        if own is not None and own > 0:
            expected[number] = BORN + timedelta(seconds=own)
    found = place.theirs.find({"_exp": {"$exists": True}})
    assert {each["_id"]: each["_exp"] for each in found} == expected


# Finding


@pytest.mark.slow
async def test_a_value_is_reported_if_it_is_there_and_is_no_ttl(place: Scratch) -> None:
    for value in (*VALID, *JUNK):
        own = own_ttl(TTL(60), value)
        fields = document(1, _ts=BORN, ttl=value)
        if own is not None and own > 0:
            fields["_exp"] = BORN + timedelta(seconds=own)

        found = await kinds_of(place, TTL(60), fields)

        is_invalid = own is None and value is not MISSING and value is not None
        assert found == ({"INVALID_TTL"} if is_invalid else set()), named(value)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"_ts": BORN}, set()),
        ({"_ts": BORN, "ttl": None}, set()),
        ({"_ts": BORN, "ttl": -1}, set()),
        ({"_ts": BORN, "ttl": 600, "_exp": AT_600}, set()),
        ({"_ts": BORN, "ttl": 600.0, "_exp": AT_600}, set()),
        ({}, {"UNDATED"}),
        ({"_ts": None}, {"UNDATED"}),
        ({"_ts": "2024-01-15"}, {"UNDATED"}),
        ({"ttl": 600}, {"UNDATED"}),
        ({"_ts": [BORN]}, {"SEVERAL_DATES"}),
        ({"_ts": []}, {"SEVERAL_DATES"}),
        ({"_ts": BORN, "ttl": 600}, {"TOO_LATE"}),
        ({"_ts": BORN, "ttl": 600, "_exp": None}, {"TOO_LATE"}),
        ({"_ts": BORN, "ttl": 600, "_exp": "soon"}, {"TOO_LATE"}),
        ({"_ts": BORN, "ttl": 600, "_exp": AT_600 + MILLISECOND}, {"TOO_LATE"}),
        ({"_ts": BORN, "ttl": 600, "_exp": AT_600 - MILLISECOND}, {"TOO_EARLY"}),
        ({"_ts": BORN, "ttl": 600, "_exp": [AT_600]}, {"TOO_EARLY"}),
        ({"_ts": BORN, "ttl": 20.5, "_exp": AT_600}, {"INVALID_TTL", "TOO_EARLY"}),
        ({"ttl": 600, "_exp": AT_600}, {"UNDATED", "TOO_EARLY"}),
        ({"_ts": BORN, "ttl": -1, "_exp": AT_600}, {"IDLE"}),
        ({"_ts": BORN, "_exp": AT_600}, {"IDLE"}),
        ({"_ts": BORN, "_exp": None}, {"IDLE"}),
        ({"_ts": BORN, "ttl": "600", "_exp": AT_600}, {"INVALID_TTL", "IDLE"}),
        ({"_ts": BORN, "ttl": Int64(MAX_TTL + 1), "_exp": AT_600}, {"INVALID_TTL", "IDLE"}),
    ],
    ids=repr,
)
async def test_each_kind_of_stray_is_told_from_the_others(
    place: Scratch, fields: Document, expected: set[str]
) -> None:
    assert await kinds_of(place, TTL(60), fields) == expected


@pytest.mark.parametrize(
    ("policy", "fields", "expected"),
    [
        (TTL(60, override=None), {"_ts": BORN, "ttl": "x", "_exp": BORN}, set()),
        (TTL(60, override=None), {}, {"UNDATED"}),
        (TTL(60, never=(0,)), {"_ts": BORN, "ttl": 0}, set()),
        (TTL(60, never=(600,)), {"_ts": BORN, "ttl": 600, "_exp": BORN}, {"IDLE"}),
        (TTL(60, last_modified="at", override="life"), {"at": BORN, "life": 5}, {"TOO_LATE"}),
        *((ExpireAfter("at", 60), {"at": each}, set()) for each in DATES.values()),
        (ExpireAt("at"), {}, set()),
        (ExpireAt("at", null="expired"), {"at": None}, set()),
        (ExpireAt("at"), {"at": []}, {"UNDATED"}),
        (ExpireAt("at"), {"at": ["2024-01-15", None]}, {"UNDATED"}),
        (ExpireAt("at"), {"at": "2024-01-15"}, {"UNDATED"}),
    ],
    ids=repr,
)
async def test_other_policies_have_strays_of_their_own(
    place: Scratch, policy: Policy, fields: Document, expected: set[str]
) -> None:
    assert await kinds_of(place, policy, fields) == expected


async def test_strays_are_counted_and_shown_by_a_few_of_their_keys(place: Scratch) -> None:
    place.theirs.insert_many([{"_id": n} for n in range(7)])
    place.theirs.insert_one({"_id": "x", "_ts": BORN, "ttl": 600})
    place.theirs.insert_one({"_id": "fine", "_ts": BORN})

    report = await find_in(place.ours, TTL(60))

    assert report == StrayReport(
        place.ours.full_name,
        (
            Strays(Inconsistency.UNDATED, 7, (0, 1, 2, 3, 4)),
            Strays(Inconsistency.TOO_LATE, 1, ("x",)),
        ),
    )
    assert str(report) == (
        f"{place.ours.full_name}:\n"
        "  7: no date to count from: never expires (such as 0, 1, 2, 3, 4)\n"
        "  1: expires, but MongoDB deletes it too late or never (such as 'x')"
    )


async def test_an_empty_collection_has_no_strays(place: Scratch) -> None:
    report = await find_in(place.ours, TTL(60))

    assert report.found == ()
    assert str(report) == f"{place.ours.full_name}: no strays"


async def test_odd_documents_fail_no_search(place: Scratch) -> None:
    ends = [DatetimeMS(2**63 - 1), DatetimeMS(-(2**63))]
    odd = [*NOT_DATES.values(), *VALID, *JUNK, *ends]
    place.theirs.insert_many([document(ObjectId(), _ts=each, ttl=MAX_TTL) for each in odd])
    place.theirs.insert_many([document(ObjectId(), _ts=BORN, ttl=each) for each in odd])
    place.theirs.insert_many([document(ObjectId(), _ts=BORN, ttl=1, _exp=each) for each in odd])
    for end in ends:
        place.theirs.insert_many([{"_ts": end, "ttl": MAX_TTL, "_exp": each} for each in ends])

    for policy in (TTL(60), TTL(60, override=None), ExpireAt("_ts"), ExpireAt("ttl")):
        await find_in(place.ours, policy)
    await repair_in(place.ours, TTL(60))
    kinds = {each.kind for each in (await find_in(place.ours, TTL(60))).found}

    assert not any(kind.is_repairable for kind in kinds)


# Repairing


async def test_exp_is_made_right_and_nothing_else_is_touched(place: Scratch) -> None:
    documents: list[Document] = [
        {"_id": "missing", "_ts": BORN, "ttl": 600},
        {"_id": "early", "_ts": BORN, "ttl": 600, "_exp": BORN},
        {"_id": "idle", "_ts": BORN, "ttl": "x", "_exp": BORN},
        {"_id": "right", "_ts": BORN, "ttl": 600, "_exp": AT_600},
        {"_id": "none", "_ts": BORN},
        {"_id": "undated", "ttl": 600},
    ]
    place.theirs.insert_many(documents)

    assert await repair_in(place.ours, TTL(60)) == 3

    found = {each["_id"]: each for each in place.theirs.find()}
    documents[0]["_exp"] = documents[1]["_exp"] = AT_600
    del documents[2]["_exp"]
    assert found == {each["_id"]: each for each in documents}
    assert await repair_in(place.ours, TTL(60)) == 0


async def test_mending_goes_on_past_a_batch_and_over_keys_of_every_type(place: Scratch) -> None:
    keys: list[object] = [
        *range(1500),
        *(f"text {number}" for number in range(700)),
        *(ObjectId() for _ in range(700)),
        None,
        {"a": 1, "b": "x"},
        uuid4().bytes,
        BORN,
        True,
    ]
    place.theirs.insert_many([{"_id": key, "_ts": BORN, "ttl": 600} for key in keys])

    assert await repair_in(place.ours, TTL(60)) == len(keys)
    assert place.theirs.count_documents({"_exp": AT_600}) == len(keys)


@pytest.mark.slow
async def test_mending_meets_writers(place: Scratch) -> None:
    place.theirs.insert_many([{"_id": n, "_ts": BORN, "ttl": 600} for n in range(3000)])

    async def renew() -> None:
        for number in range(0, 3000, 10):
            await place.ours.update_one(
                {"_id": number},
                [{"$set": {"_ts": "$$NOW"}}, {"$set": {"_exp": own_expiry(TTL(60))}}],
            )

    await asyncio.gather(renew(), repair_in(place.ours, TTL(60)))

    assert (await find_in(place.ours, TTL(60))).found == ()


async def test_a_refusal_of_the_collections_validator_is_an_error(place: Scratch) -> None:
    place.theirs.insert_one({"_ts": BORN, "ttl": 600})
    place.database.command("collMod", "documents", validator={"name": {"$exists": True}})

    with pytest.raises(WriteError):
        await repair_in(place.ours, TTL(60))


@pytest.mark.parametrize("policy", [ExpireAt("at"), TTL(60, override=None)], ids=repr)
async def test_without_a_ttl_of_its_own_there_is_nothing_to_mend(
    place: Scratch, policy: Policy
) -> None:
    place.theirs.insert_one({"_ts": BORN, "ttl": 600, "at": BORN})

    assert await repair_in(place.ours, policy) == 0
    assert "_exp" not in (place.theirs.find_one() or {})


async def test_a_policy_that_cannot_be_is_refused(place: Scratch) -> None:
    for ask in (find_in, repair_in):
        with pytest.raises(TTLConfigurationError, match="timezone"):
            await ask(place.ours, TTL(60, timezone="local"))


async def test_exp_does_not_matter_to_a_sweeper(place: Scratch) -> None:
    place.theirs.insert_one({"_ts": BORN, "ttl": 600, "_exp": BORN})

    assert (await find_in(place.ours, TTL(60), purge="sweeper")).found == ()


async def test_native_deletion_does_not_begin_with_an_exp_that_nobody_kept_right(
    place: Scratch,
) -> None:
    """Such as after a time of sweeping, or of writes by other programs while TTL was off."""
    place.theirs.insert_one({"_id": 7, "_ts": datetime.now(timezone.utc), "ttl": 600, "_exp": BORN})

    with pytest.raises(TTLConfigurationError, match=r"such as 7.*repair_strays\(\)"):
        await ensure_collection(place.ours, TTL(60))
    assert "__ttl_own" not in place.indexes()
    await repair_in(place.ours, TTL(60))
    await ensure_collection(place.ours, TTL(60))

    assert "__ttl_own" in place.indexes()
    assert place.theirs.count_documents({}) == 1


# The guard


def validator_of(place: Scratch) -> Document:
    # Not list_collections(): it gives naive dates whatever the client was told.
    answer = place.database.command(
        {"listCollections": 1, "filter": {"name": "documents"}},
        codec_options=place.theirs.codec_options,
    )
    found: Document = answer["cursor"]["firstBatch"][0]["options"].get("validator", {})
    return found


@pytest.mark.parametrize(
    ("stored", "change", "passes"),
    [
        ({"ttl": 600, "_exp": AT_600}, {"$set": {"ttl": 7200}}, False),
        ({"ttl": 600, "_exp": AT_600}, {"$set": {"ttl": 20.5}}, False),
        ({"ttl": 600, "_exp": AT_600}, {"$currentDate": {"_ts": True}}, False),
        ({"ttl": 600, "_exp": AT_600}, {"$unset": {"_ts": ""}}, False),
        ({"ttl": 600, "_exp": AT_600}, {"$set": {"_exp": BORN}}, False),
        ({"ttl": 600, "_exp": AT_600}, {"$push": {"name": "x"}}, True),
        ({"ttl": 600, "_exp": AT_600}, {"$set": {"ttl": 5}}, True),
        ({"ttl": 600, "_exp": AT_600}, {"$set": {"ttl": -1}}, True),
        ({"ttl": 600, "_exp": AT_600}, {"$set": {"ttl": "7200"}}, True),
        ({"ttl": 600, "_exp": AT_600}, {"$unset": {"ttl": ""}}, True),
        ({"ttl": 600, "_exp": AT_600}, {"$set": {"ttl": 7200}, "$unset": {"_exp": ""}}, True),
        (
            {"ttl": 600, "_exp": AT_600},
            {"$set": {"ttl": 660, "_exp": AT_600 + timedelta(seconds=60)}},
            True,
        ),
        ({"ttl": -1, "_exp": AT_600}, {"$set": {"ttl": 7200}}, False),
        ({}, {"$set": {"ttl": 7200}}, True),
        ({}, {"$set": {"_ts": [BORN]}}, False),
        ({}, {"$set": {"_ts": "yesterday"}}, True),
        ({"ttl": DatetimeMS(2**63 - 1)}, {"$set": {"ttl": MAX_TTL, "_exp": AT_600}}, False),
    ],
    ids=repr,
)
async def test_the_guard_refuses_just_the_raw_writes_after_which_a_document_would_go_too_early(
    place: Scratch, stored: Document, change: Document, *, passes: bool
) -> None:
    await ensure_collection(place.ours, TTL(60), guard=True)
    place.theirs.insert_one({"_id": 1, "_ts": BORN, **stored})

    if passes:
        place.theirs.update_one({"_id": 1}, change)
    else:
        with pytest.raises(WriteError) as refused:
            place.theirs.update_one({"_id": 1}, change)
        assert refused.value.code == 121


async def test_the_guard_lets_every_document_pass_that_is_no_early_stray(place: Scratch) -> None:
    await ensure_collection(place.ours, TTL(60), guard=True)
    ends = [DatetimeMS(2**63 - 1), DatetimeMS(-(2**63))]

    place.theirs.insert_many([document(ObjectId(), _ts=BORN, ttl=each) for each in [*VALID, *JUNK]])
    place.theirs.insert_many([{"_ts": end, "ttl": MAX_TTL} for end in ends])

    assert await repair_in(place.ours, TTL(60)) > 0


async def test_the_guard_comes_goes_and_follows_the_policy(place: Scratch) -> None:
    made = await ensure_collection(place.ours, TTL(60), guard=True)
    assert made.created == ("__ttl_default", "__ttl_own", "__ttl_guard")
    assert validator_of(place) == validator(TTL(60))

    kept = await ensure_collection(place.ours, TTL(60))
    assert "__ttl_guard" not in (*kept.created, *kept.changed, *kept.removed)
    followed = await ensure_collection(place.ours, TTL(60, never=(5,)), rebuild=True)
    assert followed.changed == ("__ttl_guard",)
    assert validator_of(place) == validator(TTL(60, never=(5,)))

    gone = await ensure_collection(place.ours, TTL(60, never=(5,)), guard=False)
    assert gone.removed == ("__ttl_guard",)
    assert validator_of(place) == {}


@pytest.mark.parametrize(
    ("policy", "purge"),
    [(TTL(None), "native"), (None, "native"), (TTL(60), "sweeper"), (ExpireAt("at"), "native")],
)
async def test_the_guard_goes_where_there_is_nothing_to_guard(
    place: Scratch, policy: Policy | None, purge: Any
) -> None:
    await ensure_collection(place.ours, TTL(60), guard=True)

    report = await ensure_collection(place.ours, policy, purge=purge, guard=True)

    assert "__ttl_guard" in report.removed
    assert validator_of(place) == {}


async def test_a_validator_of_the_users_own_is_left(place: Scratch) -> None:
    theirs = {"name": {"$type": "string"}}
    place.database.create_collection("documents", validator=theirs)

    with pytest.raises(TTLConfigurationError, match=r"\.documents' already has a validator"):
        await ensure_collection(place.ours, TTL(60), guard=True)
    for wished in (None, False):
        await ensure_collection(place.ours, TTL(60), guard=wished)

    assert validator_of(place) == theirs
