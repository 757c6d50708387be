"""What a sweep costs replicas: bytes of a log to read, and how far it puts them behind.

Each way of deleting gets the same rows in the same table, newly filled, on the primary of a cluster
of its own, whose replicas have everything before. Nobody else uses the cluster.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Final

from benchmarks import goals
from benchmarks.bench import MONGODB, tell
from benchmarks.findings import Finding, ratio
from benchmarks.harness import Estimate
from benchmarks.replicas import catch_up, running, watched
from benchmarks.sweeping_tables import AT_ONCE, SWEEPER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.bench import Bench
    from benchmarks.harness import Round
    from benchmarks.replicas import Replicated

BYTES: Final = "Replication: bytes of the log per swept row"
LOG: Final = "Replication: the log that a sweep writes / of one DELETE"
LAG: Final = "Replication: the largest lag of a replica meanwhile"
TIME: Final = "Replication: the time of a sweep that waits for replicas / of one that doesn't"

THROTTLED: Final = 'the sweeper, throttle="replication"'
_WAYS: Final[dict[str, Callable[[Replicated], int]]] = {
    SWEEPER: lambda database: database.sweep(None),
    THROTTLED: lambda database: database.sweep("replication"),
    AT_ONCE: lambda database: database.delete(),
}
_OF_LOG: Final = (SWEEPER, AT_ONCE)

_SHARE: Final = 10
"""The log is measured with so many times fewer rows: it has a length, and no duration."""


def measure(bench: Bench) -> Iterator[Finding]:
    """Measure on the databases that have replicas, once: a sweep has hundreds of samples.

    Args:
        bench: what there is.
    """
    names = {database.key: database.name for database in bench.databases}
    names.pop("sqlite", None)
    if bench.mongodb is not None:
        names["mongodb"] = MONGODB
    rows = bench.scale.replicated
    for key, name in names.items():
        tell(f"  {name}: a cluster")
        with running(key) as database:
            yield from _log(name, database, rows // _SHARE)
            yield from _lag(name, _sit(database, rows))


def _log(name: str, database: Replicated, rows: int) -> Iterator[Finding]:
    """Measure the log that is written by the sweeper, and by hand."""
    found = {}
    for way in _OF_LOG:
        database.fill(rows)
        found[way] = database.logged(lambda way=way: _WAYS[way](database)) / rows  # type: ignore[misc]
        yield Finding(BYTES, way, name, "bytes", Estimate.exactly(found[way]))
    quotient = Estimate.exactly(found[SWEEPER] / found[AT_ONCE])
    yield Finding(LOG, f"{SWEEPER} / {AT_ONCE}", name, "ratio", quotient)


def _sit(database: Replicated, rows: int) -> Round:
    """Let every way delete once; return its seconds, and by how many replicas were behind."""
    found: dict[str, float] = {}
    for way, run in _WAYS.items():
        tell(f"    {way}")
        database.fill(rows)
        catch_up(database)
        with watched(database) as lag:
            begin = perf_counter()
            deleted = run(database)
            found[way] = perf_counter() - begin
        if deleted != rows:
            raise RuntimeError(f"{way}: {deleted} of {rows} rows were deleted")
        found |= {_lag_of(way): lag.seconds, _own_lag_of(way): lag.own}
    return found


def _lag_of(way: str) -> str:
    return f"{way}, by the oldest write that is missing"


def _own_lag_of(way: str) -> str:
    return f"{way}, by the database's own measure"


def _lag(name: str, found: Round) -> Iterator[Finding]:
    for way in _WAYS:
        for what in (_lag_of(way), _own_lag_of(way)):
            goal = goals.REPLICA_LAG if what == _lag_of(THROTTLED) else None
            yield Finding(LAG, what, name, "s", Estimate.exactly(found[what]), goal=goal)
    yield ratio(TIME, THROTTLED, name, [[found]], THROTTLED, SWEEPER)
