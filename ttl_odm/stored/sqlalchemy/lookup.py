"""How a statement looks a stored default up, by a subquery; and how a deletion locks it.

The subquery refers to nothing outside of it, so that a database runs it once; with scopes, it
refers to the scope of a row.

`set_policy` first locks the row of the table's own default (scope ""), whichever scope it changes.
A transaction that deletes takes a shared lock on that row before it judges any row (`lock_row`).
So a raised default waits for the batches that are running, and later batches use it. One row stands
for all scopes, because a scope without a default of its own has no row to lock. Several sweepers
share the lock. SQLite doesn't need it, since one transaction writes at a time.

This module must not know how a default is changed, nor what a process caches of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    Boolean,
    ColumnElement,
    String,
    Uuid,
    case,
    cast,
    collate,
    func,
    select,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.elements import Grouping
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.visitors import InternalTraversal

from ttl_odm.dialects.errors import is_forbidden
from ttl_odm.sqlalchemy.policy.looked_up import (
    FOREVER_SECONDS,
    OFF_SECONDS,
    Overruling,
    age_in,
    number,
)
from ttl_odm.stored.rows import LONGEST_SCOPE, MAY_SHARE, WHOLE_TABLE
from ttl_odm.stored.sqlalchemy.one_scope import Scope
from ttl_odm.stored.sqlalchemy.tables import name_of, row_of, tables_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import FromClause, Select, Table
    from sqlalchemy.engine import Dialect
    from sqlalchemy.sql.compiler import SQLCompiler

    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sqlalchemy.policy.sources import SourceColumns

    SQL = ColumnElement[Any]


class Literal(ColumnElement[str]):
    """A text written into the SQL: the same in every execution, so it needn't be sent."""

    inherit_cache = True
    type = String()
    _traverse_internals = [("text", InternalTraversal.dp_string)]  # noqa: RUF012 (SQLAlchemy's)

    def __init__(self, text: str) -> None:
        self.text = text


@compiles(Literal)
def _render_literal(element: Literal, compiler: SQLCompiler, **_: object) -> str:
    return str(compiler.render_literal_value(element.text, element.type))


def age_of(
    binding: Binding,
    scope: SQL | None,
    overruled_by: str,
    collation: str | None = None,
    *,
    locking: bool = False,
) -> SQL:
    """Return the age at which rows that inherit expire: that of their scope, or else the table's.

    Args:
        binding: The policy of the rows.
        scope: The column of their scope; None for the table's age.
        overruled_by: The parameter of an execution that turns TTL off.
        collation: By which several stored scopes are equal, such as Acme and acme: then the age is
            the shortest of theirs.
        locking: Whether to read the current value and lock it, shared. Otherwise a SELECT reads it
            as of the transaction's snapshot.
    """
    policies = tables_of(binding.first.table).policies
    row = select(age_in(policies.c.ttl)).where(_is_of(binding)).correlate(None)
    if locking:
        row = row.with_for_update(read=True)
    of_all = row.where(policies.c.scope == Literal(WHOLE_TABLE)).scalar_subquery()
    ages: list[SQL] = [Overruling(binding.default, overruled_by), of_all, OFF_SECONDS]
    if scope is not None and collation is None:
        ages.insert(1, row.where(same_scope(policies.c.scope, scope)).scalar_subquery())
    age = func.coalesce(*ages, type_=BigInteger())
    if scope is None or collation is None:
        return age
    collated = collate(policies.c.scope, collation)
    least = func.min(age_in(policies.c.ttl), type_=BigInteger()).label("age")
    ages_by_scope = select(collated.label("scope"), least).where(_is_of(binding))
    own = ages_by_scope.group_by(collated).subquery()
    of_own = select(own.c.age).where(own.c.scope == of_outer(scope)).correlate(None)
    shortest = func.coalesce(of_own.scalar_subquery(), OFF_SECONDS, type_=BigInteger())
    return case((shortest < age, shortest), else_=age)


def _is_of(binding: Binding) -> ColumnElement[bool]:
    """The condition for the stored defaults of a table."""
    table = binding.first.table
    return tables_of(table).policies.c.name == Literal(name_of(table))


def own_scope(binding: Binding, columns: SourceColumns) -> SQL:
    """Return the scope of a row, as stored, where it has a default of its own; else NULL."""
    assert columns.discriminator is not None  # noqa: S101 (or there are no scopes)
    c = tables_of(binding.first.table).policies.c
    is_own = same_scope(c.scope, columns.discriminator)
    own = select(c.scope).where(_is_of(binding), is_own, c.scope != Literal(WHOLE_TABLE))
    return own.correlate(None).scalar_subquery()


def shortest_age(binding: Binding) -> SQL:
    """Return the least age at which any row that inherits expires, the first entry of an index."""
    c = tables_of(binding.first.table).policies.c
    shortest = select(func.min(c.ttl)).where(_is_of(binding), c.ttl > number(0))
    looked_up = shortest.correlate(None).scalar_subquery()
    return func.coalesce(looked_up, FOREVER_SECONDS, type_=BigInteger())


def locked_row(table: Table) -> Select[Any]:
    """Select the row that stands for all stored defaults of a table."""
    return select(tables_of(table).policies.c.ttl).where(*row_of(table))


def lock_row(table: Table, execute: Callable[[Any], object]) -> None:
    """Lock the row that stands for all stored defaults of a table, shared.

    Raises:
        DBAPIError: The database's; with a detail that says what its user lacks, if it does.
    """
    try:
        execute(locked_row(table).with_for_update(read=True))
    except DBAPIError as error:
        if is_forbidden(error.orig):
            error.add_detail(MAY_SHARE)
        raise


class _OfOuter(Grouping[Any]):
    """A column of the enclosing statement; it adds none of its tables to the subquery's FROM."""

    inherit_cache = True

    @property
    def _from_objects(self) -> list[FromClause]:
        return []


@compiles(_OfOuter)
def _render_of_outer(element: _OfOuter, compiler: SQLCompiler, **kw: object) -> str:
    text = compiler.visit_grouping(element, **kw)  # type: ignore[no-untyped-call]
    if getattr(compiler.dialect, "is_mariadb", False):
        # MariaDB caches what a subquery returns, by the column's own collation: Acme gets acme's.
        # It caches nothing for a function that may have side effects; this one has none.
        return f"IF(BENCHMARK(0, 0) = 0, {text}, NULL)"
    return str(text)


def of_outer(column: SQL) -> SQL:
    """Return a column of the enclosing statement, for a condition in a subquery."""
    return _OfOuter(column)


class _SameText(FunctionElement[bool]):
    """Whether a stored scope equals the text in a column of the enclosing statement.

    MariaDB and MySQL compare them as if both were padded with blanks. If the column's own collation
    does so too, ``'acme '`` is ``'acme'`` to the application. Otherwise these are two tenants, and
    the first has no default of its own: see `ScopeColumn`.
    """

    inherit_cache = True
    type = Boolean()

    def __init__(self, stored: SQL, column: SQL) -> None:
        super().__init__(stored, of_outer(as_text(column)), column)

    def self_group(self, against: object = None) -> Any:  # noqa: ARG002 (SQLAlchemy's signature)
        """Return it unchanged: a condition needs no ``= 1`` on databases without booleans."""
        return self

    @property
    def _from_objects(self) -> list[FromClause]:
        stored, *_ = self.clauses
        return list(stored._from_objects)  # noqa: SLF001 (a subclass's)


@compiles(_SameText)
def _render_same(element: _SameText, compiler: SQLCompiler, **kw: Any) -> str:
    stored, outer, _ = element.clauses
    return f"{compiler.process(stored, **kw)} = {compiler.process(outer, **kw)}"


@compiles(_SameText, "mysql", "mariadb")
def _render_same_mysql(element: _SameText, compiler: SQLCompiler, **kw: Any) -> str:
    stored, outer, column = (compiler.process(part, **kw) for part in element.clauses)
    # Columns with two binary collations, such as utf8mb4_0900_bin, can't be compared directly.
    return f"{stored} = {EXACTLY.format(outer)} AND {UNPADDED.format(column)}"


EXACTLY: Final = "CONVERT({0} USING utf8mb4) COLLATE utf8mb4_bin"
"""Converts text of any character set and collation to those of the column of scopes."""

UNPADDED: Final = "{0} = TRIM(TRAILING ' ' FROM {0})"
"""The condition for text that equals, by its own collation, itself without trailing blanks."""


def same_scope(stored: SQL, column: SQL) -> SQL:
    """Return the condition that a stored scope is that of a row of the enclosing statement.

    If all rows have one `Scope`, the condition compares with that: then the subquery refers to no
    row, and a database runs it once.
    """
    if isinstance(column, Scope):
        return stored == column
    if isinstance(column.type, String):
        return _SameText(stored, column)
    return stored == of_outer(as_text(column))


def as_text(scope: SQL) -> SQL:
    """Return the column of the scopes as text, as scopes are stored."""
    return scope if isinstance(scope.type, String) else cast(scope, String(LONGEST_SCOPE))


def scope_of(column: ColumnElement[object], value: object, dialect: Dialect | None) -> str:
    """Return a value of the column of the scopes as text, as scopes are stored."""
    if isinstance(column.type, Uuid):
        is_native = dialect is None or dialect.supports_native_uuid
        is_native = is_native and column.type.native_uuid
        identifier = UUID(str(value))  # a str where the column has as_uuid=False
        return str(identifier) if is_native else identifier.hex
    return str(value)
