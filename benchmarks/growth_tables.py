"""How what a process does at first grows with the number of its TTL tables.

Each time a new process, this module as a program, on a new database: it declares so many models,
creates their tables, sends its first statement and sweeps all of them, which are empty. The same
without TTL shows what of it is SQLAlchemy's, or Beanie's.
"""

from __future__ import annotations

import json
import subprocess
import sys
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from benchmarks.exponents import Curve, grown
from benchmarks.harness import rotated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from benchmarks.bench import Scale
    from benchmarks.findings import Finding

    Made = Callable[[], AbstractContextManager[str]]
    """Makes a new database, and gives its URL."""

    Seconds = dict[str, float]
    """What each step took."""

TABLES: Final = "tables"
WITHOUT: Final = "without TTL"

MAPPING: Final = "mapping"
CREATING: Final = "creating the tables"
FIRST: Final = "the first statement"
FIRST_SWEEP: Final = "the first sweep of all, idle"
SWEEP: Final = "another sweep of all, idle"
_OURS: Final = (MAPPING, CREATING, FIRST, FIRST_SWEEP, SWEEP)
_PLAIN: Final = (MAPPING, CREATING, FIRST)
CURVES: Final = {
    **{step: Curve(step, TABLES, 1, "ms") for step in _OURS},
    **{f"{step}; {WITHOUT}": Curve(f"{step} {WITHOUT}", TABLES, None, "ms") for step in _PLAIN},
}


def measure(database: str, made: Made, scale: Scale) -> Iterator[Finding]:
    """Measure on one database.

    Args:
        database: its name in the report.
        made: makes a new one.
        scale: how much.
    """
    sizes = scale.sizes.tables
    sittings = [
        {size: _once(made, size) for size in rotated(sizes, number)}
        for number in range(scale.sittings)
    ]
    for step, curve in CURVES.items():
        rounds = [[{str(size): taken[size][step] for size in sizes}] for taken in sittings]
        yield from grown(curve, database, sizes, rounds)


def _once(made: Made, size: int) -> Seconds:
    """Let a process with a policy, and one without, do all that; each on a database of its own."""
    found: Seconds = {}
    for kind, behind in (("ttl", ""), ("plain", f"; {WITHOUT}")):
        with made() as url:
            command = [sys.executable, "-m", __name__, kind, str(size)]
            out = subprocess.run(  # noqa: S603 - our own module
                command, input=f"{url}\n", stdout=subprocess.PIPE, text=True, check=True
            ).stdout
        found |= {f"{step}{behind}": seconds for step, seconds in json.loads(out).items()}
    return found


def steps(url: str, size: int, *, is_plain: bool) -> Seconds:
    """Do all that in this process.

    Args:
        url: SQLAlchemy's URL of a new database.
        size: how many tables.
        is_plain: whether they have no TTL.
    """
    from sqlalchemy import Integer, String, create_engine, select  # noqa: PLC0415 - not for MongoDB
    from sqlalchemy.orm import DeclarativeBase, Session, mapped_column  # noqa: PLC0415 - the same

    mixins: tuple[type, ...] = ()
    if not is_plain:
        from ttl_odm.sqlalchemy import TTLMixin  # noqa: PLC0415 - the other must not know it

        mixins = (TTLMixin,)

    class Base(DeclarativeBase):
        pass

    class Columns:
        id = mapped_column(Integer, primary_key=True)
        payload = mapped_column(String(100))

    engine, took = create_engine(url), Steps()
    engine.connect().close()
    took.begin()
    models: list[Any] = [
        type(f"Model{n}", (*mixins, Columns, Base), {"__tablename__": f"t{n}", "__ttl__": 3600})
        for n in range(size)
    ]
    took.end(MAPPING)
    Base.metadata.create_all(engine)
    took.end(CREATING)
    with Session(engine) as session:
        took.begin()
        session.execute(select(models[-1])).all()
        took.end(FIRST)
    if not is_plain:
        from ttl_odm.sweeper import Sweeper  # noqa: PLC0415 - the other must not know it

        for step in (FIRST_SWEEP, SWEEP):
            sweeper = Sweeper(engine, Base, lease=False)
            took.begin()
            sweeper.run_once().raise_for_failures()
            took.end(step)
    engine.dispose()
    return took.seconds


class Steps:
    """A stopwatch."""

    def __init__(self) -> None:
        """Nothing was timed yet."""
        self.seconds: Seconds = {}
        self._begun = 0.0

    def begin(self) -> None:
        """Begin a step."""
        self._begun = perf_counter()

    def end(self, step: str) -> None:
        """End it; the next one begins."""
        self.seconds[step] = perf_counter() - self._begun
        self._begun = perf_counter()


def _run(kind: str, size: str) -> None:
    url, is_plain = sys.stdin.readline().strip(), kind == "plain"
    if url.startswith("mongodb"):
        from benchmarks.growth_documents import document_steps  # noqa: PLC0415 - not for SQL

        seconds = document_steps(url, int(size), is_plain=is_plain)
    else:
        seconds = steps(url, int(size), is_plain=is_plain)
    sys.stdout.write(json.dumps(seconds) + "\n")


if __name__ == "__main__":
    _run(*sys.argv[1:])
