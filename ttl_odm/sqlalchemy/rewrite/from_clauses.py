"""Which condition a FROM element needs, by the way it enters a statement.

A table, an alias of one and a sampled table are filtered in WHERE. An inner join passes both
its sides on; the optional side of a LEFT JOIN is filtered in its ON clause, so that a left
row without a live partner stays; both sides of a FULL JOIN are sealed into subqueries.
Subqueries and CTEs need nothing: the SELECT inside them passes the gate itself.

The table of a joined subclass has no lifetime of its own. Where the base's table is joined to it
by primary key, as the ORM always does, the base's predicate decides; alone, it is filtered by an
EXISTS on the base. Rows with a `StatementRule` get its condition.
"""

from __future__ import annotations

from functools import cached_property
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
from sqlalchemy.sql import operators
from sqlalchemy.sql.elements import BinaryExpression, BooleanClauseList, ColumnClause, Grouping
from sqlalchemy.sql.selectable import FromGrouping

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.sqlalchemy.compat import copied, is_mysql, leaves, table_of
from ttl_odm.sqlalchemy.policy.binding import (
    Binding,
    binding_of,
    may_be_second,
    sub_binding_of,
)
from ttl_odm.sqlalchemy.policy.parameters import include_expired
from ttl_odm.sqlalchemy.policy.second_tables import carry_over
from ttl_odm.sqlalchemy.rewrite.statement_rules import statement_rule_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from sqlalchemy import ColumnElement, Select
    from sqlalchemy.engine import Dialect

    from ttl_odm.sqlalchemy.compat import Resolved

    SQL = ColumnElement[Any]

_ONE: Final = literal_column("1", Integer())


class LiveRows:
    """The conditions that a statement needs, made of the predicate for one FROM element.

    `unreadable`: tables that no subquery may read, but for one in a FROM clause; `laterally`: that
    one may be about a row of the query around it.
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
        """What goes into WHERE for these FROM elements, beside the conditions already there."""
        sources = list(sources)
        joins = JoinKeys(sources, conditions)
        return [criterion for source in sources for criterion in self._of(source, joins)]

    def optional(self, join: Join) -> list[ColumnElement[bool]]:
        """What goes into the ON clause of a LEFT JOIN, for its right side."""
        return self._of(join.right, JoinKeys([join]))

    def _of(self, source: FromClause, joins: JoinKeys) -> list[ColumnElement[bool]]:
        """What one FROM element asks of the clause it stands in."""
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
        """The condition for a table, an alias or a sample."""
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
        """That another table has a row with the keys of this one, and that it is live."""
        own, theirs = zip(*keys, strict=True)
        # It has the predicate already.
        rows: Select[Any] = select().options(include_expired())
        if live is not None:
            rows = rows.where(live)
        same_row = (key == one for one, key in keys)
        row = rows.add_columns(_ONE).select_from(other).correlate(source).where(*same_row)
        if table_of(other) not in self._unreadable:
            return exists(row)
        if self.laterally:  # with LIMIT, it stays a table by itself
            return exists(select(_ONE).select_from(row.limit(_ONE).subquery()))
        found = rows.add_columns(*theirs).distinct().subquery()
        return tuple_(*own).in_(select(*found.c))

    def sealed(self, source: FromClause) -> Any:
        """The FROM element with every table in it replaced by its live rows."""
        if isinstance(source, Join):
            left, right = self.sealed(source.left), self.sealed(source.right)
            if left is source.left and right is source.right:
                return source
            return copied(source, left=left, right=right)
        if isinstance(source, FromGrouping):  # without its parentheses, SQLite can't read it
            element = self.sealed(source.element)
            return source if element is source.element else copied(source, element=element)
        criterion = self.alone(source)
        return source if criterion is None else LiveSource(source, criterion)


class JoinKeys:
    """Which rows of a FROM clause come only together with which others, by equal columns.

    An inner join, and a condition in WHERE, tie both their sides to each other; a LEFT JOIN ties
    its right side to the left, for a left row may come alone; a FULL JOIN ties nothing.
    """

    def __init__(
        self, sources: Iterable[FromClause], conditions: Iterable[ColumnElement[bool]] = ()
    ) -> None:
        self._sources = tuple(sources)
        self._conditions = tuple(conditions)

    def lead_to(self, table: Table, keys: Iterable[tuple[SQL, SQL]]) -> bool:
        """Whether each row with these keys brings along its row of a table, by the keys there."""
        reached = [(key, self._reached(own)) for own, key in keys]
        return any(
            all(other.c[str(key.key)] in columns for key, columns in reached)
            for element in self._sources
            for other in leaves(element)
            if table_of(other) is table
        )

    def value_of(self, column: SQL, is_admitted: Callable[[SQL], bool]) -> SQL | None:
        """The parameter that a column equals wherever its row isn't made of NULLs, if there is one.

        Args:
            column: A column of a table or alias in one of the FROM elements.
            is_admitted: Whether it may be this parameter, or be found by way of this column.
        """
        reached, waiting = {column}, [column]
        while waiting:
            one = waiting.pop()
            for value in self._values.get(one, ()):
                if is_admitted(value):
                    return value
            for other in self._equals.get(one, ()):
                # Of what a subquery returns, or a text, the column's type doesn't tell everything.
                is_stored = isinstance(table_of(getattr(other, "table", None)), Table)
                if other not in reached and is_stored and is_admitted(other):
                    reached.add(other)
                    waiting.append(other)
        return None

    def _reached(self, column: SQL) -> set[SQL]:
        """The columns that equal one wherever its row isn't made of NULLs."""
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
        """Each condition, with the columns of the rows that come only if it holds; None for all."""
        for condition in self._conditions:
            yield condition, None
        for element in self._sources:
            yield from _on_clauses(element)


def _on_clauses(source: FromClause) -> Iterator[tuple[object, set[SQL]]]:
    """Each ON clause in a FROM element, with the columns of the rows that come only if it holds."""
    if isinstance(source, FromGrouping):
        yield from _on_clauses(source.element)
    elif isinstance(source, Join):
        yield from _on_clauses(source.left)
        yield from _on_clauses(source.right)
        if not source.full:
            tied = source.right if source.isouter else source
            yield source.onclause, {column for leaf in leaves(tied) for column in leaf.c}


def equal_columns(condition: object) -> Iterator[tuple[SQL, SQL]]:
    """The pairs of columns that are equal wherever the condition is true."""
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
    """What an UPDATE sets a column to, or leaves in it, in a condition of its WHERE clause.

    It means there what it means in the SET clause, however deep in subqueries it stands: it names
    tables of the UPDATE, and subqueries of its own are about these. The gate's compiler sees to it.
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

    def self_group(self, against: Any = None) -> Any:  # noqa: ARG002 - SQLAlchemy's signature
        """Already in parentheses."""
        return self

    def visible_name(self, truncated: Callable[[str, Any], str]) -> str:
        """The name under which the rest of the statement refers to the element.

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
    """The tables of a write that its subqueries can't read, but in a FROM clause of their own.

    On MySQL, those that it changes; on MariaDB, that of which it deletes rows by another table.
    """
    is_several = isinstance(statement.statement, Delete) and len(statement.sources) > 1
    if not (is_mysql(dialect) or (is_several and dialect.name in MYSQL_FAMILY)):
        return frozenset()
    return frozenset(table_of(leaf) for source in statement.sources for leaf in leaves(source))


def binding_of_source(source: object, dialect: Dialect | None = None) -> Binding | None:
    """The policy of a table, or of the table that an alias or a sample stands for.

    A second Table object of a table gets its policy here.
    """
    table = table_of(source)
    if may_be_second(table):
        carry_over(table, dialect)
    return binding_of(table)


def target_name(target: object) -> str:
    """What messages call a class (also where its mapper or an alias was given) or a Table."""
    table = table_of(target)
    if isinstance(table, Table):
        return f"Table {table.fullname!r}"
    if isinstance(target, (Mapper, AliasedClass)):
        target = inspect(target).mapper.class_
    return getattr(target, "__name__", None) or repr(target)
