"""The gate: every statement that Django compiles gets the predicate and the stamp here.

There is one place through which every path of the ORM passes: `BaseDatabaseOperations.compiler`,
which hands out the class that turns a Query into SQL. `install` lets it hand out a subclass of that
class, whichever backend it belongs to. Managers, related managers, prefetching, subqueries, unions,
the admin, generic views: all of them end up there, and none can be forgotten.

Reads: a table in FROM gets the predicate in WHERE, a joined one in its ON clause, so that an outer
join shows an expired row as none. Writes: the predicate in WHERE, the stamp in SET. What frees keys
is in `ttl_odm.django.keys`.

Not covered: ``raw()`` and cursors, whose SQL is written by hand.
"""

from __future__ import annotations

import functools
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from django.db.backends.base.operations import BaseDatabaseOperations
from django.db.models.sql import compiler as compilers
from django.db.models.sql.constants import INNER
from django.db.models.sql.datastructures import Join
from django.db.models.sql.where import AND, WhereNode

from ttl_odm.django.keys import KeyedInsert, KeyedUpdate
from ttl_odm.django.policy import options
from ttl_odm.django.policy.binding import TablePolicy, is_historical, place_of
from ttl_odm.django.policy.predicate import Verdict, condition
from ttl_odm.django.time.stamps import Kept, Stamp

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ttl_odm.django.policy.predicate import Kind

_MARK: Final = "_ttl_odm_gate"


def install() -> None:
    """Put the gate into Django, once."""
    original = BaseDatabaseOperations.compiler
    if getattr(original, _MARK, False):
        return

    @functools.wraps(original)
    def compiler(self: Any, compiler_name: str) -> Any:
        return _gated(original(self, compiler_name))

    setattr(compiler, _MARK, True)
    BaseDatabaseOperations.compiler = compiler


@functools.cache
def _gated(cls: Any) -> Any:
    """A subclass of a backend's compiler that goes through the gate."""
    mixin: Any = GatedSelect
    for kind, its in (
        (compilers.SQLInsertCompiler, GatedInsert),
        (compilers.SQLUpdateCompiler, GatedUpdate),
        (compilers.SQLDeleteCompiler, GatedDelete),
    ):
        if issubclass(cls, kind):
            mixin = its
    return type(cls.__name__, (mixin, cls), {"__module__": cls.__module__})


class _Gated:
    """What the mixins share; they stand before a compiler of Django's."""

    query: Any
    connection: Any
    compile: Any
    where: Any

    def _place(self, table: str) -> TablePolicy | None:
        """How a table of this statement hangs on a policy that counts here."""
        place = place_of(table)
        return None if place is None or is_historical(self.query.model) else place

    @contextmanager
    def _with_verdict(self, verdict: Verdict | None) -> Iterator[None]:
        """Compile with one more condition, without leaving it in the query."""
        query = self.query
        before = query.where
        if verdict is not None:
            query.where = WhereNode([before, verdict], AND)
        try:
            yield
        finally:
            query.where = before


class GatedSelect(_Gated):
    """SELECT, and what is made of it."""

    def get_from_clause(self) -> Any:
        """FROM, with the predicate of every table in it."""
        base: Any = super()
        rows = options.rows_of(self.query)
        if rows == "all":
            return base.get_from_clause()
        verdicts: list[Any] = []
        with self._gated_joins(rows):
            result = base.get_from_clause()
        for alias, source in self.query.alias_map.items():
            if not self.query.alias_refcount[alias] or isinstance(source, Join):
                continue
            place = self._place(source.table_name)
            if place is not None:
                verdicts.append(Verdict(place, alias, "live" if rows == "live" else "expired"))
        for table in self.query.extra_tables:
            place = self._place(table)
            if place is not None and rows == "live":
                verdicts.append(Verdict(place, table, "live"))
        if verdicts:
            # MariaDB's DELETE over several tables comes here too, without a WHERE of its own.
            before = getattr(self, "where", None)
            self.where = WhereNode([*([before] if before else []), *verdicts], AND)
        return result

    @contextmanager
    def _gated_joins(self, rows: str) -> Iterator[None]:
        """Put the predicate into the ON clauses while they are rendered."""
        joins = [
            (alias, join, place)
            for alias, join in self.query.alias_map.items()
            if isinstance(join, Join) and (place := self._place(join.table_name)) is not None
        ]
        if rows != "live" or not joins:
            yield
            return
        alias_map = self.query.alias_map
        self.query.alias_map = {
            **alias_map,
            **{alias: _GatedJoin(join, place) for alias, join, place in joins},
        }
        try:
            yield
        finally:
            self.query.alias_map = alias_map

    def get_related_selections(self, *args: Any, **kwargs: Any) -> Any:
        """The columns of select_related, with outer joins to rows that may have expired.

        Django joins a foreign key that can't be NULL by INNER JOIN: the live row that refers to an
        expired one would vanish. (Not under FOR UPDATE, which PostgreSQL refuses on outer joins.)
        """
        query = self.query
        base: Any = super()
        used = {alias for alias, count in query.alias_refcount.items() if count}
        related: Any = base.get_related_selections(*args, **kwargs)
        if options.rows_of(query) == "live" and not query.select_for_update:
            for alias, join in list(query.alias_map.items()):
                is_ours = isinstance(join, Join) and self._place(join.table_name) is not None
                if alias not in used and is_ours and join.join_type == INNER:
                    query.alias_map[alias] = join.promote()
                    children = [
                        each
                        for each, other in query.alias_map.items()
                        if other.parent_alias == alias
                    ]
                    query.promote_joins(children)
        return related


class _GatedJoin:
    """A join that renders the predicate into its ON clause."""

    def __init__(self, join: Any, place: TablePolicy) -> None:
        self._join = join
        self._place = place

    def __getattr__(self, name: str) -> Any:
        return getattr(self._join, name)

    def as_sql(self, compiler: Any, connection: Any) -> Any:
        sql, params = compiler.compile(self._join)
        alias = self._join.table_alias
        live = condition(compiler, connection, self._place, alias, "live")
        # Django closes every ON clause with this parenthesis.
        return f"{sql[:-1]} AND {live})", params


class GatedDelete(GatedSelect):
    """DELETE: of live rows, or of expired ones for those who purge."""

    def as_sql(self) -> Any:
        """The statement."""
        base: Any = super()
        query = self.query
        table = query.get_meta().db_table
        place = self._place(table)
        if place is None:
            return base.as_sql()
        query.get_initial_alias()
        by_key = table in options.purged_tables() or options.purges(query) == "by key"
        kind: Kind = "expired" if by_key or options.purges(query) else "live"
        with self._with_verdict(Verdict(place, table, kind, writing=True)):
            sql, params = base.as_sql()
        return (self._found_by_key(sql) if by_key else sql), params

    def _found_by_key(self, sql: str) -> str:
        """Let MariaDB look its rows up; of a small table it would rather read, and lock, all."""
        table = self.connection.ops.quote_name(self.query.get_meta().db_table)
        head = f"DELETE FROM {table}"  # noqa: S608 (a name that Django quotes)
        if self.connection.vendor != "mysql" or not sql.startswith(head):
            return sql
        return sql.replace(head, f"DELETE {table} FROM {table} FORCE INDEX (PRIMARY)", 1)


class GatedUpdate(KeyedUpdate, GatedSelect):
    """UPDATE: of live rows, whose last modification it resets."""

    def as_sql(self) -> Any:
        """The statement."""
        base: Any = super()
        place = self._place(self.query.get_meta().db_table)
        if place is None:
            return base.as_sql()
        self._stamp(place)
        return base.as_sql()

    def pre_sql_setup(self, *args: Any, **kwargs: Any) -> Any:
        """Let Django rewrite the WHERE clause first."""
        base: Any = super()
        result = base.pre_sql_setup(*args, **kwargs)
        query = self.query
        table = query.get_meta().db_table
        place = self._place(table)
        if place is not None and not options.root_written(query):
            kept = [each for each in query.where.children if not isinstance(each, Verdict)]
            if len(kept) == len(query.where.children):
                verdict = Verdict(place, table, "live", writing=True)
                query.where = WhereNode([query.where, verdict], AND)
        return result

    def _stamp(self, place: TablePolicy) -> None:
        query, binding = self.query, place.binding
        if not binding.stamps or options.root_written(query):
            return
        field = binding.stamp
        keeps = options.keeps_last_modified(query)
        fresh = Kept(field.column) if keeps else Stamp(binding.form)
        if place.link is None:
            query.values = _stamped(query.values, field, fresh)
            return
        related = query.related_updates.get(binding.model)
        if related is None:
            if not keeps:
                query.add_related_update(binding.model, field, fresh)
            return
        query.related_updates[binding.model] = _stamped(related, field, fresh)


def _stamped(values: Any, field: Any, fresh: Stamp) -> list[Any]:
    """The assignments, with the database's clock in place of what somebody may have given."""
    ours = [value for each, _, value in values if each is field and isinstance(value, Stamp)]
    rest = [value for value in values if value[0] is not field]
    return [*rest, (field, None, ours[0] if ours else fresh)]


class GatedInsert(KeyedInsert, _Gated):
    """INSERT: of rows that the database's clock stamps, in place of expired ones."""

    def pre_save_val(self, field: Any, obj: Any) -> Any:
        """The value of a field of a row."""
        base: Any = super()
        place = self._place(self.query.get_meta().db_table)
        if place is None or field is not place.binding.stamp or not place.binding.stamps:
            return base.pre_save_val(field, obj)
        given = obj.__dict__.get(field.attname)
        return given if isinstance(given, Stamp) else Stamp(place.binding.form)
