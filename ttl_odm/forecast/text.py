"""A forecast: the numbers that are shown of what was counted, and the words for them. Pure.

The command lines and the page show it, in the same words; this module must not know them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ttl_odm.core.policy import ExpireAt, instant_field
from ttl_odm.forecast.estimates import Estimate, of_scope
from ttl_odm.forecast.sample import HORIZONS, bars
from ttl_odm.inspection.source import as_source
from ttl_odm.sweeper.text import aligned, visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ttl_odm.core.policy import Policy
    from ttl_odm.forecast.estimates import Measured

_BAR: Final = 40
"""Columns of the longest bar of the histogram."""


class Paragraph(NamedTuple):
    """Something that a forecast says: a sentence, or lines of a table where it says so."""

    text: str
    style: str = ""
    is_table: bool = False
    mark: str = ""

    def __str__(self) -> str:
        return f"{self.mark}{self.text}"


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is expired now and later, by the policy as it is and as it is planned.

    The model is the class's name, or the table's where there is no class. There may be no policy
    yet, or none planned, but one of them.
    """

    target: str
    model: str
    current: Policy | None
    planned: Policy | None
    measured: Measured

    @property
    def rows(self) -> int:
        """All rows."""
        return self.measured.rows.rows

    @property
    def scenarios(self) -> dict[str, str]:
        """The policies that were tried, as source, by what they are: current, planned."""
        both = {"current": self.current, "planned": self.planned}
        return {name: as_source(policy) for name, policy in both.items() if policy is not None}

    @property
    def field(self) -> str:
        """What the histogram counts from: the field of the planned policy, if there is one."""
        policy = self.planned or self.current
        assert policy is not None  # noqa: S101 (see `planned_policy`)
        return instant_field(policy)

    @property
    def own(self) -> Estimate:
        """Rows with a ttl of their own, which no default changes."""
        return self.measured.estimate("own")

    @property
    def lost(self) -> Estimate:
        """Rows that live and would be expired at once."""
        return self.measured.estimate("lost" if self.current else "planned 0")

    @property
    def early(self) -> Estimate:
        """Rows whose instant is 0, negative, or in the first year of computers' time."""
        return self.measured.estimate("early")

    @property
    def revived(self) -> Estimate:
        """Rows that have expired, are still there, and would be visible again."""
        return self.measured.estimate("revived") if self.current else Estimate(0)

    def expired(self, scenario: str) -> list[tuple[str, Estimate]]:
        """Count expired rows: ``current`` or ``planned``, now and later."""
        return [
            (label, self.measured.estimate(f"{scenario} {seconds}")) for seconds, label in HORIZONS
        ]

    def followers(self, scenario: str) -> list[tuple[str, Estimate]]:
        """Count the rows of other tables that follow those of `expired`, and expire with them."""
        return [
            (label, self.measured.followers(f"{scenario} {seconds}")) for seconds, label in HORIZONS
        ]

    def by_scope(self, scenario: str) -> dict[str, list[tuple[str, Estimate]]]:
        """Count as `expired`, of each scope that has a stored default of its own.

        Those are named of which the most rows expire; the empty key stands for all others.
        """
        return {
            scope: [
                (label, self.measured.estimate(of_scope(f"{scenario} {seconds}", scope)))
                for seconds, label in HORIZONS
            ]
            for scope in self.measured.scopes
        }

    def histogram(self) -> list[tuple[str, Estimate]]:
        """Count rows by their age, the youngest first; those without an instant last.

        Empty bars at either end are left out.
        """
        labels = bars(self.current, self.planned)
        names = ["dated" if seconds is None else f"older {seconds}" for seconds, _ in labels]
        counts = [
            (label, self.measured.estimate(plus, minus))
            for (_, label), plus, minus in zip_longest(labels, names, names[1:])
        ]
        filled = [place for place, (_, count) in enumerate(counts) if count.rows]
        counts = counts[filled[0] : filled[-1] + 1] if filled else counts[:1]
        undated = self.measured.estimate("rows", "dated")
        return [*counts, ("no instant", undated)] if undated.rows else counts

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""

        def plain(counts: list[tuple[str, Estimate]]) -> list[dict[str, Any]]:
            return [
                {"label": label, "rows": count.rows, "margin": count.margin}
                for label, count in counts
            ]

        scenarios: dict[str, Any] = {"current": None, "planned": None}
        for name, policy in self.scenarios.items():
            scenarios[name] = {"policy": policy, "expired": plain(self.expired(name))}
            scenarios[name]["by_scope"] = {
                scope: plain(counts) for scope, counts in self.by_scope(name).items()
            }
            if self.measured.has_followers:
                scenarios[name]["followers"] = plain(self.followers(name))
        if self.planned is not None:
            for key, change in (("expired_at_once", self.lost), ("visible_again", self.revived)):
                scenarios["planned"] |= {key: change.rows, f"{key}_margin": change.margin}
        if self.planned is not None and self.current is not None and self.measured.has_followers:
            along = self.measured.followers("lost")
            scenarios["planned"]["followers_expired_at_once"] = along.rows
            scenarios["planned"]["followers_expired_at_once_margin"] = along.margin
        return {
            "target": self.target,
            "model": self.model,
            "rows": self.rows,
            "sampled_rows": self.measured.sampled if self.measured.is_sample else None,
            "own_ttl": self.own.rows,
            **scenarios,
            "partitions": {
                name: counted.to_dict() for name, counted in self.measured.partitions.items()
            },
            "doubts": list(self.measured.doubts),
            "field": self.field,
            "ages": plain(self.histogram()),
        }

    @property
    def table(self) -> list[tuple[str, ...]]:
        """Rows, of which the first is the head: what is expired now and later.

        The share is that of the planned policy, if there is one, and so are the rows of other
        tables that follow these, if any do.
        """
        names = list(self.scenarios)
        along = self.followers(names[-1]) if self.measured.has_followers else []
        head = ("followers",) if along else ()
        rows: list[tuple[str, ...]] = [("expired", *names, "share", *head)]
        for place, cells in enumerate(zip(*map(self.expired, names), strict=True)):
            numbers = [number for _, number in cells]
            share = f"{numbers[-1].rows / self.rows:.1%}" if self.rows else "-"
            followers = [str(along[place][1])] if along else []
            rows.append((cells[0][0], *map(str, numbers), share, *followers))
        return rows

    @property
    def scopes(self) -> list[tuple[str, ...]]:
        """The same by scope, where some have a default of their own; empty where none has.

        Of two policies only what is expired now, and by the last horizon.
        """
        names = list(self.scenarios)
        if not self.measured.scopes:
            return []
        step = 1 if len(names) == 1 else len(HORIZONS) - 1
        prefixes = {name: "" if len(names) == 1 else f"{name}, " for name in names}
        labels = [f"{prefixes[name]}{label}" for name in names for _, label in HORIZONS[::step]]
        rows: list[tuple[str, ...]] = [("scope", *labels)]
        counted = [self.by_scope(name) for name in names]
        for scope in self.measured.scopes:
            numbers = [str(number) for counts in counted for _, number in counts[scope][::step]]
            rows.append((visible(scope) if scope else "all others", *numbers))
        return rows

    @property
    def sentences(self) -> list[str]:
        """What to know first: values that seem misread, and what the plan would change at once."""
        return [*self.measured.doubts, *self._changes]

    @property
    def _changes(self) -> list[str]:
        if self.planned is None:
            return []
        changes = []
        if self.lost.rows:
            along = self.measured.followers("lost" if self.current else "planned 0")
            followers = f", and the rows that follow them: {along}" if along.rows else ""
            changes.append(
                "Live rows that would be expired at once, and deleted by the next sweep: "
                f"{self.lost}{followers}."
            )
        if self.revived.rows:
            changes.append(
                f"Expired rows that are still stored and would be visible again: {self.revived}. "
                "Sweep first if they shouldn't come back."
            )
        if self.early.rows:
            changes.append(
                f"Rows with {self.field} in 1970 or before, which may mean never: {self.early}."
            )
        unseen = max(self.lost.margin, self.revived.margin)
        if unseen and not changes:  # a sample can't say that there are none
            return [
                f"No row of the sample would change at once; of all rows, fewer than {unseen:,}."
            ]
        return changes or ["Nothing would change at once."]

    @property
    def partitions(self) -> list[str]:
        """How many partitions there are, and are over, by each policy; empty without any."""
        return [f"{name}: {counted}." for name, counted in self.measured.partitions.items()]

    @property
    def title(self) -> str:
        """What it is about: the model, and its table."""
        table = f" ({self.target})" if self.model != self.target else ""
        return f"{self.model}{table}"

    @property
    def heading(self) -> str:
        """What the histogram shows."""
        has_ends = isinstance(self.planned or self.current, ExpireAt)
        what = "Rows by" if has_ends else "Age of the rows by"
        return f"{what} {self.field}:"

    @property
    def note(self) -> str:
        """How the numbers came about."""
        if not self.measured.is_sample:
            return f"All {self.rows:,} rows were counted."
        return (
            f"Estimated from {self.measured.sampled:,} of about {self.rows:,} rows; "
            "± is the error (95 %)."
        )

    def paragraphs(self, width: int | None, deeper: str) -> Iterator[Paragraph]:
        """All that is said of it, at a terminal of so many columns (None: in a pipe).

        `deeper` is what is added where a sample was taken: how to have all rows counted.
        """
        yield Paragraph(f"{self.title}: {self.measured.rows} rows", "bold")
        if self.own.rows:
            yield Paragraph(f"{self.own} rows have a ttl of their own.")
        for name, policy in self.scenarios.items():
            yield Paragraph(f"{name.ljust(7)}  {policy}", "cyan")
        yield Paragraph("")
        for table in filter(None, (self.table, self.scopes)):
            yield Paragraph(aligned(table, width), is_table=True)
            yield Paragraph("")
        for sentence in self.partitions:
            yield Paragraph(sentence)
        for sentence in self.sentences:
            yield Paragraph(sentence, "yellow", mark="! ")
        yield Paragraph(self.heading, "bold")
        yield Paragraph("\n".join(self._bars(width)), is_table=True)
        yield Paragraph(self.note + deeper * self.measured.is_sample)

    def _bars(self, width: int | None) -> list[str]:
        """The histogram, a line each."""
        rows = [(label, estimate.rows, str(estimate)) for label, estimate in self.histogram()]
        labels, counts, numbers = zip(*rows, strict=True)
        first, second = (max(map(len, texts)) for texts in (labels, numbers))
        room = _BAR if width is None else max(min(_BAR, width - first - second - 4), 1)
        most = max(counts) or 1
        return [
            f"{label.rjust(first)}  {number.rjust(second)}  "
            f"{'█' * max(round(room * count / most), int(count > 0))}".rstrip()
            for label, count, number in rows
        ]
