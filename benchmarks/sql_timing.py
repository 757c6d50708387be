"""The timed comparisons inside one process: reads, identity-map hits, new rows and renewed ones.

Each sitting has a process of its own, this module as a program (see `benchmarks.workers`): where
Python happens to put things makes a percent. What is compared is in `benchmarks.sql_groups`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import create_engine

from benchmarks.bench import tell
from benchmarks.findings import Finding, ratio
from benchmarks.harness import estimate, rotated, sitting
from benchmarks.sql_groups import GROUPS, Comparison, Cost, Group
from benchmarks.sql_models import empty_tables
from benchmarks.workers import sample, serve, worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlalchemy import Engine

    from benchmarks.bench import Bench
    from benchmarks.harness import Round, Sample


class Operations(dict[str, "Sample"]):
    """All operations on a database, by their group's place and their name.

    A group is prepared when it is first asked for, each operation with an engine of its own.

    Args:
        url: SQLAlchemy's URL of the database.
        groups: what is timed.
    """

    def __init__(self, url: str, groups: Sequence[Group] = GROUPS) -> None:
        """None is prepared yet."""
        super().__init__()
        self._url = url
        self._groups = groups

    def __missing__(self, operation: str) -> Sample:
        """Prepare the operation's group."""
        place, _, _ = operation.partition(" ")
        prepared = self._groups[int(place)].prepare(lambda: create_engine(self._url))
        found = {f"{place} {name}": each for name, each in prepared.items()}
        self.update(found)
        return found[operation]


class Timing:
    """The timed comparisons on one database, sitting by sitting.

    Args:
        database: its name in the report.
        url: SQLAlchemy's URL of a database with the tables.
        rounds: in each sitting.
        groups: what is measured, each at the place that it has in `GROUPS`; nothing is told of
            those that aren't.
    """

    def __init__(
        self, database: str, url: str, rounds: int, groups: Sequence[Group] = GROUPS
    ) -> None:
        """Nothing is measured yet."""
        self._database = database
        self._url = url
        self._rounds = rounds
        self._sittings: dict[Group, list[list[Round]]] = {group: [] for group in groups}

    def sit(self, number: int, distant: str | None = None) -> None:
        """Measure everything once, in a new process, on new connections.

        Args:
            number: how often this was done before; another engine connects first each time.
            distant: another URL of the database, by which it is measured.
        """
        engine = create_engine(self._url)
        empty_tables(engine)
        engine.dispose()
        with worker(__name__, url=distant or self._url) as ask:
            for place, (group, sittings) in enumerate(self._sittings.items()):
                if not group.told:
                    continue
                samples = {
                    name: sample(ask, f"{place} {name}") for name in rotated(group.names, number)
                }
                sittings.append(sitting(samples, self._rounds))

    def findings(self) -> Iterator[Finding]:
        """Sum up."""
        for group, sittings in self._sittings.items():
            for told in group.told:
                yield compared(told, self._database, sittings)


def measured(
    bench: Bench,
    groups: Sequence[Group],
    *,
    module: str,
    create: Callable[[Engine], None],
    rounds: int,
) -> Iterator[Finding]:
    """Measure groups on every SQL database, whose tables stay as they are from sitting to sitting.

    Args:
        bench: what there is.
        groups: what is measured.
        module: the program of their process, which serves `Operations` of these groups.
        create: makes the tables, and fills them.
        rounds: in each sitting.
    """
    for database in bench.databases:
        sittings: list[list[list[Round]]] = [[] for _ in groups]
        with database.made() as url:
            engine = create_engine(url)
            create(engine)
            engine.dispose()
            for number in range(bench.scale.sittings):
                tell(f"  {database.name}: sitting {number + 1} of {bench.scale.sittings}")
                with worker(module, url=url) as ask:
                    for place, group in enumerate(groups):
                        names = rotated(group.names, number)
                        samples = {name: sample(ask, f"{place} {name}") for name in names}
                        sittings[place].append(sitting(samples, rounds))
        for group, taken in zip(groups, sittings, strict=True):
            yield from (compared(told, database.name, taken) for told in group.told)


def compared(told: Comparison | Cost, database: str, sittings: list[list[Round]]) -> Finding:
    """What the sittings of a group say of one comparison or cost.

    Args:
        told: which.
        database: where.
        sittings: the rounds of each sitting.
    """
    if isinstance(told, Cost):
        taken = estimate(sittings, lambda times: times[told.of] * 1e6)
        return Finding(told.section, told.what, database, "µs", taken)
    goal = told.goal_on(database)
    return ratio(told.section, told.what, database, sittings, told.over, told.under, goal)


if __name__ == "__main__":
    serve(Operations)
