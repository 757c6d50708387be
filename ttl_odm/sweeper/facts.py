"""What an extension reports about a target: a `Fact`, which the sweeper doesn't interpret.

A store puts facts into `Due`, `Counted` and `BatchResult`, under the names that they have in JSON.
They appear in reports, progress, errors of the fuse, and in what the status commands print: as
text, as plain values and as numbers for monitoring systems. A `Fact` is about the target as it is:
the latest one counts. A `RowsFact` is about rows, and is added up over the batches.

This module must not know any extension.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from ttl_odm.sweeper.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from typing_extensions import Self


@dataclass(frozen=True, slots=True)
class Number:
    """One number of a monitoring system.

    Attributes:
        name: Its name, without the prefix ``ttl_odm_`` and a system's suffix.
        kind: Its type in a monitoring system.
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
    """A fact about a target as it is now; immutable.

    ``str(fact)`` is one or more lines for people, with foreign names escaped by
    `ttl_odm.sweeper.text.visible`. Reports and status print each line after the target's name. A
    fact that is false has only its numbers: it isn't printed, and not in JSON.
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

    def among(self, rows: int) -> Self:  # noqa: ARG002 (for those that are of rows)
        """Return the fact as it is reported for so many rows in total."""
        return self

    def numbers(self, target: Reported) -> Iterable[Reading]:  # noqa: ARG002 (for those that do)
        """Return the numbers of a sweep's report for monitoring systems."""
        return ()


class RowsFact(Fact):
    """A fact about expired or deleted rows."""

    __slots__ = ()

    @abstractmethod
    def plus(self, earlier: RowsFact) -> Self:
        """Return the fact about these rows and those of `earlier`, of the same class."""

    @property
    def brief(self) -> str:
        """A few words for parentheses after the number of rows; may be empty."""
        return ""

    @property
    def along(self) -> int:
        """The number of rows of other tables that will be deleted with these."""
        return 0


def latest(earlier: Mapping[str, Fact], facts: Mapping[str, Fact]) -> dict[str, Fact]:
    """Return the facts after another batch."""
    added = dict(facts)
    for name, fact in facts.items():
        before = earlier.get(name)
        if isinstance(fact, RowsFact) and isinstance(before, type(fact)):
            added[name] = fact.plus(before)
    return {**earlier, **added}


def of_rows(facts: Mapping[str, Fact]) -> dict[str, RowsFact]:
    """Return the facts about rows."""
    return {name: fact for name, fact in facts.items() if isinstance(fact, RowsFact)}


def of_target(facts: Mapping[str, Fact]) -> dict[str, Fact]:
    """Return the facts about the target as it is now."""
    return {name: fact for name, fact in facts.items() if not isinstance(fact, RowsFact)}


def lines(facts: Iterable[Fact]) -> Iterator[str]:
    """Return the printed lines of facts."""
    for fact in facts:
        if fact:
            yield from map(visible, str(fact).split("\n"))


def plain(facts: Mapping[str, Fact]) -> dict[str, Mapping[str, object]]:
    """Return facts for JSON."""
    return {name: fact.to_dict() for name, fact in facts.items() if fact}
