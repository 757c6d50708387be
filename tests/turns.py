"""Which tests a run leaves to other turns. Pure: nothing here knows pytest.

Most tests support several databases, and a database has several drivers. `--turn N` runs a test on
a quarter of them, which changes with N and with the test, so that each run uses every database, and
four consecutive turns cover everything. `--once` is for a second environment, which exists for the
versions of libraries: it runs each test on one database.

| test | `--turn N` | `--turn N --once` |
|---|---|---|
| on one database, or on none | runs | runs |
| on several | on a quarter of its drivers, at least one | on one |
| marked `every_server` | on each database, with a quarter of its drivers, at least one | on one |
| marked `slow` | on each of its databases in one of four turns | doesn't run |
| marked `in_turns` | in one of four turns, then on all | in one of four turns, on one |
| in a folder of `IN_PARTS`, marked or not | as above | in one of six turns, on one |
| in a folder of `TOGETHER` | as above, all on the same database | all on the same database |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar
from zlib import crc32

from tests.backends import database_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_T = TypeVar("_T")

TURNS: Final = 4
"""After so many consecutive turns, every test has run on all of its databases and drivers.

As many as there are databases of SQL: a test that runs once on each runs on one of them in a turn.
"""

PARTS: Final = 6
"""Into how many turns `--once` divides the tests of most folders."""

IN_PARTS: Final = frozenset(
    {
        "adoption",
        "cli",
        "django_app",
        "docs",
        "events",
        "examples",
        "faults",
        "fuzz",
        "integrations",
        "leaks",
        "leaks_mongo",
        "metrics",
        "migrations",
        "mongo",
        "sql",
        "stores",
        "suite",
        "testkit",
        "unit",
    }
)
"""The folders of which `--once` runs a part in each turn."""

TOGETHER: Final = frozenset({"leaks"})
"""Folders whose tests need much to be made on a server first: a world of tables for all of them."""

ELSEWHERE: Final = "on another database or driver"
SLOW: Final = "slow, so left to the newest versions"
LATER: Final = "in another turn"


@dataclass(frozen=True)
class Variant:
    """A test on one database, through one driver.

    Attributes:
        test: What all variants of a test share: its path and name, without the backend.
        backend: The backend's name, as in `tests.backends`; None if the test doesn't choose one.
        every_server: Whether its subject differs by server.
        slow: Whether it takes more than 0.3 s of processor time.
        in_turns: Whether it runs in one of four turns.
    """

    test: str
    backend: str | None = None
    every_server: bool = False
    slow: bool = False
    in_turns: bool = False


def left_out(variants: Sequence[Variant], turn: int, *, once: bool = False) -> dict[int, str]:
    """Return the positions of the variants that don't run in this turn, with the reasons.

    Args:
        variants: All that could run.
        turn: Which turn it is.
        once: Whether each test runs on a single database.
    """
    reasons: dict[int, str] = {}
    tests: dict[str, list[int]] = {}
    for position, variant in enumerate(variants):
        tests.setdefault(variant.test, []).append(position)
    for name, positions in tests.items():
        first = variants[positions[0]]
        number = crc32(name.encode()) + turn
        if once and first.slow:
            reasons |= dict.fromkeys(positions, SLOW)
            continue
        turns = TURNS if first.in_turns else 1
        if once and _folder(name) in IN_PARTS:
            turns = PARTS
        number, rest = divmod(number, turns)
        if rest:
            reasons |= dict.fromkeys(positions, LATER)
            continue
        if first.in_turns and not once:
            continue
        if _folder(name) in TOGETHER:
            number = turn // turns
        backends = {position: variants[position].backend or "" for position in positions}
        chosen = set(_chosen(first, backends, number, once=once))
        reason = ELSEWHERE if chosen else LATER
        reasons |= {position: reason for position in positions if position not in chosen}
    return reasons


def _chosen(
    test: Variant, backends: Mapping[int, str], number: int, *, once: bool
) -> Iterator[int]:
    """Choose the positions of a test's variants that run."""
    if once:
        yield [*backends][number % len(backends)]
        return
    if test.slow:
        yield from part([*backends], number)
        return
    groups: dict[str, list[int]] = {}
    for position, backend in backends.items():
        group = database_of(backend) if backend and test.every_server else "any"
        groups.setdefault(group, []).append(position)
    for positions in groups.values():
        yield from share(positions, number)


def share(values: Sequence[_T], number: int) -> list[_T]:
    """Return a quarter of some values, at least one: all of them after four consecutive numbers."""
    return part(values, number) if len(values) > TURNS else [values[number % len(values)]]


def part(values: Sequence[_T], number: int) -> list[_T]:
    """Return a quarter of some values, each of which comes once in four consecutive numbers."""
    return [value for place, value in enumerate(values) if (number - place) % TURNS == 0]


def _folder(test: str) -> str:
    return test.partition("tests/")[2].partition("/")[0]


def shared_name(node: str, backend: str | None) -> str:
    """Return what the variants of a test share: its node ID without the backend.

    Args:
        node: pytest's ID of one of them, such as `tests/sql/test_keys.py::test_a[sqlite-1]`.
        backend: The backend's name.
    """
    function, bracket, parameters = node.partition("[")
    if backend is None or not bracket:
        return node
    words = f"-{parameters.removesuffix(']')}-".replace(f"-{backend}-", "-*-", 1)
    return f"{function}[{words[1:-1]}]"
