"""Clients of a plain server find nothing wrong; of a sweeper that was changed they find it.

Each mutant of the sweeper makes one mistake that a rewrite could bring in. What other clients do
between its statements is done there, so that no test waits for a lucky moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import select, text, update

from tests.clusters import sqlalchemy_clients
from tests.clusters.checker import Rule, check
from tests.clusters.clients import SweepJournal
from tests.clusters.history import Holding, Kind, Outcome
from tests.clusters.recorded import Recorded
from tests.clusters.single import Single
from tests.clusters.sqlalchemy_clients import (
    Base,
    Entry,
    SQLAlchemyAccess,
    SQLAlchemySweeping,
    engine_on,
)
from tests.clusters.workload import Load, run
from ttl_odm.sqlalchemy import include_expired
from ttl_odm.sqlalchemy.purge.removal import KeyRange
from ttl_odm.sqlalchemy.purge.statements import PurgeDelete, SweepSelect
from ttl_odm.sqlalchemy.sweep import batch, leases
from ttl_odm.sweeper.batch_gate import Tenure as SweepersTenure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine
    from sqlalchemy.orm import Session

    from tests.backends import Backend

servers = pytest.mark.databases("postgres", "mariadb", "mysql")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_clients_of_a_plain_server_find_nothing_wrong(backend: Backend, seed: int) -> None:
    assert backend.sync_url is not None
    history = run(Single(backend.sync_url), Load(seed=seed, most=300, rest=0.002))
    verdict = check(history)
    assert [str(finding) for finding in (*verdict.wrong, *verdict.by_engine)] == []
    kinds = {one.kind for one in history.operations if one.outcome is Outcome.ACKNOWLEDGED}
    assert kinds >= {Kind.INSERT, Kind.RENEW, Kind.READ, Kind.DELETE}
    assert any(one.action is Holding.ACQUIRED for one in history.tenures)


class World(Recorded):
    """A database, a client, and a sweeper, of which all is recorded.

    Attributes:
        between: What another client does between two statements of a mutant.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__(SQLAlchemyAccess(engine))
        self.engine = engine
        self.between: Callable[[], object] = list
        self.sweeping = self.sweeper("sweeper")

    def sweeper(self, name: str, *, watched: bool = False) -> SQLAlchemySweeping:
        journal = SweepJournal(name, self.history)
        return SQLAlchemySweeping(journal, self.engine, watched=watched)

    def stored(self) -> set[str]:
        with self.engine.connect() as connection:
            return set(connection.scalars(SweepSelect(Entry.__table__.c.entry)))


@pytest.fixture
def world(backend: Backend) -> Iterator[World]:
    single = Single(str(backend.sync_url))
    engine = engine_on(single.primary)
    Base.metadata.create_all(engine)
    yield World(engine)
    engine.dispose()


@pytest.mark.slow
@pytest.mark.parametrize("watched", [False, True])
def test_rows_that_expire_and_are_swept_are_right(world: World, *, watched: bool) -> None:
    world.insert_expired("a", "b")
    assert world.client.insert("c", 600).outcome is Outcome.ACKNOWLEDGED
    assert world.client.read("a", "b", "c").rows[0].key == "c"
    assert world.client.renew("a").outcome is Outcome.MISSED
    assert world.client.update("a").outcome is Outcome.MISSED
    assert world.client.delete("a").outcome is Outcome.MISSED
    assert world.client.insert("b", 600).outcome is Outcome.ACKNOWLEDGED
    assert world.client.insert("b", 600).outcome is Outcome.REFUSED
    world.sweeper("another", watched=watched).run_once()
    assert world.stored() == {"b", "c"}
    assert world.client.read("a", "b", "c").outcome is Outcome.ACKNOWLEDGED
    assert world.client.touch("b").outcome is Outcome.ACKNOWLEDGED
    assert world.client.delete("c").outcome is Outcome.ACKNOWLEDGED
    assert world.broken() == set()
    purged = [one.keys for one in world.history.operations if one.kind is Kind.PURGE]
    assert purged == ([("a",)] if watched else [])
    actions = [one.action for one in world.history.tenures]
    assert actions == [Holding.ACQUIRED, Holding.WORKED, Holding.RELEASED]


def mutate(
    monkeypatch: pytest.MonkeyPatch, delete: Callable[[batch.Batch, list[Any]], int], world: World
) -> None:
    """Let a sweeper choose keys first, and do something with these rows afterwards."""

    def remove(self: batch.Batch) -> int:
        table = self.source
        chosen = SweepSelect(*table.primary_key).where(*self.range.criteria(table))
        keys = list(self.connection.scalars(chosen))
        world.between()
        return delete(self, keys)

    monkeypatch.setattr(batch.Batch, "_remove", remove)


@pytest.mark.slow
@servers
def test_a_sweeper_that_deletes_by_key_without_the_predicate_is_caught(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def delete(mutant: batch.Batch, keys: list[Any]) -> int:
        (key,) = mutant.source.primary_key
        return mutant.removals[0].by_statement(PurgeDelete(mutant.source).where(key.in_(keys)))

    mutate(monkeypatch, delete, world)
    world.insert_expired("a", "b")
    world.between = lambda: world.client.insert("a", 600)
    world.sweeping.run_once()
    assert world.stored() == set()
    world.client.read("a", "b")
    assert world.broken() == {Rule.LOST}


@pytest.mark.slow
@pytest.mark.databases("postgres", "mariadb")  # MySQL's statement has the predicate twice
def test_a_hook_alone_shows_that_a_live_row_was_deleted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KeyRange, "criteria", lambda *_: [])
    world.insert_expired("a")
    assert world.client.insert("b", 600).outcome is Outcome.ACKNOWLEDGED
    world.sweeper("watched", watched=True).run_once()
    assert world.stored() == set()
    assert world.broken() == {Rule.LOST}


@pytest.mark.slow
@servers
def test_a_sweeper_that_overwrites_a_renewal_is_caught(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put_back(mutant: batch.Batch, _keys: list[Any]) -> int:
        put = update(table).where(table.c.entry == "b").values(_ts=seen[0], ttl=seen[1])
        mutant.connection.execute(put.execution_options(keep_last_modified=True))
        return 0

    mutate(monkeypatch, put_back, world)
    inserted = world.client.insert("b", 600)
    assert inserted.outcome is Outcome.ACKNOWLEDGED
    table = Entry.__table__
    with world.engine.connect() as connection:
        seen = connection.execute(select(table.c["_ts"], table.c.ttl)).one()
    world.insert_expired("a")
    world.between = lambda: world.client.renew("b", 700)
    world.sweeping.run_once()
    world.client.read("a", "b")
    assert world.broken() == {Rule.LOST}


@pytest.mark.slow
def test_a_sweeper_that_ignores_the_lease_is_caught(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    acquire = leases.Statements.acquire

    def seize(*arguments: Any, **_: Any) -> Any:
        return acquire(*arguments, seizes=True)

    holder = world.sweeper("holder")
    sweeps: list[Any] = []

    def sweep_too(tenure: SweepersTenure) -> Any:
        """Let another sweep go from its beginning to its end while this one has the lease."""
        if not sweeps:
            sweeps.append(None)
            sweeps.append(world.sweeping.run_once())
        return obey(tenure)

    obey = SweepersTenure.obey
    monkeypatch.setattr(SweepersTenure, "obey", sweep_too)
    holder.run_once()
    assert world.broken() == set()
    sweeps.clear()
    monkeypatch.setattr(leases.Statements, "acquire", seize)
    holder.run_once()
    assert world.broken() == {Rule.TWO_HOLDERS}


@pytest.mark.slow
def test_a_writer_that_changes_expired_rows_is_caught(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one does that writes raw SQL."""

    def change(session: Session, key: str, version: str | None, _ttl: int | None) -> bool:
        raw = "UPDATE cluster_entries SET version = :version WHERE entry = :entry"
        changed: Any = session.execute(text(raw), {"version": version, "entry": key})
        return bool(changed.rowcount)

    monkeypatch.setitem(sqlalchemy_clients._CHANGES, Kind.UPDATE, change)
    world.insert_expired("a")
    world.client.update("a")
    assert world.broken() == {Rule.CHANGED}


@pytest.mark.slow
def test_a_reader_that_sees_expired_rows_is_caught(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = sqlalchemy_clients._rows

    def all_rows(*args: Any) -> Any:
        return rows(*args).options(include_expired())

    monkeypatch.setattr(sqlalchemy_clients, "_rows", all_rows)
    world.insert_expired("a")
    world.client.read("a")
    assert world.broken() == {Rule.SHOWN}
