"""What clients saw of the clusters, and how it reads as Markdown: docs/clusters.md.

docs/clusters.json keeps it, so that one setup can be measured anew. Nothing here runs anything.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from measured import Absent, read

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from clusters.catalogue import Setup

SHOWN = {"lost": "lost", "revived": "came back", "shown": "shown expired"}
"""The findings that have a column of their own, and what it is called."""

ROUND = 20
"""After how many failovers a run begins anew, with new servers: what it saw until then is kept."""

_HAPPENED = {"kill": "killed", "switchover": "stopped", "partition": "cut off"}
"""What became of a primary, and what its column is called."""

PREFACE = """# Clusters

<!-- Written by: python3 tools/dev.py clusters. Don't edit: what was seen is in clusters.json. -->

**{summary}**

Each setup is a real cluster on one machine. While writers, readers and sweepers use a table whose
rows live for a second or two, its primary is taken away again and again at random moments, another
member takes its place, and the old one joins again. The clients use SQLAlchemy; those of MongoDB
use Beanie, and a setup that names Django uses that. Where several members take writes, their
sessions have the setting with which reads see what another one has just committed
([which](replicas.md#galera-and-mysql-group-replication)). The primary is

- *killed*: its process gets SIGKILL;
- *stopped*, as for maintenance: it ends in good order once another member has all that it has, so
  an engine that replicates asynchronously may lose nothing either;
- or *cut off*: its processes are frozen until another member has its place, then they go on. So for
  a moment the old primary doesn't know that it was replaced, while clients are still connected to
  it. What it answers then is judged as a replica's answer.{unfenced}

Every operation is recorded with its server, its beginning and end, and the server's clock.
Afterwards a checker looks for an answer that the [contract](contract.md) forbids in every possible
order of the operations that overlapped:

- *lost*: an acknowledged live row is gone, or an older version of it is back;
- *came back*: a row is there that was acknowledged as deleted or expired;
- *shown expired*: a row is shown although the server's own clock says that it has expired;
- *other*: a write changed an expired row, two live rows had one key, a failed write was visible,
  two sweepers held the lease, its fencing token didn't grow, or a sweeper ended with an error.

*Lost by the engine* counts acknowledged writes that an asynchronous failover lost: the promoted
replica didn't have them yet. No library can prevent that; the databases' own documentation says how
to replicate synchronously. *Behind* counts the reads in which a replica, or a primary that was cut
off, didn't have a live row yet. *Seconds unavailable* are those from the end of the old primary to
the first write that the new one acknowledged, with the time that the command itself takes to
promote a replica where nothing elects. As the clients here have no time limits, they also wait
until a primary that was cut off has found that out.

`python3 tools/dev.py clusters` measures everything, and `--only {example}` a single setup.
`--failovers 10` is shorter, and `--seed 7` repeats a run's random choices. Each {round} failovers
begin with new servers and the next seed; `--resume` adds what is missing to a run that was
interrupted.
"""


@dataclass(frozen=True)
class Measured:
    """What clients of one setup saw.

    Attributes:
        date: when, the last time.
        seeds: of the random choices, one for each round.
        version: what the server said.
        driver: with its version.
        failovers: how many there were, by what became of the primary.
        operations: how many clients ended.
        wrong: how often each rule was broken, by its name.
        by_engine: the same of what the engine lost.
        behind: how many answers of replicas lacked a live row.
        outages: seconds without a write, one for each failover.
    """

    date: str
    seeds: list[int]
    version: str
    driver: str
    failovers: dict[str, int]
    operations: int
    wrong: dict[str, int]
    by_engine: dict[str, int]
    behind: int
    outages: list[float]

    @property
    def is_wrong(self) -> bool:
        """Whether ttl_odm did anything wrong."""
        return bool(self.wrong)

    @property
    def number(self) -> int:
        """How many failovers there were."""
        return sum(self.failovers.values())

    def is_of_the_same(self, other: Measured) -> bool:
        """Whether the versions of the server and of its driver are the same."""
        return (self.version, self.driver) == (other.version, other.driver)

    def joined(self, later: Measured) -> Measured:
        """Return what was seen in these rounds and in later ones."""
        return Measured(
            date=later.date,
            seeds=self.seeds + later.seeds,
            version=later.version,
            driver=later.driver,
            failovers=_sum(self.failovers, later.failovers),
            operations=self.operations + later.operations,
            wrong=_sum(self.wrong, later.wrong),
            by_engine=_sum(self.by_engine, later.by_engine),
            behind=self.behind + later.behind,
            outages=self.outages + later.outages,
        )


def _sum(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted((Counter(first) + Counter(second)).items()))


Results = dict[str, "Measured | Absent"]


def load(file: Path) -> Results:
    """Read what was measured before."""
    return read(file, Measured)


def document(setups: Iterable[Setup], results: Results, not_tested: Mapping[str, str]) -> str:
    """Write the page."""
    asked = {setup: results[setup.name] for setup in setups if setup.name in results}
    measured = {s: result for s, result in asked.items() if isinstance(result, Measured)}
    absent = {s.title: result.reason for s, result in asked.items() if isinstance(result, Absent)}
    example = next((setup.name for setup in asked), "postgres-standby")
    parts = [
        PREFACE.format(
            summary=summary(measured.values()),
            example=example,
            round=ROUND,
            unfenced=_unfenced(asked),
        ),
        "\n",
        _table([_row(setup, result) for setup, result in measured.items()]),
        "\n## What can't be tested here\n\n",
        *(f"- {title}: {reason}\n" for title, reason in {**absent, **not_tested}.items()),
        "\n## Versions\n\n",
        *(
            f"- {setup.title} {result.version}, {result.driver}: {result.date}, "
            f"{_seeds(result.seeds)}\n"
            for setup, result in measured.items()
        ),
    ]
    return "".join(parts)


def summary(measured: Iterable[Measured]) -> str:
    """Everything in a line."""
    results = list(measured)
    setups = "1 setup" if len(results) == 1 else f"{len(results)} setups"
    failovers = sum(result.number for result in results)
    operations = sum(result.operations for result in results)
    wrong: Counter[str] = sum((Counter(result.wrong) for result in results), Counter())
    shown = ", ".join(f"{wrong[rule]:,} {name}" for rule, name in SHOWN.items())
    lost = sum(sum(result.by_engine.values()) for result in results)
    outages = [seconds for result in results for seconds in result.outages]
    unavailable = (
        f" Seconds unavailable: {median(outages):.1f} (median), {max(outages):.1f} at most."
        if outages
        else ""
    )
    return (
        f"{setups}, {failovers:,} failovers, {operations:,} operations: {wrong.total():,} wrong "
        f"({shown}), {lost:,} lost by the engine.{unavailable}"
    )


_HEAD = (
    *("setup", *_HAPPENED.values(), "operations", *SHOWN.values(), "other"),
    *("lost by the engine", "behind", "seconds unavailable: median", "worst"),
)


def _row(setup: Setup, result: Measured) -> list[str]:
    other = sum(number for rule, number in result.wrong.items() if rule not in SHOWN)
    return [
        setup.title,
        *(str(result.failovers.get(fault, "-")) for fault in _HAPPENED),
        f"{result.operations:,}",
        *(str(result.wrong.get(rule, 0)) for rule in SHOWN),
        *(str(other), str(sum(result.by_engine.values())), f"{result.behind:,}"),
        *([f"{f(result.outages):.1f}" for f in (median, max)] if result.outages else "--"),
    ]


def _seeds(seeds: list[int]) -> str:
    word = "seed" if len(seeds) == 1 else "seeds"
    return f"{word} {', '.join(str(seed) for seed in seeds)}"


def _unfenced(setups: Iterable[Setup]) -> str:
    """Say where no primary is cut off."""
    titles = [setup.title for setup in setups if "partition" not in setup.faults]
    if not titles:
        return ""
    return (
        f" That is left out where replication is asynchronous ({'; '.join(titles)}): nothing keeps "
        "the old primary from acknowledging writes then, which are lost as soon as it follows the "
        "new one. A deployment has to end it before it promotes another."
    )


def _table(rows: list[list[str]]) -> str:
    sides = ["---" if name == "setup" else ":-:" for name in _HEAD]
    return "".join(f"| {' | '.join(line)} |\n" for line in [_HEAD, sides, *rows])
