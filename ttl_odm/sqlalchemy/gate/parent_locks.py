"""InnoDB: writes of single rows that leave the rows which these follow unlocked.

A subquery of an UPDATE or DELETE locks what it reads, on InnoDB in shared mode. The EXISTS for the
parent would keep that lock until the commit, and two transactions that then write the parent would
deadlock. So the end of the parent's life is read first, without a lock, and the statement compares
it with the clock. Only where the parent looks expired (it may have been renewed since the
transaction began to read) it is locked, before the row: sweeps lock them in that order, too.

Statements that name rows by their primary keys are treated so. Others keep the locks.
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
from sqlalchemy.sql.elements import BinaryExpression, BooleanClauseList

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.gate.functions import expires_at, live
from ttl_odm.sqlalchemy.keys.displace import KeyReclaimer
from ttl_odm.sqlalchemy.policy.binding import key_columns
from ttl_odm.sqlalchemy.policy.following import following_of, root_of
from ttl_odm.sqlalchemy.policy.parameters import include_expired
from ttl_odm.sqlalchemy.purge.statements import is_one_of
from ttl_odm.sqlalchemy.rewrite.targets import plain
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import Connection, FromClause
    from sqlalchemy.engine import Dialect
    from sqlalchemy.engine.default import DefaultExecutionContext
    from typing_extensions import Self

    from ttl_odm.sqlalchemy.compat import Resolved
    from ttl_odm.sqlalchemy.policy.following import Links

    Key = tuple[Any, ...]
    Root = tuple[Key, int | None]

_END: Final = "ttl_odm_parent_end"
"""The parameter with the end of a parent's life, in the clock's unit; NULL where it isn't known."""

_IS_OVER: Final = "ttl_odm_parent_over"
"""The parameter that is 1 where the parent has expired for certain; else the EXISTS is asked."""

_NEVER: Final = 2**62

_ROWS: Final = 200
"""Rows whose parents one statement looks up."""


@dataclass(frozen=True, slots=True)
class KnownParents:
    """Before a write of single rows of a table: until when the rows live that these follow."""

    table: Table
    is_update: bool

    @classmethod
    def of(cls, statement: Resolved, dialect: Dialect) -> Self | None:
        """For an UPDATE or DELETE; None where it takes no lock, or not for single rows."""
        table = compat.original(statement.sources[0])
        if dialect.name not in MYSQL_FAMILY or len(statement.sources) > 1:
            return None
        if not isinstance(table, Table):
            return None
        following = following_of(table)
        if following is None or following.declared.renews:  # which has locked them by then
            return None
        if not compat.is_limited(statement.statement) and _keys(table, statement.criteria):
            return cls(table, isinstance(statement.statement, Update))
        return None

    def or_else(self, condition: ColumnElement[bool], dialect: Dialect) -> ColumnElement[bool]:
        """That an end is to come, or else a condition, which reads and locks the parents."""
        now = clock_of(dialect).literal(clock_of(dialect).now_at_write)
        end: ColumnElement[Any] = bindparam(_END, None, type_=BigInteger())
        is_over: ColumnElement[Any] = bindparam(_IS_OVER, 0, type_=BigInteger())
        # In a subquery of its own, or MySQL makes a join of the EXISTS and reads it anyway.
        decided = select(condition).correlate(self.table).scalar_subquery()
        return or_(now < end, and_(is_over == 0, decided == 1))

    def prepare(self, context: DefaultExecutionContext, *, current: bool = False) -> int:
        """Look the ends up, and put them among the parameters."""
        if current or not self._locks(context.root_connection):
            return 0
        values = _keys(self.table, compat.where_criteria(compat.invoked(context)))
        executions = context.compiled_parameters
        keys = [tuple(plain(value, row) for value in values) for row in executions]
        reclaimer = KeyReclaimer.of(context)
        roots: dict[Key, Root] = {}
        some = list(dict.fromkeys(keys))
        for start in range(0, len(some), _ROWS):
            roots.update(self._roots(reclaimer, some[start : start + _ROWS]))
        looks_over = list(dict.fromkeys(root for root, end in roots.values() if end is None))
        ends = dict(self._locked(reclaimer, looks_over)) if looks_over else {}
        for number, key in enumerate(keys):
            if key not in roots:
                continue
            root, end = roots[key]
            if end is None:
                end = ends.get(root)
            name, value = (_IS_OVER, 1) if end is None else (_END, end)
            compat.set_parameter(context, number, name, value)
        return 0

    def _locks(self, connection: Connection) -> bool:
        """Whether subqueries of the statement lock rows until later in the transaction."""
        options = connection.get_execution_options()
        level = options.get("isolation_level") or connection.default_isolation_level
        if level in {"READ COMMITTED", "READ UNCOMMITTED"}:
            return not self.is_update
        return level == "REPEATABLE READ"

    def _roots(self, reclaimer: KeyReclaimer, keys: Sequence[Key]) -> Iterator[tuple[Key, Root]]:
        """The row at the root of each row, by the rows' keys, and when it expires."""
        own, source = key_columns(self.table), self.table
        joined: FromClause = source
        level: Any = source
        for links in self._chain():
            parent = links.parent.alias()
            same = (level.c[mine.key] == parent.c[theirs.key] for mine, theirs in links.pairs)
            joined = joined.join(parent, and_(*same))
            level = parent
        binding: Any = root_of(self.table)
        root = [level.c[column.key] for column in key_columns(binding.table)]
        rows: Any = (
            select(*own, *root, *_life(level)).select_from(joined).where(is_one_of(own, keys))
        )
        row: Any
        for row in reclaimer.execute(rows.options(include_expired())):
            key, above = tuple(row[: len(own)]), tuple(row[len(own) : -2])
            yield key, (above, _end(row[-2], row[-1]))

    def _chain(self) -> Iterator[Links]:
        """What rows follow, what these follow, and so on."""
        following = following_of(self.table)
        while following is not None:
            links = following.links()
            yield links
            following = following_of(links.parent)

    def _locked(self, reclaimer: KeyReclaimer, keys: Sequence[Key]) -> Iterator[tuple[Key, int]]:
        """When live rows at the root expire, as they are now; all of them are locked."""
        binding: Any = root_of(self.table)
        columns = key_columns(binding.table)
        rows: Any = select(*columns, *_life(binding.table)).where(is_one_of(columns, keys))
        rows = rows.options(include_expired()).with_for_update(read=True)
        row: Any
        for row in reclaimer.execute(rows):
            end = _end(row[-2], row[-1])
            if end is not None:
                yield tuple(row[:-2]), end


def _life(source: FromClause) -> tuple[ColumnElement[Any], ColumnElement[Any]]:
    return live(source), type_coerce(expires_at(source), BigInteger())


def _end(lives: object, end: int | None) -> int | None:
    """When a row expires; None where it has expired."""
    if not lives:
        return None
    return _NEVER if end is None else end


def _keys(table: Table, criteria: Sequence[ColumnElement[bool]]) -> list[BindParameter[Any]]:
    """The values that conditions want the primary key to equal; empty where they don't."""
    values: dict[str, BindParameter[Any]] = {}
    for column, value in _equalities(criteria):
        if getattr(column, "table", None) is not None and compat.original(column.table) is table:
            values.setdefault(column.key, value)
    names = [column.key for column in table.primary_key]
    return [values[name] for name in names] if names and values.keys() >= set(names) else []


def _equalities(criteria: Sequence[Any]) -> Iterator[tuple[Any, BindParameter[Any]]]:
    for condition in criteria:
        if isinstance(condition, BooleanClauseList) and condition.operator is operators.and_:
            yield from _equalities(condition.clauses)
        elif isinstance(condition, BinaryExpression) and condition.operator is operators.eq:
            for one, other in (
                (condition.left, condition.right),
                (condition.right, condition.left),
            ):
                if isinstance(other, BindParameter) and not other.expanding:
                    yield one, other
