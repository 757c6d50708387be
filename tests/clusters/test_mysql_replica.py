"""MySQL with a replica that gets rows or statements: reads there, and a promotion."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import delete, text, update
from sqlalchemy.dialects.mysql import insert
from sqlalchemy.orm import Session

from tests.clusters.lagging import begin_logs, sweep_beside_lag
from tests.clusters.members import running, until
from tests.clusters.mysql import (
    EXPIRED,
    LIVE,
    PACE,
    engine_on,
    engine_on_primary,
    fill,
    has_carts,
    seen,
    stored,
)
from tests.faults.carts import HOUR, add, cart
from ttl_odm.sqlalchemy.sweep.store import SQLAlchemyStore
from ttl_odm.sweeper import Ending, Sweeper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from ttl_odm.sweeper import Progress

pytestmark = [pytest.mark.slow, pytest.mark.starts("mysql")]


@pytest.fixture(scope="module", params=["MYSQL_REPLICA", "MYSQL_REPLICA_STATEMENT"])
def started(request: pytest.FixtureRequest) -> Iterator[Any]:
    with running("mysql_replica", request.param) as cluster:
        yield cluster


@pytest.fixture
def pair(started: Any) -> Iterator[tuple[Engine, Engine]]:
    """Give an engine on the primary and one on the replica, which has the primary's rows."""
    model = cart("")
    with ExitStack() as stack:
        members = (started.primary(), *started.replicas())
        primary, replica = (stack.enter_context(engine_on(member)) for member in members)
        fill(primary, model)
        until(lambda: has_carts(replica, {*EXPIRED, *LIVE}, model))
        yield primary, replica


def test_an_expired_row_is_hidden_on_primary_and_replica(pair: tuple[Engine, Engine]) -> None:
    for engine in pair:
        assert seen(engine, cart("")) == set(LIVE)


def test_the_clock_of_a_replica_decides_what_it_shows(pair: tuple[Engine, Engine]) -> None:
    _, replica = pair
    with replica.connect() as connection:
        connection.execute(text("SET timestamp = UNIX_TIMESTAMP() + 7200"))
        assert not connection.execute(cart("").__table__.select()).all()
        connection.execute(text("SET timestamp = DEFAULT"))


@pytest.mark.parametrize("lease", [True, False])
def test_a_sweeper_of_a_replica_reports_in_one_line_that_it_takes_no_writes(
    pair: tuple[Engine, Engine], *, lease: bool
) -> None:
    model = cart("")
    _, replica = pair
    report = Sweeper(replica, model, lease=lease, standby="exit").run_once()
    assert (report.outcome, report.problems, report.deleted) == ("standby", (), 0)
    server = SQLAlchemyStore(replica, model).server()
    assert server is not None
    assert not server.takes_writes
    assert stored(replica, model) == {*EXPIRED, *LIVE}


def test_a_replica_gets_what_the_gate_has_written(pair: tuple[Engine, Engine]) -> None:
    model = cart("")
    primary, replica = pair
    with Session(primary) as session:
        session.add_all([model(id=key) for key in EXPIRED[:3]])  # in place of expired rows
        session.flush()
        session.execute(insert(model).values(id=EXPIRED[3]).on_duplicate_key_update(ttl=5))
        session.get(model, LIVE[0]).touch()
        session.execute(update(model).where(model.id <= LIVE[1]).values(ttl=100))
        session.execute(delete(model).where(model.id > LIVE[-3]))
        session.delete(session.get(model, LIVE[2]))
        session.commit()
    until(lambda: rows(replica) == rows(primary))
    assert seen(replica, model) == {*EXPIRED[:4], *LIVE[:2], *LIVE[3:-2]}


def rows(engine: Engine) -> list[Any]:
    with engine.connect() as connection:
        return list(connection.execute(text("SELECT id, _ts, ttl FROM carts ORDER BY id")))


@pytest.mark.parametrize("started", ["MYSQL_REPLICA_STATEMENT"], indirect=True)
def test_a_sweeper_of_a_server_that_logs_statements_reports_that_in_one_line(
    pair: tuple[Engine, Engine],
) -> None:
    """Its batches are in READ COMMITTED, of which InnoDB can log rows only."""
    model = cart("")
    primary, _ = pair
    (problem,) = Sweeper(primary, model).run_once().problems
    assert "BINLOG_FORMAT = STATEMENT" in problem
    assert "\n" not in problem
    assert stored(primary, model) == {*EXPIRED, *LIVE}


@pytest.mark.parametrize("started", ["MYSQL_REPLICA"], indirect=True)
def test_a_sweep_waits_for_a_replica_that_is_behind(pair: tuple[Engine, Engine]) -> None:
    model = cart("")
    primary, replica = pair

    def write() -> None:
        with primary.begin() as connection:
            add(connection, [999], age=2 * HOUR)

    report = sweep_beside_lag(
        primary, replica, model, write=write, stored=lambda: stored(primary, model)
    )
    assert (report.problems, report.deleted) == ((), len(EXPIRED) + 1)


@pytest.mark.parametrize("started", ["MYSQL_REPLICA"], indirect=True)
def test_a_replica_is_not_waited_for_because_the_primary_begins_another_log(
    pair: tuple[Engine, Engine],
) -> None:
    primary, _ = pair
    begin_logs(primary)


@pytest.mark.parametrize("started", ["MYSQL_REPLICA"], indirect=True)
def test_a_sweep_goes_on_with_the_promoted_replica(
    started: Any, pair: tuple[Engine, Engine]
) -> None:
    model = cart("")
    primary, replica = pair
    killed: list[Any] = []

    def fail_over(_: Progress) -> None:
        """Fail over when the replica has the lease and the batch, which it may lack otherwise."""
        if not killed:
            until(lambda: stored(replica, model) == stored(primary, model))
            killed.append(started.primary())
            started.fail_over()

    with engine_on_primary(started) as engine:
        report = Sweeper(engine, model, pace=PACE, on_progress=fail_over).run_once()
        assert not report.problems
        assert report.ended is Ending.FINISHED
        assert stored(engine, model) == seen(engine, model) == set(LIVE)
    started.start(*killed)
    with engine_on(*killed) as former:
        assert stored(former, model) == set(LIVE)
