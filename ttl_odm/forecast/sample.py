"""How rows are counted on every database: all of them, or a sample with a known error.

The sample has one random stretch from each of many parts of the table, in an order that mostly
follows the rows' age: pages, a rowid, a key. So every age is sampled by its share, unlike in a few
random places, and the cost doesn't depend on the table's size. Without such an order, or if rows
are spread too unevenly over it, rows are drawn one by one, which reads the whole table but
evaluates conditions for few rows.

Pure except for chance: `plan` yields which rows to count next, and a database's module counts them.
This module also names the questions; each database's module writes their conditions.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ttl_odm.core.extension import OTHERS, largest
from ttl_odm.core.policy import ExpireAt
from ttl_odm.forecast.estimates import Drawn, Measured, of_scope

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from ttl_odm.core.policy import Policy

T = TypeVar("T")

Answers = Mapping[str, Sequence[int]]
"""Answers to all questions, by scope; `OTHERS` stands for scopes without a default of their own."""

HOUR: Final = 3_600
DAY: Final = 24 * HOUR

HORIZONS: Final = (
    (0, "now"),
    (HOUR, "in 1 h"),
    (DAY, "in 24 h"),
    (7 * DAY, "in 7 d"),
    (30 * DAY, "in 30 d"),
)
"""Seconds from now at which expired rows are counted, assuming no writes until then."""

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
"""Bars of the histogram, each by its limit in seconds before now; negative ones are ahead."""

_FIRST_YEAR: Final = 365 * DAY
_IN_2500: Final = 16_725_225_600
"""Epoch seconds between which instants are plausible: 0 and 9999-12-31 usually mean never."""

_PARTS: Final = 500
_ROWS: Final = 100
"""The number of parts, and about how many rows a stretch has."""

_MOST_ROWS: Final = 500_000
_FEWEST_PARTS: Final = 30
"""Limits if stretches can't be so short (a page in each of many partitions): there are fewer."""

_UNEVEN: Final = 50
"""The most rows of a stretch, in multiples of the expected number: as many as half the sample."""


def questions(  # noqa: PLR0913
    policies: Mapping[str, Policy],
    *,
    all_rows: T,
    dated: T,
    own: T,
    expired: Callable[[str, int], T],
    older: Callable[[int], T],
    but_not: Callable[[T, T], T],
) -> dict[str, T]:
    """Return the conditions of the rows to count, by the names of the questions.

    Args:
        policies: The policies, by ``current`` and ``planned``.
        all_rows: The condition for all rows.
        dated: For rows with an instant to count from.
        own: For rows with a ttl of their own.
        expired: For rows expired by a policy in so many seconds from now.
        older: For rows whose instant is older than so many seconds.
        but_not: Makes the condition for rows that meet the first one, but not the second.
    """
    conditions = {"rows": all_rows, "dated": dated, "own": own}
    for name in policies:
        conditions |= {f"{name} {seconds}": expired(name, seconds) for seconds, _ in HORIZONS}
    if len(policies) > 1:
        before, after = conditions["current 0"], conditions["planned 0"]
        conditions |= {"lost": but_not(after, before), "revived": but_not(before, after)}
        conditions["lost soon"] = but_not(conditions[f"planned {HOUR}"], before)
    bounds = [seconds for seconds, _ in bars(**policies) if seconds is not None]
    conditions |= {f"older {seconds}": older(seconds) for seconds in bounds}
    now = int(time.time())  # the host's clock is exact enough
    return conditions | {
        "early": older(now - _FIRST_YEAR),
        "late": but_not(dated, older(now - _IN_2500)),
    }


def bars(
    current: Policy | None = None, planned: Policy | None = None
) -> Sequence[tuple[int | None, str]]:
    """Return the bars of the histogram, for the planned policy or else for the current one."""
    return _ENDS if isinstance(planned or current, ExpireAt) else _AGES


def questions_of_followers(names: Iterable[str]) -> list[str]:
    """Return the questions that also count rows of other tables, which follow the answer's rows."""
    return [name for name in names if _is_of_a_policy(name) or name in ("lost", "lost soon")]


def ends_of(policies: Iterable[str]) -> list[str]:
    """Return the questions, of the last horizons, that find all rows of the other ones."""
    return [f"{name} {HORIZONS[-1][0]}" for name in policies]


@dataclass(frozen=True, slots=True)
class Order:
    """An order of a table's rows, by which the table can be divided.

    Attributes:
        first: The first place of the order.
        places: The number of places.
        most: The most places of a stretch; None for any.
    """

    first: int
    places: int
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """Rows to count; by default all of them.

    Attributes:
        within: The first place of the order, and the one after the last; None for the whole table.
        limit: The most rows from these places.
        share: The share of the table to draw, row by row.
    """

    within: tuple[int, int] | None = None
    limit: int = 0
    share: float = 1.0


def chance(database: str, share: float) -> str:
    """Return SQL for whether a row is drawn, each independently with this probability."""
    if database == "postgresql":
        return f"random() < {share}"
    if database == "sqlite":  # random() returns 64 bits
        return f"(random() & {2**63 - 1}) < {int(2**63 * share)}"
    return f"rand() < {share}"


def answers(rows: Iterable[Sequence[Any]]) -> Answers:
    """Return what a database has counted: a row for each scope, its name (None: all others) first.

    A sum over no rows is NULL there.
    """
    return {str(scope or OTHERS): [int(number or 0) for number in sums] for scope, *sums in rows}


def run(plan: Generator[Part, Answers, Measured], count: Callable[[Part], Answers]) -> Measured:
    """Return the result of a `plan`, with a synchronous function that counts its parts."""
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
    """Yield the parts to count, receive the answers to the questions, and return the result.

    Args:
        names: The questions.
        rows: About how many rows the table has.
        big: The most rows that are all counted.
        order: An order for stretches; None without one.
    """
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
    """Count one stretch of each part; return None if rows are spread too unevenly."""
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
        counted = sum(sums[0] for sums in clusters[-1].values())
        met += counted
        if counted >= _UNEVEN * expected:
            return None
    if met < parts * _ROWS // 4:
        return None
    return _measured(names, clusters, Drawn.STRETCHES, total)


def _measured(
    names: Sequence[str], clusters: Sequence[Answers], drawn: Drawn = Drawn.ALL, total: int = 0
) -> Measured:
    """Sum up over scopes, and name those of which the most rows expire by the last horizon."""
    no_sums = [0] * len(names)
    sums = [list(map(sum, zip(no_sums, *answers.values(), strict=True))) for answers in clusters]
    last = [index for index, name in enumerate(names) if name.endswith(f" {HORIZONS[-1][0]}")]
    # Ranked by either policy; scopes without expired rows aren't named.
    own: Counter[str] = Counter()
    for answers in clusters:
        for scope, counted in answers.items():
            own[scope] += max((counted[index] for index in last), default=0)
    total_expired = own.total()
    del own[OTHERS]
    scopes = list(largest(own, total_expired))
    split = [index for index, name in enumerate(names) if _is_of_a_policy(name)] if scopes else []
    if not split:
        return Measured(names, sums, drawn, total)
    questions = [*names, *(of_scope(names[index], scope) for scope in scopes for index in split)]
    rows = []
    for answers, whole in zip(clusters, sums, strict=True):
        named = {scope: answers.get(scope, no_sums) for scope in scopes if scope != OTHERS}
        columns = zip(whole, *named.values(), strict=True)
        others = [number - sum(of_named) for number, *of_named in columns]
        by_scope = {**named, OTHERS: others}
        rows.append([*whole, *(by_scope[scope][index] for scope in scopes for index in split)])
    return Measured(questions, rows, drawn, total, scopes=scopes)


def _is_of_a_policy(name: str) -> bool:
    """Whether a question counts the rows expired by a policy at a horizon."""
    scenario, _, seconds = name.partition(" ")
    return scenario in ("current", "planned") and seconds.isdecimal()
