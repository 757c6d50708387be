"""How what ttl_odm does grows with rows and with tenants, as exponents.

SQL here, MongoDB in `growth_documents`; `process_growth` is about TTL tables and sweepers. Django
isn't measured: its gate adds SQLAlchemy's conditions to its own statements, so what grows in them
grows there. All sizes of a curve take turns, each with a table of its own that is filled once.
"""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Final

from sqlalchemy import create_engine

from benchmarks import growth_documents, growth_rows
from benchmarks.bench import tell
from benchmarks.exponents import Curve, grown
from benchmarks.harness import sitting
from benchmarks.sweeping_tables import delete_at_once, fill, sweep
from benchmarks.workers import sample, worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlalchemy import Engine

    from benchmarks.bench import Bench, Database, Scale
    from benchmarks.findings import Finding
    from benchmarks.harness import Round
    from benchmarks.workers import Ask


ONE_DELETE: Final = "Growth: the exponent of one DELETE where it is steepest"


def measure(bench: Bench) -> Iterator[Finding]:
    """Measure on every database.

    Args:
        bench: what there is.
    """
    scale = bench.scale
    for database in bench.databases:
        tell(f"  {database.name}: rows and tenants")
        yield from _rows(database, scale)
    if bench.mongodb is not None:
        yield from growth_documents.measure(bench.mongodb, scale)


def _rows(database: Database, scale: Scale) -> Iterator[Finding]:
    """What grows with a table's rows, and with the tenants who have a default of their own."""
    sizes = scale.sizes
    sittings: dict[Curve, list[list[Round]]] = {
        **{curve: [] for curve in growth_rows.CURVES},
        **{curve: [] for curve in growth_rows.SWEEPS},
    }
    with database.made() as url:
        engine = create_engine(url)
        growth_rows.create_tables(engine, sizes)
        for number in range(scale.sittings):
            with worker(growth_rows.__name__, url=url) as ask:
                for curve in growth_rows.CURVES:
                    sittings[curve].append(_sit(ask, curve, scale, number))
            for curve in growth_rows.SWEEPS:
                every = growth_rows.sizes_of(curve, sizes)
                swept = growth_rows.sizes_in(number, curve, every)
                way = sweep if curve == growth_rows.SWEEP else delete_at_once
                sittings[curve].append([_swept(engine, swept, way)])
        engine.dispose()
    for curve, taken in sittings.items():
        found = grown(curve, database.name, growth_rows.sizes_of(curve, sizes), taken)
        if curve == growth_rows.PLAIN_SWEEP:
            yield replace(next(found), section=ONE_DELETE, what=growth_rows.SWEEP.line)
        yield from found


def _sit(ask: Ask, curve: Curve, scale: Scale, number: int) -> list[Round]:
    """Measure a curve once."""
    samples = {
        str(size): sample(ask, growth_rows.question(curve, size, scale.sizes))
        for size in growth_rows.sizes_in(number, curve, growth_rows.sizes_of(curve, scale.sizes))
    }
    rounds = min(scale.rounds, growth_rows.FEW) if curve in growth_rows.COUNTS else scale.rounds
    return sitting(samples, rounds)


def _swept(engine: Engine, sizes: Sequence[int], way: Callable[[Engine], int]) -> Round:
    """The seconds per row that it takes to delete so many rows."""
    found = {}
    for size in sizes:
        fill(engine, size)
        begin = perf_counter()
        deleted = way(engine)
        found[str(size)] = (perf_counter() - begin) / deleted
    return found
