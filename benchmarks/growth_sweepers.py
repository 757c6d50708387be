"""What it takes until many sweepers that begin at once have all had their turn at the lease.

Each sweeps once: who gets the lease finds nothing to delete, and who doesn't goes away. They are
threads of one process, as what grows is what they do to the database. How many believe that they
hold the lease is counted from after it was granted until before it is given back.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier, Lock
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import create_engine, event

from benchmarks.exponents import Curve, grown
from benchmarks.findings import Finding
from benchmarks.goals import ONE_HOLDER
from benchmarks.growth_rows import Base, model_of
from benchmarks.harness import Estimate, rotated
from ttl_odm.sqlalchemy.sweep.leases import TableLeases
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine

    from benchmarks.bench import Database, Scale
    from benchmarks.harness import Round
    from ttl_odm.sweeper import Lease

SWEEPERS: Final = "sweepers"
ROUND: Final = Curve("a round of all of them", SWEEPERS, 1, "ms")
STATEMENTS: Final = Curve("statements of each", SWEEPERS, 0, "statements")
HOLDERS: Final = "Growth over sweepers: holders of the lease at once"


class Holders:
    """How many hold a lease, and how many did at most."""

    def __init__(self) -> None:
        """Nobody holds it."""
        self.most = 0
        self._now = 0
        self._lock = Lock()

    def add(self, number: int) -> None:
        """Note that one got it (1), or is about to give it back (-1)."""
        with self._lock:
            self._now += number
            self.most = max(self.most, self._now)


class _Watched(TableLeases):
    """The leases of a database, and who holds one."""

    def __init__(self, engine: Engine, holders: Holders) -> None:
        super().__init__(engine)
        self._holders = holders

    def acquire(self, name: str, holder: str, duration: float) -> Lease | None:
        lease = super().acquire(name, holder, duration)
        if lease is not None:
            self._holders.add(1)
        return lease

    def release(self, lease: Lease) -> None:
        self._holders.add(-1)
        super().release(lease)

    def finish(self, lease: Lease, history: str) -> bool:
        self._holders.add(-1)
        return super().finish(lease, history)


def measure(database: Database, scale: Scale) -> Iterator[Finding]:
    """Measure on one SQL database.

    Args:
        database: which.
        scale: how much.
    """
    sizes, holders, model = scale.sizes.sweepers, Holders(), model_of("rows", 0)
    with database.made() as url:
        # Each has a connection of its own, as if it were a process.
        engine = create_engine(url, pool_size=max(sizes))
        Base.metadata.create_all(engine, [model.__table__])
        with ThreadPoolExecutor(max(sizes)) as pool, counted(engine) as statements:

            def once(size: int) -> tuple[float, float]:
                before = len(statements)
                seconds = _round(pool, engine, holders, size)
                return seconds, (len(statements) - before) / size

            once(max(sizes))  # all connect, and the table of leases is made
            times, counts = contests(once, scale)
        engine.dispose()
    yield from told(database.name, scale, times, counts, holders)


def contests(
    once: Callable[[int], tuple[float, float]], scale: Scale
) -> tuple[list[list[Round]], list[list[Round]]]:
    """Let so many begin at once, at all sizes in turns: the seconds, and the statements of each.

    Args:
        once: does it for a size.
        scale: how often.
    """
    times: list[list[Round]] = []
    counts: list[list[Round]] = []
    for _ in range(scale.sittings):
        taken = [
            {size: once(size) for size in rotated(scale.sizes.sweepers, number)}
            for number in range(min(scale.rounds, 5))
        ]
        times.append([{str(size): one[0] for size, one in each.items()} for each in taken])
        counts.append([{str(size): one[1] for size, one in each.items()} for each in taken])
    return times, counts


def told(
    database: str,
    scale: Scale,
    times: list[list[Round]],
    counts: list[list[Round]],
    holders: Holders,
) -> Iterator[Finding]:
    """What contests say.

    Args:
        database: where.
        scale: how much was measured.
        times: what `contests` gave.
        counts: the same.
        holders: who held the lease meanwhile.
    """
    yield from grown(ROUND, database, scale.sizes.sweepers, times)
    yield from grown(STATEMENTS, database, scale.sizes.sweepers, counts)
    most, what = Estimate.exactly(holders.most), f"the most of {max(scale.sizes.sweepers)}"
    yield Finding(HOLDERS, what, database, "sweepers", most, goal=ONE_HOLDER)


@contextmanager
def counted(engine: Engine) -> Iterator[list[None]]:
    """A list that gets longer with each statement of the block."""
    sent: list[None] = []

    def note(*_: Any) -> None:
        sent.append(None)

    event.listen(engine, "before_cursor_execute", note)
    yield sent
    event.remove(engine, "before_cursor_execute", note)


def _round(pool: ThreadPoolExecutor, engine: Engine, holders: Holders, number: int) -> float:
    """The seconds from when all begin until the last is done."""
    ready = Barrier(number + 1)
    model = model_of("rows", 0)

    def run() -> None:
        sweeper = Sweeper(engine, model, lease=_Watched(engine, holders))
        ready.wait()
        sweeper.run_once().raise_for_failures()

    running = [pool.submit(run) for _ in range(number)]
    ready.wait()
    begin = perf_counter()
    for future in running:
        future.result()
    return perf_counter() - begin
