"""All that SQLAlchemy's adapter asks of stored defaults: `StoredSource`, of each table with one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Boolean, Integer, and_, case, literal_column, or_, type_coerce

from ttl_odm.core.values import FOREVER
from ttl_odm.dialects.mysql import MySQL
from ttl_odm.sqlalchemy.compat import SQLTemplate
from ttl_odm.sqlalchemy.policy.looked_up import LookedUp
from ttl_odm.sqlalchemy.policy.predicate import BASE_ROW_WRITTEN
from ttl_odm.sqlalchemy.policy.sources import Scoping
from ttl_odm.sqlalchemy.sweep.due import is_walked, needs_of, seen_indexes
from ttl_odm.sqlalchemy.sweep.whereabouts import SweptSource
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.stored.scopes import deleted_by_scope, due_by_scope
from ttl_odm.stored.sqlalchemy import default_cache, lookup
from ttl_odm.stored.sqlalchemy.locks import lock_row, locked_row
from ttl_odm.stored.sqlalchemy.one_scope import Scope, kind_of
from ttl_odm.stored.sqlalchemy.scope_ranges import ScopeRanges
from ttl_odm.stored.sqlalchemy.scopes import due_in_scopes, look, table_age
from ttl_odm.stored.sqlalchemy.tables import begin_when_created, tables_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sqlalchemy import ColumnElement, Connection, FromClause, Select, Table
    from sqlalchemy.engine import Dialect

    from ttl_odm.core.policy import TTL
    from ttl_odm.dialects.indexes import StoredIndex
    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sqlalchemy.policy.sources import Moment, Seconds, SourceColumns
    from ttl_odm.sqlalchemy.sweep.whereabouts import Bounds, EndIndex
    from ttl_odm.sqlalchemy.time.clock import Clock
    from ttl_odm.sweeper import Fact

    SQL = ColumnElement[Any]
    Condition = ColumnElement[bool]


class StoredScopes(Scoping):
    """The scopes of a stored default: the values of `Stored.by`."""

    __slots__ = ("_binding",)

    def __init__(self, binding: Binding) -> None:
        self._binding = binding

    def of_row(self, columns: SourceColumns) -> SQL:
        """The scope as it is stored, where that has a default of its own; else NULL."""
        return lookup.own_scope(self._binding, columns)

    def tells_apart(self, value: SQL, dialect: Dialect) -> bool:
        """By its type: see `ttl_odm.stored.sqlalchemy.one_scope`."""
        column = self._binding.discriminator
        assert column is not None  # noqa: S101 (or there are no scopes)
        kind = kind_of(value.type, dialect)
        return kind is not None and kind == kind_of(column.type, dialect)

    def only(self, value: SQL) -> OneScope:
        """The default of that scope, or else the table's."""
        return OneScope(self._binding, value)

    def due(self, rows: Mapping[str, int]) -> Mapping[str, Fact]:
        """Their expired rows."""
        return due_by_scope(rows)

    def deleted(self, rows: Mapping[str, int]) -> Mapping[str, Fact]:
        """Their rows that a batch has deleted."""
        return deleted_by_scope(rows)


class StoredSource(LookedUp, SweptSource):
    """The default of a table as the database stores it, and those of scopes."""

    def __init__(self, binding: Binding, *, has_scopes: bool) -> None:
        super().__init__(binding)
        self.scoping = StoredScopes(binding) if has_scopes else None

    @property
    def tables(self) -> tuple[Table]:
        """The table that stores the default."""
        return (tables_of(self.binding.first.table).policies,)

    # In statements

    def age(self, columns: SourceColumns, overruled_by: str, *, locking: bool) -> SQL:
        """That of the row's scope, or else the table's.

        Where no row is stored, or one that is not a ttl (as a CHECK keeps out), TTL is off.
        """
        scope = None if self.scoping is None else columns.discriminator
        return lookup.age_of(self.binding, scope, overruled_by, locking=locking)

    def shortest(self) -> SQL | None:
        """The least default of all scopes, which an index has."""
        return None if self.scoping is None else lookup.shortest_age(self.binding)

    def live_by_age(self, columns: SourceColumns, moment: Moment) -> Condition | None:
        """By one look-up, and where scopes have defaults of their own, by one for few rows.

        On MariaDB and MySQL this form is the shorter one for scopes. A row that is younger than its
        own ttl needs no look-up, nor, in a read, one that is younger than the shortest default. (A
        write asks for that of each row when it has the row's lock.)
        """
        shortest = self.shortest()
        if shortest is None or not isinstance(moment.clock, MySQL):
            return super().live_by_age(columns, moment)
        clock, nevers = moment.clock, self.binding.nevers
        column_format, start = self.binding.instants.on(clock), columns.last_modified
        own, none = type_coerce(columns.override, Integer()), _integer(0)
        has_own = own > none
        least = case(
            (or_(*(own == _integer(never) for never in nevers)), _integer(FOREVER)),
            (has_own, own),
            else_=none if moment.writing else shortest,
        )
        # Of a row that has outlived its own ttl it only matters whether TTL is off: `OFF` stays as
        # it is, and what is less is now or still to come.
        age = self.seconds(columns, "inherited_age", moment)
        age -= case((has_own, _integer(FOREVER)), else_=none)
        age *= case((has_own, _integer(2)), else_=_integer(1))
        ends = (moment.now - clock.span(least), moment.now - clock.span(age))
        reached = and_(*(column_format.reached(start, end) for end in ends))
        return SQLTemplate("(({0}) IS NOT TRUE)", Boolean(), reached)

    # For rows in memory

    def see(self, connection: Connection) -> None:
        """Note what is stored."""
        default_cache.see_to(connection, self.binding)

    def policy_on(self, dialect: Dialect, scope: object) -> TTL | None:
        """By what was noted of late."""
        return default_cache.policy_on(self.binding, dialect, scope)

    def policy_as_noted(self, dialect: Dialect | None, scope: object) -> TTL:
        """By what was noted last."""
        return default_cache.policy_as_noted(self.binding, dialect, scope)

    # In transactions that delete

    def lock(self, execute: Callable[[Any], object]) -> None:
        """Lock the row that stands for all stored defaults of the table, shared."""
        lock_row(self.binding.first.table, execute)

    @property
    def locked_row(self) -> Select[Any]:
        """That row."""
        return locked_row(self.binding.first.table)

    # In sweeps

    def defaults(self, connection: Connection) -> list[int | None]:
        """As the database has them."""
        return default_cache.defaults_now(connection, self.binding)

    def shortest_age(self) -> SQL:
        """The least of all scopes, where there are scopes."""
        shortest = self.shortest()
        return super().shortest_age() if shortest is None else shortest

    def walk(self, connection: Connection) -> ScopeWalk | None:
        """From scope to scope, where an index leads there."""
        index = scope_index(connection, self.binding)
        return None if index is None else ScopeWalk(self.binding, index, connection)

    def age_in(self, scope: SQL | None, collation: str | None) -> SQL:
        """By the table of the policies."""
        return lookup.age_of(self.binding, scope, BASE_ROW_WRITTEN, collation)

    def first_ends(
        self, index: EndIndex, dialect: str, collation: str | None, most: int
    ) -> FromClause:
        """As a sweep looks for them."""
        return look(index, dialect, collation, most=most)

    # In the schema

    def prepare_schema(self) -> None:
        """Let the table's row be made with it."""
        begin_when_created(self.binding)


class OneScope(StoredSource):
    """The default of the rows of one scope, for a statement that reads no others."""

    def __init__(self, binding: Binding, value: SQL) -> None:
        super().__init__(binding, has_scopes=False)
        self._scope = Scope(value)

    def age(self, columns: SourceColumns, overruled_by: str, *, locking: bool) -> SQL:  # noqa: ARG002 (the same for each row)
        """That of the scope, or else the table's."""
        return lookup.age_of(self.binding, self._scope, overruled_by, locking=locking)


class ScopeWalk:
    """The way of a sweep from scope to scope, by an index."""

    def __init__(self, binding: Binding, index: StoredIndex, connection: Connection) -> None:
        self._binding = binding
        self._index = index
        self._clock: Clock = clock_of(connection.dialect)

    def life_beside(self) -> tuple[Seconds, list[Condition]]:
        """That of the rows of no scope."""
        scope = self._binding.columns_of(self._binding.table).discriminator
        assert scope is not None  # noqa: S101 (or there is no such index)
        return table_age(self._binding), [scope.is_(None)]

    def overdue(self, connection: Connection, index: EndIndex) -> float | None:
        """For how many seconds the first row of any scope has been expired."""
        scopes = due_in_scopes(connection, index, self._index)
        return max((scope.overdue for scope in scopes), default=None)

    def ranges(self, source: Table, bounds: Bounds | None = None) -> ScopeRanges:
        """The ranges of the rows that inherit."""
        return ScopeRanges(self._binding, self._clock, self._index, source, bounds)


def scope_index(connection: Connection, binding: Binding) -> StoredIndex | None:
    """The index by which a sweep comes to one scope after the other; None where it can't.

    The connection is fresh from the pool.
    """
    if binding.source.scoping is None or is_walked(connection, binding):
        return None
    needs = needs_of(binding, clock_of(connection.dialect))
    seen = seen_indexes(connection, binding, needs)
    return next((seen[need] for need in needs if need.scope and need in seen), None)


def _integer(value: int) -> SQL:
    return literal_column(str(value), Integer())
