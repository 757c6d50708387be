"""The same comparisons where a round trip costs half a millisecond more: there a statement hurts.

On the loopback a statement that the gate adds costs little more than its Python. Here everything
that is asked of a server passes a proxy that delays it (`benchmarks.proxy`), as if the server were
in another building. SQLite has no server, so it isn't here. What is compared is what the other
benchmarks compare, under the same names.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from statistics import median, quantiles
from time import perf_counter
from typing import TYPE_CHECKING, Final

from pymongo import MongoClient
from sqlalchemy import create_engine

from benchmarks import beanie_overhead, django_overhead, goals, sql_groups
from benchmarks.bench import MONGODB, tell
from benchmarks.findings import Finding
from benchmarks.harness import estimate
from benchmarks.proxy import delayed, is_reachable
from benchmarks.sql_groups import GROUPS
from benchmarks.sql_models import create_tables
from benchmarks.sql_timing import Timing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from benchmarks.bench import Bench, Database
    from benchmarks.harness import Round

    Pings = Callable[[str], AbstractContextManager[Callable[[], object]]]
    """Connects to a database's URL, and gives what goes there and back."""

SECTION: Final = "With a round trip of 0.5 ms"
NOISE: Final = "Noise: with a round trip of 0.5 ms, the same without TTL, twice"
DISTANCE: Final = "Noise: what a round trip of 0.5 ms really costs more"

_PINGS: Final = 200
_NAMES: Final = {
    sql_groups.OVER_UNFILTERED: "SQLAlchemy: {} / without any filter",
    sql_groups.INSERTS: "SQLAlchemy: flush of {}",
    sql_groups.RENEWALS: "SQLAlchemy: {}",
    sql_groups.BASELINES: "SQLAlchemy: {}, without TTL / an UPDATE by hand",
    sql_groups.NOISE: "SQLAlchemy: {}",
    django_overhead.OVER_BY_HAND: "Django: {} / filter(expires_at__gt=now)",
    django_overhead.OVER_UNFILTERED: "Django: {} / without any filter",
    django_overhead.OVER_PLAIN: "Django: {} / without TTL",
    django_overhead.NOISE: "Django: {}",
    beanie_overhead.READS: "Beanie: {} / without ttl_odm",
    beanie_overhead.OVER_BY_HAND: "Beanie: {} / a condition by hand",
    beanie_overhead.NOISE: "Beanie: {}",
}
"""What a line is called here, by the section that it has without a proxy."""


def measure(bench: Bench) -> Iterator[Finding]:
    """Measure on every server.

    Args:
        bench: what there is.
    """
    # A round takes much longer here, and differs less from the next one.
    bench = replace(bench, scale=replace(bench.scale, rounds=max(2, bench.scale.rounds // 2)))
    for database in bench.databases:
        with database.made() as url:
            if is_reachable(url):  # SQLite isn't
                yield from _on_sql(bench, database, url)
    if bench.mongodb is not None and is_reachable(bench.mongodb):
        yield from _on_mongodb(bench, bench.mongodb)


def _on_sql(bench: Bench, database: Database, url: str) -> Iterator[Finding]:
    rounds, trips = bench.scale.rounds, Trips(database.name, _sql_pings)
    engine = create_engine(url)
    create_tables(engine)
    engine.dispose()
    timing = Timing(database.name, url, rounds, [group.distant for group in GROUPS])
    django: dict[str, list[list[Round]]] = {what: [] for what in django_overhead.DISTANT}
    for number in range(bench.scale.sittings):
        tell(f"  {database.name}: sitting {number + 1} of {bench.scale.sittings}")
        with trips.longer(url) as distant:
            timing.sit(number, distant)
        with database.made() as another, trips.longer(another) as distant:
            django_overhead.sit(database, distant, rounds, number, django)
    yield from map(_renamed, timing.findings())
    yield from map(_renamed, django_overhead.compared(database, django))
    yield from trips.findings()


def _on_mongodb(bench: Bench, url: str) -> Iterator[Finding]:
    trips = Trips(MONGODB, _mongodb_pings)
    found: dict[str, list[list[Round]]] = {}
    for number in range(bench.scale.sittings):
        tell(f"  {MONGODB}: sitting {number + 1} of {bench.scale.sittings}")
        with trips.longer(url) as distant:
            beanie_overhead.sit(distant, bench.scale.rounds, found, beanie_overhead.DISTANT)
    yield from map(_renamed, beanie_overhead.compared(found))
    yield from trips.findings()


def _renamed(found: Finding) -> Finding:
    """A finding of another benchmark as one of this."""
    what = _NAMES[found.section].format(found.what.replace("; ", " / "))
    section = NOISE if found.section.startswith("Noise") else SECTION
    goal = None if found.goal is None else goals.delayed(found.goal)
    return replace(found, section=section, what=what, goal=goal)


class Trips:
    """Round trips to one kind of server, which are made longer, and what they really cost more.

    Args:
        database: its name in the report.
        pings: how to go there and back.
    """

    def __init__(self, database: str, pings: Pings) -> None:
        """None was made yet."""
        self._database = database
        self._pings = pings
        self._added: list[Round] = []

    @contextmanager
    def longer(self, url: str) -> Iterator[str]:
        """A database's URL by which round trips are longer, until the block ends.

        Args:
            url: that by which they aren't.
        """
        with delayed(url) as distance:
            with self._pings(url) as near, self._pings(distance.url) as far:
                distance.correct(_added(near, far)["median"])
                self._added.append(_added(near, far))
            yield distance.url

    def findings(self) -> Iterator[Finding]:
        """What they cost more."""
        for what, name in (("the median", "median"), ("the 95th percentile", "p95")):
            sittings = [[each] for each in self._added]
            more = estimate(sittings, lambda each, name=name: each[name] * 1e6)  # type: ignore[misc]
            yield Finding(DISTANCE, what, self._database, "µs", more)


def _added(near: Callable[[], object], far: Callable[[], object]) -> Round:
    """Seconds that the one takes more than the other, which take turns."""
    took: dict[str, list[float]] = {"near": [], "far": []}
    for _ in range(_PINGS):
        for name, ping in (("near", near), ("far", far)):
            begin = perf_counter()
            ping()
            took[name].append(perf_counter() - begin)
    median_near, median_far = median(took["near"]), median(took["far"])
    p95_near, p95_far = (quantiles(took[name], n=20)[-1] for name in ("near", "far"))
    return {"median": median_far - median_near, "p95": p95_far - p95_near}


@contextmanager
def _sql_pings(url: str) -> Iterator[Callable[[], object]]:
    engine = create_engine(url)
    with engine.connect() as connection:
        yield lambda: connection.exec_driver_sql("SELECT 1").scalar_one()
    engine.dispose()


@contextmanager
def _mongodb_pings(url: str) -> Iterator[Callable[[], object]]:
    with MongoClient[dict[str, object]](url) as client:
        yield lambda: client.admin.command("ping")
