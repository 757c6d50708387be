"""Counts for ``manage.py ttl_plan``; `sample` decides which rows are counted.

Expiry by another policy, or at another time, comes from the same predicate as in reads and sweeps,
with another binding of the model, so many seconds later. The order of a sample's stretches is that
of an integer primary key.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from django.db import connections
from django.db.models import IntegerField

from ttl_odm.django.management.units import is_read, misread
from ttl_odm.django.policy.bindings import Binding, binding_of
from ttl_odm.django.policy.predicate import FALSE, TRUE, begun_before, expired_in
from ttl_odm.django.policy.rules import rules_below
from ttl_odm.django.purge.errors import store_errors
from ttl_odm.django.sweep.transactions import impatient
from ttl_odm.forecast import sample
from ttl_odm.forecast.estimates import of_followers
from ttl_odm.inspection.evidence import SMALL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ttl_odm.core.policy import TTL, Policy
    from ttl_odm.django.policy.bindings import Model
    from ttl_odm.forecast.estimates import Measured

_SECONDS: Final = 600


def measure(model: Model, planned: Policy | None, using: str, big: float = SMALL) -> Measured:
    """Count the rows of a model by its policy and a planned one, of which at least one exists.

    Args:
        model: The model.
        planned: The planned policy, if there is one.
        using: The alias of the database.
        big: The most rows that are all counted; of more, a sample is.

    Raises:
        TTLConfigurationError: The model has no field that the planned policy names.
        StoreError: The database doesn't answer.
    """
    bindings = {}
    current = binding_of(model)
    if current is not None:
        bindings["current"] = current
    if planned is not None:
        owner = model if current is None else current.model
        bindings["planned"] = Binding.of(
            owner, planned, where="the policy", sweep="index", is_planned=True
        )
    with store_errors(), impatient(using, _SECONDS):
        measured = _Counting(bindings, using).run(big)
        main = bindings.get("planned") or bindings["current"]
        return replace(measured, doubts=[wrong.sentences for wrong in misread(main, using)])


def count(
    binding: Binding,
    policies: Mapping[str, TTL],
    using: str,
    *,
    rows: str | None,
    big: float = SMALL,
) -> Measured:
    """Count some rows of a table by policies that its model doesn't have.

    Args:
        binding: The table's own policy.
        policies: The policies, by the names that `sample.questions` needs.
        using: The alias of the database.
        rows: SQL for the rows to count; None for all.
        big: The most rows that are all counted; of more, a sample is.
    """
    return _Counting(_bindings(binding, policies), using, rows).run(big)


def count_lost(
    binding: Binding, policies: Mapping[str, TTL], using: str, *, rows: str | None, limit: int
) -> int:
    """Count the rows, with followers, that only the planned policy lets expire, up to a limit."""
    return _Counting(_bindings(binding, policies), using, rows).lost(limit)


def _bindings(binding: Binding, policies: Mapping[str, TTL]) -> dict[str, Binding]:
    where = f"{binding.model._meta.label}.__ttl__"
    return {
        name: Binding.of(binding.model, policy, where=where, sweep="index", is_planned=True)
        for name, policy in policies.items()
    }


class _Counting:
    """The counts of one table, by the bindings of the policies."""

    def __init__(self, bindings: dict[str, Binding], using: str, rows: str | None = None) -> None:
        self._rows = rows
        self._connection = connections[using]
        self._bindings = bindings
        # The histogram is about the planned policy.
        self._main = bindings.get("planned") or bindings["current"]
        self._quote = self._connection.ops.quote_name
        self._table = self._quote(self._main.model._meta.db_table)
        self._conditions = self._named_conditions()
        self._followers = list(_links_of_row(self._main.model, self._table, self._quote))

    def run(self, big: float) -> Measured:
        """Count all rows, or a sample of more than `big`."""
        where = "" if self._rows is None else f" WHERE {self._rows}"
        rows = self._fetch(f"SELECT COUNT(*) FROM {self._table}{where}")[0]
        order = self._order() if rows > big else None
        names = [*self._conditions, *map(of_followers, self._of_followers)]
        return sample.run(sample.plan(names, rows, big, order), self._count)

    @property
    def _of_followers(self) -> list[str]:
        """The questions that also count followers."""
        return sample.questions_of_followers(self._conditions) if self._followers else []

    def lost(self, limit: int) -> int:
        """Count the rows, with followers, that only the planned policy lets expire."""
        criteria = f"({self._conditions['lost']})" + (f" AND ({self._rows})" if self._rows else "")
        sources = [(self._table, criteria)]
        sources += [
            (f"{self._table}, {tables}", f"{links} AND {criteria}")
            for tables, links in self._followers
        ]
        number = 0
        for tables, where in sources:
            if number < limit:
                rows = f"SELECT 1 FROM {tables} WHERE {where} LIMIT {limit - number}"
                number += int(self._fetch(f"SELECT COUNT(*) FROM ({rows}) found")[0])
        return number

    def _named_conditions(self) -> dict[str, str]:
        """Return the conditions to count; they also fit a subquery with the table's name."""
        table, connection, main = self._table, self._connection, self._main
        own = None if main.own is None else f"{table}.{self._quote(str(main.own.column))}"
        dated = f"{table}.{self._quote(str(main.stamp.column))} IS NOT NULL"
        read = is_read(main, connection.alias, table)
        if read is not None:
            dated += f" AND COALESCE({read.replace('%', '%%')}, FALSE)"
        return sample.questions(
            {name: binding.policy for name, binding in self._bindings.items()},
            all_rows=TRUE,
            dated=dated,
            own=FALSE if own is None else f"{own} IS NOT NULL",
            expired=lambda name, seconds: _sure(
                expired_in(connection, self._bindings[name], table, seconds=seconds)
            ),
            older=lambda seconds: _sure(begun_before(connection, main, table, seconds)),
            but_not=lambda one, other: f"({one}) AND NOT ({other})",
        )

    def _count(self, part: sample.Part) -> sample.Answers:
        source, values, chosen = self._table, [], ""
        if part.within is not None:
            key = self._quote(str(self._main.model._meta.pk.column))
            rows = f"SELECT * FROM {self._table} WHERE {key} >= %s AND {key} < %s LIMIT %s"
            source, values = f"({rows}) {self._table}", [*part.within, part.limit]
        elif part.share < 1:
            chosen = f" WHERE {sample.chance(self._connection.vendor, part.share)}"
        answers = ", ".join(
            f"CASE WHEN {condition} THEN 1 ELSE 0 END AS {self._quote(name)}"
            for name, condition in self._conditions.items()
        )
        if self._rows is not None:
            chosen = f"{chosen} AND {self._rows}" if chosen else f" WHERE {self._rows}"
        if self._followers:
            ends = " OR ".join(
                f"({self._conditions[name]})" for name in sample.ends_of(self._bindings)
            )
            followers = " + ".join(
                f"(SELECT COUNT(*) FROM {tables} WHERE {links})"
                for tables, links in self._followers
            )
            answers += f", CASE WHEN {ends} THEN {followers} ELSE 0 END AS ttl_followers"
        scope = self._own_scope()
        rows = f"SELECT {scope or 'NULL'} AS ttl_scope, {answers} FROM {source}{chosen}"
        sums = ", ".join(f"SUM({self._quote(name)})" for name in self._conditions)
        for name in self._of_followers:
            sums += f", SUM(CASE WHEN {self._quote(name)} = 1 THEN ttl_followers ELSE 0 END)"
        # MySQL can't group by a scope's expression, so a subquery gives it a name.
        statement = f"SELECT MIN(ttl_scope), {sums} FROM ({rows}) counted"
        with self._connection.cursor() as cursor:
            cursor.execute(statement + " GROUP BY ttl_scope" * (scope is not None), values)
            return sample.answers(cursor.fetchall())

    def _own_scope(self) -> str | None:
        """Return SQL for a row's scope if it has a default of its own; None without scopes."""
        for binding in self._bindings.values():
            scoping = binding.source.scoping
            if scoping is not None:
                return scoping.of_row(self._connection, self._table)
        return None

    def _order(self) -> sample.Order | None:
        key = self._main.model._meta.pk
        if not isinstance(key, IntegerField):
            return None
        column = self._quote(str(key.column))
        # In two subqueries: SQLite reads all rows for both in one SELECT.
        ends = (f"(SELECT {end}({column}) FROM {self._table})" for end in ("MIN", "MAX"))
        lowest, highest = self._fetch(f"SELECT {', '.join(ends)}")
        return None if lowest is None else sample.Order(lowest, highest - lowest + 1)

    def _fetch(self, statement: str) -> tuple[Any, ...]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement, ())  # with values, Django expects doubled percent signs
            row: tuple[Any, ...] = cursor.fetchone()
            return row


def _sure(condition: str) -> str:
    """Return a condition that is false instead of NULL, as for a row without an instant."""
    return f"COALESCE(({condition}), {FALSE})"


def _links_of_row(
    model: Model, table: str, quote: Callable[[str], str]
) -> Iterator[tuple[str, str]]:
    """Yield what counts the rows that follow a row of a model's table, directly or not.

    For each table it yields the FROM clause, and the condition that leads from the row to it.
    """
    chains = [(rule, table, "", "") for rule in rules_below(model)]
    for number, (rule, above, sources, condition) in enumerate(chains):  # the list grows meanwhile
        name = f"ttl_follower_{number}"
        tables = f"{sources}, " * bool(sources) + f"{quote(rule.model._meta.db_table)} {name}"
        equal = " AND ".join(
            f"{name}.{quote(str(own.column))} = {above}.{quote(str(theirs.column))}"
            for own, theirs in rule.links.pairs
        )
        links = f"{condition} AND " * bool(condition) + equal
        yield tables, links
        chains += [(further, name, tables, links) for further in rules_below(rule.model)]
