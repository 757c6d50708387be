"""What was measured of a leak matrix, and how it reads as Markdown.

A half of docs/leaks.md is one database's matrix: columns (ours, and two other ways), each measured
with one or two lines of a library. Nothing here runs anything; `tools/leaks.py` does.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

MARKS = {"right": "✓", "wrong": "✗", "raises": "raises", "impossible": "n/a"}
COUNTED = ("right", "wrong", "raises")
VERSIONS = "## Versions\n"

Place = tuple[str, str]
"""A path's theme and name."""


@dataclass(frozen=True)
class Measured:
    """What one run found.

    Attributes:
        verdicts: right, wrong, raises or impossible.
        themes: what each theme is about.
        line: the library's version by its first two numbers.
        versions: of everything that took part, in words.
        impossible: why a path is.
    """

    verdicts: dict[Place, str]
    themes: dict[str, str]
    line: str
    versions: str
    impossible: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, answer: dict[str, Any], library: str, versions: str) -> Measured:
        """Make it of what `rivals` of a matrix has printed.

        Args:
            answer: the JSON.
            library: the library whose lines are told apart, as `answer` names it.
            versions: a text with places for what `answer` has.
        """
        return cls(
            {(theme, name): verdict for theme, name, verdict in answer["verdicts"]},
            answer["themes"],
            ".".join(answer[library].split(".")[:2]),
            versions.format_map(answer),
            answer.get("impossible", {}),
        )

    def right(self, places: list[Place]) -> str:
        """How many of these paths are right."""
        return str(sum(self.verdicts[place] == "right" for place in places))

    def counts(self, theme: str | None = None) -> str:
        """How many are right, wrong, and raise."""
        found = Counter(
            verdict for (where, _), verdict in self.verdicts.items() if theme in {None, where}
        )
        return " / ".join(str(found[verdict]) for verdict in COUNTED)


@dataclass(frozen=True)
class Column:
    """One way to hide what has expired.

    Attributes:
        name: its name in the tables.
        short: its name over the counts.
        runs: what was measured; the newest line first.
    """

    name: str
    short: str
    runs: tuple[Measured, ...]

    def cell(self, place: Place) -> str:
        """The mark of a path; the older line's in brackets where it differs."""
        newest, oldest = (MARKS[run.verdicts[place]] for run in (self.runs[0], self.runs[-1]))
        return newest if newest == oldest else f"{newest} ({self.runs[-1].line}: {oldest})"


@dataclass(frozen=True)
class Half:
    """One database's matrix.

    Attributes:
        heading: its heading, and what it says before the summary.
        preface: what it says after the summary, with places for what was measured.
        library: whose lines the columns are measured with.
        kinds: the themes of each kind of path.
        columns: ours first.
    """

    heading: str
    preface: str
    library: str
    kinds: dict[str, tuple[str, ...]]
    columns: tuple[Column, ...]

    @property
    def ours(self) -> tuple[Measured, ...]:
        """Our own runs."""
        return self.columns[0].runs

    def runs(self) -> list[tuple[Column, Measured]]:
        """Each run with its column."""
        return [(column, run) for column in self.columns for run in column.runs]

    def summary(self) -> list[str]:
        """The counts of all runs, a line each."""
        return [f"{column.name}{run.versions}: {run.counts()}" for column, run in self.runs()]

    def text(self) -> str:
        """Write it down."""
        newest = self.ours[0]
        parts = [
            self.heading,
            self._summary(),
            self.preface.format(
                newest=newest.line,
                lowest=self.ours[-1].line,
                leaks=self._leaks(),
                impossible=self._impossible(),
            ),
            f"## Counts\n\nRight / wrong / raises, by theme and by line of {self.library}:\n\n",
            self._counts(),
        ]
        for theme, about in newest.themes.items():
            rows = [
                [_escaped(name), *(column.cell((theme, name)) for column in self.columns)]
                for where, name in newest.verdicts
                if where == theme
            ]
            parts.append(f"\n## {title(theme)}\n\n{_escaped(about)}\n\n")
            parts.append(_table(["path", *(column.name for column in self.columns)], rows))
        versions = [f"- {column.name}{run.versions}\n" for column, run in self.runs()]
        return "".join([*parts, "\n", VERSIONS, "\n", *versions])

    def _summary(self) -> str:
        """How many paths of each kind are right, of how many, with the newest libraries."""
        measured = [column.runs[0] for column in self.columns]
        themes = {theme for listed in self.kinds.values() for theme in listed}
        if left_out := _themes(measured) ^ themes:
            raise ValueError(f"in no kind of path, or in no path: {', '.join(sorted(left_out))}")
        rows = []
        for kind, listed in self.kinds.items():
            places = [place for place in self.ours[0].verdicts if place[0] in listed]
            rows.append([kind, str(len(places)), *(run.right(places) for run in measured)])
        places = [*self.ours[0].verdicts]
        rows.append(["**all kinds**", str(len(places)), *(run.right(places) for run in measured)])
        table = _table(["kind of path", "paths", *(column.name for column in self.columns)], rows)
        return f"## Summary\n\nPaths that are right, with the newest {self.library}:\n\n{table}\n"

    def _counts(self) -> str:
        newest = self.ours[0]
        heads = [f"{column.short}, {run.line}" for column, run in self.runs()]
        themes = [
            [f"{title(theme)} ({sum(where == theme for where, _ in newest.verdicts)})"]
            + [run.counts(theme) for _, run in self.runs()]
            for theme in newest.themes
        ]
        total = [f"**all ({len(newest.verdicts)})**", *(run.counts() for _, run in self.runs())]
        return _table(["theme (paths)", *heads], [*themes, total])

    def _leaks(self) -> str:
        fine = {"right", "impossible"}
        leaks = [
            name
            for place in self.ours[0].verdicts
            for name in [place[1]]
            if any(run.verdicts[place] not in fine for run in self.ours)
        ]
        return "".join(f"- {_escaped(name)}\n" for name in leaks) or "- none\n"

    def _impossible(self) -> str:
        return "".join(
            f"- {self.library} {run.line}: {_escaped(name)}: {_escaped(reason)}\n"
            for run in self.ours
            for name, reason in run.impossible.items()
        )


def _themes(measured: list[Measured]) -> set[str]:
    """The themes that have a path."""
    return {theme for run in measured for theme, _ in run.verdicts}


def title(theme: str) -> str:
    """A theme's name as a heading: `base_writes` is "Base writes"."""
    return theme.replace("_", " ").capitalize()


def without_versions(document: str) -> str:
    """A document's text, but for the lists of versions."""
    kept = []
    listing = False
    for line in document.splitlines(keepends=True):
        if line.startswith("#"):
            listing = line == VERSIONS
        if not listing:
            kept.append(line)
    return "".join(kept)


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---", *[":-:"] * (len(head) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _escaped(words: str) -> str:
    return "".join(f"\\{mark}" if mark in "\\|*_<`[" else mark for mark in words)
