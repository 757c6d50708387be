"""What ttl_odm costs those who don't use it: two processes that are kept in step.

One has imported ttl_odm and uses it beside the model that is measured, the other has never heard
of it; see `benchmarks.bystander`. A third, which hasn't either, shows how much two processes
differ in any case. All are started anew for every sitting.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy import create_engine

from benchmarks import bystander
from benchmarks.harness import rotated, sitting
from benchmarks.sql_timing import Comparison, compared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.harness import Round, Sample
    from benchmarks.report import Finding

WITHOUT_TTL = "5. A model without TTL, ttl_odm imported / not imported"
NOISE = "Noise: a model without TTL, ttl_odm not imported, in two processes"

_PROCESSES = {
    "imported": bystander.IMPORTED,
    "absent": bystander.ABSENT,
    "absent again": bystander.ABSENT,
}


@contextmanager
def _process(url: str, side: str) -> Iterator[Callable[[str], str]]:
    """A process that is ready to be measured, as a function that asks it something."""
    command = [sys.executable, "-m", bystander.__name__, side]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:  # type: ignore[call-overload] # noqa: S603 - this Python, our own module
        ask = partial(_ask, process)
        ask(url)  # not on the command line, which shows its password to everybody
        yield ask
    # The block has closed the pipes, and with them ended the process.
    if process.returncode != 0:
        raise RuntimeError(f"a measured process ended with status {process.returncode}")


def _ask(process: subprocess.Popen[str], question: str) -> str:
    process.stdin.write(f"{question}\n")  # type: ignore[union-attr]
    process.stdin.flush()  # type: ignore[union-attr]
    answer = process.stdout.readline().strip()  # type: ignore[union-attr]
    if not answer:
        raise RuntimeError("a measured process has ended too early")
    return answer


def _sample(ask: Callable[[str], str], operation: str) -> Sample:
    """A sample that is taken in another process."""
    return lambda count: float(ask(f"{operation} {count}"))


class Bystanders:
    """The comparisons on one database, sitting by sitting.

    Args:
        database: its name in the report.
        url: SQLAlchemy's URL of an empty database.
    """

    def __init__(self, database: str, url: str) -> None:
        """Create the table of the plain model."""
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
                name: stack.enter_context(_process(self._url, side))
                for name, side in rotated(_PROCESSES.items(), number)
            }
            for operation, sittings in self._sittings.items():
                samples = {name: _sample(ask, operation) for name, ask in processes.items()}
                sittings.append(sitting(samples))

    def findings(self) -> Iterator[Finding]:
        """Sum up."""
        for operation, sittings in self._sittings.items():
            for told in (
                Comparison(WITHOUT_TTL, operation, "imported", "absent", goal=1.01),
                Comparison(NOISE, operation, "absent again", "absent"),
            ):
                yield compared(told, self._database, sittings)
