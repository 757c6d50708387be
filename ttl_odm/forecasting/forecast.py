"""What a plan tells: counts with their error, for now and later, and how old rows are.

Pure: from what a database has counted, whole or of a sample, to the numbers. A sample comes in
clusters (pages of a table): rows that were written together lie together, so the error is that of
a cluster sample, which is larger than that of as many rows drawn one by one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

HOUR: Final = 3_600
DAY: Final = 24 * HOUR

HORIZONS: Final = (
    (0, "now"),
    (HOUR, "in 1 h"),
    (DAY, "in 24 h"),
    (7 * DAY, "in 7 d"),
    (30 * DAY, "in 30 d"),
)
"""Seconds from now at which expired rows are counted, if nobody writes until then."""

_NAMES: Final = ((DAY, "d"), (HOUR, "h"), (60, "min"), (1, "s"))
AGES: Final = (60, 600, HOUR, 6 * HOUR, DAY, 7 * DAY, 30 * DAY, 90 * DAY, 365 * DAY)
AHEAD: Final = (*(-each for each in reversed(AGES[2:8])), 0, *AGES[2:8])
"""Bounds of the histogram in seconds before now; for `ExpireAt`, whose instants lie ahead, both."""

_TWO_SIGMA: Final = 1.96


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number of rows.

    Attributes:
        rows: How many.
        margin: It lies within so many of the truth with a probability of 95 %; 0 when counted.
    """

    rows: int
    margin: int = 0

    def __str__(self) -> str:
        return f"{self.rows:,}" if not self.margin else f"{self.rows:,} ±{self.margin:,}"


@dataclass(frozen=True, slots=True)
class Measured:
    """What a database has counted.

    Attributes:
        names: The questions. The first is ``rows``: all rows of the sample.
        clusters: For each cluster of the sample the answers, in that order; a single one when
            everything was counted.
        total: Rows of the table, when this is a sample; None when everything was counted.
        is_drawn_singly: Whether the single cluster is a sample of rows drawn one by one.
    """

    names: Sequence[str]
    clusters: Sequence[Sequence[int]]
    total: int | None = None
    is_drawn_singly: bool = False

    @property
    def sampled(self) -> int:
        """Rows that were looked at."""
        return sum(each[0] for each in self.clusters)

    def estimate(self, plus: str, minus: str | None = None) -> Estimate:
        """Return the answer to a question, less that to another."""
        first = self.names.index(plus)
        second = None if minus is None else self.names.index(minus)
        sizes = [each[0] for each in self.clusters]
        hits = [each[first] - (0 if second is None else each[second]) for each in self.clusters]
        looked_at = sum(sizes)
        if self.total is None or not looked_at:
            return Estimate(sum(hits))
        share = sum(hits) / looked_at
        if self.is_drawn_singly:
            error = math.sqrt(share * (1 - share) / looked_at)
        else:
            error = _cluster_error(sizes, hits, share)
        return Estimate(round(share * self.total), math.ceil(_TWO_SIGMA * error * self.total))


def _cluster_error(sizes: Sequence[int], hits: Sequence[int], share: float) -> float:
    """The standard error of a share, estimated from clusters of different sizes."""
    count = len(sizes)
    if count < 2:  # noqa: PLR2004 (no spread can be seen in one)
        return 1.0
    spread = sum((hit - share * size) ** 2 for size, hit in zip(sizes, hits, strict=True))
    return math.sqrt(count / (count - 1) * spread) / sum(sizes)


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is expired now and later, by the policy as it is and as it is planned.

    Attributes:
        target: The table.
        model: The class's name.
        current: The policy, as source.
        planned: The other one; None when nothing is planned.
        measured: What was counted.
        bounds: Those of the histogram, seconds before now.
    """

    target: str
    model: str
    current: str
    planned: str | None
    measured: Measured
    bounds: Sequence[int]

    @property
    def rows(self) -> int:
        """All rows."""
        return self.measured.total or self.measured.sampled

    @property
    def own(self) -> Estimate:
        """Rows with a ttl of their own, which no default changes."""
        return self.measured.estimate("own")

    @property
    def lost(self) -> Estimate:
        """Rows that live and would be expired at once."""
        return self.measured.estimate("lost")

    @property
    def revived(self) -> Estimate:
        """Rows that have expired, are still there, and would be visible again."""
        return self.measured.estimate("revived")

    def expired(self, scenario: str) -> list[tuple[str, Estimate]]:
        """Count expired rows: ``current`` or ``planned``, now and later."""
        return [
            (label, self.measured.estimate(f"{scenario} {seconds}")) for seconds, label in HORIZONS
        ]

    def histogram(self) -> list[tuple[str, Estimate]]:
        """Count rows by their age, the youngest first; those without an instant last.

        Empty bars at either end are left out.
        """
        names = ["dated", *(f"older {each}" for each in self.bounds)]
        labels = [
            f"< {span(self.bounds[0])}"
            if self.bounds[0] > 0
            else f"later than {_when(self.bounds[0])}"
        ]
        has_future = self.bounds[0] < 0
        labels += [
            f"{_when(low)} to {_when(high)}{' ago' * (has_future and high > 0)}"
            for low, high in zip(self.bounds, self.bounds[1:], strict=False)
        ]
        found = [
            (label, self.measured.estimate(plus, minus))
            for label, plus, minus in zip(labels, names, names[1:], strict=False)
        ]
        found.append((f"> {span(self.bounds[-1])}", self.measured.estimate(names[-1])))
        filled = [place for place, (_, each) in enumerate(found) if each.rows]
        found = found[filled[0] : filled[-1] + 1] if filled else found[:1]
        undated = self.measured.estimate("rows", "dated")
        return [*found, ("no instant", undated)] if undated.rows else found

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""

        def plain(found: list[tuple[str, Estimate]]) -> list[dict[str, Any]]:
            return [
                {"label": label, "rows": each.rows, "margin": each.margin} for label, each in found
            ]

        is_planned = self.planned is not None
        return {
            "target": self.target,
            "model": self.model,
            "rows": self.rows,
            "sampled_rows": None if self.measured.total is None else self.measured.sampled,
            "own_ttl": self.own.rows,
            "current": {"policy": self.current, "expired": plain(self.expired("current"))},
            "planned": {
                "policy": self.planned,
                "expired": plain(self.expired("planned")),
                "expired_at_once": self.lost.rows,
                "visible_again": self.revived.rows,
            }
            if is_planned
            else None,
            "ages": plain(self.histogram()),
        }


def questions(*, is_planned: bool, bounds: Sequence[int]) -> list[str]:
    """Name what has to be counted, in the order of `Measured.names`."""
    scenarios = ["current", "planned"] if is_planned else ["current"]
    return [
        *("rows", "dated", "own"),
        *(f"{scenario} {seconds}" for scenario in scenarios for seconds, _ in HORIZONS),
        *(["lost", "revived"] if is_planned else []),
        *(f"older {each}" for each in bounds),
    ]


def span(seconds: int) -> str:
    """Return a duration by its largest unit."""
    size, name = next(each for each in _NAMES if seconds >= each[0])
    return f"{seconds // size} {name}"


def _when(seconds: int) -> str:
    if seconds == 0:
        return "now"
    return span(seconds) if seconds > 0 else f"in {span(-seconds)}"
