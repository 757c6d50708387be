"""Sweeps that wait for a replica, which a test holds back."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from tests.clusters.members import PATIENCE
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
def held_back(replica: Engine) -> Iterator[Callable[[], object]]:
    """Let a replica of MariaDB or MySQL wait before it changes `carts`; give what lets it go on."""
    with replica.connect() as connection:
        connection.execute(text("LOCK TABLES carts READ"))
        try:
            yield lambda: connection.execute(text("UNLOCK TABLES"))
        finally:
            connection.execute(text("UNLOCK TABLES"))
