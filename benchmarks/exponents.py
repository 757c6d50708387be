"""How fast something grows: the slope of the logarithm of its time over that of a size.

What is measured at several sizes is a curve. Its exponent is 0 where the size makes no difference,
and 1 where twice the size takes twice as long. It is told of the pair of neighbouring sizes between
which it is steepest: over all sizes, what each size costs once would hide how the rest grows.

Nothing here measures.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import log
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.findings import Finding, ratio
from benchmarks.goals import CONSTANT, LINEAR
from benchmarks.harness import Estimate, estimate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.findings import Unit
    from benchmarks.harness import Round

SECTION: Final = "Growth: the exponent where it is steepest"
LARGEST: Final = "Growth over rows: the largest table / the smallest"

_PER_SECOND: Final = {"µs": 1e6, "ms": 1e3}


class Curve(NamedTuple):
    """Something that is measured at several sizes.

    Attributes:
        what: what the report calls it.
        over: what there is more and more of.
        designed: the exponent that it is designed to have, 0 or 1; None where it is another's.
        unit: what it is told in.
    """

    what: str
    over: str
    designed: int | None
    unit: Unit = "µs"

    @property
    def line(self) -> str:
        """The line of its exponent."""
        return f"{self.what}; over {self.over}"

    def at(self, size: int) -> str:
        """The line of its figure at a size."""
        of = self.over.removesuffix("s") if size == 1 else self.over
        return f"{self.what}; {size:,} {of}"

    @property
    def section(self) -> str:
        """The heading of its figures at each size."""
        return f"Growth over {self.over}: each size"


def grown(
    curve: Curve, database: str, sizes: Sequence[int], sittings: Sequence[Sequence[Round]]
) -> Iterator[Finding]:
    """The exponent of a curve, and its figure at each size.

    Args:
        curve: what was measured.
        database: where.
        sizes: from the smallest to the largest.
        sittings: seconds (or counts) by size, the size in digits; some may lack a size.
    """
    exponent, goal = steepest(sizes, sittings), None
    if curve.designed is not None:
        goal = LINEAR if curve.designed else CONSTANT
    yield Finding(SECTION, curve.line, database, "exponent", exponent, goal=goal)
    if curve.over == "rows" and curve.designed == 0:
        least, most = sizes[0], sizes[-1]
        both = _with(sittings, least, most)
        share = ratio(LARGEST, curve.what, database, both, str(most), str(least))
        yield replace(share, size=most // least)
    factor = _PER_SECOND.get(curve.unit, 1)
    for size in sizes:
        measured = _with(sittings, size)
        found = estimate(measured, lambda figures, size=size: figures[str(size)] * factor)  # type: ignore[misc]
        yield Finding(curve.section, curve.at(size), database, curve.unit, found, size=size)


def steepest(sizes: Sequence[int], sittings: Sequence[Sequence[Round]]) -> Estimate:
    """The largest of the exponents between neighbouring sizes.

    Args:
        sizes: from the smallest to the largest.
        sittings: figures by size, the size in digits.
    """
    steps = [
        estimate(
            _with(sittings, low, high),
            lambda figures, low=low, high=high: (  # type: ignore[misc]
                log(figures[str(high)] / figures[str(low)]) / log(high / low)
            ),
        )
        for low, high in pairwise(sizes)
    ]
    return max(steps, key=lambda step: step.value)


def _with(sittings: Sequence[Sequence[Round]], *sizes: int) -> Sequence[Sequence[Round]]:
    """Those of the rounds in which these sizes were measured; not every sitting has all of them."""
    asked = {str(size) for size in sizes}
    rounds = ([each for each in sitting if asked <= each.keys()] for sitting in sittings)
    return [having for having in rounds if having]
