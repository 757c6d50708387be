"""Counting for ``manage.py ttl_plan``; which rows are counted is up to `sample`.

What would be expired by another policy, or at another time, is asked of the very predicate that
reads and sweeps use: over another binding of the model, so many seconds later. The order of a
sample's stretches is that of a primary key of integers.
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
    """Count, by the policy of a model and one that is planned (one of them at least).

    Of more than so many rows in a sample.

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
        wrong = misread(bindings.get("planned") or bindings["current"], using)
        return replace(measured, doubts=[each.sentences for each in wrong])


def count(
    binding: Binding,
    policies: Mapping[str, TTL],
    using: str,
    *,
    rows: str | None,
    big: float = SMALL,
) -> Measured:
    """Count some rows of a table by policies of which the model itself knows nothing.

    Args:
        binding: That of the table.
        policies: What is compared, by the names that `sample.questions` wants.
        using: The alias of the database.
        rows: SQL for which rows are meant; None for all.
        big: Of more rows than that a sample is taken.
    """
    return _Counting(_bindings(binding, policies), using, rows).run(big)


def count_lost(
    binding: Binding, policies: Mapping[str, TTL], using: str, *, rows: str | None, limit: int
) -> int:
    """Count the rows that live by the current policy and not by the planned one, up to a limit."""
    return _Counting(_bindings(binding, policies), using, rows).lost(limit)


def _bindings(binding: Binding, policies: Mapping[str, TTL]) -> dict[str, Binding]:
    where = f"{binding.model._meta.label}.__ttl__"
    return {
        name: Binding.of(binding.model, policy, where=where, sweep="index", is_planned=True)
        for name, policy in policies.items()
    }


class _Counting:
    """The counting in one table, by what each policy means for it."""

    def __init__(self, bindings: dict[str, Binding], using: str, meant: str | None = None) -> None:
        self._meant = meant
        self._connection = connections[using]
        self._bindings = bindings
        # What is planned is what the histogram is about.
        self._main = bindings.get("planned") or bindings["current"]
        self._quote = self._connection.ops.quote_name
        self._table = self._quote(self._main.model._meta.db_table)
        self._asked = self._questions()
        self._followers = list(_links_of_row(self._main.model, self._table, self._quote))

    def run(self, big: float) -> Measured:
        """Count."""
        where = "" if self._meant is None else f" WHERE {self._meant}"
        rows = self._fetched(f"SELECT COUNT(*) FROM {self._table}{where}", ())[0]
        order = self._order() if rows > big else None
        names = [*self._asked, *map(of_followers, self._following)]
        return sample.carried_out(sample.plan(names, rows, big, order), self._count)

    @property
    def _following(self) -> list[str]:
        """The questions that are asked of followers, too."""
        return sample.following(self._asked) if self._followers else []

    def lost(self, limit: int) -> int:
        """Count the rows that the planned policy alone would let expire, and their followers."""
        conditions = [self._asked["lost"], *([self._meant] if self._meant else [])]
        criteria = " AND ".join(f"({condition})" for condition in conditions)
        sources = [(self._table, criteria)]
        sources += [
            (f"{self._table}, {tables}", f"{links} AND {criteria}")
            for tables, links in self._followers
        ]
        found = 0
        for tables, where in sources:
            if found < limit:
                rows = f"SELECT 1 FROM {tables} WHERE {where} LIMIT {limit - found}"
                found += int(self._fetched(f"SELECT COUNT(*) FROM ({rows}) found", ())[0])
        return found

    def _questions(self) -> dict[str, str]:
        """The conditions to count; those of a table's columns hold for an alias of its name too."""
        table, connection, main = self._table, self._connection, self._main
        own = None if main.own is None else f"{table}.{self._quote(str(main.own.column))}"
        dated = f"{table}.{self._quote(str(main.stamp.column))} IS NOT NULL"
        read = is_read(main, connection.alias, table)
        if read is not None:
            dated += f" AND COALESCE({read.replace('%', '%%')}, FALSE)"
        return sample.questions(
            {name: binding.policy for name, binding in self._bindings.items()},
            every=TRUE,
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
            f"CASE WHEN {asked} THEN 1 ELSE 0 END AS {self._quote(name)}"
            for name, asked in self._asked.items()
        )
        if self._meant is not None:
            chosen = f"{chosen} AND {self._meant}" if chosen else f" WHERE {self._meant}"
        if self._followers:
            ends = " OR ".join(f"({self._asked[name]})" for name in sample.ends_of(self._bindings))
            along = " + ".join(
                f"(SELECT COUNT(*) FROM {tables} WHERE {links})"
                for tables, links in self._followers
            )
            answers += f", CASE WHEN {ends} THEN {along} ELSE 0 END AS ttl_followers"
        scope = self._own_scope()
        rows = f"SELECT {scope or 'NULL'} AS ttl_scope, {answers} FROM {source}{chosen}"
        sums = ", ".join(f"SUM({self._quote(name)})" for name in self._asked)
        for name in self._following:
            sums += f", SUM(CASE WHEN {self._quote(name)} = 1 THEN ttl_followers ELSE 0 END)"
        # MySQL groups by no expression that it would have to compare.
        statement = f"SELECT MIN(ttl_scope), {sums} FROM ({rows}) counted"
        with self._connection.cursor() as cursor:
            cursor.execute(statement + " GROUP BY ttl_scope" * (scope is not None), values)
            return sample.answers(cursor.fetchall())

    def _own_scope(self) -> str | None:
        """The scope of a row, where that has a default of its own; None where no policy has any."""
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
        # Each by itself: SQLite reads all rows for both in one SELECT.
        ends = (f"(SELECT {end}({column}) FROM {self._table})" for end in ("MIN", "MAX"))
        lowest, highest = self._fetched(f"SELECT {', '.join(ends)}")
        return None if lowest is None else sample.Order(lowest, highest - lowest + 1)

    def _fetched(self, statement: str, values: Any = ()) -> Any:
        with self._connection.cursor() as cursor:
            cursor.execute(statement, values)  # where % signs are doubled, as Django takes them
            return cursor.fetchone()


def _sure(condition: str) -> str:
    """A condition that is false where it is NULL, as for a row without an instant."""
    return f"COALESCE(({condition}), {FALSE})"


def _links_of_row(
    model: Model, table: str, quote: Callable[[str], str]
) -> Iterator[tuple[str, str]]:
    """What counts the rows that follow a row of a model's table, at whatever depth.

    For each table the sources of a FROM, and the condition that leads from the row to them.
    """
    chains = [(rule, table, "", "") for rule in rules_below(model)]
    for number, (rule, above, sources, condition) in enumerate(chains):  # which grows
        name = f"ttl_follower_{number}"
        tables = f"{sources}, " * bool(sources) + f"{quote(rule.model._meta.db_table)} {name}"
        equal = " AND ".join(
            f"{name}.{quote(str(own.column))} = {above}.{quote(str(theirs.column))}"
            for own, theirs in rule.links.pairs
        )
        links = f"{condition} AND " * bool(condition) + equal
        yield tables, links
        chains += [(further, name, tables, links) for further in rules_below(rule.model)]
