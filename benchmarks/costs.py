"""What TTL costs by kind of use: one sentence for each, with figures that a report has.

The headings and lines are those of the benchmarks, which nothing here imports: a report is written
without what they need. Tests find each of them in what the benchmarks report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.findings import number

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from benchmarks.findings import Finding


class Cost(NamedTuple):
    """A ratio that tells what a use costs, and a part of that use's sentence.

    Attributes:
        label: what the picture calls it.
        section: the heading of the findings that have it.
        lines: their lines under it; all of them count, on all databases.
        told: the part of the sentence, with ``{figure}`` for the lowest and the highest of the
            ratios, and ``{size}`` for their size.
    """

    label: str
    section: str
    lines: tuple[str, ...]
    told: str

    def figures(self, findings: Iterable[Finding]) -> list[Finding]:
        """The findings that have it.

        Args:
            findings: all that there are.
        """
        return [
            finding
            for finding in findings
            if finding.section == self.section and finding.what in self.lines
        ]

    def text(self, findings: Iterable[Finding]) -> str | None:
        """The part of the sentence; None if it wasn't measured.

        Args:
            findings: all that there are.
        """
        its = self.figures(findings)
        if not its:
            return None
        ends = {number(end([f.estimate.value for f in its]), "ratio"): None for end in (min, max)}
        return self.told.format(figure=" to ".join(ends), size=f"{its[0].size or 1:,}")


class Use(NamedTuple):
    """A kind of use.

    Attributes:
        name: what people call it.
        costs: what it costs; more than one are joined by "and".
    """

    name: str
    costs: tuple[Cost, ...]

    def sentence(self, findings: Sequence[Finding]) -> str:
        """What it costs, in a sentence.

        Args:
            findings: all that there are.
        """
        texts = {cost.label: cost.text(findings) for cost in self.costs}
        told = ", and ".join(text for text in texts.values() if text is not None)
        untold = "; ".join(label for label, text in texts.items() if text is None)
        if not told:
            return f"**{self.name}.** Not measured: {untold}."
        behind = f" (not measured: {untold})" if untold else ""
        return f"**{self.name}.** {told[0].upper()}{told[1:]}{behind}."


_READS: Final = ("select by key", "list of 100")
_TENANTS: Final = "SQLAlchemy: stored defaults of 10,000 tenants / a bound value"
_RENEWALS: Final = "SQLAlchemy: renewing a row, with TTL / without"
_GENTLE: Final = "Sweeping gently, somebody's statements: meanwhile / when all is idle"

USES: Final = (
    Use(
        "Reading",
        (
            Cost(
                "a read / with a WHERE by hand",
                "SQLAlchemy: a read with the gate / with a hand-written WHERE",
                tuple(f"{read}; by hand as expressions" for read in _READS),
                "a read by key or of 100 rows takes {figure} times as long as with a WHERE that "
                "you write by hand",
            ),
            Cost(
                "a read / without any filter",
                "SQLAlchemy: a read with the gate / without any filter",
                _READS,
                "{figure} times as long as without any filter",
            ),
        ),
    ),
    Use(
        "Inserting",
        (
            Cost(
                "a new row / stamped by hand",
                "SQLAlchemy: a flush that inserts rows, with TTL / without",
                ("1 row, its own key; stamped by hand",),
                "a new row takes {figure} times as long as one that you stamp by hand",
            ),
            Cost(
                "a new row / without TTL's columns",
                "SQLAlchemy: a flush that inserts rows, with TTL / without",
                ("1 row, its own key; without the columns",),
                "{figure} times as long as one without TTL's two columns and their index",
            ),
        ),
    ),
    Use(
        "Renewing",
        (
            Cost(
                "touch(Model), commit / an UPDATE by hand",
                _RENEWALS,
                ("touch(Model) and commit; an UPDATE by hand",),
                "renewing a row without loading it takes {figure} times as long as an UPDATE by "
                "hand with its commit",
            ),
            Cost(
                "touch(), commit / an UPDATE by hand",
                _RENEWALS,
                ("touch() and commit; an UPDATE by hand",),
                "touching a loaded row and committing takes {figure} times as long as an UPDATE by "
                "hand with its commit",
            ),
        ),
    ),
    Use(
        "Tenants with their own defaults",
        (
            Cost(
                "by key: 10,000 stored defaults / one in code",
                _TENANTS,
                ("select by key; 10,000 defaults, old rows",),
                "with a stored default for each of 10,000 tenants a read by key takes {figure} "
                "times as long as with one in the code",
            ),
            Cost(
                "list of 100: 10,000 stored defaults / one in code",
                _TENANTS,
                ("list of 100; 10,000 defaults, old rows",),
                "a list of 100 rows {figure} times as long",
            ),
        ),
    ),
    Use(
        "Sweeping beside users",
        (
            Cost(
                "median beside a gentle sweep / idle",
                _GENTLE,
                ("p50",),
                "while a gentle sweep deletes, the median of another process's statements takes "
                "{figure} times as long as on an idle database",
            ),
            Cost(
                "99th percentile beside a gentle sweep / idle",
                _GENTLE,
                ("p99",),
                "the slowest in a hundred {figure} times as long",
            ),
        ),
    ),
    Use(
        "Growing",
        (
            Cost(
                "read, idle sweep: largest table / smallest",
                "Growth over rows: the largest table / the smallest",
                ("read by key", "list of 100", "idle sweep"),
                "in a table of {size} times as many rows, a read by key, a list of 100 rows and a "
                "sweep that finds nothing take {figure} times as long",
            ),
        ),
    ),
)


def sentences(findings: Sequence[Finding]) -> Iterator[str]:
    """What each kind of use costs.

    Args:
        findings: all that there are.
    """
    return (use.sentence(findings) for use in USES)
