"""How what processes do grows with their TTL tables, and with the sweepers among them.

Tables, or collections: what a process does at first. Sweepers: what they take to compete for the
lease.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchmarks import growth_documents, growth_sweepers, growth_tables
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
    scale = bench.scale
    for database in bench.databases:
        tell(f"  {database.name}")
        yield from growth_tables.measure(database.name, database.made, scale)
        yield from growth_sweepers.measure(database, scale)
    if bench.mongodb is not None:
        tell(f"  {MONGODB}")
        made = partial(growth_documents.database_of, bench.mongodb)
        yield from growth_tables.measure(MONGODB, made, scale)
        yield from growth_documents.sweepers(bench.mongodb, scale)
