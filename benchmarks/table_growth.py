"""How what ttl_odm does at first grows with the TTL tables, or collections, of a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import growth_documents, growth_tables
from benchmarks.bench import MONGODB, tell

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.bench import Bench
    from benchmarks.findings import Finding


def measure(bench: Bench) -> Iterator[Finding]:
    """Measure on every database.

    Args:
        bench: what there is.
    """
    for database in bench.databases:
        tell(f"  {database.name}")
        yield from growth_tables.measure(database.name, database.made, bench.scale)
    url = bench.mongodb
    if url is not None:
        tell(f"  {MONGODB}")
        yield from growth_tables.measure(
            MONGODB, lambda: growth_documents.database_of(url), bench.scale
        )
