"""The way of a sweep from scope to scope, where each has a stored default, and so its own end.

A scope with many rows to delete is gone through by itself, range by range. Scopes with few share a
range, or a sweep over thousands of them would be thousands of batches: as many as have no more rows
together than a batch may. How many that is, is found by counting up to a batch's size, and halving;
the next time it begins with what was right this time.

`next_range` is a generator that asks (`Look`, `CountIn`, `Inside`) and is sent the answers, so that
any store may answer, and wait for them as it likes. This module must not know where the rows are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from ttl_odm.dialects.family import seconds_between

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

R = TypeVar("R")

AT_ONCE: Final = 1_000
"""Scopes that are looked at together."""

_ENDS: Final = 20
"""Different ends of life among the scopes of a range: each is another stretch of the index."""


class Scope(NamedTuple):
    """A scope with rows to delete.

    Attributes:
        value: As the column has it.
        seconds: The age at which its rows expire.
        cutoff: The latest end in the index that was the end of a life when this was read; a
            bookmark.
        overdue: For how many seconds the first of its rows has been expired.
    """

    value: Any
    seconds: int
    cutoff: Any
    overdue: float


class Scopes(NamedTuple):
    """Those of some scopes that have rows to delete, and the last of all that were looked at.

    That is None where no more follow.
    """

    due: tuple[Scope, ...]
    last: Any


def looked_at(rows: Sequence[Sequence[Any]], per_second: int | None) -> Scopes:
    """Say which of some scopes, in order, have rows to delete.

    A row has a scope's value, the age at which its rows expire, the bookmark of their end, and for
    how long the first of them has been expired: a timedelta, or a number of which `per_second` make
    a second. That is None where there is no row, and negative where none has expired.
    """
    due = []
    for value, age, until, overdue in rows:
        if overdue is not None and (seconds := seconds_between(overdue, per_second)) >= 0:
            due.append(Scope(value, int(age), until, seconds))
    return Scopes(tuple(due), rows[-1][0] if len(rows) == AT_ONCE else None)


def all_due(look: Callable[[Any], Scopes]) -> Iterator[tuple[Scope, ...]]:
    """Look at all scopes, so many at once; give those that have rows to delete.

    `look` looks at those that follow one (None: at the first ones).
    """
    last = None
    while True:
        due, last = look(last)
        yield due
        if last is None:
            return


@dataclass(frozen=True, slots=True)
class ScopePlace:
    """Where a sweep goes on.

    Attributes:
        due: Scopes with rows to delete that were found and are not done; one that is None stands
            for the rows of no scope, which come first.
        after: The last scope that was looked at; None where all were.
        has_more: Whether scopes after these are still to be looked at.
        inside: Where to go on among the rows of the first of `due`, in a tuple; None where several
            scopes may share a range.
        width: How many of them.
    """

    due: tuple[Scope | None, ...] = (None,)
    after: Any = None
    has_more: bool = True
    inside: tuple[Any] | None = (None,)
    width: int = AT_ONCE

    def past(self, number: int) -> ScopePlace | None:
        """The place behind so many scopes; None where nothing is left."""
        place = replace(self, due=self.due[number:], inside=None)
        return place if place.due or place.has_more else None


@dataclass(frozen=True, slots=True)
class ScopeRange(Generic[R]):
    """The range of the next batch.

    Attributes:
        begin: Where it begins.
        resume: Where the next one does; None when this is the last.
        scopes: The scopes that share it, all of whose expired rows are in it.
        rows: How many rows these have at most.
        inside: What `Inside` was answered with, where it is of one scope alone.
    """

    begin: ScopePlace
    resume: ScopePlace | None
    scopes: tuple[Scope, ...] = ()
    rows: int = 0
    inside: R | None = None


class Look(NamedTuple):
    """Which `Scopes` follow one (None: the first ones)?"""

    after: Any


class CountIn(NamedTuple):
    """How many rows, up to a limit, have these scopes before their ends?"""

    scopes: tuple[Scope, ...]
    limit: int


class Inside(NamedTuple):
    """What is the next range of one scope (None: of the rows of no scope)? None if none is left.

    The answer says by its attribute ``resume`` where the one after it begins; None for nowhere.
    """

    scope: Scope | None
    resume: Any


Question = Look | CountIn | Inside


def next_range(
    size: int, resume: ScopePlace | None
) -> Generator[Question, Any, ScopeRange[Any] | None]:
    """Find the range of the next batch; returns None when nothing is left."""
    place = ScopePlace() if resume is None else resume
    while True:
        if not place.due:
            scopes: Scopes = yield Look(place.after)
            more = scopes.last is not None
            place = replace(place, due=scopes.due, after=scopes.last, has_more=more)
            if not place.due and not more:
                return None
            continue
        found, number = yield from _among(size, place)
        if found is not None:
            return found
        following = place.past(number)
        if following is None:
            return None
        place = following


def answered(
    asking: Generator[Question, Any, ScopeRange[R] | None], answer: Callable[[Question], Any]
) -> ScopeRange[R] | None:
    """Drive `next_range` by a function that answers."""
    try:
        question = next(asking)
        while True:
            question = asking.send(answer(question))
    except StopIteration as end:
        found: ScopeRange[R] | None = end.value
        return found


def alike(scopes: Sequence[Scope]) -> int:
    """How many of the first scopes have few enough ends for one statement."""
    ends: dict[Any, None] = {}
    for number, scope in enumerate(scopes):
        ends[scope.cutoff] = None
        if len(ends) > _ENDS:
            return number
    return len(scopes)


def in_stretches(look: Callable[[Any], Scopes]) -> Iterator[tuple[Scope, ...]]:
    """All scopes with rows to delete, so many at once as one statement has conditions for."""
    for due in all_due(look):
        rest = due
        while rest:
            number = alike(rest)
            yield rest[:number]
            rest = rest[number:]


def by_cutoff(scopes: Sequence[Scope]) -> dict[Any, list[Any]]:
    """The values of scopes, by the bookmark of their ends."""
    values: dict[Any, list[Any]] = {}
    for scope in scopes:
        values.setdefault(scope.cutoff, []).append(scope.value)
    return values


_Found = tuple["ScopeRange[Any] | None", int]
"""The range of the first scopes that are due, and how many those are."""


def _among(size: int, place: ScopePlace) -> Generator[Question, Any, _Found]:
    if place.inside is not None:
        return (yield from _inside(place, place.inside[0]))
    scopes = tuple(scope for scope in place.due[: place.width] if scope is not None)
    number = alike(scopes)
    while True:
        rows: int = yield CountIn(scopes[:number], size + 1)
        if rows <= size:
            break
        if number == 1:
            return (yield from _inside(place, None))
        number //= 2
    if not rows:
        return None, number
    width = number if 2 * rows > size else 2 * number
    resume = place.past(number)
    if resume is not None:
        resume = replace(resume, width=min(width, AT_ONCE))
    return ScopeRange(replace(place, width=number), resume, scopes[:number], rows), number


def _inside(place: ScopePlace, resume: Any) -> Generator[Question, Any, _Found]:
    """The next range of the first scope alone."""
    found = yield Inside(place.due[0], resume)
    if found is None:
        return None, 1
    following = place.past(1)
    if found.resume is not None:
        following = replace(place, inside=(found.resume,))
    return ScopeRange(place, following, inside=found), 1
