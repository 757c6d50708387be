"""What ttl_odm costs those who don't use it: two processes that are kept in step.

One has imported ttl_odm and uses it beside the model that is measured, the other has never heard
of it; see `benchmarks.bystander`. A third, which hasn't either, shows how much two processes
differ in any case. All are started anew for every sitting.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from sqlalchemy import create_engine

from benchmarks import bystander
from benchmarks.goals import BYSTANDER
from benchmarks.harness import rotated, sitting
from benchmarks.sql_groups import Comparison
from benchmarks.sql_timing import compared
from benchmarks.workers import sample, worker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.findings import Finding
    from benchmarks.harness import Round

WITHOUT_TTL = "SQLAlchemy: a model without TTL, ttl_odm imported / not imported"
NOISE = "Noise: a model without TTL, ttl_odm not imported, in two processes"

_PROCESSES = {
    "imported": bystander.IMPORTED,
    "absent": bystander.ABSENT,
    "absent again": bystander.ABSENT,
}


class Bystanders:
    """The comparisons on one database, sitting by sitting.

    Args:
        database: its name in the report.
        url: SQLAlchemy's URL of an empty database.
        rounds: in each sitting.
    """

    def __init__(self, database: str, url: str, rounds: int) -> None:
        """Create the table of the plain model."""
        self._rounds = rounds
        self._database = database
        self._url = url
        self._sittings: dict[str, list[list[Round]]] = {
            operation: [] for operation in bystander.OPERATIONS
        }
        engine = create_engine(url)
        bystander.create_tables(engine)
        engine.dispose()

    def sit(self, number: int) -> None:
        """Measure everything once, with new processes.

        Args:
            number: how often this was done before; another process is started first each time.
        """
        with ExitStack() as stack:
            processes = {
                name: stack.enter_context(worker(bystander.__name__, side, url=self._url))
                for name, side in rotated(_PROCESSES.items(), number)
            }
            for operation, sittings in self._sittings.items():
                samples = {name: sample(ask, operation) for name, ask in processes.items()}
                sittings.append(sitting(samples, self._rounds))

    def findings(self) -> Iterator[Finding]:
        """Sum up."""
        for operation, sittings in self._sittings.items():
            for told in (
                Comparison(WITHOUT_TTL, operation, "imported", "absent", goal=BYSTANDER),
                Comparison(NOISE, operation, "absent again", "absent"),
            ):
                yield compared(told, self._database, sittings)
