"""What an extension reports of a target: `Fact`, which the sweeper passes on and doesn't know.

A store puts facts into `Due`, `Counted` and `BatchResult`, under the names that they have in JSON.
They come out of reports, progress, errors of the fuse, and the commands that print a status: as
text, as plain values and as numbers for monitoring systems. A `Fact` is about the target as it is,
and the latest one counts. A `RowsFact` is about its rows, and is added up from batch to batch.

This module must not know any extension.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeVar

from ttl_odm.sweeper.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from typing_extensions import Self

F = TypeVar("F", bound="RowsFact")


@dataclass(frozen=True, slots=True)
class Number:
    """One number of a monitoring system.

    Attributes:
        name: Its name, without the prefix ``ttl_odm_`` and without what a system appends.
        kind: What a system makes of it.
        about: Its meaning, in a sentence.
        labels: Its labels besides the backend. A fact's number has ``table`` and at most one more.
        unit: ``s`` for seconds, else empty.
        buckets: The upper bounds of a histogram.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    about: str
    labels: Sequence[str] = ()
    unit: str = ""
    buckets: Sequence[float] = ()


class Reading(NamedTuple):
    """What a fact adds to a counter, or the value of a gauge.

    The label is the value of the number's further label. Each table has series for the first
    twenty values only; the empty text stands for all others.
    """

    number: Number
    value: float
    label: str = ""


class Reported(Protocol):
    """The part of a target's report that numbers may depend on."""

    @property
    def deleted(self) -> int:
        """Deleted rows."""
        ...

    @property
    def due(self) -> int | None:
        """Expired rows counted beforehand; None if not counted."""
        ...

    @property
    def facts(self) -> Mapping[str, Fact]:
        """All facts of the report."""
        ...


class Fact(ABC):
    """Something that an extension reports of a target as it is; immutable.

    ``str(fact)`` is a line for people, or several, in which names that others chose are escaped by
    `ttl_odm.sweeper.text.visible`. Reports and status print each line behind the target's name. A
    fact that is false is not printed and not in JSON; only its numbers count.
    """

    __slots__ = ()

    @abstractmethod
    def __str__(self) -> str: ...

    @abstractmethod
    def to_dict(self) -> Mapping[str, object]:
        """Return plain values, for JSON."""

    def __bool__(self) -> bool:
        return True

    @property
    def problem(self) -> tuple[str, str] | None:
        """A word for what is wrong, and the sentence that status prints; None if nothing is."""
        return None

    def numbers(self, target: Reported) -> Iterable[Reading]:  # noqa: ARG002 (for those that do)
        """Return what a sweep's report says to monitoring systems."""
        return ()


class RowsFact(Fact):
    """Something that an extension reports of expired rows, or of deleted ones."""

    __slots__ = ()

    @abstractmethod
    def plus(self, earlier: RowsFact) -> Self:
        """Return the fact about these rows and those of `earlier`, which is of this class."""

    def among(self, rows: int) -> Self:  # noqa: ARG002 (as above)
        """Return the fact as it is reported, about so many rows in all."""
        return self

    @property
    def brief(self) -> str:
        """A few words in parentheses after the number of rows; empty if there is nothing to say."""
        return ""

    @property
    def along(self) -> int:
        """Rows of other tables that will be deleted with these."""
        return 0


def latest(earlier: Mapping[str, Fact], facts: Mapping[str, Fact]) -> dict[str, Fact]:
    """Return what is known after another batch."""
    added = {
        name: _added(fact, earlier.get(name)) if isinstance(fact, RowsFact) else fact
        for name, fact in facts.items()
    }
    return {**earlier, **added}


def _added(fact: F, earlier: Fact | None) -> F:
    return fact.plus(earlier) if isinstance(earlier, type(fact)) else fact


def among(rows: int, facts: Mapping[str, Fact]) -> dict[str, Fact]:
    """Return facts as they are reported, about so many rows in all."""
    return {
        name: fact.among(rows) if isinstance(fact, RowsFact) else fact
        for name, fact in facts.items()
    }


def of_rows(facts: Mapping[str, Fact]) -> dict[str, RowsFact]:
    """Return the facts about rows."""
    return {name: fact for name, fact in facts.items() if isinstance(fact, RowsFact)}


def of_target(facts: Mapping[str, Fact]) -> dict[str, Fact]:
    """Return the facts about the target as it is."""
    return {name: fact for name, fact in facts.items() if not isinstance(fact, RowsFact)}


def lines(facts: Iterable[Fact]) -> Iterator[str]:
    """Return what is printed of facts."""
    for fact in facts:
        if fact:
            yield from map(visible, str(fact).split("\n"))


def plain(facts: Mapping[str, Fact]) -> dict[str, Mapping[str, object]]:
    """Return facts for JSON."""
    return {name: fact.to_dict() for name, fact in facts.items() if fact}
