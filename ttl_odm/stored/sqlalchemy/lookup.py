"""How a statement looks a stored default up: by a subquery of its own.

It refers to nothing else, so that a database runs it once; where scopes have defaults of their own,
to the scope of a row.

This module must not know how a value is changed, nor what a process remembers of it.
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
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.elements import Grouping
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.visitors import InternalTraversal

from ttl_odm.sqlalchemy.policy.looked_up import (
    FOREVER_SECONDS,
    OFF_SECONDS,
    Overruling,
    age_in,
    number,
)
from ttl_odm.stored.rows import LONGEST_SCOPE, WHOLE_TABLE
from ttl_odm.stored.sqlalchemy.one_scope import Scope
from ttl_odm.stored.sqlalchemy.tables import name_of, tables_of

if TYPE_CHECKING:
    from sqlalchemy import FromClause
    from sqlalchemy.engine import Dialect
    from sqlalchemy.sql.compiler import SQLCompiler

    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sqlalchemy.policy.sources import SourceColumns

    SQL = ColumnElement[Any]


class Literal(ColumnElement[str]):
    """A text that stands in the SQL itself: the same in every execution, so it need not be sent."""

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
    """The age at which rows expire that inherit: that of their scope, or else the table's.

    Under a collation the scope is that of several defaults, by which Acme is acme; then it is the
    shortest of these. With `locking` it is read as it is now and locked, shared: a SELECT reads it
    as the transaction's snapshot has it otherwise.
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
    alike = collate(policies.c.scope, collation)
    least = func.min(age_in(policies.c.ttl), type_=BigInteger()).label("age")
    own = select(alike.label("scope"), least).where(_is_of(binding)).group_by(alike).subquery()
    of_own = select(own.c.age).where(own.c.scope == of_outer(scope)).correlate(None)
    shortest = func.coalesce(of_own.scalar_subquery(), OFF_SECONDS, type_=BigInteger())
    return case((shortest < age, shortest), else_=age)


def _is_of(binding: Binding) -> ColumnElement[bool]:
    """The condition for the defaults of a table."""
    table = binding.first.table
    return tables_of(table).policies.c.name == Literal(name_of(table))


def own_scope(binding: Binding, columns: SourceColumns) -> SQL:
    """The scope of a row as it is stored, where that has a default of its own; else NULL."""
    assert columns.discriminator is not None  # noqa: S101 (or there are no scopes)
    c = tables_of(binding.first.table).policies.c
    is_own = same_scope(c.scope, columns.discriminator)
    own = select(c.scope).where(_is_of(binding), is_own, c.scope != Literal(WHOLE_TABLE))
    return own.correlate(None).scalar_subquery()


def shortest_age(binding: Binding) -> SQL:
    """The least age at which any row that inherits expires, whatever its scope: an index has it."""
    c = tables_of(binding.first.table).policies.c
    shortest = select(func.min(c.ttl)).where(_is_of(binding), c.ttl > number(0))
    looked_up = shortest.correlate(None).scalar_subquery()
    return func.coalesce(looked_up, FOREVER_SECONDS, type_=BigInteger())


class _OfOuter(Grouping[Any]):
    """A column of the statement around a subquery, which has none of its tables itself."""

    inherit_cache = True

    @property
    def _from_objects(self) -> list[FromClause]:
        return []


@compiles(_OfOuter)
def _render_of_outer(element: _OfOuter, compiler: SQLCompiler, **kw: object) -> str:
    text = compiler.visit_grouping(element, **kw)  # type: ignore[no-untyped-call]
    if getattr(compiler.dialect, "is_mariadb", False):
        # It remembers what a subquery has returned, by the column's own collation: for Acme that of
        # acme. Not of one with a function that may have effects; this one does nothing.
        return f"IF(BENCHMARK(0, 0) = 0, {text}, NULL)"
    return str(text)


def of_outer(column: SQL) -> SQL:
    """A column of the statement around a subquery, for a condition in that."""
    return _OfOuter(column)


class _SameText(FunctionElement[bool]):
    """Whether a stored scope is the text in a column of the statement around a subquery.

    MariaDB and MySQL compare them as if both were padded with blanks. The column's own collation
    may do so too, and then ``'acme '`` is ``'acme'`` to the application; or not, and then these are
    two tenants, of which the first has no default of its own: see `ScopeColumn`.
    """

    inherit_cache = True
    type = Boolean()

    def __init__(self, stored: SQL, column: SQL) -> None:
        super().__init__(stored, of_outer(as_text(column)), column)

    def self_group(self, against: object = None) -> Any:  # noqa: ARG002 (SQLAlchemy's signature)
        """As it is: a condition, which needs no ``= 1`` on databases without booleans."""
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
    # Two columns of binary collations, as utf8mb4_0900_bin is one, can't be compared as they are.
    return f"{stored} = {EXACTLY.format(outer)} AND {UNPADDED.format(column)}"


EXACTLY: Final = "CONVERT({0} USING utf8mb4) COLLATE utf8mb4_bin"
"""Text of any character set and collation as the column of scopes has it."""

UNPADDED: Final = "{0} = TRIM(TRAILING ' ' FROM {0})"
"""The condition for text that is, by its own collation, the same without blanks at its end."""


def same_scope(stored: SQL, column: SQL) -> SQL:
    """Whether a stored scope is that of a row of the statement around a subquery.

    Or, where all of its rows are of one `Scope`, whether it is that: then the subquery refers to no
    row, and a database runs it once.
    """
    if isinstance(column, Scope):
        return stored == column
    if isinstance(column.type, String):
        return _SameText(stored, column)
    return stored == of_outer(as_text(column))


def as_text(scope: SQL) -> SQL:
    """What tells rows apart, as the scopes of policies have it."""
    return scope if isinstance(scope.type, String) else cast(scope, String(LONGEST_SCOPE))


def scope_of(column: ColumnElement[Any], value: object, dialect: Dialect | None) -> str:
    """The same for a value in Python."""
    if isinstance(column.type, Uuid):
        is_native = dialect is None or dialect.supports_native_uuid
        is_native = is_native and column.type.native_uuid
        identifier = UUID(str(value))  # a str where the column has as_uuid=False
        return str(identifier) if is_native else identifier.hex
    return str(value)
