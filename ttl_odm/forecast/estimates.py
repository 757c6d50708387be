"""Numbers of rows with their error: from what was counted, whole or of a sample, to estimates.

Pure. Rows that were written together lie together, so an error depends on how a sample was drawn:
pages or stretches of a table say less than as many rows drawn one by one. What was met in no draw,
or in few, shows no spread to go by, and may be there all the same: of nothing in n draws, a share
of up to 3 / n is likely.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum, auto
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_TWO_SIGMA: Final = 1.96
_RULE_OF_THREE: Final = 3
_FEW: Final = 5
_PAIR: Final = 2


class Drawn(Enum):
    """How rows were drawn."""

    ALL = auto()
    """They were not: everything was counted."""

    SINGLY = auto()
    """One by one, at random; a single cluster."""

    PAGES = auto()
    """By clusters, at random, from anywhere in the table."""

    STRETCHES = auto()
    """By clusters, one at random of each part of the table, in order."""


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
        if not self.margin:
            return f"{self.rows:,}"
        return f"{self.rows:,} ±{self.margin:,}" if self.rows else f"< {self.margin:,}"


@dataclass(frozen=True, slots=True)
class Measured:
    """What a database has counted.

    Attributes:
        names: The questions. The first is ``rows``: all rows of the sample.
        clusters: For each cluster of the sample the answers, in that order.
        drawn: How the clusters were.
        total: What they were drawn from: rows of the table, or, where they are stretches, so many
            stretches. 0 when everything was counted.
    """

    names: Sequence[str]
    clusters: Sequence[Sequence[int]]
    drawn: Drawn = Drawn.ALL
    total: int = 0

    @property
    def is_sample(self) -> bool:
        """Whether there is an error."""
        return self.drawn is not Drawn.ALL

    @property
    def sampled(self) -> int:
        """Rows that were looked at."""
        return sum(each[0] for each in self.clusters)

    @property
    def rows(self) -> Estimate:
        """All rows of the table."""
        if self.drawn in (Drawn.ALL, Drawn.STRETCHES):
            return self.estimate(self.names[0])
        return Estimate(self.total)

    def estimate(self, plus: str, minus: str | None = None) -> Estimate:
        """Return the answer to a question, less that to another."""
        first = self.names.index(plus)
        second = None if minus is None else self.names.index(minus)
        sizes = [each[0] for each in self.clusters]
        hits = [each[first] - (0 if second is None else each[second]) for each in self.clusters]
        if not self.is_sample or not self.sampled:
            return Estimate(sum(hits))
        weight = self._weight
        error = _TWO_SIGMA * self._error(sizes, hits)
        if plus != self.names[0] or minus is not None:
            error = max(error, self._least_error(sizes, hits))
        return Estimate(round(weight * sum(hits)), math.ceil(weight * error))

    @property
    def _weight(self) -> float:
        """Rows of the table for each that was looked at."""
        drawn = len(self.clusters) if self.drawn is Drawn.STRETCHES else self.sampled
        return self.total / drawn

    def _least_error(self, sizes: Sequence[int], hits: Sequence[int]) -> float:
        """What the sum of hits may be off where few draws have met any, or few have met others."""
        if self.drawn is Drawn.SINGLY:
            draws, few = self.sampled, min(sum(hits), self.sampled - sum(hits))
        else:
            draws = len(hits)
            others = sum(hit < size for hit, size in zip(hits, sizes, strict=True))
            few = min(sum(hit > 0 for hit in hits), others)
        if few > _FEW:
            return 0.0
        return self.sampled * min((_RULE_OF_THREE + few) / draws, 1)

    def _error(self, sizes: Sequence[int], hits: Sequence[int]) -> float:
        """The standard error of the sum of hits."""
        share = sum(hits) / self.sampled
        if self.drawn is Drawn.SINGLY:
            return math.sqrt(share * (1 - share) * self.sampled)
        count = len(hits)
        if count < _PAIR:  # no spread can be seen in one
            return float(self.sampled)
        if self.drawn is Drawn.STRETCHES:
            # Of neighbours: what differs from one end of the table to the other is no error, since
            # each part has its stretch. Where neighbours differ, this is rather too large.
            spread = sum((one - other) ** 2 for one, other in pairwise(hits)) / 2
        else:
            spread = sum((hit - share * size) ** 2 for size, hit in zip(sizes, hits, strict=True))
        return math.sqrt(count / (count - 1) * spread)
