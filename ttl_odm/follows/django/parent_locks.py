"""Locks on parents: `share`; and, on InnoDB, how writes of followers by key leave them unlocked.

On InnoDB a subquery of an UPDATE or DELETE locks the rows that it reads until the transaction ends:
`ttl_odm.follows.sqlalchemy.parent_locks` says why that must not happen. So here, too, a plain
SELECT reads first when the parent expires, and the statement compares this end with the clock.

This is done for statements that name rows by primary key or by their parent's key. Other statements
keep the subquery, and so do all under SERIALIZABLE. Under READ COMMITTED, which is Django's
default, only a DELETE locks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from django.db import connections
from django.db.models import QuerySet
from django.db.models.lookups import Exact, In
from django.db.models.sql import Query
from django.db.models.sql.where import AND, WhereNode

from ttl_odm.django.policy.bindings import table_policy
from ttl_odm.django.policy.options import include_expired
from ttl_odm.django.policy.predicate import Predicate
from ttl_odm.django.time import clock
from ttl_odm.follows.django.follower import Following, is_one_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import TypeAlias

    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models import Model as Instance
    from django.db.models.expressions import Expression

    from ttl_odm.django.policy.bindings import TablePolicy
    from ttl_odm.django.policy.options import AnyQuerySet
    from ttl_odm.django.time.fields import AnyField, BoundSQL
    from ttl_odm.follows.django.follower import Key

    ByValue: TypeAlias = Exact[Any] | In[Any]

_SHARED: Final = {"postgresql": " FOR KEY SHARE", "mysql": " LOCK IN SHARE MODE"}
"""By vendor, the clause that locks rows as writing a foreign key to them does."""

_PARENTS: Final = "_ttl_odm_parents"
"""The attribute of a Query, and of its copies, with the `ParentEnds` of its rows."""

_NEVER: Final = 2**62

_ROUNDING: Final = 1_000
"""Microseconds by which an end may be wrong if the column holds fractions of seconds."""

_MOST: Final = 200
"""Keys that one statement looks up; statements that name more keep the subquery."""

_LIVE, _STAYS, _AGE = "ttl_live", "ttl_stays", "ttl_age"


def share(rows: AnyQuerySet) -> list[Key]:
    """Lock rows in shared mode, and return the selected values: others may refer to the rows."""
    compiler: Any = rows.query.get_compiler(rows.db)
    suffix, as_sql = _SHARED.get(connections[rows.db].vendor, ""), compiler.as_sql

    def with_suffix(*args: object, **kwargs: object) -> BoundSQL:
        sql, params = as_sql(*args, **kwargs)
        return sql + suffix, params

    compiler.as_sql = with_suffix
    return list(compiler.results_iter(tuple_expected=True))


@dataclass(frozen=True)
class ParentEnds:
    """The parents of the rows that a write names, as far as they were looked up.

    Attributes:
        names_parent: SQL for whether a row has a parent, with placeholders for its key.
        parents: The keys of live parents, as the database has them.
        end: The instant at which the first of these expires, in the clock's unit.
        stay: Whether the rows already have the parent that an UPDATE gives them.
    """

    names_parent: str = ""
    parents: tuple[Key, ...] = ()
    end: int = 0
    stay: bool = False


def know_parents(query: Query, ends: ParentEnds) -> None:
    """Attach the looked-up parents of its rows to an UPDATE."""
    setattr(query, _PARENTS, ends)


def known_parents(query: Query) -> ParentEnds | None:
    """Return the parents attached to an UPDATE; None if they were not looked up."""
    ends: ParentEnds | None = getattr(query, _PARENTS, None)
    return ends


def before_update(
    following: Following, query: Query, using: str, new: Sequence[Key], *, looks_anyway: bool
) -> ParentEnds:
    """Look up the parents of the rows that an UPDATE names.

    Args:
        following: The rule of the rows.
        query: The UPDATE.
        using: The alias of the database.
        new: The keys of the parents that the UPDATE gives these rows.
        looks_anyway: Look them up even if the UPDATE's own subquery would lock nothing.
    """
    connection = connections[using]
    locks = _updates_lock(connection)
    if locks is None or not (looks_anyway or locks):
        return ParentEnds()
    return _Lookup(following, connection, new).run(query)


def before_delete(following: Following, query: Query, using: str) -> ParentEnds:
    """Look up the parents of the rows that a DELETE names."""
    connection = connections[using]
    if _updates_lock(connection) is None:
        return ParentEnds()
    return _Lookup(following, connection, ()).run(query)


def _updates_lock(connection: BaseDatabaseWrapper) -> bool | None:
    """Return whether a connection's UPDATEs lock the rows that their subqueries read.

    None if its SELECTs lock rows too, or if no subquery locks any. Without an isolation level in
    Django's settings, the server's is taken to be InnoDB's default.
    """
    if connection.vendor != "mysql":
        return None
    connection.ensure_connection()
    level: str = getattr(connection, "isolation_level", None) or "repeatable read"
    if level == "serializable":
        return None
    return level not in {"read committed", "read uncommitted"}


@dataclass(frozen=True)
class _Lookup:
    following: Following
    connection: BaseDatabaseWrapper
    new: Sequence[Key]

    def run(self, query: Query) -> ParentEnds:
        """Look up the parents of the rows that a statement names."""
        tables = list(self._tables())
        conditions = self._names_rows(query) if len(set(tables)) == len(tables) else []
        if not conditions:
            return ParentEnds()
        rows = list(self._rows(conditions, tables))
        over = [row for row in rows if not vars(row)[_LIVE]]
        if over:
            # A parent that is expired in the snapshot may have been renewed since, so the write
            # reads it as it is now. It is locked before its followers, which is the order of
            # sweeps.
            share(self._roots.filter(pk__in=[row.pk for row in over]).values_list("pk"))
        live = [row for row in rows if vars(row)[_LIVE]]
        if not live:
            return ParentEnds()
        parents = dict.fromkeys(self._parent_of(row) for row in live)
        names_parent = " AND ".join(f"{column} = %s" for column in self._links)
        names_one = not any(isinstance(condition, In) for condition in conditions)
        stay = names_one and len(self.new) == 1 and not over and bool(vars(live[0])[_STAYS])
        return ParentEnds(f"({names_parent})", tuple(parents), min(map(self._end, live)), stay)

    @property
    def _roots(self) -> AnyQuerySet:
        return QuerySet(model=self.following.binding.model, using=self.connection.alias)

    @property
    def _links(self) -> list[str]:
        """The columns of the link, as SQL."""
        quote, table = self.connection.ops.quote_name, self.following.model._meta.db_table
        return [f"{quote(table)}.{quote(str(own.column))}" for own in self.following.links.own]

    def _parent_of(self, row: Instance) -> Key:
        return tuple(vars(row)[f"ttl_link{number}"] for number in range(len(self._links)))

    def _tables(self) -> Iterator[str]:
        """Yield the tables of the rows, of their parents and so on, up to the root."""
        for rule in self.following.chain():
            yield rule.model._meta.db_table
        yield self.following.binding.model._meta.db_table

    def _rows(self, conditions: Sequence[ByValue], tables: list[str]) -> AnyQuerySet:
        """Return the rows at the root, once for each parent of rows that the statement names."""
        binding = self.following.binding
        select = {f"ttl_link{number}": column for number, column in enumerate(self._links)}
        where, params = [*self._ties()], list[object]()
        compiler = Query(self.following.model).get_compiler(connection=self.connection)
        for condition in conditions:
            sql, values = compiler.compile(condition)
            where.append(sql)
            params += values
        chosen: Sequence[object] = ()
        if len(self.new) == 1:
            links = is_one_of(self.following.links.own, self.new)
            select[_STAYS], chosen = compiler.compile(compiler.query.build_where(links))
        live = Predicate.of(_policy_of(tables[-1]), tables[-1], "live")
        annotations: dict[str, Expression] = {_LIVE: live}
        age = binding.source.row_age()
        if age is not None:
            annotations[_AGE] = age
        columns = ["pk", *(field.name for field in (binding.stamp, binding.own) if field)]
        rows = include_expired(self._roots).only(*columns).annotate(**annotations)
        return rows.extra(  # noqa: S610 (of names that Django quotes)
            select=select,
            select_params=list(chosen),
            tables=tables[:-1],
            where=where,
            params=params,
        ).distinct()

    def _ties(self) -> Iterator[str]:
        """Yield the conditions that join the tables."""
        quote = self.connection.ops.quote_name
        for rule in self.following.chain():
            for pair in rule.links.pairs:
                sides = [
                    f"{quote(field.model._meta.db_table)}.{quote(str(field.column))}"
                    for field in pair
                ]
                yield " = ".join(sides)

    def _end(self, row: Instance) -> int:
        """Return the instant at which a row at the root expires, in the clock's unit."""
        binding = self.following.binding
        end = binding.expires_at(row, vars(row).get(_AGE))
        if end is None:
            return _NEVER
        is_exact = binding.form not in clock.FRACTIONAL.values()
        return int(clock.to_storage(self.connection, end)) - (0 if is_exact else _ROUNDING)

    def _names_rows(self, query: Query) -> list[ByValue]:
        """Return the conditions in a WHERE clause on the primary key, or on the parent's key."""
        meta = self.following.model._meta
        by_field: dict[AnyField, ByValue] = {}
        for condition in _certain(query.where):
            fields = _fields_of(condition.lhs, meta.db_table)
            if not fields or not condition.rhs_is_direct_value():
                continue
            if not isinstance(condition, In) or 0 < len(condition.rhs) <= _MOST:
                by_field |= dict.fromkeys(fields, condition)
        for key in (list(meta.pk_fields), self.following.links.own):
            if by_field.keys() >= set(key):
                return list(dict.fromkeys(by_field[field] for field in key))
        return []


def _policy_of(table: str) -> TablePolicy:
    policy = table_policy(table)
    assert policy is not None  # noqa: S101 (followers lead there)
    return policy


def _certain(where: WhereNode) -> Iterator[ByValue]:
    """Yield lookups by value that certainly hold for all rows of a WHERE clause."""
    if where.negated or (where.connector != AND and len(where.children) > 1):
        return
    for child in where.children:
        if isinstance(child, WhereNode):
            yield from _certain(child)
        elif isinstance(child, (Exact, In)):
            yield child


def _fields_of(side: Any, table: str) -> Iterable[AnyField]:
    """Return the fields that one side of a lookup reads from a table's own columns."""
    if getattr(side, "alias", None) != table:
        return ()
    targets = getattr(side, "targets", None)
    return targets if targets is not None else [side.target] if hasattr(side, "target") else ()
