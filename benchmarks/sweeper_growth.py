"""How what sweepers do grows with the number of them that compete for the lease."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import growth_documents, growth_sweepers
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
        yield from growth_sweepers.measure(database, bench.scale)
    if bench.mongodb is not None:
        tell(f"  {MONGODB}")
        yield from growth_documents.sweepers(bench.mongodb, bench.scale)
