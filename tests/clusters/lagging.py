"""Sweeps that wait for a replica, which a test holds back."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from tests.clusters.members import PATIENCE, until
from ttl_odm.replication import ReplicationLag
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine

    from ttl_odm.sweeper import SweepReport


def sweep_that_waits(
    engine: Engine, model: Any, throttle: Callable[[], Any], meanwhile: Callable[[], object]
) -> SweepReport:
    """Sweep, and do something as soon as the sweep waits."""
    waits = threading.Event()

    def watched() -> Any:
        seconds = throttle()
        if seconds is not None:
            waits.set()
        return seconds

    with ThreadPoolExecutor(1) as pool:
        sweeping = pool.submit(Sweeper(engine, model, throttle=watched).run_once)
        assert waits.wait(PATIENCE)
        meanwhile()
        return sweeping.result()


@contextmanager
def held_back(
    replica: Engine, lock: str = "LOCK TABLES carts READ"
) -> Iterator[Callable[[], object]]:
    """Let a server of MariaDB or MySQL answer, but not apply what others have committed.

    Gives what lets it go on. The lock is on what must not change: by default, on `carts`.
    """
    with replica.connect() as connection:
        connection.execute(text(lock))
        try:
            yield lambda: connection.execute(text("UNLOCK TABLES"))
        finally:
            connection.execute(text("UNLOCK TABLES"))


def sweep_beside_lag(
    primary: Engine,
    replica: Engine,
    model: Any,
    *,
    write: Callable[[], object],
    stored: Callable[[], object],
) -> SweepReport:
    """Sweep a primary of MariaDB or MySQL whose replica doesn't apply what is written.

    The sweep deletes nothing until the replica goes on, and doesn't have to wait afterwards.

    Args:
        primary: What is swept.
        replica: What lags.
        model: The class of `carts`.
        write: Writes what the replica gets late.
        stored: Returns what `carts` has on the primary.
    """
    throttle: Any = ReplicationLag(primary, at_most=0.2)
    until(lambda: throttle() is None)
    with held_back(replica) as let_go:
        write()
        until(lambda: throttle() is not None)
        before = stored()

        def release() -> None:
            assert stored() == before
            let_go()

        report = sweep_that_waits(primary, model, throttle, release)
    assert report.waited["throttle"] > 0
    until(lambda: throttle() is None)
    return report


def begin_logs(primary: Engine) -> None:
    """See that a primary that begins another log isn't taken for one with a replica that lags."""
    throttle: Any = ReplicationLag(primary, at_most=0.05)
    with primary.connect() as connection:
        for _ in range(3):
            connection.execute(text("FLUSH BINARY LOGS"))
            until(lambda: throttle() is None)
