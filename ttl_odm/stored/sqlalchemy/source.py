"""`StoredSource`: the answers to all that SQLAlchemy's adapter asks about a stored default."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Boolean, Integer, and_, case, literal_column, or_, type_coerce

from ttl_odm.core.values import FOREVER
from ttl_odm.dialects.mysql import MySQL
from ttl_odm.sqlalchemy.compat import SQLTemplate
from ttl_odm.sqlalchemy.policy.looked_up import LookedUp
from ttl_odm.sqlalchemy.policy.predicate import BASE_ROW_WRITTEN
from ttl_odm.sqlalchemy.policy.sources import Scoping
from ttl_odm.sqlalchemy.sweep.whereabouts import SweptSource
from ttl_odm.stored.scopes import deleted_by_scope, due_by_scope
from ttl_odm.stored.sqlalchemy import default_cache, lookup
from ttl_odm.stored.sqlalchemy.one_scope import Scope, kind_of
from ttl_odm.stored.sqlalchemy.scope_ranges import ScopeWalk, first_ends, scope_index
from ttl_odm.stored.sqlalchemy.tables import begin_when_created, tables_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sqlalchemy import ColumnElement, Connection, FromClause, Select, Table
    from sqlalchemy.engine import Dialect

    from ttl_odm.core.policy import TTL
    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sqlalchemy.policy.sources import Moment, SourceColumns
    from ttl_odm.sqlalchemy.sweep.whereabouts import EndIndex
    from ttl_odm.sweeper import Fact

    SQL = ColumnElement[Any]
    Condition = ColumnElement[bool]


class StoredScopes(Scoping):
    """The scopes of a stored default: the values of `Stored.by`."""

    __slots__ = ("_binding",)

    def __init__(self, binding: Binding) -> None:
        self._binding = binding

    def of_row(self, columns: SourceColumns) -> SQL:
        """The scope of a row, as stored, where it has a default of its own; else NULL."""
        return lookup.own_scope(self._binding, columns)

    def tells_apart(self, value: SQL, dialect: Dialect) -> bool:
        """Whether a value that equals a row's scope is sure to be that: see `one_scope.kind_of`."""
        column = self._binding.discriminator
        assert column is not None  # noqa: S101 (or there are no scopes)
        kind = kind_of(value.type, dialect)
        return kind is not None and kind == kind_of(column.type, dialect)

    def only(self, value: SQL) -> OneScope:
        """The default of one scope, or else the table's."""
        return OneScope(self._binding, value)

    def due(self, rows: Mapping[str, int]) -> Mapping[str, Fact]:
        """What a count reports of the expired rows of each scope."""
        return due_by_scope(rows)

    def deleted(self, rows: Mapping[str, int]) -> Mapping[str, Fact]:
        """What a batch reports of the rows of each scope that it has deleted."""
        return deleted_by_scope(rows)


class StoredSource(LookedUp, SweptSource):
    """The default of a table, and those of its scopes, as the database stores them."""

    def __init__(self, binding: Binding, *, has_scopes: bool) -> None:
        super().__init__(binding)
        self.scoping = StoredScopes(binding) if has_scopes else None

    @property
    def tables(self) -> tuple[Table]:
        """The table of the stored defaults."""
        return (tables_of(self.binding.first.table).policies,)

    # In statements

    def age(self, columns: SourceColumns, overruled_by: str, *, locking: bool) -> SQL:
        """The age of the row's scope, or else the table's.

        TTL is off if no default is stored, or a value that isn't a ttl (which a CHECK keeps out).
        """
        scope = None if self.scoping is None else columns.discriminator
        return lookup.age_of(self.binding, scope, overruled_by, locking=locking)

    def shortest(self) -> SQL | None:
        """The least default of all scopes, which an index holds; None without scopes."""
        return None if self.scoping is None else lookup.shortest_age(self.binding)

    def live_by_age(self, columns: SourceColumns, moment: Moment) -> Condition | None:
        """The predicate by age, with one look-up; with scopes, with a look-up for few rows only.

        This is the shorter form for scopes on MariaDB and MySQL. A row that is younger than its own
        ttl needs no look-up, nor, in a read, a row that is younger than the shortest default. (A
        write looks the default up for each row once it has the row's lock.)
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
        # For a row that has outlived its own ttl, only whether TTL is off matters: `OFF` stays as
        # it is, and every lesser age leads to now or a later instant.
        age = self.seconds(columns, "inherited_age", moment)
        age -= case((has_own, _integer(FOREVER)), else_=none)
        age *= case((has_own, _integer(2)), else_=_integer(1))
        ends = (moment.now - clock.span(least), moment.now - clock.span(age))
        reached = and_(*(column_format.reached(start, end) for end in ends))
        return SQLTemplate("(({0}) IS NOT TRUE)", Boolean(), reached)

    # For rows in memory

    def see(self, connection: Connection, options: Mapping[str, object]) -> None:
        """Read the stored default into the cache, unless that was done a moment ago."""
        default_cache.refresh(connection, self.binding, options)

    def policy_on(self, dialect: Dialect, scope: object) -> TTL | None:
        """The policy by the cached default; None unless it was read recently."""
        return default_cache.recent_policy(self.binding, dialect, scope)

    def policy_as_noted(self, dialect: Dialect | None, scope: object) -> TTL:
        """The policy by the default that was read last, however long ago."""
        return default_cache.last_policy(self.binding, dialect, scope)

    # In transactions that delete

    def lock(self, execute: Callable[[Any], object]) -> None:
        """Lock the row that stands for all stored defaults of the table, shared."""
        lookup.lock_row(self.binding.first.table, execute)

    @property
    def locked_row(self) -> Select[Any]:
        """A SELECT of that row."""
        return lookup.locked_row(self.binding.first.table)

    # In sweeps

    def defaults(self, connection: Connection) -> list[int | None]:
        """Every default that rows may inherit, as the database stores them."""
        return default_cache.defaults_now(connection, self.binding)

    def shortest_age(self) -> SQL:
        """The age at which the first rows that inherit expire: with scopes, the least of all."""
        shortest = self.shortest()
        return super().shortest_age() if shortest is None else shortest

    def walk(self, connection: Connection) -> ScopeWalk | None:
        """The way from scope to scope; None where no index leads it."""
        index = scope_index(connection, self.binding)
        return None if index is None else ScopeWalk(self.binding, index, connection)

    def age_in(self, scope: SQL | None, collation: str | None) -> SQL:
        """The age at which the rows of a scope, or of none, expire; looked up."""
        return lookup.age_of(self.binding, scope, BASE_ROW_WRITTEN, collation)

    def first_ends(
        self, index: EndIndex, dialect: str, collation: str | None, most: int
    ) -> FromClause:
        """Select the first scopes, with the first entry of each, as a sweep does."""
        return first_ends(index, dialect, collation, most=most)

    # In the schema

    def prepare_schema(self) -> None:
        """Have ``create_all()`` store the initial default after it has created the table."""
        begin_when_created(self.binding)


class OneScope(StoredSource):
    """The default of the rows of one scope, for a statement that reads no others."""

    def __init__(self, binding: Binding, value: SQL) -> None:
        super().__init__(binding, has_scopes=False)
        self._scope = Scope(value)

    def age(self, columns: SourceColumns, overruled_by: str, *, locking: bool) -> SQL:  # noqa: ARG002 (the same for each row)
        """The age of the scope, or else the table's."""
        return lookup.age_of(self.binding, self._scope, overruled_by, locking=locking)


def _integer(value: int) -> SQL:
    return literal_column(str(value), Integer())
