"""What a TTL costs on Django models, and what sweeping them costs.

Django can be set up once in a process, so everything runs in one of its own for each database
(`benchmarks.django_worker`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks import django_worker, goals
from benchmarks.bench import tell
from benchmarks.django_worker import (
    AGAIN,
    BY_HAND,
    DELETIONS,
    GATE,
    NOTHING,
    OTHER,
    READS,
    RENEWAL,
    WAYS,
    WRITES,
)
from benchmarks.findings import ratio
from benchmarks.harness import rotated, sitting
from benchmarks.sweeping_tables import ROW_BY_ROW, SWEEPER
from benchmarks.workers import sample, worker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.bench import Bench, Database
    from benchmarks.findings import Finding
    from benchmarks.harness import Round
    from benchmarks.workers import Ask

OVER_BY_HAND: Final = "Django: a read with the gate / with filter(expires_at__gt=now)"
OVER_UNFILTERED: Final = "Django: a read with the gate / without any filter"
OVER_UPDATE: Final = "Django: touch() of a queryset / an UPDATE by hand"
OVER_PLAIN: Final = "Django: a write with the gate / of a model without TTL"
SPEED: Final = "Django, sweeping, rows per second: the sweeper / another way"
NOISE: Final = "Noise: the same without TTL on Django, twice"

DISTANT: Final = ("get() by key", "create(), its own key")
"""What is measured with a longer round trip too."""

_GOALS: Final = {
    (OVER_BY_HAND, "get() by key"): goals.DJANGO_GET,
    (OVER_PLAIN, "create(), its own key"): goals.DJANGO_CREATE,
}


def measure(bench: Bench) -> Iterator[Finding]:
    """Measure on every SQL database.

    Args:
        bench: what there is.
    """
    for database in bench.databases:
        found: dict[str, list[list[Round]]] = {what: [] for what in (*READS, *WRITES, RENEWAL)}
        for number in range(bench.scale.sittings):
            tell(f"  {database.name}: sitting {number + 1} of {bench.scale.sittings}")
            with database.made() as url:
                sit(database, url, bench.scale.rounds, number, found)
        yield from compared(database, found)
        yield from _swept(bench, database)


def sit(
    database: Database, url: str, rounds: int, number: int, found: dict[str, list[list[Round]]]
) -> None:
    """Measure once, in a new process.

    Args:
        database: which.
        url: of an empty database there.
        rounds: how often everything takes its turn.
        number: how often this was done before; another way comes first each time.
        found: the sittings of what is measured, to which one is added.
    """
    with worker(django_worker.__name__, database.backend, url=url) as ask:
        for what, sittings in found.items():
            ways = [way for way in WAYS if way != BY_HAND or what not in WRITES]
            samples = {way: sample(ask, f"{what}; {way}") for way in rotated(ways, number)}
            sittings.append(sitting(samples, rounds))


def compared(database: Database, found: dict[str, list[list[Round]]]) -> Iterator[Finding]:
    """What sittings say.

    Args:
        database: where.
        found: the sittings of each read and write.
    """
    for what, sittings in found.items():
        if what in READS:
            goal = _GOALS.get((OVER_BY_HAND, what))
            yield ratio(OVER_BY_HAND, what, database.name, sittings, GATE, BY_HAND, goal)
        if what == RENEWAL:
            yield ratio(OVER_UPDATE, what, database.name, sittings, GATE, BY_HAND)
        section = OVER_UNFILTERED if what in READS else OVER_PLAIN
        goal = _GOALS.get((section, what))
        yield ratio(section, what, database.name, sittings, GATE, NOTHING, goal)
        yield ratio(NOISE, what, database.name, sittings, AGAIN, NOTHING)


def _swept(bench: Bench, database: Database) -> Iterator[Finding]:
    """Let every way delete the same rows, in turns."""
    scale = bench.scale
    tell(f"  {database.name}: sweeping")
    with (
        database.made() as url,
        worker(django_worker.__name__, database.backend, url=url) as ask,
    ):
        rounds = [[_round(ask, bench, database, number)] for number in range(scale.sittings)]
    for way in DELETIONS:
        if way != SWEEPER:  # twice the time is half the speed
            goal = goals.DJANGO_SWEEP if way == OTHER and database.key != "mysql" else None
            yield ratio(SPEED, way, database.name, rounds, over=way, under=SWEEPER, goal=goal)


def _round(ask: Ask, bench: Bench, database: Database, number: int) -> Round:
    rows = bench.scale.expired[database.key]
    sizes = {way: bench.scale.one_by_one if way == ROW_BY_ROW else rows for way in DELETIONS}
    return {way: sample(ask, way)(size) / size for way, size in rotated(sizes.items(), number)}
