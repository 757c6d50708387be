"""The way of a sweep from scope to scope, each with its own stored default.

A sweep goes through a scope with many rows to delete by itself, range by range. Scopes with few
rows share a range, or a sweep over thousands of them would need thousands of batches: as many
scopes as have no more rows together than a batch. Their number is found by counting up to a batch's
size, and halving; the next range begins with the number that fitted.

`next_range` is a generator that yields questions (`Look`, `CountIn`, `Inside`) and is sent the
answers, so that any store can answer, and wait as it likes. This module must not know where the
rows are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

R = TypeVar("R")

AT_ONCE: Final = 1_000
"""Scopes that one look covers."""

_ENDS: Final = 20
"""The most different cutoffs of the scopes of a range: each is another stretch of the index."""


class Scope(NamedTuple):
    """A scope with rows to delete.

    Attributes:
        value: The value of its column.
        seconds: The age at which its rows expire.
        cutoff: The last place in the index whose rows had expired when this was read; a bookmark.
        overdue: For how many seconds the first of its rows has been expired.
    """

    value: object
    seconds: int
    cutoff: object
    overdue: float


class Scopes(NamedTuple):
    """The result of a look at some scopes.

    Attributes:
        due: The scopes with rows to delete.
        last: The value of the last scope; None if no more follow.
    """

    due: tuple[Scope, ...]
    last: object


def looked_at(rows: Sequence[Sequence[Any]], per_second: int = 1) -> Scopes:
    """Return which of some scopes, in order, have rows to delete.

    Args:
        rows: For each scope its value, the age at which its rows expire, the bookmark of their
            cutoff, and for how long the first of them has been expired: None if the scope has no
            row, and negative if no row of it has expired.
        per_second: In which units that is: how many of them make a second.
    """
    due = []
    for value, age, until, overdue in rows:
        if overdue is not None and (seconds := float(overdue / per_second)) >= 0:
            due.append(Scope(value, int(age), until, seconds))
    return Scopes(tuple(due), rows[-1][0] if len(rows) == AT_ONCE else None)


def all_due(look: Callable[[object], Scopes]) -> Iterator[tuple[Scope, ...]]:
    """Yield the scopes with rows to delete, by one look after the other.

    `look` looks at the scopes that follow one (None: at the first ones).
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
        due: The scopes with rows to delete that were found and are not done; None among them stands
            for the rows without a scope, which come first.
        after: The last scope of the last look; None if no more follow.
        has_more: Whether there are scopes after these that no look has covered.
        inside: Where to go on among the rows of the first of `due`, in a tuple; None if several
            scopes may share a range.
        width: How many scopes may share a range.
    """

    due: tuple[Scope | None, ...] = (None,)
    after: object = None
    has_more: bool = True
    inside: tuple[object] | None = (None,)
    width: int = AT_ONCE

    def past(self, number: int) -> ScopePlace | None:
        """Return the place after so many scopes; None if nothing is left."""
        place = replace(self, due=self.due[number:], inside=None)
        return place if place.due or place.has_more else None


@dataclass(frozen=True, slots=True)
class ScopeRange(Generic[R]):
    """The range of the next batch.

    Attributes:
        begin: Where it begins.
        resume: Where the next one begins; None if this is the last.
        scopes: The scopes that share it; it has all their expired rows.
        rows: How many rows these have at most.
        inside: The answer to `Inside`, for a range of one scope alone.
    """

    begin: ScopePlace
    resume: ScopePlace | None
    scopes: tuple[Scope, ...] = ()
    rows: int = 0
    inside: R | None = None


class Look(NamedTuple):
    """Which `Scopes` follow one (None: the first ones)?"""

    after: object


class CountIn(NamedTuple):
    """How many rows, up to a limit, have these scopes before their ends?"""

    scopes: tuple[Scope, ...]
    limit: int


class Inside(NamedTuple):
    """What is the next range of one scope (None: of the rows without a scope)?

    The answer is None if none is left. Its attribute ``resume`` is where the range after it begins;
    None for the last.
    """

    scope: Scope | None
    resume: object


Question = Look | CountIn | Inside


def next_range(
    size: int, resume: ScopePlace | None
) -> Generator[Question, Any, ScopeRange[Any] | None]:
    """Find the range of the next batch; return None if nothing is left."""
    place = ScopePlace() if resume is None else resume
    while True:
        if not place.due:
            scopes: Scopes = yield Look(place.after)
            more = scopes.last is not None
            place = replace(place, due=scopes.due, after=scopes.last, has_more=more)
            if not place.due and not more:
                return None
            continue
        scope_range, number = yield from _among(size, place)
        if scope_range is not None:
            return scope_range
        following = place.past(number)
        if following is None:
            return None
        place = following


def answered(
    asking: Generator[Question, Any, ScopeRange[R] | None], answer: Callable[[Question], object]
) -> ScopeRange[R] | None:
    """Drive `next_range` with a function that answers its questions."""
    try:
        question = next(asking)
        while True:
            question = asking.send(answer(question))
    except StopIteration as end:
        scope_range: ScopeRange[R] | None = end.value
        return scope_range


def alike(scopes: Sequence[Scope]) -> int:
    """Return how many of the first scopes have few enough cutoffs for one statement."""
    ends: dict[object, None] = {}
    for number, scope in enumerate(scopes):
        ends[scope.cutoff] = None
        if len(ends) > _ENDS:
            return number
    return len(scopes)


def in_stretches(look: Callable[[object], Scopes]) -> Iterator[tuple[Scope, ...]]:
    """Yield all scopes with rows to delete, as many at once as one statement can have."""
    for due in all_due(look):
        rest = due
        while rest:
            number = alike(rest)
            yield rest[:number]
            rest = rest[number:]


def by_cutoff(scopes: Sequence[Scope]) -> dict[object, list[object]]:
    """Return the values of scopes by their cutoffs."""
    values: dict[object, list[object]] = {}
    for scope in scopes:
        values.setdefault(scope.cutoff, []).append(scope.value)
    return values


_Found = tuple["ScopeRange[Any] | None", int]
"""The range of the first scopes that are due, and their number."""


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


def _inside(place: ScopePlace, resume: object) -> Generator[Question, Any, _Found]:
    """Find the next range of the first scope alone."""
    inside = yield Inside(place.due[0], resume)
    if inside is None:
        return None, 1
    following = place.past(1)
    if inside.resume is not None:
        following = replace(place, inside=(inside.resume,))
    return ScopeRange(place, following, inside=inside), 1
