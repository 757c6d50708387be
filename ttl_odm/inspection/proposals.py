"""From evidence to a proposal: which policy a table seems to follow already, and why.

A proposal is a guess with its reasons. What it rests on is told (names, values, indexes), what
speaks against it too, and how much of the sample would be out of sight at once: that number is
the best test of a guess.

This module must not know where evidence comes from, nor how a proposal is shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final

from ttl_odm.core import NEVER, TTL, ExpireAfter, ExpireAt, expires_at, is_expired
from ttl_odm.inspection import names
from ttl_odm.inspection.evidence import Field, Kind, Reading, Table, reading_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ttl_odm.core.policy import Policy

_AHEAD: Final = timedelta(minutes=10)
"""A moment in the past that lies so far in the future is no moment in UTC."""


class Confidence(Enum):
    """How much there is to a proposal."""

    CLEAR = "clear"
    LIKELY = "likely"
    GUESS = "a guess"


@dataclass(frozen=True, slots=True)
class Proposal:
    """A policy for a table.

    Attributes:
        table: Which.
        policy: What is proposed.
        confidence: How sure that is.
        reasons: What speaks for it, a line each.
        cautions: What to look at before it is used, a line each.
        looked_at: Rows of the sample.
        expired: How many of them would be expired at once.
        field: The field with the instants.
    """

    table: Table
    policy: Policy
    confidence: Confidence
    reasons: Sequence[str]
    cautions: Sequence[str]
    looked_at: int
    expired: int
    field: Field


@dataclass(frozen=True, slots=True)
class Verdict:
    """What there is to say of a table.

    Attributes:
        table: Which.
        proposal: The best one; None without any.
        remarks: Why not, where it looks as if it should have one.
    """

    table: Table
    proposal: Proposal | None = None
    remarks: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class _Idea:
    field: Field
    confidence: Confidence
    make: Callable[..., Policy]  # gets the unit
    reasons: Sequence[str]
    cautions: Sequence[str] = ()


def propose(table: Table, now: datetime) -> Verdict:
    """Say what policy a table seems to want.

    Args:
        table: The evidence.
        now: The database's clock, aware.
    """
    if table.problem is not None:
        return Verdict(table, remarks=(table.problem,))
    if {"_ts", "ttl"} <= {each.name for each in table.fields}:
        return Verdict(table, remarks=("has _ts and ttl already: write __ttl__ = seconds",))
    remarks = dict.fromkeys(_ends_of_others(table))
    for idea in _ideas(table):
        reading = reading_of(table, idea.field)
        if isinstance(reading, str):
            remarks[f"{idea.field.name} {reading}"] = None
            continue
        return Verdict(table, _proposal(table, idea, reading, now), tuple(remarks))
    return Verdict(table, remarks=tuple(remarks))


def _ideas(table: Table) -> Iterator[_Idea]:
    """Give what might be, the best first."""
    yield from _of_ttl_indexes(table)
    ends = [(names.whose_end(each.name), each) for each in table.fields]
    own = [each for whose, each in ends if whose is not None and _is_own(table, whose)]
    yield from _of_ends(own)
    yield from _of_lifetimes(table)
    yield from _of_customs(table)


def _of_ttl_indexes(table: Table) -> Iterator[_Idea]:
    for field in table.fields:
        seconds = field.ttl_seconds
        if seconds is None:
            continue
        make = (
            partial(ExpireAfter, field.name, seconds) if seconds else partial(ExpireAt, field.name)
        )
        yield _Idea(
            field,
            Confidence.CLEAR,
            make,
            (f"MongoDB has a TTL index on {field.name} of {seconds} seconds",),
        )


def _ends_of_others(table: Table) -> Iterator[str]:
    """Name ends that are perhaps not the row's: a user whose password has expired is no rubbish."""
    for each in table.fields:
        whose = names.whose_end(each.name)
        if whose and not _is_own(table, whose):
            yield (
                f"{each.name} may be the end of the {whose.replace('_', ' ')} only; if it is that "
                f"of the whole row, declare ExpireAt({each.name!r})"
            )


def _is_own(table: Table, whose: str) -> bool:
    """Whether ``session_expires_at`` is about the sessions of this very table."""
    last = whose.rpartition("_")[2]
    return not whose or any(word.endswith(last) for word in names.words_of(table.name))


def _of_ends(fields: list[Field]) -> Iterator[_Idea]:
    # Without a prefix first, then the one that an index was made for.
    ranked = sorted(
        fields, key=lambda each: (bool(names.whose_end(each.name)), not each.is_indexed)
    )
    for field in ranked:
        others = [each.name for each in fields if each is not field]
        yield _Idea(
            field,
            Confidence.CLEAR if not names.whose_end(field.name) else Confidence.LIKELY,
            partial(ExpireAt, field.name),
            (f"{field.name} is called like the end of a row",),
            (f"{' and '.join(others)} may be the end as well: take the last one",) * bool(others),
        )


def _of_lifetimes(table: Table) -> Iterator[_Idea]:
    lifetimes = [
        each for each in table.fields if names.is_lifetime(each.name) and each.kind is Kind.INTEGER
    ]
    begins = _first(table, names.is_beginning) or _first(table, names.is_activity)
    for own in lifetimes:
        if begins is None:
            continue
        zeros = any(each == 0 for each in table.values(own.name))
        never = (0,) if zeros else ()
        reasons = [f"{own.name} is called like a number of seconds that counts from {begins.name}"]
        reasons += [f"rows have {own.name} = 0, which mostly means never"] * zeros
        yield _Idea(
            begins,
            Confidence.LIKELY,
            partial(TTL, NEVER, last_modified=begins.name, override=own.name, never=never),
            reasons,
            [_prolonging(begins.name)],
        )


def _prolonging(begins: str) -> str:
    return (
        f"every write through ttl_odm sets {begins} to its own instant; where a write must not "
        "prolong the row, give it keep_last_modified=True"
    )


def _of_customs(table: Table) -> Iterator[_Idea]:
    for test, custom, what in (
        (names.is_completion, names.work_of(table.name), "when it was done"),
        (names.is_activity, names.custom_of(table.name), "when it was last used"),
        (names.is_beginning, names.custom_of(table.name), "when it began"),
    ):
        field = _first(table, test)
        if custom is None or field is None:
            continue
        yield _Idea(
            field,
            Confidence.GUESS,
            partial(ExpireAfter, field.name, custom.seconds),
            (
                f"{table.name} is called like something that passes, and {field.name} says {what}",
                f"nothing says how long rows are kept: {custom.whose}",
            ),
            (f"choose the {custom.seconds} seconds yourself",),
        )


def _first(table: Table, test: Callable[[str], bool]) -> Field | None:
    fitting = [each for each in table.fields if test(each.name)]
    usable = [each for each in fitting if isinstance(reading_of(table, each), Reading)]
    return next(iter(usable or fitting), None)


def _proposal(table: Table, idea: _Idea, reading: Reading, now: datetime) -> Proposal:
    policy = idea.make(unit=reading.unit)
    judged = [_is_expired(policy, row, idea.field.name, now) for row in table.sample]
    reasons = [*idea.reasons, f"{idea.field.name} holds: {reading.kind}"]
    reasons += [f"an index begins with {idea.field.name}"] * idea.field.is_indexed
    return Proposal(
        table,
        policy,
        idea.confidence,
        tuple(reasons),
        (*idea.cautions, *_cautions(idea.field, policy, now)),
        len(judged),
        sum(judged),
        idea.field,
    )


def _cautions(field: Field, policy: Policy, now: datetime) -> Iterator[str]:
    if field.note:
        yield field.note
    if field.is_nullable and isinstance(policy, ExpireAt):
        yield f'rows without {field.name} never expire; null="expired" would say the opposite'
    if field.kind is Kind.NAIVE:
        highest = field.highest
        is_past = not isinstance(policy, ExpireAt)
        if (
            is_past
            and isinstance(highest, datetime)
            and highest.tzinfo is None
            and highest.replace(tzinfo=timezone.utc) > now + _AHEAD
        ):
            yield (
                f"{field.name} is ahead of UTC ({highest:%Y-%m-%d %H:%M}): it seems to be local "
                "time; add timezone= with its IANA name"
            )
        else:
            yield f"{field.name} has no time zone and is read as UTC; timezone= says another"


def _is_expired(policy: Policy, row: Mapping[str, object], field: str, now: datetime) -> bool:
    """Whether a row of the sample would be expired."""
    own = row.get(policy.override) if isinstance(policy, TTL) and policy.override else None
    return is_expired(expires_at(policy, instant=row.get(field), own=own), now)
