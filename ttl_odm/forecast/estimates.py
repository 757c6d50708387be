"""Numbers of rows with their error, from what was counted: all rows, or a sample. Pure.

Rows that were written together lie together, so an error depends on how a sample was drawn:
stretches of a table say less than as many rows drawn one by one. What was met in no draw, or in
few, shows no spread to go by, and may be there all the same: of nothing in n draws, a share of up
to 3 / n is likely.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ttl_odm.sweeper.facts import Fact

_TWO_SIGMA: Final = 1.96
_RULE_OF_THREE: Final = 3
_FEW: Final = 5
"""Draws that have met something, up to which their spread says too little."""


_FOLLOWERS: Final = " followers"


class Drawn(Enum):
    """How rows were drawn."""

    ALL = auto()
    """They were not: everything was counted."""

    SINGLY = auto()
    """One by one, at random; a single cluster."""

    STRETCHES = auto()
    """By clusters, one at random of each part of the table, in order."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number of rows, within a margin of the truth with a probability of 95 %; 0 when counted."""

    rows: int
    margin: int = 0

    def __str__(self) -> str:
        if not self.margin:
            return f"{self.rows:,}"
        return f"{self.rows:,} ±{self.margin:,}" if self.rows else f"< {self.margin:,}"


@dataclass(frozen=True, slots=True)
class Measured:
    """What a database has counted: for each cluster of the sample the answers to the questions.

    The first question is ``rows``: all rows of the sample. `total` is what the clusters were drawn
    from, rows of the table or so many stretches; 0 when everything was counted. `partitions` are
    those of a table that is cut by time, by scenario. `scopes` are named that have a stored default
    of their own, those with the most rows; a question is also answered for each (`of_scope`).
    `doubts` are sentences about values that seem to be in another unit than they are read in, or
    that are not read as dates.
    """

    names: Sequence[str]
    clusters: Sequence[Sequence[int]]
    drawn: Drawn = Drawn.ALL
    total: int = 0
    partitions: Mapping[str, Fact] = field(default_factory=dict)
    scopes: Sequence[str] = ()
    doubts: Sequence[str] = ()

    @property
    def is_sample(self) -> bool:
        """Whether there is an error."""
        return self.drawn is not Drawn.ALL

    @property
    def sampled(self) -> int:
        """Rows that were looked at."""
        return sum(cluster[0] for cluster in self.clusters)

    @property
    def rows(self) -> Estimate:
        """All rows of the table."""
        return Estimate(self.total) if self.drawn is Drawn.SINGLY else self.estimate(self.names[0])

    def estimate(self, plus: str, minus: str | None = None) -> Estimate:
        """Return the answer to a question, less that to another."""
        first = self.names.index(plus)
        second = None if minus is None else self.names.index(minus)
        hits = [
            cluster[first] - (0 if second is None else cluster[second]) for cluster in self.clusters
        ]
        if not self.is_sample or not self.sampled:
            return Estimate(sum(hits))
        weight = self.total / (len(hits) if self.drawn is Drawn.STRETCHES else self.sampled)
        error = self._error(hits, is_share=plus != self.names[0] or minus is not None)
        return Estimate(round(weight * sum(hits)), math.ceil(weight * error))

    def followers(self, question: str) -> Estimate:
        """Rows of other tables that follow those of a question; 0 where nothing follows them."""
        name = of_followers(question)
        if name not in self.names:
            return Estimate(0)
        place = self.names.index(name)
        counted = [cluster[place] for cluster in self.clusters]
        if not self.is_sample or not self.sampled:
            return Estimate(sum(counted))
        parents, draws = self.estimate(question), len(counted)
        weight = self.total / (draws if self.drawn is Drawn.STRETCHES else self.sampled)
        rows = round(weight * sum(counted))
        # At least as uncertain as the number of parents; more where some have more than others.
        error = rows * parents.margin / parents.rows if parents.rows else 0.0
        if draws > 1:
            spread = sum((one - other) ** 2 for one, other in pairwise(counted)) / 2
            error = max(error, weight * _TWO_SIGMA * math.sqrt(draws / (draws - 1) * spread))
        return Estimate(rows, math.ceil(error))

    @property
    def has_followers(self) -> bool:
        """Whether rows of other tables follow those that were counted."""
        return any(name.endswith(_FOLLOWERS) for name in self.names)

    def _error(self, hits: Sequence[int], *, is_share: bool) -> float:
        """What the sum of hits may be off."""
        if self.drawn is Drawn.SINGLY:
            draws, met, others = self.sampled, sum(hits), self.sampled - sum(hits)
            error = math.sqrt(met * others / draws)
        else:
            draws, met = len(hits), sum(hit > 0 for hit in hits)
            others = sum(hit < row[0] for hit, row in zip(hits, self.clusters, strict=True))
            # Of neighbours: what differs from one end of the table to the other is not an error,
            # since each part has its stretch. Where neighbours differ, this is rather too large.
            spread = sum((one - other) ** 2 for one, other in pairwise(hits)) / 2
            # No spread can be seen in one.
            error = math.sqrt(draws / (draws - 1) * spread) if draws > 1 else self.sampled
        few = min(met, others)  # draws that have met any, or that have met others
        least = self.sampled * min((_RULE_OF_THREE + few) / draws, 1) if few <= _FEW else 0.0
        return max(_TWO_SIGMA * error, least if is_share else 0.0)


def of_followers(question: str) -> str:
    """The name of the question how many rows follow those of another question."""
    return f"{question}{_FOLLOWERS}"


def of_scope(question: str, scope: str) -> str:
    """The name of a question about the rows of a scope alone."""
    return f"{question} of {scope}"
