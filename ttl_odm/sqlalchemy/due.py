"""What has expired and was not purged yet: which part of a table's rows, and for how long.

One statement that reads the first entry of each index; a sweep that finds nothing to do has then
done all that it does. A table that has to be walked isn't asked: that would be a walk by itself.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import not_, or_, select

from ttl_odm.core.values import NEVER
from ttl_odm.sqlalchemy.clock import clock_of
from ttl_odm.sqlalchemy.connections import reading
from ttl_odm.sqlalchemy.options import include_expired
from ttl_odm.sqlalchemy.windows import PartIndex, finite_defaults
from ttl_odm.sweeper import Due, Part

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import ColumnElement, Connection, Select

    from ttl_odm.sqlalchemy.binding import Binding
    from ttl_odm.sqlalchemy.clock import Clock


def find_due(connection: Connection, binding: Binding) -> Due | None:
    """Find out what there is to purge; see `ttl_odm.sweeper.Store.due`."""
    if all(default() is None for default in binding.defaults()):
        return None
    if binding.sweep == "scan":
        can_expire = binding.override is not None or finite_defaults(binding)
        return Due((Part.ALL,), None) if can_expire else Due((), 0.0)
    clock = clock_of(connection.dialect)
    questions = list(_questions(binding, clock))
    overdue = select(*(question.scalar_subquery() for _, question in questions))
    with reading(connection):
        answers = connection.execute(overdue.options(include_expired())).one()
    found = [
        (part, _seconds(answer, clock))
        for (part, _), answer in zip(questions, answers, strict=True)
        if answer is not None
    ]
    parts = dict.fromkeys(part for part, _ in found)
    return Due(tuple(parts), max((seconds for _, seconds in found), default=0.0))


def _questions(binding: Binding, clock: Clock) -> Iterator[tuple[Part, Select[Any]]]:
    """For how long the first row has been expired, for every life that rows may have."""
    for seconds, rows in _inherited_lives(binding):
        yield Part.INHERITING, _overdue(PartIndex(binding, Part.INHERITING, clock), seconds, rows)
    yield Part.OWN, _overdue(PartIndex(binding, Part.OWN, clock), 0, [])


def _overdue(index: PartIndex, seconds: int, rows: list[ColumnElement[bool]]) -> Select[Any]:
    table = index.table
    end = index.end(table)
    return (
        select(index.cutoff(seconds) - end)
        .where(index.holds(table), end <= index.cutoff(seconds), *rows)
        .where(index.expired(table, writing=False))
        .order_by(end)
        .limit(1)
    )


def _inherited_lives(binding: Binding) -> Iterator[tuple[int, list[ColumnElement[bool]]]]:
    """Each default that lets rows expire, with the condition for the rows that inherit it."""
    kind = binding.discriminator
    variants = [] if kind is None else [each for each in binding.variants if each.identities]
    of_variants = [
        or_(*(kind == identity for identity in variant.identities)) for variant in variants
    ]
    others = [or_(kind.is_(None), not_(or_(*of_variants)))] if variants and kind is not None else []
    lives = [(binding.default, others)]
    lives += [
        (variant.default, [rows]) for variant, rows in zip(variants, of_variants, strict=True)
    ]
    for default, rows in lives:
        seconds = default()
        if seconds is not None and seconds != NEVER:
            yield seconds, rows


def _seconds(overdue: Any, clock: Clock) -> float:
    if isinstance(overdue, timedelta):
        return overdue.total_seconds()
    return float(overdue / (clock.per_second or 1))
