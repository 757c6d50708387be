"""What a plan tells: counts with their error, for now and later, and how old rows are.

Pure: from what a database has counted, see `measured`, to the numbers that are shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from ttl_odm.forecast.estimates import Estimate

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ttl_odm.forecast.estimates import Measured

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


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is expired now and later, by the policy as it is and as it is planned.

    Attributes:
        target: The table.
        model: The class's name.
        current: The policy, as source; None where there is none yet.
        planned: The other one; None when nothing is planned.
        field: What the histogram counts from: the field of the planned policy, if there is one.
        measured: What was counted.
        bounds: Those of the histogram, seconds before now.
    """

    target: str
    model: str
    current: str | None
    planned: str | None
    field: str
    measured: Measured
    bounds: Sequence[int]

    @property
    def rows(self) -> int:
        """All rows."""
        return self.measured.rows.rows

    @property
    def scenarios(self) -> dict[str, str]:
        """The policies that were tried, as source, by what they are: current, planned."""
        both = {"current": self.current, "planned": self.planned}
        return {name: policy for name, policy in both.items() if policy is not None}

    @property
    def own(self) -> Estimate:
        """Rows with a ttl of their own, which no default changes."""
        return self.measured.estimate("own")

    @property
    def lost(self) -> Estimate:
        """Rows that live and would be expired at once."""
        return self.measured.estimate("lost" if self.current else "planned 0")

    @property
    def revived(self) -> Estimate:
        """Rows that have expired, are still there, and would be visible again."""
        return self.measured.estimate("revived") if self.current else Estimate(0)

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
        first = self.bounds[0]
        labels = [f"< {span(first)}" if first > 0 else f"in > {span(-first)}"]
        labels += [_between(low, high, first < 0) for low, high in pairwise(self.bounds)]
        found = [
            (label, self.measured.estimate(plus, minus))
            for label, plus, minus in zip(labels, names, names[1:], strict=False)
        ]
        last = f"> {span(self.bounds[-1])}{' ago' * (first < 0)}"
        found.append((last, self.measured.estimate(names[-1])))
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

        told: dict[str, Any] = {"current": None, "planned": None}
        for name, policy in self.scenarios.items():
            told[name] = {"policy": policy, "expired": plain(self.expired(name))}
        if told["planned"] is not None:
            for key, each in (("expired_at_once", self.lost), ("visible_again", self.revived)):
                told["planned"] |= {key: each.rows, f"{key}_margin": each.margin}
        return {
            "target": self.target,
            "model": self.model,
            "rows": self.rows,
            "sampled_rows": self.measured.sampled if self.measured.is_sample else None,
            "own_ttl": self.own.rows,
            **told,
            "field": self.field,
            "ages": plain(self.histogram()),
        }


def questions(scenarios: Collection[str], bounds: Sequence[int]) -> list[str]:
    """Name what has to be counted, in the order of `Measured.names`.

    Args:
        scenarios: Those of ``current`` and ``planned`` that there are.
        bounds: Those of the histogram, seconds before now.
    """
    both = ("current", "planned")
    return [
        *("rows", "dated", "own"),
        *(f"{scenario} {seconds}" for scenario in scenarios for seconds, _ in HORIZONS),
        *(["lost", "revived"] if all(each in scenarios for each in both) else []),
        *(f"older {each}" for each in bounds),
    ]


def span(seconds: int) -> str:
    """Return a duration by its largest unit."""
    size, name = next(each for each in _NAMES if seconds >= each[0])
    return f"{seconds // size} {name}"


def _between(low: int, high: int, has_future: bool) -> str:  # noqa: FBT001
    """Name what lies between two moments, by the seconds before now."""
    if low < 0:
        return f"in {span(-high)} to {span(-low)}" if high else f"in < {span(-low)}"
    ago = " ago" * has_future
    return f"{span(low)} to {span(high)}{ago}" if low else f"< {span(high)}{ago}"
