"""Counting for `ttl-odm plan` in a SQL database: one scan, or of a big table a sample.

What would be expired by another policy, or at another time, is asked of the very predicate that
reads and sweeps use: over another binding of the table, and a copy of the clock. How a sample is
drawn is `sampling`.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import MetaData, Table, and_, case, func, literal, not_, select, true
from sqlalchemy.exc import NoSuchTableError
from sqlalchemy.types import BigInteger

from ttl_odm.core.policy import TTL
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.forecast import sampling
from ttl_odm.forecast.estimates import Measured
from ttl_odm.forecast.forecast import questions
from ttl_odm.inspection.evidence import SMALL
from ttl_odm.inspection.readers.sql import reading_only
from ttl_odm.sqlalchemy.declare import mapper
from ttl_odm.sqlalchemy.declare.enable import enable, roots_of
from ttl_odm.sqlalchemy.policy.binding import Variant, binding_of
from ttl_odm.sqlalchemy.policy.parameters import DefaultTTL, KindTTL, include_expired
from ttl_odm.sqlalchemy.policy.predicate import Predicate
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import ColumnElement, Connection, FromClause, Select

    from ttl_odm.core.policy import Policy
    from ttl_odm.sqlalchemy.policy.binding import Binding
    from ttl_odm.sqlalchemy.time.clock import Clock

_SECONDS: Final = 600


def measure(
    connection: Connection,
    table: Table | str,
    planned: Policy | None,
    bounds: Sequence[int],
    big: float = SMALL,
) -> Measured:
    """Count.

    Args:
        connection: Is thrown away afterwards: it has been made one that can only read.
        table: The Table; or where a policy is planned, the name of one that is in the database,
            with its schema if that is not the connection's own.
        planned: Another policy; None for none.
        bounds: Those of the histogram, seconds before now.
        big: Rows beyond which a sample is taken; infinity for none.

    Raises:
        TTLConfigurationError: There is no such table, or it lacks a column that the policy needs.
    """
    with reading_only(connection, _SECONDS):
        bindings = _bindings(connection, table, planned)
        found = _measure(connection, bindings, questions(bindings, bounds), big)
    connection.invalidate()
    return found


def _bindings(
    connection: Connection, table: Table | str, planned: Policy | None
) -> dict[str, Binding]:
    """What each policy means for the table."""
    if isinstance(table, str):
        reflected = _reflected(connection, table)
        enable(reflected, planned)  # which nobody else will see
        found = {"planned": binding_of(reflected)}
    else:
        current = binding_of(table)
        found = {
            "current": current,
            "planned": None if planned is None else _as_if(table, current, planned),
        }
    return {name: binding for name, binding in found.items() if binding is not None}


def _reflected(connection: Connection, name: str) -> Table:
    schema, _, plain = name.rpartition(".")
    place: Any = {"schema": schema or None, "autoload_with": connection, "resolve_fks": False}
    with warnings.catch_warnings():  # of indexes and types that SQLAlchemy can't reflect
        warnings.simplefilter("ignore")
        try:
            return Table(plain, MetaData(), **place)
        except NoSuchTableError as error:
            message = f"there is no table {name!r} in the database."
            raise TTLConfigurationError(message) from error


def _as_if(table: Table, current: Binding | None, planned: Policy) -> Binding:
    """What the table's binding would be by another policy."""
    owner = type(table.name, (), {"__ttl__": planned})
    binding = mapper.binding_for(table, owner, next(iter(roots_of(table)), None))
    if current is not None and isinstance(planned, TTL) and planned.by is None:
        # Subclasses keep the defaults of their own.
        binding.variants += [
            Variant(DefaultTTL(each.default.owner, planned), each.identities)
            for each in current.variants
            if not isinstance(each.default, KindTTL)
        ]
    return binding


def _measure(
    connection: Connection, bindings: dict[str, Binding], asked: list[str], big: float
) -> Measured:
    table = next(iter(bindings.values())).table
    clock = clock_of(connection.dialect)

    def counting(source: FromClause) -> Select[Any]:
        answers = _Answers(bindings, clock, source)
        sums = [func.sum(case((answers.of(name), 1), else_=0)).label(name) for name in asked]
        return select(*sums).select_from(source).options(include_expired())

    rows = sampling.size_of(connection, table)
    if rows > big:
        return sampling.sampled(connection, table, rows, asked, counting)
    return Measured(asked, sampling.clusters(connection, counting(table)))


class _Answers:
    """The condition that each question is about."""

    def __init__(self, bindings: dict[str, Binding], clock: Clock, source: FromClause) -> None:
        self._bindings = bindings
        # What is planned is what the histogram is about.
        self._main = bindings.get("planned") or bindings["current"]
        self._clock = clock
        self._source = source
        self._columns = self._main.columns_of(source)

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
        predicate = Predicate(replace(self._clock, now=later))
        binding = self._bindings[scenario]
        expired = predicate.expired(binding, binding.columns_of(self._source))
        return func.coalesce(expired, not_(true()))

    def _older(self, seconds: int) -> ColumnElement[bool]:
        clock = self._clock
        moment = clock.literal(clock.now) - clock.span(literal(seconds, BigInteger()))
        keeping = self._main.instants.on(clock)
        return func.coalesce(keeping.reached(self._columns.last_modified, moment), not_(true()))
