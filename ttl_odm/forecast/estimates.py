"""Numbers of rows with their error, from counts of all rows or of a sample. Pure.

Rows written together are stored together, so the error depends on how a sample was drawn: stretches
of a table tell less than as many rows drawn one by one. Rows that no draw, or only few draws, met
show no spread from which to compute an error, but may exist: if n draws met none, their share may
be up to 3 / n.
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
"""Draws that met any rows, up to which their spread says too little."""

_FOLLOWERS: Final = " followers"


class Drawn(Enum):
    """How rows were drawn."""

    ALL = auto()
    """No draw: all rows were counted."""

    SINGLY = auto()
    """One by one, at random; a single cluster."""

    STRETCHES = auto()
    """In clusters: one at random from each part of the table, in order."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number of rows, with its error.

    Attributes:
        rows: The number of rows.
        margin: The error: the true number is within it with a probability of 95 %. 0 if all rows
            were counted.
    """

    rows: int
    margin: int = 0

    def __str__(self) -> str:
        if not self.margin:
            return f"{self.rows:,}"
        return f"{self.rows:,} ±{self.margin:,}" if self.rows else f"< {self.margin:,}"


@dataclass(frozen=True, slots=True)
class Measured:
    """What a database has counted.

    Attributes:
        names: The questions. The first is ``rows``: all rows of the sample.
        clusters: The answers to the questions, for each cluster of the sample.
        drawn: How the sample was drawn.
        total: What the sample was drawn from: the table's rows, or its stretches; 0 if all rows
            were counted.
        partitions: The partitions of a table partitioned by time, by scenario.
        scopes: The scopes with a stored default of their own that have the most rows. Questions are
            answered for each of them too; see `of_scope`.
        doubts: Sentences about values that seem to be in another unit than the policy reads, or
            can't be read as dates.
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
        """Whether only a sample was counted, so that numbers have an error."""
        return self.drawn is not Drawn.ALL

    @property
    def sampled(self) -> int:
        """The number of rows that were counted."""
        return sum(cluster[0] for cluster in self.clusters)

    @property
    def rows(self) -> Estimate:
        """The number of all rows of the table."""
        return Estimate(self.total) if self.drawn is Drawn.SINGLY else self.estimate(self.names[0])

    def estimate(self, plus: str, minus: str | None = None) -> Estimate:
        """Return the answer to a question, minus that to another."""
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
        """Return the number of rows in other tables that follow the rows of a question."""
        name = of_followers(question)
        if name not in self.names:
            return Estimate(0)
        index = self.names.index(name)
        counted = [cluster[index] for cluster in self.clusters]
        if not self.is_sample or not self.sampled:
            return Estimate(sum(counted))
        parents, draws = self.estimate(question), len(counted)
        weight = self.total / (draws if self.drawn is Drawn.STRETCHES else self.sampled)
        rows = round(weight * sum(counted))
        # At least as uncertain as the number of parents; more if the numbers per parent differ.
        error = rows * parents.margin / parents.rows if parents.rows else 0.0
        if draws > 1:
            spread = sum((one - other) ** 2 for one, other in pairwise(counted)) / 2
            error = max(error, weight * _TWO_SIGMA * math.sqrt(draws / (draws - 1) * spread))
        return Estimate(rows, math.ceil(error))

    @property
    def has_followers(self) -> bool:
        """Whether rows of other tables follow the counted ones."""
        return any(name.endswith(_FOLLOWERS) for name in self.names)

    def _error(self, hits: Sequence[int], *, is_share: bool) -> float:
        """Return the error of the sum of hits."""
        if self.drawn is Drawn.SINGLY:
            draws, met, others = self.sampled, sum(hits), self.sampled - sum(hits)
            error = math.sqrt(met * others / draws)
        else:
            draws, met = len(hits), sum(hit > 0 for hit in hits)
            others = sum(hit < row[0] for hit, row in zip(hits, self.clusters, strict=True))
            # The spread between neighbours: the table's ends may differ without an error, since
            # each part has a stretch. If neighbours differ, this is rather too large.
            spread = sum((one - other) ** 2 for one, other in pairwise(hits)) / 2
            # A single draw shows no spread.
            error = math.sqrt(draws / (draws - 1) * spread) if draws > 1 else self.sampled
        few = min(met, others)  # draws that met such rows, or other rows
        least = self.sampled * min((_RULE_OF_THREE + few) / draws, 1) if few <= _FEW else 0.0
        return max(_TWO_SIGMA * error, least if is_share else 0.0)


def of_followers(question: str) -> str:
    """Return the name of the question for the followers of a question's rows."""
    return f"{question}{_FOLLOWERS}"


def of_scope(question: str, scope: str) -> str:
    """Return the name of a question about the rows of one scope."""
    return f"{question} of {scope}"
