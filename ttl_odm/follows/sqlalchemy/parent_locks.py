"""InnoDB: how writes of followers by key leave their parents unlocked.

A subquery of an UPDATE or DELETE locks the rows that it reads, on InnoDB in shared mode, until the
transaction ends. With such a lock on the parent, transactions deadlock that wouldn't without a
policy: two that then write the parent, or one that writes items and one that writes their cart and
then an item. No clause and no isolation hint makes such a subquery read without a lock. So a plain
SELECT reads first when the parent expires, and the statement compares this end with the clock.

A plain SELECT reads the transaction's snapshot, as on PostgreSQL under REPEATABLE READ. If a parent
has expired in the snapshot, it is locked and read again as it is now, since it may have been
renewed. If the snapshot doesn't contain the row, the statement uses its subquery.

This is done for statements that name rows by primary key or by their parent's key. Other statements
keep the subquery, and so do all under SERIALIZABLE, where a SELECT locks too. Under READ COMMITTED
only a DELETE locks.
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
from ttl_odm.follows.sqlalchemy.follower import ancestry, following_of
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.gate.functions import expires_at, live
from ttl_odm.sqlalchemy.keys.displace import KeyReclaimer
from ttl_odm.sqlalchemy.policy.bindings import key_columns
from ttl_odm.sqlalchemy.policy.predicate import include_expired
from ttl_odm.sqlalchemy.policy.references import root_of
from ttl_odm.sqlalchemy.purge.statements import chunks, is_one_of
from ttl_odm.sqlalchemy.rewrite.writes import plain
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from sqlalchemy import Column, Connection, FromClause
    from sqlalchemy.engine import Dialect
    from sqlalchemy.engine.default import DefaultExecutionContext
    from typing_extensions import Self

    from ttl_odm.follows.sqlalchemy.follower import Following
    from ttl_odm.sqlalchemy.compat import Resolved

    Key = tuple[Any, ...]
    Root = tuple[Key, int | None]

_END: Final = "ttl_odm_parent_end"
"""The parameter with the instant at which a parent expires, in the clock's unit; NULL if unknown.
"""

_IS_OVER: Final = "ttl_odm_parent_over"
"""The parameter that is 1 if the parent has certainly expired; if it is 0, the subquery decides."""

_NEVER: Final = 2**62

_ROWS: Final = 200
"""Rows whose parents one statement looks up."""


@dataclass(frozen=True, slots=True)
class KnownParents:
    """Looks up, before a write of followers, when their parents expire.

    Attributes:
        following: The rule of the table.
        is_update: Whether the write is an UPDATE, not a DELETE.
        names_parents: Whether its WHERE names the parents' keys, not those of the rows.
    """

    following: Following
    is_update: bool
    names_parents: bool

    @classmethod
    def of(cls, statement: Resolved, dialect: Dialect) -> Self | None:
        """Return the lookup for a write; None if it locks nothing, or names no rows by key."""
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
        """Return the condition that a known end is ahead, or else the one that locks parents."""
        now = clock_of(dialect).literal(clock_of(dialect).now_at_write)
        end: ColumnElement[object] = bindparam(_END, None, type_=BigInteger())
        is_over: ColumnElement[object] = bindparam(_IS_OVER, 0, type_=BigInteger())
        # In its own subquery: MySQL would turn the EXISTS into a join, and always read the parents.
        decided = select(condition).correlate(self.following.table).scalar_subquery()
        return or_(now < end, and_(is_over == 0, decided == 1))

    def prepare(self, context: DefaultExecutionContext, *, current: bool = False) -> int:
        """Look up when the parents expire, and add that to the parameters."""
        if current or not _locks(context.root_connection, is_update=self.is_update):
            return 0
        values = self._values(compat.where_criteria(compat.invoked(context)))
        executions = [list(_keys(values, row)) for row in context.compiled_parameters]
        distinct = dict.fromkeys(key for keys in executions for key in keys)
        roots = dict(self._roots(KeyReclaimer.of(context), list(distinct)))
        for number, keys in enumerate(executions):
            ends = [roots[key][1] for key in keys if key in roots]
            if not ends or len(ends) < len(keys):
                continue
            future = [end for end in ends if end is not None]
            if len(future) == len(ends):
                compat.set_parameter(context, number, _END, min(future))
            elif len(ends) == 1:
                compat.set_parameter(context, number, _IS_OVER, 1)
        return 0

    def _roots(self, reclaimer: KeyReclaimer, keys: Sequence[Key]) -> Iterator[tuple[Key, Root]]:
        """Yield the rows at the root and when they expire, by the keys that a statement names.

        That is None for an expired row. Keys without a row are missing.
        """
        roots: dict[Key, Root] = {}
        for some in chunks(keys, _ROWS):
            for key, root in self._in_snapshot(reclaimer, some):
                roots[key] = max(root, roots.get(key, root), key=_latest)
        over = list(dict.fromkeys(root for root, end in roots.values() if end is None))
        ends = dict(self._locked(reclaimer, over)) if over else {}
        for key, (root, end) in roots.items():
            yield key, (root, ends.get(root) if end is None else end)

    def _in_snapshot(
        self, reclaimer: KeyReclaimer, keys: Sequence[Key]
    ) -> Iterator[tuple[Key, Root]]:
        """Yield the roots as the transaction's snapshot has them."""
        links = self.following.links()
        first = links.parent if self.names_parents else self.following.table
        named = links.theirs if self.names_parents else key_columns(first)
        above, width = ancestry(first, keeps_orphans=False), len(named)
        root = [above.root.c[column.key] for column in key_columns(self._root)]
        rows: Any = select(*named, *root, *_life(above.root)).select_from(above.joined)
        rows = rows.where(is_one_of(named, keys))
        row: Any
        for row in reclaimer.execute(rows.options(include_expired())):
            yield tuple(row[:width]), (tuple(row[width:-2]), _end(row[-2], row[-1]))

    def _locked(self, reclaimer: KeyReclaimer, keys: Sequence[Key]) -> Iterator[tuple[Key, int]]:
        """Lock rows at the root in shared mode, and return when the live ones expire, as of now.

        They are locked before their followers, which is the order of sweeps.
        """
        columns = key_columns(self._root)
        rows: Any = select(*columns, *_life(self._root))
        rows = rows.options(include_expired()).with_for_update(read=True)
        row: Any
        for some in chunks(keys):
            for row in reclaimer.execute(rows.where(is_one_of(columns, some))):
                end = _end(row[-2], row[-1])
                if end is not None:
                    yield tuple(row[:-2]), end

    @property
    def _root(self) -> Table:
        binding: Any = root_of(self.following.table)
        return binding.table  # type: ignore[no-any-return]

    def _values(self, criteria: Sequence[ColumnElement[bool]]) -> list[BindParameter[Any]]:
        """Return the values that conditions require of the columns of a key; empty without such."""
        table = self.following.table
        columns: Iterable[Column[object]] = (
            self.following.links().own if self.names_parents else table.primary_key
        )
        values: dict[str, BindParameter[Any]] = {}
        for column, value in _equalities(criteria):
            owner = getattr(column, "table", None)
            if owner is not None and compat.original(owner) is table:
                values.setdefault(column.key, value)
        names = [column.key for column in columns]
        if not names or not values.keys() >= set(names):
            return []
        chosen = [values[name] for name in names]
        has_list = any(value.expanding for value in chosen)
        return [] if has_list and len(chosen) > 1 else chosen


def _locks(connection: Connection, *, is_update: bool) -> bool:
    """Return whether subqueries of a write lock the rows that they read, while SELECTs don't."""
    level = compat.isolation_level(connection)
    if level in {"READ COMMITTED", "READ UNCOMMITTED"}:
        return not is_update
    return level != "SERIALIZABLE"


def _life(source: FromClause) -> tuple[ColumnElement[bool], ColumnElement[Any]]:
    """Return whether a row is live, and when it expires, in the clock's unit."""
    return live(source), type_coerce(expires_at(source), BigInteger())


def _end(lives: object, end: int | None) -> int | None:
    """Return when a row expires; None if it has expired, the far future for never."""
    if not lives:
        return None
    return _NEVER if end is None else end


def _latest(root: Root) -> int:
    return -1 if root[1] is None else root[1]


def _keys(values: Sequence[BindParameter[Any]], row: Mapping[str, object]) -> Iterator[Key]:
    """Yield the keys that one execution names."""
    named: Any = [plain(value, row) for value in values]
    if any(value.expanding for value in values):
        yield from ((value,) for value in named[0])
    else:
        yield tuple(named)


def _equalities(criteria: Sequence[Any]) -> Iterator[tuple[Any, BindParameter[Any]]]:
    """Yield the pairs of a column and the value, or the list of values, that it must equal."""
    for condition in criteria:
        if isinstance(condition, Grouping):
            yield from _equalities([condition.element])
        elif isinstance(condition, BooleanClauseList) and condition.operator is operators.and_:
            yield from _equalities(condition.clauses)
        elif isinstance(condition, BinaryExpression):
            sides = [(condition.left, condition.right), (condition.right, condition.left)]
            is_list = condition.operator is operators.in_op
            if is_list or condition.operator is operators.eq:
                for column, value in sides[: 1 if is_list else 2]:
                    if isinstance(value, BindParameter) and value.expanding == is_list:
                        yield column, value
