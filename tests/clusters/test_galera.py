"""Galera: nodes that fail, leave, rejoin and disagree while rows expire and are swept."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event

from tests.clusters.mariadb import (
    EXPIRED,
    LIVE,
    PACE,
    Cart,
    engine_of,
    fill,
    renew,
    routed,
    seen,
    stored,
)
from tests.clusters.members import once, revive, running
from ttl_odm.dialects.errors import code_of
from ttl_odm.sqlalchemy.sweep.leases import TableLeases
from ttl_odm.sweeper import Ending, Sweeper, TransientStoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from ttl_odm.sweeper import Lease

pytestmark = [pytest.mark.slow, pytest.mark.starts("mariadb")]

DEADLOCK = 1213
"""What the transaction gets that fails certification."""

# What one node has committed is there on the others a moment later.
WAITS: Any = {
    "connect_args": {"init_command": "SET SESSION wsrep_sync_wait = 7"},
    "pool_pre_ping": True,  # tests end nodes and start them again
}


@pytest.fixture(scope="module")
def started() -> Iterator[Any]:
    with running("galera", "GALERA") as cluster:
        yield cluster


@pytest.fixture
def cluster(started: Any) -> Iterator[Any]:
    """Give the cluster, and start again afterwards the nodes that are down."""
    yield started
    revive(started)


@pytest.fixture
def nodes(cluster: Any) -> Iterator[list[Engine]]:
    """Give an engine on each node, whose tables are filled."""
    with ExitStack() as stack:
        engines = [stack.enter_context(engine_of(member, **WAITS)) for member in cluster.members]
        fill(engines[0])
        yield engines


def test_an_expired_row_is_hidden_on_every_node(nodes: list[Engine]) -> None:
    for engine in nodes:
        assert seen(engine) == [*LIVE]
        assert stored(engine) == [*EXPIRED, *LIVE]


def test_a_sweep_goes_on_with_another_node_after_the_first_was_killed(
    cluster: Any, nodes: list[Engine]
) -> None:
    with ThreadPoolExecutor(1) as pool, routed(cluster.primary) as engine:
        killed = cluster.primary()

        def kill() -> None:
            failing_over.append(pool.submit(cluster.fail_over))
            while cluster.primary() == killed:  # until then the batches go to the node that dies
                pass

        failing_over: list[Any] = []
        report = Sweeper(engine, Cart, pace=PACE, on_progress=once(kill)).run_once()
        assert failing_over[0].result() == cluster.primary()
        assert not report.problems
        assert report.deleted == len(EXPIRED)
    assert stored(nodes[1]) == stored(nodes[2]) == [*LIVE]
    cluster.start(killed)
    assert stored(nodes[0]) == [*LIVE]


def test_nodes_rejoin_with_what_was_swept_meanwhile(cluster: Any, nodes: list[Engine]) -> None:
    _, left, emptied = cluster.members
    cluster.stop(left)
    Sweeper(nodes[0], Cart, pace=PACE, max_rows=100).run_once()
    cluster.start(left)
    cluster.kill(emptied)
    cluster.empty(emptied)
    Sweeper(nodes[1], Cart, pace=PACE).run_once()
    cluster.start(emptied)
    for engine in nodes:
        engine.dispose()
        assert stored(engine) == [*LIVE]


def test_a_batch_that_fails_certification_is_retried_and_spares_the_renewed_row(
    nodes: list[Engine],
) -> None:
    errors: list[Any] = []
    renewing = once(lambda: renew(nodes[0], EXPIRED[3]))

    @event.listens_for(nodes[1], "after_cursor_execute")
    def meet(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.lstrip().upper().startswith("DELETE"):
            renewing(statement)

    @event.listens_for(nodes[1], "handle_error")
    def note(context: Any) -> None:
        errors.append(code_of(context.original_exception))

    report = Sweeper(nodes[1], Cart, pace=PACE).run_once()
    assert errors == [DEADLOCK]
    assert not report.problems
    assert report.deleted == len(EXPIRED) - 1
    for engine in nodes:
        assert stored(engine) == seen(engine) == [EXPIRED[3], *LIVE]


def test_a_sweep_leaves_a_node_that_takes_no_queries(cluster: Any, nodes: list[Engine]) -> None:
    places = [cluster.members[0]]

    server = cluster.servers[0]

    def refuse() -> None:
        """Let a node answer as one that has lost the others does."""
        server.ask("SET GLOBAL wsrep_reject_queries = 'ALL'")
        places[0] = cluster.members[1]

    try:
        with routed(lambda: places[0]) as engine:
            report = Sweeper(engine, Cart, pace=PACE, on_progress=once(refuse)).run_once()
    finally:
        server.ask("SET GLOBAL wsrep_reject_queries = 'NONE'")
    assert not report.problems
    assert report.deleted == len(EXPIRED)
    assert stored(nodes[1]) == [*LIVE]


def test_a_sweeper_finds_the_lease_that_one_on_another_node_holds(nodes: list[Engine]) -> None:
    others: list[Ending] = []
    other = Sweeper(nodes[1], Cart, lease=True)
    first = once(lambda: others.append(other.run_once().ended))
    report = Sweeper(nodes[0], Cart, lease=True, pace=PACE, on_progress=first).run_once()
    assert (report.ended, others) == (Ending.FINISHED, [Ending.LEASE_HELD])
    assert report.deleted == len(EXPIRED)


def test_one_of_three_nodes_gets_the_lease_at_a_time(nodes: list[Engine]) -> None:
    def acquire(engine: Engine) -> Lease | None:
        while True:
            try:
                return TableLeases(engine).acquire("race", engine.url.render_as_string(), 600)
            except TransientStoreError:
                pass  # it met another's, which shows when they commit

    tokens = []
    for _ in range(5):
        with ThreadPoolExecutor(len(nodes)) as pool:
            holders = [
                (engine, lease)
                for engine, lease in zip(nodes, pool.map(acquire, nodes), strict=True)
                if lease is not None
            ]
        assert len(holders) == 1
        engine, lease = holders[0]
        tokens.append(lease.token)
        TableLeases(engine).release(lease)
    assert tokens == sorted(set(tokens))
