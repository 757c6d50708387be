"""Sweeps that read the documents of each scope of a stored default up to its own end only."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from beanie import Document
from bson import Decimal128, ObjectId

from tests.mongo.stored import HOUR, KEY, Carts, carts
from tests.mongo.test_predicate import JUNK, MISSING, VALID
from ttl_odm import Stored, TTLConfigurationError
from ttl_odm.beanie import TTLMixin, ensure_indexes
from ttl_odm.beanie.policy.bindings import declared_policy
from ttl_odm.beanie.policy.commands import RAW
from ttl_odm.beanie.policy.sources import MOST_SCOPES, outline
from ttl_odm.beanie.policy.ttl_indexes import mongodb_indexes
from ttl_odm.sweeper import Pace, Skip

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Self

DAY = 86_400
LED, DATES = [("tenant", 1), ("_ts", 1)], [("_ts", 1)]
NAME = "__ttl_sweep_default"


def declared(by: str = "tenant", **attributes: Any) -> Any:
    class Message(TTLMixin, Document):
        __ttl__ = Stored(HOUR, by=by)
        __ttl_purge__ = "sweeper"
        id: int  # type: ignore[assignment]
        tenant: Any = None

        class Settings:
            name = "carts"

    for name, value in attributes.items():
        setattr(Message, name, value)
    return Message


async def put(place: Carts, defaults: Mapping[Any, int | None]) -> None:
    """Store defaults of scopes, as another program does."""
    rows = [{"_id": {**KEY, "scope": scope}, "ttl": ttl} for scope, ttl in defaults.items()]
    place.raw["ttl_odm_policies"].insert_many(rows)
    place.raw["ttl_odm_policies"].update_one({"_id": KEY}, {"$inc": {"version": 1}})


def with_dates_only(place: Carts) -> None:
    """Create the index that earlier releases made."""
    indexes = mongodb_indexes(outline(declared_policy(place.model)), "sweeper")
    made = [index.document() for index in indexes]
    place.raw.command({"createIndexes": "carts", "indexes": made})


def key_of_index(place: Carts) -> list[tuple[str, int]]:
    """Return the key of the index by which a sweep finds documents that inherit."""
    return place.stored.index_information()[NAME]["key"]


class Examined:
    """What the server has looked at in the collection since then, by its profiler."""

    def __init__(self, place: Carts) -> None:
        self._raw = place.raw

    def __enter__(self) -> Self:
        self._raw.command("profile", 0)
        self._raw.drop_collection("system.profile")
        self._raw.create_collection("system.profile", capped=True, size=2**26)  # none gets lost
        self._raw.command("profile", 2)
        return self

    def __exit__(self, *_: object) -> None:
        self._raw.command("profile", 0)
        theirs = {"ns": f"{self._raw.name}.carts", "command.explain": None}
        looked = list(self._raw.get_collection("system.profile", RAW).find(theirs))
        # What is deleted by its key, and counted just before, is looked at again.
        searches = [each for each in looked if "find" in each.get("command", {})]
        assert searches
        self.documents = sum(each["docsExamined"] for each in searches)
        self.keys = sum(each["keysExamined"] for each in searches)
        self.documents_in_all = sum(each.get("docsExamined", 0) for each in looked)


async def test_a_sweep_looks_at_no_document_of_a_scope_that_keeps_its_own_longer(
    mongodb_url: str,
) -> None:
    async with carts(mongodb_url, declared()) as place:
        assert key_of_index(place) == LED
        await put(place, {"keeps": 365 * DAY, "never": -1, "off": None, "brief": 60})
        for number, tenant in enumerate(("keeps", "never", "off")):
            place.add(*range(1_000 * number, 1_000 * number + 500), age=2 * HOUR, tenant=tenant)
        place.add(*range(5_000, 5_500), age=30, tenant="brief")
        place.add(*range(6_000, 6_007), age=100, tenant="brief")
        place.add(*range(7_000, 7_500), age=100, tenant="other")
        place.add(*range(8_000, 8_006), age=2 * HOUR, tenant="other")
        with Examined(place) as examined:
            report = await place.sweep()
        assert report.deleted == 13
        # Those that have expired, and to say how late they are, the first of each end; no others.
        assert examined.documents == 13 + 2
        assert examined.keys <= 60
        assert examined.documents_in_all <= 6 * 13

        with Examined(place) as examined:
            assert (await place.sweep()).deleted == 0
        assert examined.documents == 0
        assert examined.keys <= 30


async def test_so_do_a_dry_run_and_a_fuse(mongodb_url: str) -> None:
    async with carts(mongodb_url, declared()) as place:
        await put(place, {"keeps": 365 * DAY})
        place.add(*range(500), age=2 * HOUR, tenant="keeps")
        place.add(600, 601, age=2 * HOUR, tenant="other")
        with Examined(place) as examined:
            (target,) = (await place.sweep(dry_run=True)).targets
        assert (target.due, target.due_by_scope) == (2, {})
        assert examined.documents_in_all <= 10


@pytest.mark.slow
async def test_many_scopes_cost_one_look_at_each(mongodb_url: str) -> None:
    async with carts(mongodb_url, declared()) as place:
        born = {"_ts": place.now()}
        place.stored.insert_many(
            [
                {"_id": 10 * number + copy, "tenant": f"t{number}", **born}
                for number in range(1_000)
                for copy in range(10)
            ]
        )
        await put(place, {"t7": DAY, "t8": 60})
        place.add(*range(20_000, 20_020), age=2 * HOUR, tenant="t500")
        with Examined(place) as examined:
            (target,) = (await place.sweep(pace=Pace(5, 5, 5, 10.0))).targets
        assert (target.deleted, target.batches >= 4) == (20, True)
        assert examined.documents <= 30
        # Once to see what is due, and once on the way through: a batch goes on where one ended.
        assert examined.keys <= 4 * 2_000


@pytest.mark.slow
async def test_an_index_from_before_serves_until_it_is_rebuilt(mongodb_url: str) -> None:
    async with carts(mongodb_url, declared(), begun=False) as place:
        with_dates_only(place)
        (report,) = await ensure_indexes(place.model)
        assert NAME in report.unchanged
        assert key_of_index(place) == DATES
        await put(place, {"keeps": 365 * DAY})
        place.add(*range(500), age=2 * HOUR, tenant="keeps")
        place.add(600, age=2 * HOUR, tenant="other")
        with Examined(place) as examined:
            assert (await place.sweep()).deleted == 1
        assert examined.documents >= 500

        (report,) = await ensure_indexes(place.model, rebuild=True)
        assert (report.removed, report.created) == ((NAME,), (NAME,))
        assert key_of_index(place) == LED
        place.add(601, age=2 * HOUR, tenant="other")
        with Examined(place) as examined:
            assert (await place.sweep()).deleted == 1
        assert examined.documents <= 5
        (report,) = await ensure_indexes(place.model, rebuild=True)
        assert (report.removed, report.created) == ((), ())


async def test_an_index_led_by_another_field_is_not_taken_for_it(mongodb_url: str) -> None:
    async with carts(mongodb_url, declared(by="name")) as place:
        place.add(1, age=2 * HOUR, tenant="acme")
        del place.model.__ttl__
        place.model.__ttl__ = Stored(HOUR, by="tenant")
        with pytest.raises(TTLConfigurationError, match="rebuild=True"):
            await ensure_indexes(place.model)
        assert (await place.sweep()).deleted == 1  # it walks


@pytest.mark.slow
@pytest.mark.every_driver
@pytest.mark.parametrize("size", [1, 3, 1_000])
@pytest.mark.parametrize("arrays", [True, False], ids=["arrays", "no arrays"])
async def test_what_has_expired_goes_whatever_the_scope(
    mongodb_url: str,
    size: int,
    arrays: bool,  # noqa: FBT001
) -> None:
    async with carts(mongodb_url, declared()) as place:
        numbers = random.Random(22)  # noqa: S311
        own = [*("acme", "", 7, "$x", -1, 2**40, ObjectId(bytes(12)), "zoë")]
        defaults = [60, 600, DAY, -1, None, 600]
        await put(place, {scope: numbers.choice(defaults) for scope in own if scope != ""})
        odd = [*own, *VALID, *JUNK, 7.0, Decimal128("7"), {"acme": 7}, "other", "ACME"]
        odd += [["acme"], ["acme", 7], ["other"], [["acme"]], [7, []]]
        documents = []
        for scope in odd:
            if isinstance(scope, list) and not arrays:
                continue
            for age in (30, 100, 700, 2 * HOUR, 2 * DAY):
                ttl = numbers.choice([None, None, None, -1, 50, 20.5, MISSING])
                fields = {"tenant": scope, "ttl": ttl}
                document = {name: value for name, value in fields.items() if value is not MISSING}
                documents.append((age, document))
        numbers.shuffle(documents)
        for key, (age, document) in enumerate(documents):
            place.add(key, age=age, **document)
        live = await place.shown()
        assert 0 < len(live) < len(documents)
        (target,) = (await place.sweep(dry_run=True)).targets
        assert target.due == len(documents) - len(live)
        (target,) = (await place.sweep(pace=Pace(size, size, size, 10.0))).targets
        assert (target.error, target.deleted) == (None, len(documents) - len(live))
        assert place.keys() == live


@pytest.mark.slow
async def test_as_many_scopes_as_there_may_be_are_swept_each_by_its_own(mongodb_url: str) -> None:
    async with carts(mongodb_url, declared()) as place:
        numbers = range(MOST_SCOPES)
        seconds = {number: 2 * HOUR + 60 * (number % 50) for number in numbers}
        await put(place, {f"t{number}": seconds[number] for number in numbers})
        for number in numbers[::99]:
            place.add(2 * number, age=seconds[number] - 30, tenant=f"t{number}")
            place.add(2 * number + 1, age=seconds[number] + 30, tenant=f"t{number}")
        (target,) = (await place.sweep()).targets
        assert (target.error, target.deleted) == (None, 11)
        assert place.keys() == {2 * number for number in numbers[::99]}


@pytest.mark.slow
async def test_a_document_that_somebody_holds_keeps_no_other_scope_waiting(
    mongodb_url: str,
) -> None:
    async with carts(mongodb_url, declared()) as place:
        await put(place, {"b": 60})
        for number, tenant in enumerate([None, "a", "b", "c", "d"]):
            place.add(*range(10 * number, 10 * number + 4), age=2 * HOUR, tenant=tenant)
        held = {0, 1, 11, 12, 23, 43}
        with place.raw.client.start_session() as session:
            session.start_transaction()
            place.stored.update_many({"_id": {"$in": [*held]}}, {"$set": {"n": 1}}, session=session)
            (target,) = (await place.sweep(pace=Pace(2, 2, 2, 10.0))).targets
            session.abort_transaction()
        assert (target.deleted, target.skips) == (20 - len(held), {Skip.LOCKED: len(held)})
        assert place.keys() == held
        assert (await place.sweep()).deleted == len(held)


async def test_a_scope_in_an_array_of_documents_is_none(mongodb_url: str) -> None:
    async with carts(mongodb_url, declared(by="owner.tenant")) as place:
        await put(place, {"keeps": DAY, "brief": 60})
        place.add(1, age=2 * HOUR, owner=[{"tenant": "keeps"}])
        place.add(2, age=600, owner=[{"tenant": "brief"}])
        place.add(3, age=2 * HOUR, owner={"tenant": "keeps"})
        place.add(4, age=600, owner={"tenant": "brief"})
        place.add(5, age=2 * HOUR, owner=["keeps"])
        assert await place.shown() == {2, 3}
        (target,) = (await place.sweep(dry_run=True)).targets
        assert target.due == 3
        assert (await place.sweep()).deleted == 3
        assert place.keys() == {2, 3}


async def test_arrays_that_come_while_it_sweeps_do_not_keep_it(mongodb_url: str) -> None:
    async with carts(mongodb_url, declared()) as place:
        await put(place, {"brief": 60})
        place.add(1, 2, age=600, tenant="brief")

        def arrive() -> None:
            place.add(*range(10, 20), age=600, tenant=["brief"])

        place.commands.before["findAndModify"] = [arrive]
        (target,) = (await place.sweep(pace=Pace(1, 1, 1, 10.0))).targets
        assert (target.deleted, place.keys()) == (2, set(range(10, 20)))


@pytest.mark.slow
@pytest.mark.every_driver
async def test_no_document_goes_whose_default_was_raised_after_it_was_found(
    mongodb_url: str,
) -> None:
    async with carts(mongodb_url, declared()) as place:
        await put(place, {"acme": 60, "bolt": 60})
        place.add(1, 2, age=600, tenant="acme")
        place.add(3, 4, age=600, tenant="bolt")
        policies = place.raw["ttl_odm_policies"]
        raised: list[int] = []

        def rise() -> None:
            policies.update_one({"_id": {**KEY, "scope": "acme"}}, {"$set": {"ttl": DAY}})
            policies.update_one({"_id": KEY}, {"$inc": {"version": 1}})
            raised.append(1)

        place.commands.before["findAndModify"] = [rise]
        await place.sweep()
        assert raised
        await place.sweep()
        assert place.keys() == {1, 2} == await place.shown()


@pytest.mark.slow
async def test_a_report_says_how_late_the_latest_of_all_scopes_is(mongodb_url: str) -> None:
    async with carts(mongodb_url, declared()) as place:
        await put(place, {"brief": 60, "keeps": 10 * DAY})
        for key, tenant in enumerate("cdaebf"):
            place.add(key, age=2 * HOUR + 10 * key, tenant=tenant)
        place.add(90, age=11 * DAY, tenant="keeps")
        place.add(91, age=5 * HOUR, tenant="brief")
        assert late(await place.sweep(dry_run=True)) == DAY
        place.stored.delete_one({"_id": 90})
        assert late(await place.sweep(dry_run=True)) == 5 * HOUR - 60
        place.stored.delete_one({"_id": 91})
        assert late(await place.sweep(dry_run=True)) == HOUR + 50
        assert late(await place.sweep()) == HOUR + 50


def late(report: Any) -> int | None:
    """Return how late a sweep was before it began, in steps of ten seconds."""
    seconds = report.targets[0].oldest_before
    return None if seconds is None else int(seconds) // 10 * 10
