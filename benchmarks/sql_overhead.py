"""What a TTL costs on SQLAlchemy models: reads, flushes, extra statements, and models beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import create_engine

from benchmarks.bench import tell
from benchmarks.sql_bystanders import Bystanders
from benchmarks.sql_counts import count_statements
from benchmarks.sql_models import create_tables
from benchmarks.sql_timing import Timing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.bench import Bench
    from benchmarks.findings import Finding


def measure(bench: Bench) -> Iterator[Finding]:
    """Measure on every SQL database.

    Args:
        bench: what there is.
    """
    scale = bench.scale
    for database in bench.databases:
        with database.made() as url:
            engine = create_engine(url)
            create_tables(engine)
            engine.dispose()
            timing = Timing(database.name, url, scale.rounds)
            bystanders = Bystanders(database.name, url, scale.rounds)
            yield from count_statements(database.name, url)
            for number in range(scale.sittings):
                tell(f"  {database.name}: sitting {number + 1} of {scale.sittings}")
                timing.sit(number)
                bystanders.sit(number)
        yield from (*timing.findings(), *bystanders.findings())
