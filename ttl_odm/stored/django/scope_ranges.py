"""The way of a sweep from scope to scope, by an index that the scopes' field leads.

One statement goes from one scope to the next by the index, many scopes at once, and reads the first
entry of each: a scope with nothing to delete costs a few look-ups, however many rows it has.
`ttl_odm.stored.sqlalchemy.scope_ranges` says why.

That entry is compared outside of its look-up, and MariaDB and MySQL find the scopes by DISTINCT:
these search an index by no bound that comes from another row, and would read all entries to find
none that is old enough.

`ttl_odm.stored.scope_walk` decides how a sweep goes from scope to scope; here its questions are
answered by statements. `ScopedRows` returns batches as `ExpiredRows` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from django.db import connections

from ttl_odm.django.policy.indexes import scope_need, stored_indexes
from ttl_odm.django.sweep.due import ExpiredRows
from ttl_odm.django.sweep.walks import Keys
from ttl_odm.django.time import clock
from ttl_odm.stored.django.lookup import StoredAge, age_of
from ttl_odm.stored.scope_walk import (
    AT_ONCE,
    CountIn,
    Look,
    ScopePlace,
    ScopeRange,
    all_due,
    answered,
    by_cutoff,
    in_stretches,
    looked_at,
    next_range,
)
from ttl_odm.sweeper import Part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper

    from ttl_odm.dialects.indexes import IndexNeed, StoredIndex
    from ttl_odm.django.policy.bindings import Binding
    from ttl_odm.django.policy.options import AnyQuerySet
    from ttl_odm.stored.scope_walk import Question, Scope, Scopes

    _Seen = dict[tuple[str, IndexNeed], StoredIndex]

R = TypeVar("R")

_seen: WeakKeyDictionary[BaseDatabaseWrapper, _Seen] = WeakKeyDictionary()
"""The indexes that were found, by table and need: they are not looked for again."""


def scope_index(binding: Binding, using: str) -> StoredIndex | None:
    """Return the index that the scopes' field leads; None where there is none, or can't be."""
    connection = connections[using]
    need = scope_need(binding, connection)
    if need is None:
        return None
    seen, key = _seen.setdefault(connection, {}), (binding.model._meta.db_table, need)
    if key not in seen:
        indexes = stored_indexes(connection, binding.model)
        index = next((index for index in indexes if index.leads_to(need)), None)
        if index is None:
            return None
        seen[key] = index
    return seen[key]


def forget_indexes() -> None:
    """Look for the indexes again from now on, for tests that change tables."""
    _seen.clear()


@dataclass(frozen=True, slots=True)
class ScopedRange:
    """The rows of the next batch, and where the batch after it begins.

    It `is_crowded` if it holds more rows, which only their keys tell apart.
    """

    rows: AnyQuerySet
    resume: ScopePlace | None
    is_crowded: bool = False


class ScopedRows:
    """The expired rows that inherit, scope by scope: the `Walk` of a stored default."""

    def __init__(self, binding: Binding, using: str, index: StoredIndex) -> None:
        self._binding = binding
        self._using = using
        self._index = index
        self._rows = ExpiredRows(binding, using, Part.INHERITING)

    def overdue(self) -> float | None:
        """For how many seconds the first row of any scope, or of none, has been expired."""
        ages = [scope.overdue for scope in chain.from_iterable(all_due(self._next_scopes))]
        of_none = self._of_scope(None).overdue()
        return max(ages if of_none is None else [*ages, of_none], default=None)

    def next_range(self, resume: Any, size: int) -> ScopedRange | None:
        """The rows of the next batch, by scope and order alone; None if there are none."""
        answer = self._walk(resume, size, lambda rows, at: rows.next_range(at, size))
        if answer is None:
            return None
        inside = answer.inside
        if inside is None:
            return ScopedRange(self._of_scopes(answer.scopes), answer.resume)
        rows = self._of_scope(answer.begin.due[0]).within(inside)
        return ScopedRange(rows, answer.resume, inside.is_crowded)

    def within(self, found: ScopedRange) -> AnyQuerySet:
        """The rows of a range."""
        return found.rows

    def keys(self, resume: Any, size: int) -> Keys | None:
        """The keys of the next so many rows; None if there are none."""
        answer = self._walk(resume, size, lambda rows, at: rows.keys(at, size))
        if answer is None:
            return None
        if answer.inside is not None:
            return Keys(answer.inside.keys, answer.resume, answer.begin)
        rows = self._of_scopes(answer.scopes)
        keys = list(rows.values_list("pk", flat=True)[:size])
        return Keys(keys, answer.resume, answer.begin)

    def stretches(self) -> Iterator[AnyQuerySet]:
        """All expired rows that inherit, in parts."""
        yield self._of_scope(None).all()
        yield from map(self._of_scopes, in_stretches(self._next_scopes))

    def _of_scope(self, scope: Scope | None) -> ExpiredRows:
        """The rows of one scope; those without a scope for None."""
        if scope is None:
            return self._rows.among(None, StoredAge(self._binding, "table"))
        return self._rows.among(scope.value, scope.seconds)

    def _of_scopes(self, scopes: Sequence[Scope]) -> AnyQuerySet:
        """The rows of some scopes, in no order."""
        return self._rows.before(by_cutoff(scopes))

    def _walk(
        self,
        resume: ScopePlace | None,
        size: int,
        inside: Callable[[ExpiredRows, object], R | None],
    ) -> ScopeRange[R] | None:
        def answer(question: Question) -> object:
            if isinstance(question, Look):
                return self._next_scopes(question.after)
            if isinstance(question, CountIn):
                every = self._rows.every_before(by_cutoff(question.scopes))
                return every[: question.limit].count()
            return inside(self._of_scope(question.scope), question.resume)

        return answered(next_range(size, resume), answer)

    def _next_scopes(self, after: Any) -> Scopes:
        """Read which of the scopes that follow one (None: the first ones) have rows to delete."""
        connection = connections[self._using]
        family, earliest = clock.family_of(connection), clock.earliest(connection, "instant")
        first = _first_ends(connection, self._binding, self._index, is_first=after is None)
        cutoff = clock.ago(connection, "instant", "ttl_age")
        # Nothing can be taken from minus infinity.
        began = f"CASE WHEN ttl_began < {earliest} THEN {earliest} ELSE ttl_began END"
        overdue = family.between(began, cutoff)
        columns = f"ttl_of, ttl_age, {family.bookmark(cutoff)}, {overdue}"
        statement = f"SELECT {columns} FROM ({first}) ttl_looked ORDER BY ttl_number"  # noqa: S608 (names that Django quotes)
        with connection.cursor() as cursor:
            cursor.execute(statement, [] if after is None else [after])
            return looked_at(cursor.fetchall(), family.per_second or 1)


def _first_ends(
    connection: BaseDatabaseWrapper, binding: Binding, index: StoredIndex, *, is_first: bool
) -> str:
    """Select the next scopes in order, the age at which their rows expire, and their first entry.

    The statement has a parameter, the last scope that was read, unless it `is_first`.
    """
    quote = connection.ops.quote_name
    assert binding.scope is not None  # noqa: S101 (or there are no scopes)
    assert binding.own is not None  # noqa: S101 (nor such an index)
    table, scope = quote(binding.model._meta.db_table), quote(str(binding.scope.column))
    stamp, own = quote(str(binding.stamp.column)), quote(str(binding.own.column))
    end = clock.family_of(connection).part_end(f"r.{stamp}")
    # On MariaDB and MySQL the index has all rows: those that don't inherit have no end in it.
    is_mysql = connection.vendor == "mysql"
    inherits = f"{end} IS NOT NULL" if is_mysql else f"r.{own} IS NULL"
    # By both, or MySQL sorts.
    first = f"r.{scope} = w.ttl_of AND {inherits} ORDER BY r.{scope}, {end} LIMIT 1"
    began = f"SELECT {end} FROM {table} r WHERE {first}"  # noqa: S608 (as above)
    age = age_of(connection, binding, "w.ttl_of", index.collation)
    columns = f"w.ttl_of, w.ttl_number, {age} AS ttl_age, ({began}) AS ttl_began"
    follows = f"r.{scope} IS NOT NULL" if is_first else f"r.{scope} > %s"
    if is_mysql:  # which skip from one value to the next themselves
        scopes = f"DISTINCT r.{scope} AS ttl_of, r.{scope} AS ttl_number"
        walk = f"SELECT {scopes} FROM {table} r WHERE {follows} ORDER BY r.{scope} LIMIT {AT_ONCE}"  # noqa: S608 (as above)
        return f"SELECT {columns} FROM ({walk}) w"  # noqa: S608 (as above)

    def following(condition: str) -> str:
        rows = f"FROM {table} r WHERE {inherits} AND {condition}"
        return f"(SELECT r.{scope} {rows} ORDER BY r.{scope} LIMIT 1)"

    more = f"SELECT {following(f'r.{scope} > w.ttl_of')}, w.ttl_number + 1"
    more = f"{more} FROM ttl_walk w WHERE w.ttl_of IS NOT NULL AND w.ttl_number < {AT_ONCE}"
    walk = f"ttl_walk (ttl_of, ttl_number) AS (SELECT {following(follows)}, 1 UNION ALL {more})"
    return f"WITH RECURSIVE {walk} SELECT {columns} FROM ttl_walk w WHERE w.ttl_of IS NOT NULL"  # noqa: S608 (as above)
