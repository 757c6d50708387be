"""As `test_workload`, of MongoDB with Beanie."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.clusters import beanie_clients
from tests.clusters.beanie_clients import BeanieApplication, opened
from tests.clusters.checker import Rule, check
from tests.clusters.clients import Client, SweepJournal
from tests.clusters.history import Holding, Kind, Outcome
from tests.clusters.places import Places
from tests.clusters.recorded import Recorded
from tests.clusters.single import Single
from tests.clusters.workload import Load, run
from ttl_odm.beanie.sweep import batch
from ttl_odm.sweeper import BatchResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(autouse=True)
def _same_class_afterwards() -> Iterator[None]:
    """Give the class of documents the collection again that it had before."""
    before = beanie_clients.Entry.__dict__.get("_document_settings")
    yield
    beanie_clients.Entry._document_settings = before


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_clients_of_a_plain_server_find_nothing_wrong(mongodb_url: str, seed: int) -> None:
    history = run(Single(mongodb_url), Load(seed=seed, most=300, rest=0.002), opened=opened)
    verdict = check(history)
    assert [str(finding) for finding in (*verdict.wrong, *verdict.by_engine)] == []
    done = [one for one in history.operations if one.outcome is Outcome.ACKNOWLEDGED]
    assert {one.kind for one in done} >= {Kind.INSERT, Kind.RENEW, Kind.READ, Kind.DELETE}
    assert {one.server for one in done} == {"only"}
    assert any(one.action is Holding.ACQUIRED for one in history.tenures)


class World(Recorded):
    """A database, a client, and sweepers, of which all is recorded."""

    def __init__(self, application: BeanieApplication) -> None:
        super().__init__(application.primary)
        self.application = application

    def sweep(self, *, watched: bool = False) -> None:
        journal = SweepJournal("sweeper", self.history)
        with self.application.sweeping(journal, watched=watched) as sweeping:
            sweeping.run_once()


@pytest.fixture
def world(mongodb_url: str) -> Iterator[World]:
    with opened(Places(Single(mongodb_url))) as application:
        yield World(application)


@pytest.mark.slow
@pytest.mark.parametrize("watched", [False, True])
def test_documents_that_expire_and_are_swept_are_right(world: World, *, watched: bool) -> None:
    world.insert_expired("a", "b")
    assert world.client.insert("c", 600).outcome is Outcome.ACKNOWLEDGED
    assert world.client.read("a", "b", "c").rows[0].key == "c"
    assert world.client.renew("a").outcome is Outcome.MISSED
    assert world.client.update("a").outcome is Outcome.MISSED
    assert world.client.touch("a").outcome is Outcome.MISSED
    assert world.client.delete("a").outcome is Outcome.MISSED
    assert world.client.insert("b", 600).outcome is Outcome.ACKNOWLEDGED
    assert world.client.insert("b", 600).outcome is Outcome.REFUSED
    world.sweep(watched=watched)
    assert world.client.read("a", "b", "c").outcome is Outcome.ACKNOWLEDGED
    assert world.client.touch("b").outcome is Outcome.ACKNOWLEDGED
    assert world.client.renew("b", 700).outcome is Outcome.ACKNOWLEDGED
    assert world.client.update("b", 800).outcome is Outcome.ACKNOWLEDGED
    assert world.client.delete("c").outcome is Outcome.ACKNOWLEDGED
    assert world.client.read("b").rows[0].ttl == 800
    assert world.broken() == set()
    purged = [one.keys for one in world.history.operations if one.kind is Kind.PURGE]
    assert purged == ([("a",)] if watched else [])
    first, *batches, last = [one.action for one in world.history.tenures]  # one for each index
    assert (first, {*batches}, last) == (Holding.ACQUIRED, {Holding.WORKED}, Holding.RELEASED)


@pytest.mark.slow
@pytest.mark.parametrize(
    "between",
    [
        pytest.param(lambda client: client.insert("a", 600), id="inserted"),
        pytest.param(lambda client: client.renew("c", 700), id="renewed"),
    ],
)
def test_a_sweeper_that_deletes_by_key_without_the_predicate_is_caught(
    world: World, monkeypatch: pytest.MonkeyPatch, between: Callable[[Client], object]
) -> None:
    chosen_before: list[str] = []

    async def delete(mutant: batch._Batch) -> BatchResult:
        chosen = [row["_id"] for row in await mutant.place.find({})]
        if not chosen_before:  # a batch for each index
            await asyncio.to_thread(between, world.client)
        chosen_before.extend(chosen)
        return BatchResult(await mutant.place.delete([{"_id": {"$in": chosen}}]))

    monkeypatch.setattr(batch._Batch, "run", delete)
    world.insert_expired("a")
    assert world.client.insert("c", 600).outcome is Outcome.ACKNOWLEDGED
    world.sweep()
    world.client.read("a", "c")
    assert world.broken() == {Rule.LOST}
