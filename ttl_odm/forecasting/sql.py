"""Counting for `ttl-odm plan` in a SQL database: one scan, or on PostgreSQL one of a sample.

What would be expired under another default, or at another time, is asked of the very predicate
that reads and sweeps use: over a copy of the table's policy, and of the clock.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import and_, case, func, literal, literal_column, not_, select, tablesample, true
from sqlalchemy.types import BigInteger

from ttl_odm.forecasting.forecast import Measured, questions
from ttl_odm.inspecting.reading_sql import reading_only
from ttl_odm.sqlalchemy.binding import DefaultTTL, binding_of
from ttl_odm.sqlalchemy.clock import clock_of
from ttl_odm.sqlalchemy.options import include_expired
from ttl_odm.sqlalchemy.predicate import Verdicts
from ttl_odm.sqlalchemy.sweeping.due import estimate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import ColumnElement, Connection

    from ttl_odm.core.policy import Policy
    from ttl_odm.sqlalchemy.binding import Binding
    from ttl_odm.sqlalchemy.clock import Clock

BIG: Final = 1_000_000
"""Rows from which on a sample is taken, where the database can."""

SAMPLED: Final = 200_000
"""Rows of a sample, about."""

_SECONDS: Final = 600


def measure(
    connection: Connection,
    table: Any,
    planned: Policy | None,
    bounds: Sequence[int],
    big: int = BIG,
) -> Measured:
    """Count.

    Args:
        connection: Is thrown away afterwards: it has been made one that can only read.
        table: The Table.
        planned: Another policy over the same columns; None for none.
        bounds: Those of the histogram, seconds before now.
        big: Rows from which on a sample is taken.
    """
    binding = binding_of(table)
    assert binding is not None  # noqa: S101 (targets have one)
    asked = questions(is_planned=planned is not None, bounds=bounds)
    with reading_only(connection, _SECONDS):
        found = _measure(connection, binding, planned, asked, big)
    connection.invalidate()
    return found


def _measure(
    connection: Connection, binding: Binding, planned: Policy | None, asked: list[str], big: int
) -> Measured:
    source: Any = binding.table
    total = None
    if connection.dialect.name == "postgresql":
        rows = estimate(connection, binding.table)
        if rows is not None and rows > big:
            total = rows
            source = tablesample(binding.table, func.system(100 * min(1.0, SAMPLED / rows)))
    answers = _Answers(binding, planned, clock_of(connection.dialect), source)
    sums = [func.sum(case((answers.of(name), 1), else_=0)).label(name) for name in asked]
    statement = select(*sums).select_from(source)
    if total is not None:
        page = literal_column("(ctid::text::point)[0]::bigint", BigInteger())
        statement = statement.group_by(page)
    counted = connection.execute(statement.options(include_expired())).all()
    clusters = [tuple(int(each or 0) for each in row) for row in counted]
    return Measured(asked, clusters, total)


class _Answers:
    """The condition that each question is about."""

    def __init__(self, binding: Binding, planned: Policy | None, clock: Clock, source: Any) -> None:
        self._bindings = {"current": binding}
        if planned is not None:
            self._bindings["planned"] = _as_if(binding, planned)
        self._clock = clock
        self._columns = binding.columns_of(source)

    def of(self, name: str) -> ColumnElement[bool]:
        """Return it."""
        kind, _, number = name.partition(" ")
        if kind in self._bindings:
            return self._is(kind, int(number))
        if kind == "older":
            return self._older(int(number))
        own = self._columns.override
        others: dict[str, Callable[[], ColumnElement[bool]]] = {
            "rows": true,
            "dated": lambda: self._columns.last_modified.is_not(None),
            "own": lambda: not_(true()) if own is None else own.is_not(None),
            "lost": lambda: and_(self._is("planned", 0), not_(self._is("current", 0))),
            "revived": lambda: and_(self._is("current", 0), not_(self._is("planned", 0))),
        }
        return others[kind]()

    def _is(self, scenario: str, seconds: int) -> ColumnElement[bool]:
        """True for what is expired then, never NULL."""
        later = f"({self._clock.now} + {seconds} * {self._clock.second})"
        verdicts = Verdicts(replace(self._clock, now=later))
        expired = verdicts.expired(self._bindings[scenario], self._columns)
        return func.coalesce(expired, not_(true()))

    def _older(self, seconds: int) -> ColumnElement[bool]:
        clock = self._clock
        moment = clock.literal(clock.now) - clock.span(literal(seconds, BigInteger()))
        keeping = self._bindings["current"].instants.on(clock)
        return func.coalesce(keeping.reached(self._columns.last_modified, moment), not_(true()))


def _as_if(binding: Binding, planned: Policy) -> Binding:
    """The same table, as it would be with another default."""
    owner = type(binding.name, (), {"__ttl__": planned})
    return replace(binding, policy=planned, default=DefaultTTL(owner, planned))
