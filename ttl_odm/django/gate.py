"""The gate: every statement that Django compiles gets the predicate and the stamp here.

Every path of the ORM passes through one method, `BaseDatabaseOperations.compiler`, which returns
the class that turns a Query into SQL. `install` makes it return a subclass of that class, for any
backend. Managers, related managers, prefetching, subqueries, unions, the admin, generic views: all
of them end up there, and none can be forgotten.

In reads, a table in FROM gets the predicate in WHERE, and a joined one in its ON clause, so that an
outer join finds no row in place of an expired one. In writes, the predicate goes into WHERE, and
the stamp into SET. `ttl_odm.django.keys` frees the keys of expired rows.

Not covered: ``raw()`` and cursors, whose SQL is written by hand.
"""

from __future__ import annotations

import functools
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from django.core.exceptions import FullResultSet
from django.db.backends.base.operations import BaseDatabaseOperations
from django.db.models.sql import compiler as compilers
from django.db.models.sql.constants import INNER
from django.db.models.sql.datastructures import Join
from django.db.models.sql.where import AND, WhereNode
from django.utils.functional import cached_property

from ttl_odm.django.keys.writes import KeyedInsert, KeyedUpdate
from ttl_odm.django.policy import options
from ttl_odm.django.policy.bindings import policy_in
from ttl_odm.django.policy.predicate import Predicate, RowCondition, alias_quoter
from ttl_odm.django.time.fields import Kept, Stamp

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TypeAlias

    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models import Model
    from django.db.models.expressions import Expression
    from django.db.models.sql.compiler import SQLCompiler, SQLDeleteCompiler, SQLUpdateCompiler

    from ttl_odm.django.policy.bindings import TablePolicy
    from ttl_odm.django.time.fields import AnyField, BoundSQL

    Assigned: TypeAlias = tuple[AnyField, type[Model] | None, object]
    """An assignment of Django's `UpdateQuery`: the field, a parent's model, and the value."""
else:
    # Mixins, which `_gated` puts before the class of a backend.
    SQLCompiler = SQLDeleteCompiler = SQLUpdateCompiler = object

_PROMOTED: Final = "_ttl_odm_promoted"
"""An attribute of a Query, and of its copies: an inner join has become an outer one."""

_MARK: Final = "_ttl_odm_gate"


def install() -> None:
    """Install the gate in Django, once."""
    original = BaseDatabaseOperations.compiler
    if getattr(original, _MARK, False):
        return

    @functools.wraps(original)
    def compiler(self: BaseDatabaseOperations, compiler_name: str) -> type[SQLCompiler]:
        backends: Any = original(self, compiler_name)
        return _gated(backends)

    setattr(compiler, _MARK, True)
    BaseDatabaseOperations.compiler = compiler  # type: ignore[method-assign]


@functools.cache
def _gated(compiler: Any) -> type[SQLCompiler]:
    """Return a subclass of a backend's compiler that passes statements through the gate."""
    gates = {
        compilers.SQLInsertCompiler: GatedInsert,
        compilers.SQLUpdateCompiler: GatedUpdate,
        compilers.SQLDeleteCompiler: GatedDelete,
        compilers.SQLCompiler: GatedSelect,
    }
    gate = next(gate for kind, gate in gates.items() if issubclass(compiler, kind))
    return type(compiler.__name__, (gate, compiler), {"__module__": compiler.__module__})


def _and(where: WhereNode | None, condition: Expression) -> WhereNode:
    conditions: list[Any] = [*([where] if where else []), condition]
    return WhereNode(conditions, AND)


class _Gated:
    """A WHERE clause followed by predicates, with as much of a node as a compiler uses."""

    def __init__(self, where: WhereNode | None, predicates: Sequence[Predicate]) -> None:
        self._where = where
        self._predicates = predicates

    def as_sql(self, compiler: Any, connection: BaseDatabaseWrapper) -> BoundSQL:
        try:
            sql, params = compiler.compile(self._where) if self._where else ("", ())
        except FullResultSet:
            sql, params = "", ()
        conditions = [sql] if sql else []
        for predicate in self._predicates:
            sql, values = predicate.as_sql(compiler, connection)
            conditions.append(sql)
            params = (*params, *values)
        return " AND ".join(conditions), params


class GatedSelect(SQLCompiler):
    """SELECT, and statements compiled as one."""

    def get_from_clause(self) -> Any:
        """Return FROM; every table in it gets its predicate."""
        query = self.query
        rows = options.rows_of(query)
        if rows == "all":
            return super().get_from_clause()
        kind: Final = "live" if rows == "live" else "expired"
        alias_map = query.alias_map
        policies = {
            alias: policy
            for alias, source in alias_map.items()
            if (policy := policy_in(query, source.table_name)) is not None
        }
        judged = set[str]()
        if rows == "live" and len(policies) > 1:
            judged = {a for a, policy in policies.items() if policy.judged_by_joins(query, a)}
        joins: dict[str, Any] = {
            alias: _GatedJoin(join, policies[alias])
            for alias, join in alias_map.items()
            if isinstance(join, Join) and alias in policies and alias not in judged
        }
        if rows == "live" and joins:
            query.alias_map = {**alias_map, **joins}
        try:
            result = super().get_from_clause()
        finally:
            query.alias_map = alias_map
        sources = [
            (alias, source.table_name)
            for alias, source in alias_map.items()
            if query.alias_refcount[alias] and not isinstance(source, Join) and alias not in judged
        ]
        if rows == "live":
            sources += [(table, table) for table in query.extra_tables]
        predicates = [
            Predicate.of(policy, alias, kind)
            for alias, table in sources
            if (policy := policy_in(query, table)) is not None
        ]
        if predicates:
            # MariaDB's DELETE over several tables has no WHERE yet when it comes here.
            self.where = _Gated(getattr(self, "where", None), predicates)
        return result

    def get_related_selections(self, *args: Any, **kwargs: Any) -> Any:
        """Return the columns of select_related, by joins to rows that may have expired."""
        with self._making_joins_optional():
            return super().get_related_selections(*args, **kwargs)

    def get_order_by(self) -> Any:
        """Return ORDER BY, perhaps that of the Meta, by joins to rows that may have expired."""
        with self._making_joins_optional():
            return super().get_order_by()

    @contextmanager
    def _making_joins_optional(self) -> Iterator[None]:
        """Make joins that are added to rows that may expire outer joins.

        Django uses INNER JOIN for a foreign key that can't be NULL, and a live row that refers to
        an expired one would vanish.
        """
        query = self.query
        if options.rows_of(query) != "live":
            yield
            return
        used = {alias for alias, count in query.alias_refcount.items() if count}
        yield
        for alias, join in list(query.alias_map.items()):
            if alias in used or not isinstance(join, Join) or join.join_type != INNER:
                continue
            if policy_in(query, join.table_name) is None:
                continue
            policy = policy_in(query, query.alias_map[join.parent_alias].table_name)
            if policy is None or not policy.leads_to_parent(query, join):
                query.alias_map[alias] = join.promote()
                setattr(query, _PROMOTED, True)
                sources = query.alias_map.items()
                query.promote_joins(
                    [child for child, source in sources if source.parent_alias == alias]
                )

    def get_select_for_update_of_arguments(self) -> list[str]:
        """Return the tables for FOR UPDATE: PostgreSQL can't lock the optional side of a join."""
        tables: list[str] = super().get_select_for_update_of_arguments()
        query = self.query
        if self.connection.vendor != "postgresql" or not getattr(query, _PROMOTED, False):
            return tables
        quote = alias_quoter(self)
        inner = [
            quote(alias)
            for alias, source in query.alias_map.items()
            if query.alias_refcount[alias] and getattr(source, "join_type", INNER) in (None, INNER)
        ]
        return [name for name in tables if name in inner] or inner


class _GatedJoin:
    """A join that renders the predicate into its ON clause."""

    def __init__(self, join: Join, policy: TablePolicy) -> None:
        self._join = join
        self._live = Predicate.of(policy, join.table_alias or join.table_name, "live")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._join, name)

    def as_sql(self, compiler: Any, connection: BaseDatabaseWrapper) -> BoundSQL:
        sql, params = compiler.compile(self._join)
        live, values = self._live.as_sql(compiler, connection)
        # Django closes every ON clause with this parenthesis.
        return f"{sql[:-1]} AND {live})", (*params, *values)


class GatedDelete(GatedSelect, SQLDeleteCompiler):
    """DELETE: of live rows or, in a purge, of expired ones."""

    def as_sql(self) -> BoundSQL:  # type: ignore[override] # as Django's own
        """Return the statement."""
        query = self.query
        table = query.get_meta().db_table
        policy = policy_in(query, table)
        if policy is None:
            return super().as_sql()
        query.get_initial_alias()
        by_key = table in options.purged_tables() or options.purges(query) == "by key"
        kind: Final = "expired" if by_key or options.purges(query) else "live"
        predicate: Expression = Predicate.of(policy, table, kind, writing=True)
        if kind == "live":
            predicate = policy.live_to_delete(query, str(self.using), predicate)
        where = query.where
        query.where = _and(where, predicate)
        try:
            sql, params = super().as_sql()
        finally:
            query.where = where  # a query may be compiled again
        name = self.connection.ops.quote_name(table)
        head = f"DELETE FROM {name}"  # noqa: S608 (a name that Django quotes)
        if by_key and self.connection.vendor == "mysql" and sql.startswith(head):
            # Otherwise MariaDB scans, and locks, all of a small table instead of looking up keys.
            sql = sql.replace(head, f"DELETE {name} FROM {name} FORCE INDEX (PRIMARY)", 1)
        return sql, params

    def execute_sql(self, *args: Any, **kwargs: Any) -> Any:
        """Run the statement by way of the policy, which may have work to do before."""
        query, run = self.query, functools.partial(super().execute_sql, *args, **kwargs)
        policy = policy_in(query, query.get_meta().db_table)
        return run() if policy is None else policy.delete(query, str(self.using), run)


class GatedUpdate(KeyedUpdate, GatedSelect, SQLUpdateCompiler):
    """UPDATE: of live rows, whose last modification it resets."""

    def as_sql(self) -> BoundSQL:  # type: ignore[override] # as Django's own
        """Return the statement, which stamps the rows."""
        policy = policy_in(self.query, self.query.get_meta().db_table)
        if policy is not None and policy.stamps and not options.root_written(self.query):
            self._stamp(policy)
        return super().as_sql()

    def pre_sql_setup(self, *args: Any, **kwargs: Any) -> Any:
        """Add the predicate, after Django has rewritten the WHERE clause."""
        result = super().pre_sql_setup(*args, **kwargs)
        query = self.query
        table = query.get_meta().db_table
        policy = policy_in(query, table)
        if policy is None or options.root_written(query):
            return result
        if not any(isinstance(child, RowCondition) for child in query.where.children):
            predicate = Predicate.of(policy, table, "live", writing=True)
            for condition in policy.live_to_update(query, predicate):
                query.where = _and(query.where, condition)
        return result

    def _stamp(self, policy: TablePolicy) -> None:
        query, binding = self.query, policy.binding
        field = binding.stamp
        keeps = options.keeps_last_modified(query)
        fresh: Stamp = Kept(str(field.column)) if keeps else Stamp.of(binding.form)
        if policy.link is None:
            query.values = _with_stamp(query.values, field, fresh)
            return
        related = query.related_updates.get(binding.model)
        if related is not None:
            query.related_updates[binding.model] = _with_stamp(related, field, fresh)
        elif not keeps:
            query.add_related_update(binding.model, field, fresh)


def _with_stamp(values: list[Assigned], field: AnyField, fresh: Stamp) -> list[Assigned]:
    """Return the assignments with the database's clock in place of a value that was assigned."""
    ours = [value for target, _, value in values if target is field and isinstance(value, Stamp)]
    rest = [value for value in values if value[0] is not field]
    return [*rest, (field, None, ours[0] if ours else fresh)]


class GatedInsert(KeyedInsert):
    """INSERT: the database's clock stamps the rows, and they may replace expired ones."""

    _row_values: dict[AnyField, object] | None = None
    """The values of a single row, once read from its fields: reading them may have side effects."""

    @cached_property
    def _stamped(self) -> tuple[AnyField, Stamp] | None:
        """The field that the database's clock stamps, and the stamp; None without a stamp."""
        policy = policy_in(self.query, self.query.get_meta().db_table)
        if policy is None or not policy.stamps:
            return None
        return policy.binding.stamp, Stamp.of(policy.binding.form)

    def pre_save_val(self, field: AnyField, obj: Model) -> object:
        """Return the value of a field of a row."""
        if self._row_values is not None:
            return self._row_values[field]
        if self._stamped is None or field is not self._stamped[0]:
            return super().pre_save_val(field, obj)
        value = obj.__dict__.get(field.attname)
        return value if isinstance(value, Stamp) else self._stamped[1]

    def as_sql(self) -> list[BoundSQL]:  # type: ignore[override] # as Django's own
        """Return the statement; a single row reuses the text of an earlier INSERT if possible."""
        query = self.query
        if self._stamped is None or len(query.objs) != 1 or query.on_conflict is not None:
            return super().as_sql()
        obj, stamp = query.objs[0], self._stamped[1]
        values = [self.pre_save_val(field, obj) for field in query.fields]
        expressions = [value for value in values if hasattr(value, "resolve_expression")]
        is_only_stamp = len(expressions) == 1 and expressions[0] is stamp
        shape = self._shape(stamp) if is_only_stamp else None
        texts = _texts.setdefault(self.connection, {})
        if shape is not None and shape in texts:
            bound = self._prepared(values, stamp)
            if not any(hasattr(value, "as_sql") for value in bound):
                return [(texts[shape], bound)]
        self._row_values = dict(zip(query.fields, values, strict=True))
        try:
            statements = super().as_sql()
        finally:
            self._row_values = None
        if shape is not None and not any(map(_has_placeholder, query.fields)):
            ((sql, params),) = statements
            if len(params) == len(values) - 1:
                texts[shape] = sql
        return statements

    def _shape(self, stamp: Stamp) -> tuple[object, ...]:
        """Return what determines the text of an INSERT whose only expression is the stamp."""
        query, returned = self.query, self.returning_fields or ()
        columns = tuple([field.column for field in query.fields])
        returning = tuple([field.column for field in returned])
        now, _ = stamp.as_sql(self, self.connection)  # may be a test's clock
        return query.model, columns, returning, self._suffix, now

    def _prepared(self, values: list[object], stamp: Stamp) -> tuple[object, ...]:
        prepared = (
            self.prepare_value(field, value)
            for field, value in zip(self.query.fields, values, strict=True)
            if value is not stamp
        )
        return tuple(prepared)


_texts: Final[WeakKeyDictionary[BaseDatabaseWrapper, dict[tuple[object, ...], str]]] = (
    WeakKeyDictionary()
)
"""The texts of INSERTs of one row, by connection and shape: Django compiles each one anew."""


def _has_placeholder(field: AnyField) -> bool:
    """Whether a field writes its own placeholder; Django before 6.1 has the second name."""
    return hasattr(field, "get_placeholder_sql") or hasattr(field, "get_placeholder")
