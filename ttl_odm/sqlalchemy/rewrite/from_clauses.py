"""Which condition a FROM element needs, by the way it enters a statement.

A table, an alias of one and a sampled table are filtered in WHERE. An inner join passes both
its sides on; the optional side of a LEFT JOIN is filtered in its ON clause, so that a left
row without a live partner stays; both sides of a FULL JOIN are sealed into subqueries.
Subqueries and CTEs need nothing: the SELECT inside them passes the gate itself.

The table of a joined subclass has no lifetime of its own. Where the base's table is joined to it
by primary key, as the ORM always does, the base's predicate decides; alone, it is filtered by an
EXISTS on the base. Rows with a `StatementRule` get its condition.

Joined eager loads of tables with a policy are always outer joins. With
``relationship(lazy="joined", innerjoin=True)`` a class promises that every row has a partner. An
expired partner doesn't exist, so an inner join would hide a live row together with it. The ORM
chooses the kind of each join when it compiles a SELECT. `outer_joins` overrules it there, so that
a `secondary` table, and relationships that are loaded further along, are joined accordingly. Joins
that a user writes (``contains_eager()``) stay as they are.
"""

from __future__ import annotations

from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    BindParameter,
    ClauseElement,
    Delete,
    FromClause,
    Integer,
    Join,
    Table,
    exists,
    inspect,
    literal_column,
    select,
    tuple_,
)
from sqlalchemy.exc import CompileError
from sqlalchemy.orm import Mapper
from sqlalchemy.orm.util import AliasedClass
from sqlalchemy.sql import operators, visitors
from sqlalchemy.sql.elements import BinaryExpression, BooleanClauseList, ColumnClause, Grouping
from sqlalchemy.sql.selectable import FromGrouping

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sqlalchemy.compat import (
    copied,
    inner_joined,
    is_mysql,
    join_outer,
    leaves,
    original,
    table_of,
)
from ttl_odm.sqlalchemy.policy.bindings import (
    Binding,
    binding_of,
    may_be_second,
    root_binding_of,
    sub_binding_of,
)
from ttl_odm.sqlalchemy.policy.predicate import include_expired
from ttl_odm.sqlalchemy.policy.references import RULE_KEY, rule_of
from ttl_odm.sqlalchemy.policy.second_tables import carry_over, may_get_policy
from ttl_odm.sqlalchemy.rewrite.statement_rules import StatementRule

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from sqlalchemy import ColumnElement, Select
    from sqlalchemy.engine import Dialect

    from ttl_odm.sqlalchemy.compat import Resolved

    SQL = ColumnElement[Any]

_ONE: Final = literal_column("1", Integer())


class LiveRows:
    """The conditions that a statement needs, built from the predicate for one FROM element.

    `unreadable` are tables that no subquery may read, except in its own FROM clause. `laterally`:
    whether such a subquery may depend on a row of the query around it.
    """

    def __init__(
        self,
        live: Callable[[Binding, FromClause, JoinKeys | None], ColumnElement[bool]],
        policy_of: Callable[[FromClause], Binding | None],
        unreadable: Collection[object] = (),
        *,
        laterally: bool = True,
    ) -> None:
        self._live = live
        self._policy_of = policy_of
        self._unreadable = unreadable
        self.laterally = laterally

    def where(
        self, sources: Iterable[FromClause], conditions: Iterable[ColumnElement[bool]] = ()
    ) -> list[ColumnElement[bool]]:
        """Return the conditions that FROM elements need in WHERE, beside its present conditions."""
        sources = list(sources)
        joins = JoinKeys(sources, conditions)
        return [criterion for source in sources for criterion in self._of(source, joins)]

    def optional(self, join: Join) -> list[ColumnElement[bool]]:
        """Return the conditions that the ON clause of a LEFT JOIN needs for its right side."""
        return self._of(join.right, JoinKeys([join]))

    def _of(self, source: FromClause, joins: JoinKeys) -> list[ColumnElement[bool]]:
        """Return the conditions that one FROM element needs in the clause it belongs to."""
        if isinstance(source, Join):
            if source.full:
                return []
            if source.isouter:
                return self._of(source.left, joins)
            return self._of(source.left, joins) + self._of(source.right, joins)
        if isinstance(source, FromGrouping):
            return self._of(source.element, joins)
        criterion = self.alone(source, joins)
        return [] if criterion is None else [criterion]

    def alone(
        self, source: FromClause, joins: JoinKeys | None = None
    ) -> ColumnElement[bool] | None:
        """Return the condition for a table, an alias or a sample."""
        binding = self._policy_of(source)
        if binding is not None:
            return self._live(binding, source, joins)
        sub = sub_binding_of(table_of(source))
        if sub is not None:
            if joins is not None and joins.lead_to(sub.base.table, sub.keys_of(source)):
                return None
            base = sub.base.table.alias()
            keys = [(own, base.c[root.key]) for own, root in sub.keys_of(source)]
            return self.exists(source, base, keys, self._live(sub.base, base, None))
        rule = statement_rule_of(table_of(source))
        return None if rule is None else rule.live(self, source, joins)

    def exists(
        self,
        source: FromClause,
        other: FromClause,
        keys: Sequence[tuple[SQL, SQL]],
        live: ColumnElement[bool] | None = None,
    ) -> ColumnElement[bool]:
        """Return the condition that another table has a live row with the keys of this one."""
        own, theirs = zip(*keys, strict=True)
        # The predicate is in it already.
        rows: Select[Any] = select().options(include_expired())
        if live is not None:
            rows = rows.where(live)
        same_row = (key == column for column, key in keys)
        row = rows.add_columns(_ONE).select_from(other).correlate(source).where(*same_row)
        if table_of(other) not in self._unreadable:
            return exists(row)
        if self.laterally:  # the LIMIT keeps the server from merging the subquery
            return exists(select(_ONE).select_from(row.limit(_ONE).subquery()))
        live_keys = rows.add_columns(*theirs).distinct().subquery()
        return tuple_(*own).in_(select(*live_keys.c))

    def sealed(self, source: FromClause) -> FromClause | LiveSource:
        """Return the FROM element with every table in it replaced by its live rows."""
        if isinstance(source, Join):
            left, right = self.sealed(source.left), self.sealed(source.right)
            if left is source.left and right is source.right:
                return source
            return copied(source, left=left, right=right)
        if isinstance(source, FromGrouping):  # SQLite needs the parentheses
            element = self.sealed(source.element)
            return source if element is source.element else copied(source, element=element)
        criterion = self.alone(source)
        return source if criterion is None else LiveSource(source, criterion)


class JoinKeys:
    """Which rows of a FROM clause come only together with which others, by equal columns.

    An inner join, and a condition in WHERE, tie both their sides to each other; a LEFT JOIN ties
    its right side to the left, because a left row may come alone; a FULL JOIN ties nothing.
    """

    def __init__(
        self, sources: Iterable[FromClause], conditions: Iterable[ColumnElement[bool]] = ()
    ) -> None:
        self._sources = tuple(sources)
        self._conditions = tuple(conditions)

    def lead_to(self, table: Table, keys: Iterable[tuple[SQL, SQL]]) -> bool:
        """Return whether every row with these keys comes with its row of a table, by its keys."""
        reached = [(key, self._reached(own)) for own, key in keys]
        return any(
            all(other.c[str(key.key)] in columns for key, columns in reached)
            for element in self._sources
            for other in leaves(element)
            if table_of(other) is table
        )

    def value_of(self, column: SQL, is_admitted: Callable[[SQL], bool]) -> SQL | None:
        """Return the parameter that a column equals, if there is one; not in rows made of NULLs.

        Args:
            column: A column of a table or alias in one of the FROM elements.
            is_admitted: Whether a parameter may be the result, or a column may lead to it.
        """
        reached, waiting = {column}, [column]
        while waiting:
            equal = waiting.pop()
            for value in self._values.get(equal, ()):
                if is_admitted(value):
                    return value
            for other in self._equals.get(equal, ()):
                # For columns of subqueries or text, the type isn't the whole truth.
                is_stored = isinstance(table_of(getattr(other, "table", None)), Table)
                if other not in reached and is_stored and is_admitted(other):
                    reached.add(other)
                    waiting.append(other)
        return None

    def _reached(self, column: SQL) -> set[SQL]:
        """Return the columns that equal one, except in rows that an outer join made of NULLs."""
        reached, waiting = {column}, [column]
        while waiting:
            new = [c for c in self._equals.get(waiting.pop(), ()) if c not in reached]
            reached.update(new)
            waiting += new
        return reached

    @cached_property
    def _equals(self) -> dict[SQL, list[SQL]]:
        equals: dict[SQL, list[SQL]] = {}
        for condition, tied in self._tied_conditions():
            for one, other in equal_columns(condition):
                for column, partner in ((one, other), (other, one)):
                    if tied is None or column in tied:
                        equals.setdefault(column, []).append(partner)
        return equals

    @cached_property
    def _values(self) -> dict[SQL, list[SQL]]:
        values: dict[SQL, list[SQL]] = {}
        for condition, tied in self._tied_conditions():
            for one, other in _equal_sides(condition):
                for column, value in ((one, other), (other, one)):
                    is_one = isinstance(value, BindParameter) and not value.expanding
                    is_column = isinstance(column, ColumnClause)
                    if is_one and is_column and (tied is None or column in tied):
                        values.setdefault(column, []).append(value)
        return values

    def _tied_conditions(self) -> Iterator[tuple[object, set[SQL] | None]]:
        """Yield each condition, with the columns of rows that come only if it holds (None: all)."""
        for condition in self._conditions:
            yield condition, None
        for element in self._sources:
            yield from _on_clauses(element)


def _on_clauses(source: FromClause) -> Iterator[tuple[object, set[SQL]]]:
    """Yield each ON clause, with the columns of the rows that come only if it holds."""
    if isinstance(source, FromGrouping):
        yield from _on_clauses(source.element)
    elif isinstance(source, Join):
        yield from _on_clauses(source.left)
        yield from _on_clauses(source.right)
        if not source.full:
            tied = source.right if source.isouter else source
            yield source.onclause, {column for leaf in leaves(tied) for column in leaf.c}


def equal_columns(condition: object) -> Iterator[tuple[SQL, SQL]]:
    """Yield the pairs of columns that are equal wherever the condition is true."""
    for left, right in _equal_sides(condition):
        if isinstance(left, ColumnClause) and isinstance(right, ColumnClause):
            yield left, right


def _equal_sides(condition: object) -> Iterator[tuple[SQL, SQL]]:
    if isinstance(condition, BooleanClauseList) and condition.operator is operators.and_:
        for part in condition.clauses:
            yield from _equal_sides(part)
    elif isinstance(condition, BinaryExpression) and condition.operator is operators.eq:
        yield condition.left, condition.right


class Assigned(Grouping[Any]):
    """A value of an UPDATE's SET clause, or a column as the UPDATE leaves it, in its WHERE clause.

    It means the same as in the SET clause, however deep in subqueries it is: it refers to tables of
    the UPDATE, and subqueries in it depend on these. The gate's compiler ensures this.
    """

    __visit_name__ = "ttl_assigned"
    inherit_cache = True

    @property
    def _from_objects(self) -> list[FromClause]:
        return []


class LiveSource(ClauseElement):
    """The live rows of a table or alias, standing in for it under the same name."""

    __visit_name__ = "ttl_live_source"

    def __init__(self, element: FromClause, criterion: ColumnElement[bool]) -> None:
        self.element = element
        self.criterion = criterion

    @property
    def _from_objects(self) -> list[FromClause]:
        return self.element._from_objects  # noqa: SLF001 (a subclass's)

    def self_group(self, against: object = None) -> LiveSource:  # noqa: ARG002 - SQLAlchemy's signature
        """Return the element itself: it is rendered in parentheses."""
        return self

    def visible_name(self, truncated: Callable[[str, Any], str]) -> str:
        """Return the name by which the rest of the statement refers to the element.

        Columns of a table with a schema are spelled ``schema.table.column``, and no subquery can
        take that name: a CompileError.
        """
        if isinstance(self.element, Table) and self.element.schema:
            raise CompileError(
                f"A FULL JOIN with the TTL table {self.element.fullname!r} needs an alias: "
                f"use aliased(Model) or table.alias() for it."
            )
        name: Any = self.element.name  # type: ignore[attr-defined]
        return truncated("alias", name) if hasattr(name, "apply_map") else str(name)


def unreadable_tables(statement: Resolved, dialect: Dialect) -> frozenset[object]:
    """Return the tables of a write that its subqueries can't read, except in their own FROM clause.

    On MySQL these are the tables that it changes; on MariaDB, those of a DELETE of several tables.
    """
    is_several = isinstance(statement.statement, Delete) and len(statement.sources) > 1
    if not (is_mysql(dialect) or (is_several and dialect.name in MYSQL_FAMILY)):
        return frozenset()
    return frozenset(table_of(leaf) for source in statement.sources for leaf in leaves(source))


def binding_of_source(source: object, dialect: Dialect | None = None) -> Binding | None:
    """Return the policy of a table, or of the table behind an alias or a sample.

    A second Table object of a table gets its policy here.
    """
    table = table_of(source)
    if may_be_second(table):
        carry_over(table, dialect)
    return binding_of(table)


def statement_rule_of(table: object) -> StatementRule | None:
    """Return the rule of a table, as statements meet it; None if it has none."""
    if RULE_KEY not in getattr(original(table), "info", ()):  # as nearly always
        return None
    rule = rule_of(table)
    return rule if isinstance(rule, StatementRule) else None


def outer_joins(plan: Callable[..., Any]) -> Callable[..., object]:
    """Let the planner of a joined eager load choose an outer join if rows may have expired."""

    @wraps(plan)
    def planned(loader: object, compile_state: object, *rest: object) -> object:
        result = plan(loader, compile_state, *rest)
        if any(map(_may_expire, inner_joined(loader, compile_state))):
            return join_outer(compile_state, result)
        return result

    return planned


def _may_expire(source: FromClause) -> bool:
    """Return whether a FROM element contains a table with a policy or a rule."""
    return any(
        root_binding_of(table) is not None
        or rule_of(table) is not None
        or may_get_policy(original(table))
        for table in visitors.iterate(source)
        if isinstance(table, Table)
    )


def target_name(target: object) -> str:
    """Return what messages call a class (also for its mapper or an alias) or a Table."""
    table = table_of(target)
    if isinstance(table, Table):
        return f"Table {table.fullname!r}"
    if isinstance(target, (Mapper, AliasedClass)):
        target = inspect(target).mapper.class_
    return getattr(target, "__name__", None) or repr(target)


def without_ttl(name: str) -> TTLConfigurationError:
    """Return the error for a class or Table, by its `target_name`, that has no TTL."""
    return TTLConfigurationError(
        f"{name} has no TTL; declare __ttl__ on the model, as in class Model(TTLMixin, Base): "
        "__ttl__ = 3600, or enable() it."
    )
