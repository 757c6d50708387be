"""How rows are counted, on every database: all of them, or a sample whose error is known.

The sample is one stretch, at random, of each of many parts of the table, in an order that mostly
follows the age of rows: pages, a rowid, a key. So every age is met in its share, which a few random
places would not give, and it costs the same however big the table is. Where there is no such order,
or rows are spread too unevenly over it, rows are drawn one by one, which reads the table but judges
few of its rows.

Pure but for chance: `plan` says which rows to count next, and a database's module counts them. What
the questions are is said here too, and how a condition is written is the database's.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ttl_odm.core.policy import ExpireAt
from ttl_odm.core.scopes import OTHERS, largest
from ttl_odm.forecast.estimates import Drawn, Measured, of_scope

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from ttl_odm.core.policy import Policy

T = TypeVar("T")

Answers = Mapping[str, Sequence[int]]
"""Answers to all questions by scope; `OTHERS` stands for all without a default of its own."""

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

_AGES: Final = (
    (None, "< 1 min"),
    (60, "1 min to 10 min"),
    (600, "10 min to 1 h"),
    (HOUR, "1 h to 6 h"),
    (6 * HOUR, "6 h to 1 d"),
    (DAY, "1 d to 7 d"),
    (7 * DAY, "7 d to 30 d"),
    (30 * DAY, "30 d to 90 d"),
    (90 * DAY, "90 d to 365 d"),
    (365 * DAY, "> 365 d"),
)
_ENDS: Final = (
    (None, "in > 90 d"),
    (-90 * DAY, "in 30 d to 90 d"),
    (-30 * DAY, "in 7 d to 30 d"),
    (-7 * DAY, "in 1 d to 7 d"),
    (-DAY, "in 6 h to 1 d"),
    (-6 * HOUR, "in 1 h to 6 h"),
    (-HOUR, "in < 1 h"),
    (0, "< 1 h ago"),
    (HOUR, "1 h to 6 h ago"),
    (6 * HOUR, "6 h to 1 d ago"),
    (DAY, "1 d to 7 d ago"),
    (7 * DAY, "7 d to 30 d ago"),
    (30 * DAY, "30 d to 90 d ago"),
    (90 * DAY, "> 90 d ago"),
)
"""Bars of the histogram, each from so many seconds before now; `ExpireAt` has them ahead, too."""

_FIRST_YEAR: Final = 365 * DAY
_IN_2500: Final = 16_725_225_600
"""Epoch seconds between which instants are meant as such: 0 and 9999-12-31 mostly mean never."""

_PARTS: Final = 500
_ROWS: Final = 100
"""How many parts there are, and how many rows a stretch has, about."""

_MOST_ROWS: Final = 500_000
_FEWEST_PARTS: Final = 30
"""Where a stretch can't be that short (a page of each of many partitions) there are fewer parts."""

_UNEVEN: Final = 50
"""A stretch of so many times the rows that it should have would be half of the sample."""


def questions(  # noqa: PLR0913
    policies: Mapping[str, Policy],
    *,
    every: T,
    dated: T,
    own: T,
    expired: Callable[[str, int], T],
    older: Callable[[int], T],
    but_not: Callable[[T, T], T],
) -> dict[str, T]:
    """Name what has to be counted, each with its condition, as a database writes it.

    That of all rows, of those that have an instant to count from or a ttl of their own; of those
    expired by a policy (``current``, ``planned``) so many seconds from now, or older than so many;
    of those whose instant is too early or too late to be meant as one.
    """
    asked = {"rows": every, "dated": dated, "own": own}
    for name in policies:
        asked |= {f"{name} {seconds}": expired(name, seconds) for seconds, _ in HORIZONS}
    if len(policies) > 1:
        before, after = asked["current 0"], asked["planned 0"]
        asked |= {"lost": but_not(after, before), "revived": but_not(before, after)}
        asked["lost soon"] = but_not(asked[f"planned {HOUR}"], before)
    bounds = [seconds for seconds, _ in bars(**policies) if seconds is not None]
    asked |= {f"older {seconds}": older(seconds) for seconds in bounds}
    now = int(time.time())  # a day more or less does not matter, so the host's will do
    return asked | {
        "early": older(now - _FIRST_YEAR),
        "late": but_not(dated, older(now - _IN_2500)),
    }


def bars(
    current: Policy | None = None, planned: Policy | None = None
) -> Sequence[tuple[int | None, str]]:
    """Return the bars of the histogram for what is planned, or else for what there is."""
    return _ENDS if isinstance(planned or current, ExpireAt) else _AGES


def following(asked: Iterable[str]) -> list[str]:
    """The questions for which the rows of other tables count that follow those of the answer."""
    return [name for name in asked if _is_of_a_policy(name) or name in ("lost", "lost soon")]


def ends_of(policies: Iterable[str]) -> list[str]:
    """The questions that between them find all rows of `following`: the last horizons."""
    return [f"{name} {HORIZONS[-1][0]}" for name in policies]


@dataclass(frozen=True, slots=True)
class Order:
    """An order of a table's rows, in which it can be cut into parts of so many places at most."""

    first: int
    places: int
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """Rows to count; all of them if nothing else is said.

    Those from a place of the order up to another, exclusive, but so many at most; or a share of the
    table, each row at random.
    """

    within: tuple[int, int] | None = None
    limit: int = 0
    share: float = 1.0


def chance(database: str, share: float) -> str:
    """SQL for whether a row is drawn, each by itself with that probability."""
    if database == "postgresql":
        return f"random() < {share}"
    if database == "sqlite":  # integers of 64 bits
        return f"(random() & {2**63 - 1}) < {int(2**63 * share)}"
    return f"rand() < {share}"


def answers(rows: Iterable[Sequence[Any]]) -> Answers:
    """Return what a database has counted: a row for each scope, its name (None: all others) first.

    A sum over no rows is NULL there.
    """
    return {str(scope or OTHERS): [int(number or 0) for number in sums] for scope, *sums in rows}


def carried_out(
    plan: Generator[Part, Answers, Measured], count: Callable[[Part], Answers]
) -> Measured:
    """Count what a `plan` asks for, where a database answers at once."""
    try:
        part = next(plan)
        while True:
            part = plan.send(count(part))
    except StopIteration as stop:
        measured: Measured = stop.value
        return measured


def plan(
    names: Sequence[str], rows: int, big: float, order: Order | None
) -> Generator[Part, Answers, Measured]:
    """Yield what to count, get the answers to the questions, and return what they amount to."""
    if rows <= big:
        return _measured(names, [(yield Part())])
    if order is not None:
        measured = yield from _in_stretches(names, rows, order)
        if measured is not None:
            return measured
    share = min(1.0, _PARTS * _ROWS / rows)
    return _measured(names, [(yield Part(share=share))], Drawn.SINGLY, rows)


def _in_stretches(
    names: Sequence[str], rows: int, order: Order
) -> Generator[Part, Answers, Measured | None]:
    """Count in one stretch of each part; None where rows are spread too unevenly to say enough."""
    width = min(max(1, order.places * _ROWS // rows), order.most or order.places)
    expected = max(_ROWS, width * rows // order.places)
    parts = min(_PARTS, order.places, max(_FEWEST_PARTS, _MOST_ROWS // expected))
    clusters: list[Answers] = []
    total = met = 0
    for low, high in pairwise(
        order.first + part * order.places // parts for part in range(parts + 1)
    ):
        choices = max(1, (high - low) // width)
        chosen = secrets.randbelow(choices)
        start, end = (low + place * (high - low) // choices for place in (chosen, chosen + 1))
        clusters.append((yield Part(within=(start, end), limit=_UNEVEN * expected)))
        total += choices
        found = sum(sums[0] for sums in clusters[-1].values())
        met += found
        if found >= _UNEVEN * expected:
            return None
    if met < parts * _ROWS // 4:
        return None
    return _measured(names, clusters, Drawn.STRETCHES, total)


def _measured(
    names: Sequence[str], clusters: Sequence[Answers], drawn: Drawn = Drawn.ALL, total: int = 0
) -> Measured:
    """Sum up over scopes, and name those of which the most rows expire by the last horizon."""
    no_sums = [0] * len(names)
    sums = [list(map(sum, zip(no_sums, *found.values(), strict=True))) for found in clusters]
    ranked = [place for place, name in enumerate(names) if name.endswith(f" {HORIZONS[-1][0]}")]
    # By either policy; of one whose rows expire by none there is nothing to say.
    own: Counter[str] = Counter()
    for found in clusters:
        for scope, counted in found.items():
            own[scope] += max((counted[place] for place in ranked), default=0)
    every = own.total()
    del own[OTHERS]
    scopes = list(largest(own, every))
    split = [place for place, name in enumerate(names) if _is_of_a_policy(name)] if scopes else []
    if not split:
        return Measured(names, sums, drawn, total)
    questions = [*names, *(of_scope(names[place], scope) for scope in scopes for place in split)]
    rows = []
    for found, whole in zip(clusters, sums, strict=True):
        named = {scope: found.get(scope, no_sums) for scope in scopes if scope != OTHERS}
        others = [number - sum(each) for number, *each in zip(whole, *named.values(), strict=True)]
        by_scope = {**named, OTHERS: others}
        rows.append([*whole, *(by_scope[scope][place] for scope in scopes for place in split)])
    return Measured(questions, rows, drawn, total, scopes=scopes)


def _is_of_a_policy(name: str) -> bool:
    """Whether a question is how much has expired by a policy, at one of the horizons."""
    scenario, _, seconds = name.partition(" ")
    return scenario in ("current", "planned") and seconds.isdecimal()
