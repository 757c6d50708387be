"""Measuring side by side on a machine that others use at the same time.

No figure here is a time on its own. Operations that are to be compared take turns in many short
rounds, so that whatever disturbs one disturbs the others a moment later; a ratio is taken within
each round, and the median of these is told. What a round can't average out (the memory layout of
a process, which connection the server put on which core) is drawn anew in each *sitting*: new
engines, new connections, new processes. How far sittings differ tells how far to trust a median.

Nothing here knows a database.
"""

from __future__ import annotations

import gc
import math
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    Sample = Callable[[int], float]
    """Runs an operation a number of times and tells the seconds that it took."""

    Round = Mapping[str, float]
    """Seconds of one run of each operation, by name, all measured within a moment."""

Item = TypeVar("Item")

_SAMPLE_SECONDS = 0.002
"""Shorter than a scheduler's time slice, so that most samples are not interrupted at all."""

_LEAD_IN = 5
"""Runs before each sample, so that no sample pays for what the one before did to the caches."""

_WARM_UP_RUNS = 25
"""More than it takes until statements are compiled, prepared and planned for good."""

_LONG_SECONDS = 0.01
"""An operation that takes longer is warmed up, and takes its turn, no more often than `_FEW`
times: it is hundreds of statements, and one line of the report should not take minutes."""

_FEW = 10

_CONFIDENCE = 0.95


def timed(operation: Callable[[], object]) -> Sample:
    """A sample that does nothing but run an operation.

    Args:
        operation: what to time.
    """

    def sample(count: int) -> float:
        with undisturbed():
            for _ in range(_LEAD_IN):
                operation()
            begin = perf_counter()
            for _ in range(count):
                operation()
            return perf_counter() - begin

    return sample


@contextmanager
def undisturbed() -> Iterator[None]:
    """Run Python's garbage collector now, and not in the block."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def sitting(samples: Mapping[str, Sample], rounds: int) -> list[Round]:
    """Measure operations in turns.

    Args:
        samples: the operations, by name. All run the same number of times in a round.
        rounds: how often.

    Returns:
        What each took in each round.
    """
    if max(min(sample(1), sample(1)) for sample in samples.values()) > _LONG_SECONDS:
        rounds = min(rounds, _FEW)
    runs = min(_WARM_UP_RUNS, rounds)  # few rounds only show that everything works
    for sample in samples.values():
        sample(runs)
    slowest = max(sample(runs) / runs for sample in samples.values())
    count = max(1, round(_SAMPLE_SECONDS / slowest))
    gc.freeze()  # what is there to stay need not be looked through before each sample
    try:
        return [
            {name: samples[name](count) / count for name in order}
            for order in _orders(list(samples), rounds)
        ]
    finally:
        gc.unfreeze()


def _orders(names: list[str], rounds: int) -> Iterator[list[str]]:
    """Who comes when: everybody is first, last, before and after everybody equally often."""
    for number in range(rounds):
        order = rotated(names, number // 2)
        yield order if number % 2 == 0 else order[::-1]


def rotated(items: Iterable[Item], by: int) -> list[Item]:
    """The same items, beginning with another one.

    Args:
        items: what there is.
        by: how many go from the beginning to the end.
    """
    everything = list(items)
    start = by % len(everything)
    return everything[start:] + everything[:start]


@dataclass(frozen=True)
class Estimate:
    """What many rounds say of one figure.

    Attributes:
        value: the median, over the sittings, of each sitting's median.
        low: lower end of that median's interval, from the sittings: at 95 % where there are six
            or more of them, the lowest where there are fewer.
        high: its upper end.
    """

    value: float
    low: float
    high: float

    @classmethod
    def exactly(cls, value: float) -> Estimate:
        """A figure that was counted."""
        return cls(value, value, value)


def estimate(sittings: Sequence[Sequence[Round]], figure: Callable[[Round], float]) -> Estimate:
    """Sum up a figure that every round yields, such as a ratio of two of its times.

    Args:
        sittings: the rounds of each sitting.
        figure: the figure of one round.
    """
    medians = sorted(median(figure(one) for one in rounds) for rounds in sittings)
    outermost = _outside_of_interval(len(medians))
    return Estimate(median(medians), medians[outermost], medians[-1 - outermost])


def _outside_of_interval(count: int) -> int:
    """How many of the values may be left out at each end, so that the rest holds the median.

    (Of as many draws as there are values, so few on one side of the median are too unlikely.)
    """
    left_out, chance = 0, 1 / 2**count
    while True:
        chance += math.comb(count, left_out + 1) / 2**count
        if chance > (1 - _CONFIDENCE) / 2:
            return left_out
        left_out += 1
