"""Proposals: which policy a table seems to follow already, and why.

A proposal is a guess with its reasons (names, values, indexes) and with what speaks against it. Its
best test is the number of rows that would be hidden at once: `ttl_odm.forecast` counts them, and
adds the numbers to the proposal.

This module must not know where evidence comes from, nor how a proposal is shown.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from enum import Enum
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final

from ttl_odm.core import NEVER, TTL, ExpireAfter, ExpireAt
from ttl_odm.core.policy import fields_of
from ttl_odm.core.values import duration_text
from ttl_odm.inspection import names
from ttl_odm.inspection.evidence import Field, Kind, Reading, Table, reading_of
from ttl_odm.sweeper.text import counted
from ttl_odm.sweeper.units import (
    EPOCHS,
    epoch_name,
    misread_instants,
    misread_lifetimes,
)

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterator, Sequence

    from ttl_odm.core.policy import Policy

_AHEAD: Final = timedelta(minutes=10)
"""A past instant that is so far ahead of now is not in UTC."""

_PROLONGS: Final = (
    "a sweep alone doesn't change {0}; in an application, every write through ttl_odm sets it "
    "to the current time, which prolongs the row, unless it is made with keep_last_modified=True"
)


class Confidence(Enum):
    """How well the evidence supports a proposal."""

    CLEAR = "clear"
    LIKELY = "likely"
    GUESS = "a guess"


@dataclass(frozen=True, slots=True)
class Proposal:
    """A policy for a table.

    Attributes:
        table: The table.
        policy: The proposed policy.
        confidence: How well the evidence supports it.
        reasons: What speaks for it, a line each.
        cautions: What to check before it is used, a line each.
        field: The field with the instants.
        rows: All rows of the table, once they have been counted.
        looked_at: The rows that were looked at for `expired`.
        expired: The rows that would be expired at once.
        margin: The error of `expired`, in rows.
    """

    table: Table
    policy: Policy
    confidence: Confidence
    reasons: Sequence[str]
    cautions: Sequence[str]
    field: Field
    rows: int = 0
    looked_at: int = 0
    expired: int = 0
    margin: int = 0

    def doubted(self, *cautions: str) -> Proposal:
        """Return the proposal with further cautions, because of which it can't be clear."""
        is_clear = self.confidence is Confidence.CLEAR
        confidence = Confidence.LIKELY if is_clear and cautions else self.confidence
        return replace(self, confidence=confidence, cautions=(*cautions, *self.cautions))


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result for a table: the best proposal, and remarks on rejected ones."""

    table: Table
    proposal: Proposal | None = None
    remarks: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class _Idea:
    """A possible policy by names, before values are read; `make` makes it from a unit.

    It `is_by_habit` if only the table's name suggests that its rows live for a short time.
    """

    field: Field
    confidence: Confidence
    make: Callable[..., Policy]
    reasons: Sequence[str]
    cautions: Sequence[str] = ()
    is_by_habit: bool = False


def propose(table: Table, now: datetime) -> Verdict:
    """Propose a policy for a table.

    Args:
        table: The table.
        now: The database's present instant, which is aware.
    """
    if (reason := _reason_for_none(table)) is not None:
        return Verdict(table, remarks=(reason, *_misreadings(table)))
    ends: list[Field] = []
    remarks = []
    words = names.words_of(table.name)
    for field in table.fields:
        whose = names.whose_end(field.name)
        # ``session_expires_at`` of a table of sessions is the row's own expiry. But the row of a
        # user whose password has expired must stay.
        if whose and not any(word.endswith(whose.rpartition("_")[2]) for word in words):
            remarks.append(
                f"{field.name} may be the expiry of the {whose.replace('_', ' ')} only; if it is "
                f"that of the whole row, declare ExpireAt({field.name!r})"
            )
        elif whose is not None:
            ends.append(field)
    remarks += _lifetimes_in_other_units(table)
    ideas = (_of_ends(table, ends), _of_lifetimes(table), _of_deletions(table), _of_habits(table))
    for idea in chain(*ideas):
        if idea.is_by_habit and table.references:
            remarks.append(
                f"the name {table.name} suggests short-lived rows, but {_referring(table)}"
            )
            break
        reading = reading_of(table, idea.field)
        if isinstance(reading, Reading):
            return Verdict(table, _proposal(table, idea, reading, now), tuple(remarks))
        if (remark := f"{idea.field.name} {reading}") not in remarks:
            remarks.append(remark)
    remarks += [f"MongoDB deletes {index.deletes}, by {index.name}" for index in table.ttl_indexes]
    return Verdict(table, remarks=tuple(remarks))


def _reason_for_none(table: Table) -> str | None:
    """Return why a table gets no proposal, whatever its columns are."""
    if table.problem is not None:
        return table.problem
    if table.has_policy:
        return "has a policy already"
    if {"_ts", "ttl"} <= {field.name for field in table.fields}:
        return "already has _ts and ttl: write __ttl__ = seconds"
    return None


def _misreadings(table: Table) -> Iterator[str]:
    """Yield the fields of a table with a policy whose values are in another unit than it reads."""
    policy = table.policy or TTL()
    own = policy.override if isinstance(policy, TTL) else None
    for field in table.fields:
        if field.name not in fields_of(policy):
            continue
        values = table.values(field.name)
        if field.name == own:
            wrong = misread_lifetimes(field.name, values)
        else:
            wrong = misread_instants(field.name, policy.unit, values)
        if wrong is not None:
            yield str(wrong)


def _of_ends(table: Table, ends: list[Field]) -> Iterator[_Idea]:
    for field in table.fields:
        if (seconds := field.ttl_seconds) is not None:
            make: Callable[..., Policy] = partial(ExpireAt, field.name)
            if seconds:
                make = partial(ExpireAfter, field.name, seconds)
            yield _Idea(
                field,
                Confidence.CLEAR,
                make,
                (f"MongoDB has a TTL index on {field.name} of {counted(seconds, 'second')}",),
            )
    prefixed = {field.name for field in ends if names.whose_end(field.name)}
    # Names without a prefix first, then indexed fields.
    for field in sorted(ends, key=lambda end: (end.name in prefixed, not end.is_indexed)):
        others = [other.name for other in ends if other is not field]
        yield _Idea(
            field,
            Confidence.LIKELY if field.name in prefixed else Confidence.CLEAR,
            partial(ExpireAt, field.name),
            (f"the name {field.name} suggests when a row expires",),
            (f"{' and '.join(others)} may be the expiry, too: choose the latest",) * bool(others),
        )


def _of_lifetimes(table: Table) -> Iterator[_Idea]:
    patterns = (names.LEASE, names.BEGINNING, names.ACTIVITY)
    begins = next(filter(None, (_first(table, pattern) for pattern in patterns)), None)
    for own in _lifetimes(table):
        if (wrong := misread_lifetimes(own.name, table.values(own.name))) is not None:
            if wrong.is_most and wrong.unit is None:
                yield _Idea(
                    own,
                    Confidence.LIKELY,
                    partial(ExpireAt, own.name),
                    (f"the name {own.name} suggests a lifetime, but it holds instants",),
                )
            if wrong.is_most:
                continue
        if begins is None:
            continue
        has_zeros = any(seconds == 0 for seconds in table.values(own.name))
        never = (0,) if has_zeros else ()
        reasons = [f"the name {own.name} suggests a number of seconds, counted from {begins.name}"]
        reasons += [f"rows have {own.name} = 0, which mostly means never"] * has_zeros
        yield _Idea(
            begins,
            Confidence.LIKELY,
            partial(TTL, NEVER, last_modified=begins.name, override=own.name, never=never),
            reasons,
            (*([str(wrong)] if wrong else []), _PROLONGS.format(begins.name)),
        )


def _lifetimes(table: Table) -> Iterator[Field]:
    """Yield the fields whose names suggest a number of seconds to live."""
    for field in table.fields:
        if field.kind is Kind.INTEGER and names.says(field.name, names.LIFETIME):
            yield field


def _lifetimes_in_other_units(table: Table) -> Iterator[str]:
    """Yield remarks on lifetimes that can't be used because they aren't in seconds."""
    fix = "policies read seconds: add a column with seconds, such as a generated one"
    for field in table.fields:
        if field.kind in (Kind.INTEGER, Kind.FLOAT) and (
            unit := names.unit_of_lifetime(field.name)
        ):
            yield f"the name {field.name} suggests a lifetime in {unit}, but {fix}"
    for field in _lifetimes(table):
        wrong = misread_lifetimes(field.name, table.values(field.name))
        if wrong is not None and wrong.is_most and wrong.unit is not None:
            yield f"{wrong}; {fix}"


def _of_deletions(table: Table) -> Iterator[_Idea]:
    """Yield a policy for rows that were marked as deleted, as in a trash."""
    field = _first(table, names.DELETION)
    if field is None:
        return
    seconds = names.TRASH.seconds
    yield _Idea(
        field,
        Confidence.GUESS,
        partial(ExpireAfter, field.name, seconds),
        (
            f"the name {field.name} suggests the instant at which a row was marked as deleted",
            f"the schema doesn't tell how long such rows are kept: {names.TRASH.whose}",
        ),
        (
            f"choose the {duration_text(seconds)} yourself",
            f"rows without {field.name} never expire",
        ),
    )


def _of_habits(table: Table) -> Iterator[_Idea]:
    habit = names.habit_of(table.name)
    for pattern, usual, what in (
        (names.COMPLETION, names.work_habit_of(table.name), "when it was done"),
        (names.ACTIVITY, habit, "when it was last used"),
        (names.BEGINNING, habit, "when it began"),
    ):
        field = _first(table, pattern)
        if usual is None or field is None:
            continue
        yield _Idea(
            field,
            Confidence.GUESS,
            partial(ExpireAfter, field.name, usual.seconds),
            (
                f"the name {table.name} suggests short-lived rows, and {field.name} tells {what}",
                f"the schema doesn't tell how long rows are kept: {usual.whose}",
            ),
            (f"choose the {duration_text(usual.seconds)} yourself",),
            is_by_habit=True,
        )


def _first(table: Table, pattern: re.Pattern[str]) -> Field | None:
    """Return the first field with such a name, preferably one that can be used."""
    fields = [field for field in table.fields if names.says(field.name, pattern)]
    usable = (field for field in fields if isinstance(reading_of(table, field), Reading))
    return next(usable, fields[0] if fields else None)


def _proposal(table: Table, idea: _Idea, reading: Reading, now: datetime) -> Proposal:
    field, policy = idea.field, idea.make(unit=reading.unit)
    reasons = [*idea.reasons, f"{field.name} holds: {reading.kind}"]
    reasons += [f"an index begins with {field.name}"] * field.is_indexed
    cautions = *idea.cautions, *_cautions(table, field, policy, now)
    doubts = []
    if field.ttl_seconds is None and table.references:  # with it MongoDB already deletes them
        doubts.append(
            f"{_referring(table)}: make sure that no referring row needs a row after its expiry, "
            "or let it live as long as the rows that refer to it"
        )
    named = names.unit_of_instants(field.name)
    if reading.unit in EPOCHS and named is not None and named != reading.unit:
        what = f"{epoch_name(named)}, but its values are {reading.kind}"
        doubts.append(f"the name {field.name} suggests {what}")
    wrong = misread_instants(field.name, reading.unit, table.values(field.name))
    if wrong is not None:  # some values suggest another unit than most
        doubts.append(str(wrong))
    doubts += [
        f"MongoDB also deletes {index.deletes}, by {index.name}, whatever the policy says: drop "
        "that index first"
        for index in table.ttl_indexes
        if index.is_partial or index.field != field.name
    ]
    proposal = Proposal(table, policy, idea.confidence, tuple(reasons), cautions, field)
    return proposal.doubted(*doubts)


def _referring(table: Table) -> str:
    """Return a phrase that names the first columns that refer to a table."""
    most = 3
    first = ", ".join(table.references[:most])
    more = f" and {len(table.references) - most} more" if len(table.references) > most else ""
    return f"{first}{more} {'refer' if len(table.references) > 1 else 'refers'} to it"


def _cautions(table: Table, field: Field, policy: Policy, now: datetime) -> Iterator[str]:
    if field.note:
        yield field.note
    if field.is_nullable and isinstance(policy, ExpireAt):
        yield (
            f'rows without {field.name} never expire; with null="expired" they would expire at once'
        )
    if field.kind is not Kind.NAIVE or table.django is not None:  # Django's settings have the zone
        return
    highest = field.highest
    if (
        not isinstance(policy, ExpireAt)  # other policies count from an instant in the past
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
