"""What each way to hide expired rows costs on reads: ours, and what one would take instead.

A process for each way, because two of them hook into every `Session`; all with one version of
SQLAlchemy, the newest that sqlalchemy-easy-softdelete allows. They take turns (`benchmarks.rival`).
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from benchmarks import rival
from benchmarks.bench import tell
from benchmarks.findings import ratio
from benchmarks.harness import rotated, sitting
from benchmarks.workers import sample, worker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.bench import Bench, Database
    from benchmarks.findings import Finding
    from benchmarks.harness import Round
    from benchmarks.workers import Ask

SECTION: Final = "SQLAlchemy, ways to hide expired rows: a read / the same of a model without TTL"
NOISE: Final = "Noise: a read of a model without TTL, in two processes"
_AGAIN: Final = "nothing, again"


def measure(bench: Bench) -> Iterator[Finding]:
    """Measure on every SQL database.

    Args:
        bench: what there is; without the other package's Python it is left out.
    """
    ways = [rival.OURS, rival.BY_HAND, rival.RECIPE, rival.NOTHING]
    if bench.rivals is not None:
        ways.append(rival.EASY)
    for database in bench.databases:
        sittings: dict[str, list[list[Round]]] = {name: [] for name in rival.OPERATIONS}
        with database.made() as url:
            for number in range(bench.scale.sittings):
                tell(f"  {database.name}: sitting {number + 1} of {bench.scale.sittings}")
                _sit(bench, url, rotated(ways, number), sittings)
        yield from _findings(database, ways, sittings)


def _sit(bench: Bench, url: str, ways: list[str], sittings: dict[str, list[list[Round]]]) -> None:
    """Measure everything once, with new processes."""
    python = bench.rivals or sys.executable
    with ExitStack() as stack:

        def start(way: str) -> Ask:
            return stack.enter_context(worker(rival.__name__, way, url=url, python=python))

        asked = {way: start(way) for way in ways}
        asked[_AGAIN] = start(rival.NOTHING)
        for operation, found in sittings.items():
            samples = {
                way: sample(ask, operation)
                for way, ask in asked.items()
                if (operation, way) not in rival.IMPOSSIBLE
            }
            found.append(sitting(samples, bench.scale.rounds))


def _findings(
    database: Database, ways: list[str], sittings: dict[str, list[list[Round]]]
) -> Iterator[Finding]:
    for operation, rounds in sittings.items():
        for way in (*ways, _AGAIN):
            if way == rival.NOTHING or (operation, way) in rival.IMPOSSIBLE:
                continue
            section, what = SECTION, f"{operation}; {way}"
            if way == _AGAIN:
                section, what = NOISE, operation
            yield ratio(section, what, database.name, rounds, way, rival.NOTHING)
