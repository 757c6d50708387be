"""InnoDB: writes of followers by key, which leave their parents unlocked.

A subquery of an UPDATE or DELETE locks the rows that it reads, on InnoDB in shared mode, until the
transaction ends. With such a lock on the parent, transactions deadlock that wouldn't without a
policy: two that then write the parent, or one that writes items and one that writes their cart and
then an item. No clause and no isolation hint makes such a subquery read without a lock. So the end
of the parent's life is read first, by a plain SELECT, and the statement compares it with the clock.

What a plain SELECT shows is the transaction's snapshot, as on PostgreSQL under REPEATABLE READ.
Where a parent has expired by it, that parent is locked and read as it is now, since it may have
been renewed. Where the snapshot doesn't have the row, the statement asks by its subquery.

Done for statements that name rows by their primary key, or by their parent's key. Others, and all
under SERIALIZABLE, where a SELECT locks too, keep the subquery. Under READ COMMITTED only a DELETE
locks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    BigInteger,
    BindParameter,
    ColumnElement,
    Table,
    Update,
    and_,
    bindparam,
    or_,
    select,
    type_coerce,
)
from sqlalchemy.sql import operators
from sqlalchemy.sql.elements import BinaryExpression, BooleanClauseList, Grouping

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.follows.sqlalchemy.following import following_of
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.gate.functions import expires_at, live
from ttl_odm.sqlalchemy.keys.displace import KeyReclaimer
from ttl_odm.sqlalchemy.policy.bindings import key_columns
from ttl_odm.sqlalchemy.policy.predicate import include_expired
from ttl_odm.sqlalchemy.policy.references import root_of
from ttl_odm.sqlalchemy.purge.statements import is_one_of
from ttl_odm.sqlalchemy.rewrite.writes import plain
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from sqlalchemy import Column, Connection, FromClause
    from sqlalchemy.engine import Dialect
    from sqlalchemy.engine.default import DefaultExecutionContext
    from typing_extensions import Self

    from ttl_odm.follows.sqlalchemy.following import Following
    from ttl_odm.sqlalchemy.compat import Resolved

    Key = tuple[Any, ...]
    Root = tuple[Key, int | None]

_END: Final = "ttl_odm_parent_end"
"""The parameter with the end of a parent's life, in the clock's unit; NULL if it isn't known."""

_IS_OVER: Final = "ttl_odm_parent_over"
"""The parameter that is 1 if the parent has certainly expired; otherwise the subquery decides."""

_NEVER: Final = 2**62

_ROWS: Final = 200
"""Rows whose parents one statement looks up."""


@dataclass(frozen=True, slots=True)
class KnownParents:
    """Before a write of followers: the ends of their parents' lives.

    Attributes:
        following: What the table's rows follow.
        is_update: Whether the write is an UPDATE, not a DELETE.
        names_parents: Whether its WHERE names the parents' keys, not those of the rows.
    """

    following: Following
    is_update: bool
    names_parents: bool

    @classmethod
    def of(cls, statement: Resolved, dialect: Dialect) -> Self | None:
        """For an UPDATE or DELETE; None if it takes no lock, or doesn't name rows by key."""
        if dialect.name not in MYSQL_FAMILY or len(statement.sources) > 1:
            return None
        table = compat.original(statement.sources[0])
        following = following_of(table) if isinstance(table, Table) else None
        if following is None or following.declared.renews:  # which writes the parents anyway
            return None
        if compat.is_limited(statement.statement):
            return None
        is_update = isinstance(statement.statement, Update)
        for names_parents in (False, True):
            known = cls(following, is_update, names_parents)
            if known._values(statement.criteria):
                return known
        return None

    def or_else(self, condition: ColumnElement[bool], dialect: Dialect) -> ColumnElement[bool]:
        """That the known end is to come, or else a condition that reads and locks the parents."""
        now = clock_of(dialect).literal(clock_of(dialect).now_at_write)
        end: ColumnElement[Any] = bindparam(_END, None, type_=BigInteger())
        is_over: ColumnElement[Any] = bindparam(_IS_OVER, 0, type_=BigInteger())
        # In a subquery of its own: MySQL would make a join of the EXISTS and read it in any case.
        decided = select(condition).correlate(self.following.table).scalar_subquery()
        return or_(now < end, and_(is_over == 0, decided == 1))

    def prepare(self, context: DefaultExecutionContext, *, current: bool = False) -> int:
        """Look the ends up, and put them among the parameters."""
        if current or not _locks(context.root_connection, is_update=self.is_update):
            return 0
        values = self._values(compat.where_criteria(compat.invoked(context)))
        executions = [list(_keys(values, row)) for row in context.compiled_parameters]
        wanted = dict.fromkeys(key for keys in executions for key in keys)
        known = dict(self._roots(KeyReclaimer.of(context), list(wanted)))
        for number, keys in enumerate(executions):
            roots = [known.get(key) for key in keys]
            ends = [root[1] for root in roots if root is not None]
            if not ends or len(ends) < len(keys):
                continue
            to_come = [end for end in ends if end is not None]
            if len(to_come) == len(ends):
                compat.set_parameter(context, number, _END, min(to_come))
            elif len(ends) == 1:
                compat.set_parameter(context, number, _IS_OVER, 1)
        return 0

    def _roots(self, reclaimer: KeyReclaimer, keys: Sequence[Key]) -> Iterator[tuple[Key, Root]]:
        """The rows at the root, and their ends, by the keys that a statement names.

        An end is None if the row has expired. Keys of which nothing is known are missing.
        """
        roots: dict[Key, Root] = {}
        for start in range(0, len(keys), _ROWS):
            for key, root in self._seen(reclaimer, keys[start : start + _ROWS]):
                roots[key] = max(root, roots.get(key, root), key=_latest)
        over = list(dict.fromkeys(root for root, end in roots.values() if end is None))
        ends = dict(self._locked(reclaimer, over)) if over else {}
        for key, (root, end) in roots.items():
            yield key, (root, ends.get(root) if end is None else end)

    def _seen(self, reclaimer: KeyReclaimer, keys: Sequence[Key]) -> Iterator[tuple[Key, Root]]:
        """The same by the snapshot."""
        links = self.following.links()
        first = links.parent if self.names_parents else self.following.table
        named = links.theirs if self.names_parents else key_columns(first)
        joined: FromClause = first
        level: Any = first
        following = following_of(first)
        while following is not None:
            links = following.links()
            parent = links.parent.alias()
            same = (level.c[mine.key] == parent.c[theirs.key] for mine, theirs in links.pairs)
            joined = joined.join(parent, and_(*same))
            level, following = parent, following_of(links.parent)
        columns = key_columns(self._root)
        root = [level.c[column.key] for column in columns]
        rows: Any = (
            select(*named, *root, *_life(level)).select_from(joined).where(is_one_of(named, keys))
        )
        row: Any
        for row in reclaimer.execute(rows.options(include_expired())):
            key, above = tuple(row[: len(named)]), tuple(row[len(named) : -2])
            yield key, (above, _end(row[-2], row[-1]))

    def _locked(self, reclaimer: KeyReclaimer, keys: Sequence[Key]) -> Iterator[tuple[Key, int]]:
        """The ends of live rows at the root as they are now; all rows are locked, in shared mode.

        Before the followers, in the order in which sweeps lock them.
        """
        columns = key_columns(self._root)
        rows: Any = select(*columns, *_life(self._root)).where(is_one_of(columns, keys))
        rows = rows.options(include_expired()).with_for_update(read=True)
        row: Any
        for row in reclaimer.execute(rows):
            end = _end(row[-2], row[-1])
            if end is not None:
                yield tuple(row[:-2]), end

    @property
    def _root(self) -> Table:
        binding: Any = root_of(self.following.table)
        return binding.table  # type: ignore[no-any-return]

    def _values(self, criteria: Sequence[ColumnElement[bool]]) -> list[BindParameter[Any]]:
        """The values that conditions want the columns of a key to have; empty if they don't."""
        table = self.following.table
        columns: Iterable[Column[Any]] = (
            self.following.links().own if self.names_parents else table.primary_key
        )
        values: dict[str, BindParameter[Any]] = {}
        for column, value in _equalities(criteria):
            if getattr(column, "table", None) is not None and _is_of(column, table):
                values.setdefault(column.key, value)
        names = [column.key for column in columns]
        if not names or not values.keys() >= set(names):
            return []
        chosen = [values[name] for name in names]
        has_list = any(value.expanding for value in chosen)
        return [] if has_list and len(chosen) > 1 else chosen


def _locks(connection: Connection, *, is_update: bool) -> bool:
    """Whether a write's subqueries lock what they read, and a SELECT doesn't."""
    level = compat.isolation_level(connection)
    if level in {"READ COMMITTED", "READ UNCOMMITTED"}:
        return not is_update
    return level != "SERIALIZABLE"


def _life(source: FromClause) -> tuple[ColumnElement[Any], ColumnElement[Any]]:
    return live(source), type_coerce(expires_at(source), BigInteger())


def _end(lives: object, end: int | None) -> int | None:
    """When a row expires; None if it has expired."""
    if not lives:
        return None
    return _NEVER if end is None else end


def _latest(root: Root) -> int:
    return -1 if root[1] is None else root[1]


def _keys(values: Sequence[BindParameter[Any]], row: Mapping[str, Any]) -> Iterator[Key]:
    """The keys that one execution names."""
    named: Any = [plain(value, row) for value in values]
    if any(value.expanding for value in values):
        yield from ((value,) for value in named[0])
    else:
        yield tuple(named)


def _is_of(column: Any, table: Table) -> bool:
    return compat.original(column.table) is table


def _equalities(criteria: Sequence[Any]) -> Iterator[tuple[Any, BindParameter[Any]]]:
    """The pairs of a column and the value, or the list of values, that it has to equal."""
    for condition in criteria:
        if isinstance(condition, Grouping):
            yield from _equalities([condition.element])
        elif isinstance(condition, BooleanClauseList) and condition.operator is operators.and_:
            yield from _equalities(condition.clauses)
        elif isinstance(condition, BinaryExpression):
            sides = [(condition.left, condition.right), (condition.right, condition.left)]
            is_list = condition.operator is operators.in_op
            if is_list or condition.operator is operators.eq:
                for one, other in sides[: 1 if is_list else 2]:
                    if isinstance(other, BindParameter) and other.expanding == is_list:
                        yield one, other
