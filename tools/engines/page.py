"""What was measured of the engines, and how it reads as Markdown: docs/engines.md.

docs/engines.json keeps it, so that one engine can be measured anew. Nothing here runs anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from measured import Absent, read

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from engines.catalogue import Engine

SUITES = ("contract", "leaks", "migrations", "engines")
VERDICTS = ("right", "wrong", "not asked")

PREFACE = """# Engines

<!-- Written by: python3 tools/dev.py engines. Don't edit: what was measured is in engines.json. -->

**{summary}**

The usual tests run on one version of each database. Here the suites that depend most on the
database ran on every available engine and version: the [contract](conformance.md) with every
driver, and with the first driver also the paths of the [leak matrix](leaks.md) and the
[migrations](migrating.md). Each server is real and was started by the command. The libraries are
the newest versions.

A cell counts cases: right / wrong / not applicable. A case is one test with one driver. The reasons
why cases don't apply are listed [below](#cases-that-dont-apply). On MongoDB, the paths of the leak
matrix include the migrations. Two nodes of the Galera cluster have a test of their own: while each
has a sweeper and a writer, no renewal is lost (`tests/engines/two_nodes.py`).

`python3 tools/dev.py engines` measures everything, and `--only postgres-17` a single engine. It
needs Debian, but no root and no installation: packages from other suites are unpacked into a cache.
"""


@dataclass(frozen=True)
class Measured:
    """What came out on one engine.

    Attributes:
        date: when.
        version: what the server said.
        drivers: with their versions.
        libraries: the same.
        suites: how many cases there are of each verdict, by the suite's name.
        reasons: why cases can't be asked, and how many.
    """

    date: str
    version: str
    drivers: list[str]
    libraries: list[str]
    suites: dict[str, dict[str, int]]
    reasons: dict[str, int]

    def count(self, verdict: str) -> int:
        """How many cases of all suites have a verdict."""
        return sum(counts.get(verdict, 0) for counts in self.suites.values())


Results = dict[str, "Measured | Absent"]


def load(file: Path) -> Results:
    """Read what was measured before."""
    return read(file, Measured)


def document(engines: Iterable[Engine], results: Results, not_available: Mapping[str, str]) -> str:
    """Write the page."""
    asked = {engine: results[engine.name] for engine in engines if engine.name in results}
    measured = {e: result for e, result in asked.items() if isinstance(result, Measured)}
    absent = {
        f"{e.title} {e.version}".strip(): result.reason
        for e, result in asked.items()
        if isinstance(result, Absent)
    }
    libraries = dict.fromkeys(", ".join(result.libraries) for result in measured.values())
    parts = [
        PREFACE.format(summary=summary(measured.values())),
        "\n",
        _table(
            ["engine", "version", *SUITES[:-1], "two nodes", "drivers", "date"],
            [_row(engine, result) for engine, result in measured.items()],
        ),
        "\n## Cases that don't apply\n",
        *(_reasons(engine, result) for engine, result in measured.items() if result.reasons),
        "\n## What was not tested\n\n",
        *(f"- {title}: {reason}\n" for title, reason in {**absent, **not_available}.items()),
        "\n## Versions\n\n",
        *(f"- {line}\n" for line in libraries),
        *(
            f"- {engine.title} {result.version}, from {engine.source}: "
            f"{', '.join(result.drivers)}\n"
            for engine, result in measured.items()
        ),
    ]
    return "".join(parts)


def summary(measured: Iterable[Measured]) -> str:
    """Everything in a line."""
    results = list(measured)
    right, wrong, not_asked = (sum(each.count(verdict) for each in results) for verdict in VERDICTS)
    return (
        f"{len(results)} engines: {right:,} cases right, {wrong:,} wrong, "
        f"{not_asked:,} not applicable."
    )


def _row(engine: Engine, result: Measured) -> list[str]:
    names = ", ".join(driver.partition(" ")[0] for driver in result.drivers)
    cells = [_cell(result.suites.get(suite)) for suite in SUITES]
    return [engine.title, result.version, *cells, names, result.date]


def _cell(counts: Mapping[str, int] | None) -> str:
    if counts is None:
        return "-"
    return " / ".join(str(counts.get(verdict, 0)) for verdict in VERDICTS)


def _reasons(engine: Engine, result: Measured) -> str:
    lines = (f"- {count} cases: {reason}\n" for reason, count in sorted(result.reasons.items()))
    return f"\n{engine.title} {result.version}:\n\n{''.join(lines)}"


def _table(head: list[str], rows: list[list[str]]) -> str:
    sides = ["---" if name in {"engine", "drivers"} else ":-:" for name in head]
    lines = [head, sides, *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
