"""A forecast: the numbers from what was counted, and the words for them. Pure.

The command lines and the HTML page show the same words; this module must not know them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
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
    from ttl_odm.inspection import Proposal

_BAR: Final = 40
"""The length of the histogram's longest bar, in columns of the terminal."""


class Paragraph(NamedTuple):
    """A sentence of a forecast, or the lines of a table."""

    text: str
    style: str = ""
    is_table: bool = False
    mark: str = ""

    def __str__(self) -> str:
        return f"{self.mark}{self.text}"


@dataclass(frozen=True, slots=True)
class Forecast:
    """How many rows are expired now and later, by the current policy and the planned one.

    Attributes:
        target: The table's name.
        model: The class's name, or the table's if there is no class.
        current: The current policy; None if there is none yet.
        planned: The planned policy; None if none is. At least one of the two is set.
        measured: What was counted.
    """

    target: str
    model: str
    current: Policy | None
    planned: Policy | None
    measured: Measured

    @property
    def rows(self) -> int:
        """The number of all rows."""
        return self.measured.rows.rows

    @property
    def scenarios(self) -> dict[str, str]:
        """The policies as source, by ``current`` and ``planned``."""
        both = {"current": self.current, "planned": self.planned}
        return {name: as_source(policy) for name, policy in both.items() if policy is not None}

    @property
    def field(self) -> str:
        """The field of the histogram: the planned policy's, or else the current one's."""
        policy = self.planned or self.current
        assert policy is not None  # noqa: S101 (see `planned_policy`)
        return instant_field(policy)

    @property
    def own(self) -> Estimate:
        """Rows with a ttl of their own, which no default changes."""
        return self.measured.estimate("own")

    @property
    def lost(self) -> Estimate:
        """Live rows that would be expired at once."""
        return self.measured.estimate("lost" if self.current else "planned 0")

    @property
    def early(self) -> Estimate:
        """Rows whose instant is 0, negative, or in 1970."""
        return self.measured.estimate("early")

    @property
    def revived(self) -> Estimate:
        """Expired rows that are still stored and would be visible again."""
        return self.measured.estimate("revived") if self.current else Estimate(0)

    def expired(self, scenario: str) -> list[tuple[str, Estimate]]:
        """Return the numbers of expired rows, now and later, by ``current`` or ``planned``."""
        return [
            (label, self.measured.estimate(f"{scenario} {seconds}")) for seconds, label in HORIZONS
        ]

    def followers(self, scenario: str) -> list[tuple[str, Estimate]]:
        """Return the numbers of rows in other tables that expire with those of `expired`."""
        return [
            (label, self.measured.followers(f"{scenario} {seconds}")) for seconds, label in HORIZONS
        ]

    def by_scope(self, scenario: str) -> dict[str, list[tuple[str, Estimate]]]:
        """Return the numbers of `expired` for each scope with a stored default of its own.

        Only the scopes with the most expired rows are named; the empty key stands for the others.
        """
        return {
            scope: [
                (label, self.measured.estimate(of_scope(f"{scenario} {seconds}", scope)))
                for seconds, label in HORIZONS
            ]
            for scope in self.measured.scopes
        }

    def histogram(self) -> list[tuple[str, Estimate]]:
        """Return the numbers of rows by age, the youngest first and those without an instant last.

        Empty bars at either end are left out.
        """
        labels = bars(self.current, self.planned)
        names = ["dated" if seconds is None else f"older {seconds}" for seconds, _ in labels]
        counts = [
            (label, self.measured.estimate(plus, minus))
            for (_, label), plus, minus in zip_longest(labels, names, names[1:])
        ]
        filled = [index for index, (_, count) in enumerate(counts) if count.rows]
        counts = counts[filled[0] : filled[-1] + 1] if filled else counts[:1]
        undated = self.measured.estimate("rows", "dated")
        return [*counts, ("no instant", undated)] if undated.rows else counts

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""

        def plain(counts: list[tuple[str, Estimate]]) -> list[dict[str, object]]:
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
            followers = self.measured.followers("lost")
            scenarios["planned"]["followers_expired_at_once"] = followers.rows
            scenarios["planned"]["followers_expired_at_once_margin"] = followers.margin
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
        """The table of expired rows, now and later; its first row is the head.

        The share, and the number of followers if there are any, are those of the planned policy if
        there is one.
        """
        names = list(self.scenarios)
        followers = self.followers(names[-1]) if self.measured.has_followers else []
        head = ("followers",) if followers else ()
        rows: list[tuple[str, ...]] = [("expired", *names, "share", *head)]
        for index, cells in enumerate(zip(*map(self.expired, names), strict=True)):
            numbers = [number for _, number in cells]
            share = f"{numbers[-1].rows / self.rows:.1%}" if self.rows else "-"
            last = [str(followers[index][1])] if followers else []
            rows.append((cells[0][0], *map(str, numbers), share, *last))
        return rows

    @property
    def scopes(self) -> list[tuple[str, ...]]:
        """The table of expired rows by scope; empty if no scope has a default of its own.

        For two policies it has only the first and the last horizon.
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
        """The most important sentences: misread values, and what would change at once."""
        return [*self.measured.doubts, *self._changes]

    @property
    def _changes(self) -> list[str]:
        if self.planned is None:
            return []
        changes = []
        if self.lost.rows:
            count = self.measured.followers("lost" if self.current else "planned 0")
            followers = f", and the rows that follow them: {count}" if count.rows else ""
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
        """The numbers of partitions, and of ended ones, by policy; empty without partitions."""
        return [f"{name}: {counted}." for name, counted in self.measured.partitions.items()]

    @property
    def title(self) -> str:
        """The model and its table."""
        table = f" ({self.target})" if self.model != self.target else ""
        return f"{self.model}{table}"

    @property
    def heading(self) -> str:
        """The heading of the histogram."""
        has_ends = isinstance(self.planned or self.current, ExpireAt)
        what = "Rows by" if has_ends else "Age of the rows by"
        return f"{what} {self.field}:"

    @property
    def note(self) -> str:
        """How the numbers were obtained."""
        if not self.measured.is_sample:
            return f"All {self.rows:,} rows were counted."
        return (
            f"Estimated from {self.measured.sampled:,} of about {self.rows:,} rows; "
            "± is the error (95 %)."
        )

    def paragraphs(self, width: int | None, deeper: str) -> Iterator[Paragraph]:
        """Yield the whole forecast.

        Args:
            width: The terminal's columns; None for a pipe.
            deeper: A sentence to add for a sample, which says how to count all rows.
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
        """Return the lines of the histogram."""
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


def tried(proposal: Proposal, measured: Measured) -> Proposal:
    """Return a proposal with its numbers, and with doubts that the values raise.

    Names show that a column holds a row's expiry; only values show that 0 in it means never.

    Args:
        proposal: The proposal.
        measured: What was counted with the proposed policy as the planned one.
    """
    expired = measured.estimate("planned 0")
    early, late = measured.estimate("early"), measured.estimate("late")
    name, doubts = proposal.field.name, [text.rstrip(".") for text in measured.doubts]
    if early.rows:
        never = "NULL" if proposal.field.is_nullable else "an instant far ahead"
        doubts.append(
            f"rows with {name} in 1970 or before (0, negative numbers): {early}; if these mean "
            f"never, first set them to {never}, or they would be deleted"
        )
    if late.rows:
        doubts.append(f"rows with {name} after the year 2500, which may mean never: {late}")
    return replace(
        proposal.doubted(*doubts),
        rows=measured.rows.rows,
        looked_at=measured.sampled,
        expired=expired.rows,
        margin=expired.margin,
    )
