"""Where defaults are stored, and how a statement looks one up: the table of the policies.

A row of ``ttl_odm_policies`` has the default ttl of one table. Each statement reads it by a
subquery of its own, which refers to nothing else, so that a database runs it once. A second table
keeps what it was before, who changed it, and why.

`create_all()` makes both, and the row with the value to begin with, after it has made a table whose
default is stored. (Migrations do so too.) A row that is there stays as it is.

This module must not know how a value is changed, nor what a process remembers of it.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    BindParameter,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    case,
    cast,
    collate,
    event,
    func,
    insert,
    inspect,
    literal,
    literal_column,
    select,
)
from sqlalchemy.dialects.mysql import VARCHAR
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateTable
from sqlalchemy.sql.elements import Grouping
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.visitors import InternalTraversal

from ttl_odm.core.stored_rows import (
    CHANGES,
    FOREVER,
    LONGEST_SCOPE,
    OFF,
    POLICIES,
    WHOLE_TABLE,
)
from ttl_odm.core.values import NEVER
from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.policy import schema
from ttl_odm.sqlalchemy.policy.binding import binding_of
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sqlalchemy.time.column_types import LastModified

if TYPE_CHECKING:
    from sqlalchemy import FromClause, Insert
    from sqlalchemy.engine import Dialect
    from sqlalchemy.sql.compiler import SQLCompiler

    from ttl_odm.sqlalchemy.policy.binding import Binding, SourceColumns
    from ttl_odm.sqlalchemy.policy.parameters import DefaultTTL, Part

    SQL = ColumnElement[Any]

_INFO: Final = POLICIES


class PolicyTables(NamedTuple):
    """The table of the policies, and that of their changes."""

    policies: Table
    changes: Table


def policy_tables(metadata: MetaData, *, schema: str | None = None) -> PolicyTables:
    """Add the tables of stored defaults to a MetaData, so that ``create_all()`` creates them.

    Without it they are created in the connection's own schema. The tables of that MetaData then
    have their defaults there. Call it before any statement runs.

    Args:
        metadata: The MetaData of the application's models.
        schema: Their schema; None for the connection's own.
    """
    tables = _tables(metadata, schema)
    event.listen(tables.policies, "after_create", _begin_all)
    return tables


def tables_of(table: Table | None) -> PolicyTables:
    """Where a table's default is stored; without one, where that of most is."""
    declared = None if table is None else declared_policy_tables(table.metadata)
    return declared or _undeclared()


def declared_policy_tables(metadata: MetaData) -> PolicyTables | None:
    """What `policy_tables` has added to a MetaData, if it has."""
    ours = {table.info[_INFO]: table for table in metadata.tables.values() if _INFO in table.info}
    return PolicyTables(ours[POLICIES], ours[CHANGES]) if ours else None


@cache
def _undeclared() -> PolicyTables:
    return _tables(MetaData(), None)


def _tables(metadata: MetaData, schema_name: str | None) -> PolicyTables:
    policies = Table(
        POLICIES,
        metadata,
        Column("name", _exact(), primary_key=True),
        Column("scope", _exact(), primary_key=True),
        Column("ttl", Integer),
        Column("changed_at", LastModified(), nullable=False),
        Column("changed_by", String(255)),
        Column("reason", Text),
        # The least of a table's defaults is the first entry of its index.
        UniqueConstraint("name", "ttl", "scope", name=f"uq_{POLICIES}_name_ttl"),
        schema=schema_name,
        info={_INFO: POLICIES},
    )
    schema.add_check(policies, policies.c.ttl)
    changes = Table(
        CHANGES,
        metadata,
        Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
        Column("name", _exact(), nullable=False),
        Column("scope", _exact(), nullable=False),
        Column("changed_at", LastModified(), nullable=False),
        Column("changed_by", String(255)),
        Column("ttl_before", Integer),
        Column("ttl_after", Integer),
        Column("reason", Text),
        schema=schema_name,
        info={_INFO: CHANGES},
    )
    return PolicyTables(policies, changes)


def _exact() -> String:
    """Text of which MariaDB and MySQL tell upper from lower case, as the others do."""
    return String(LONGEST_SCOPE).with_variant(
        VARCHAR(LONGEST_SCOPE, collation="utf8mb4_bin"), *MYSQL_FAMILY
    )


def name_of(table: Table) -> str:
    """What a table is called in the table of the policies."""
    return str(table.fullname)  # a quoted_name has no type to SQLAlchemy


def row_of(table: Table, scope: str = WHOLE_TABLE) -> tuple[ColumnElement[bool], ...]:
    """The conditions for the row of a table's default."""
    c = tables_of(table).policies.c
    return (c.name == name_of(table), c.scope == scope)


# --- the look-up ----------------------------------------------------------------------------------


class Overruling(BindParameter[Any]):
    """NULL, so that what is stored counts; `OFF` in an execution that asks for `overruled_by`."""

    inherit_cache = True

    def __init__(self, default: DefaultTTL, overruled_by: str) -> None:
        self._default = default
        self.overruled_by = overruled_by
        super().__init__("ttl_overruled", None, unique=True, type_=BigInteger())

    @property
    def value(self) -> Any:
        """None; raises where the model declares by now that its default isn't stored."""
        default = self._default
        if getattr(default.owner, "__ttl__", None) is not default.seen:
            default.check()
        return None

    @value.setter
    def value(self, value: object) -> None:
        """SQLAlchemy's constructor sets one."""


@compiles(Overruling)
def _render_overruling(element: Overruling, compiler: SQLCompiler, **kw: Any) -> str:
    # Of a NULL that is written out, as in a view, SQLAlchemy would warn.
    return "NULL" if kw.get("literal_binds") else str(compiler.visit_bindparam(element, **kw))  # type: ignore[no-untyped-call]


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


def stored_seconds(
    binding: Binding,
    columns: SourceColumns,
    part: Part,
    overruled_by: str,
    *,
    locking: bool = False,
) -> SQL:
    """What the stored default means: a part of `LifetimeSeconds`, read by the statement itself.

    Where no row is stored, or one that is not a ttl (as a CHECK keeps out), TTL is off: nothing
    expires. An age is to be put into `once`, by itself or with what is made of it. `locking`: see
    `age_of`.
    """
    scope = columns.discriminator if binding.is_scoped else None
    age = age_of(binding, scope, overruled_by, locking=locking)
    if part == "inherited_age":
        return age
    age = once(binding, age)
    if part == "inherited_life":
        return case((age < _FOREVER, age))
    limit = binding.max_lifetime
    longest = _OFF if limit is None else _number(limit.seconds)
    while_on, while_off = {
        "own_slack": (_number(0), _OFF),
        "own_life": (_number(0), None),
        "max_age": (longest, _OFF),
        "max_life": (longest, None),
    }[part]
    return case((age <= _FOREVER, while_on), else_=while_off)


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
    table = binding.first.table
    policies = tables_of(table).policies
    is_of_table = policies.c.name == Literal(name_of(table))
    row = select(_seconds_of(policies)).where(is_of_table).correlate(None)
    if locking:
        row = row.with_for_update(read=True)
    of_all = row.where(policies.c.scope == Literal(WHOLE_TABLE)).scalar_subquery()
    ages: list[SQL] = [Overruling(binding.default, overruled_by), of_all, _OFF]
    if scope is not None and collation is None:
        ages.insert(1, row.where(same_scope(policies.c.scope, scope)).scalar_subquery())
    age = func.coalesce(*ages, type_=BigInteger())
    if scope is None or collation is None:
        return age
    alike = collate(policies.c.scope, collation)
    least = func.min(_seconds_of(policies), type_=BigInteger()).label("age")
    own = select(alike.label("scope"), least).where(is_of_table).group_by(alike).subquery()
    of_own = select(own.c.age).where(own.c.scope == of_outer(scope)).correlate(None)
    shortest = func.coalesce(of_own.scalar_subquery(), _OFF, type_=BigInteger())
    return case((shortest < age, shortest), else_=age)


def own_scope(binding: Binding, columns: SourceColumns) -> SQL:
    """The scope of a row as it is stored, where that has a default of its own; else NULL."""
    assert columns.discriminator is not None  # noqa: S101 (or there are no scopes)
    c = tables_of(binding.first.table).policies.c
    is_of_table, whole = c.name == Literal(name_of(binding.first.table)), Literal(WHOLE_TABLE)
    is_own = same_scope(c.scope, columns.discriminator)
    own = select(c.scope).where(is_of_table, is_own, c.scope != whole)
    return own.correlate(None).scalar_subquery()


def shortest_age(binding: Binding) -> SQL:
    """The least age at which any row that inherits expires, whatever its scope: an index has it."""
    c = tables_of(binding.first.table).policies.c
    is_of_table = c.name == Literal(name_of(binding.first.table))
    shortest = select(func.min(c.ttl)).where(is_of_table, c.ttl > literal_column("0"))
    looked_up = shortest.correlate(None).scalar_subquery()
    return func.coalesce(looked_up, _FOREVER, type_=BigInteger())


def _seconds_of(policies: Table) -> SQL:
    ttl = policies.c.ttl
    return case((ttl > literal_column("0"), ttl), (ttl == _NEVER, _FOREVER), else_=_OFF)


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
    """Whether a stored scope is that of a row of the statement around a subquery."""
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


def once(binding: Binding, expression: SQL) -> SQL:
    """What is made of a stored default as a subquery, which databases compute once for all rows.

    What has a subquery in it SQLite would compute for each row otherwise. Where each row may have
    another default, it stays as it is.
    """
    if binding.stored is None or binding.is_scoped:
        return expression
    return select(expression).correlate(None).scalar_subquery()


def _number(value: int) -> SQL:
    return literal_column(str(value), BigInteger())


_NEVER: Final = _number(NEVER)
_FOREVER: Final = _number(FOREVER)
_OFF: Final = _number(OFF)


# --- making the tables and the rows ---------------------------------------------------------------


def begin_when_created(binding: Binding) -> None:
    """Let a table's row be made with the table, and go with it."""
    for name, listener in (("after_create", _begin), ("after_drop", _end)):
        if not event.contains(binding.table, name, listener):
            event.listen(binding.table, name, listener)


def create_policies(connection: Connection, *tables: Table) -> None:
    """Create the tables of stored defaults, and any missing rows in them.

    Use it for tables that neither `create_all()` nor a migration creates: those of a third party,
    to which `enable()` has given a policy.

    Args:
        connection: A connection; the tables and rows are committed with its transaction.
        tables: The tables; those without a stored default are ignored.
    """
    for table in tables:
        _begin(table, connection)


def starting_row(table: Table, start: int | None, now: SQL) -> Insert:
    """The INSERT of a table's row, unless there is one."""
    policies = tables_of(table).policies
    texts: list[SQL] = [literal(text, String()) for text in (name_of(table), WHOLE_TABLE)]
    values = [*texts, literal(start, Integer()), now]
    is_there = select(policies.c.name).where(*row_of(table))
    new = select(*values).where(~is_there.correlate(None).exists())
    return insert(policies).from_select(["name", "scope", "ttl", "changed_at"], new)


def _begin(table: Table, connection: Connection, **_: object) -> None:
    """Make what the default of a table needs, after the table."""
    binding = binding_of(table)
    if binding is None or binding.stored is None:
        return
    tables = tables_of(binding.first.table)
    if tables.policies.metadata is not table.metadata:
        for made in tables:
            connection.execute(CreateTable(made, if_not_exists=True))
    elif not _is_there(connection, tables.policies):
        return  # it is the MetaData's to make, and has its rows then
    _insert(connection, binding)


def _begin_all(policies: Table, connection: Connection, **_: object) -> None:
    """Make the rows of all tables beside one of policies, after that."""
    for table in list(policies.metadata.tables.values()):
        binding = binding_of(table)
        if binding is not None and binding.stored is not None:
            _insert(connection, binding)


def _insert(connection: Connection, binding: Binding) -> None:
    assert binding.stored is not None  # noqa: S101 (the callers have asked)
    clock = clock_of(connection.dialect)
    now = clock.literal(clock.now_at_write)
    policy = binding.default.policy
    start: Any = getattr(policy, "stored", binding.stored)
    connection.execute(starting_row(binding.first.table, start.start, now))


def _end(table: Table, connection: Connection, **_: object) -> None:
    """Take a table's rows away with it: a new table of its name begins anew."""
    binding = binding_of(table)
    if binding is None or binding.stored is None:
        return
    policies = tables_of(binding.first.table).policies
    if _is_there(connection, policies):
        name = name_of(binding.first.table)
        connection.execute(policies.delete().where(policies.c.name == name))


def _is_there(connection: Any, table: Table) -> bool:
    """Whether a table exists; True for what only writes down the DDL."""
    if not isinstance(connection, Connection):
        return True
    schema, name = compat.place_of(connection.get_execution_options(), table)
    return inspect(connection).has_table(name, schema=schema)
