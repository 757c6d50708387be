"""Private names of SQLAlchemy Core: statements and their elements, types, engines."""

from __future__ import annotations

import sys
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from sqlalchemy import (
    Alias,
    ClauseElement,
    Delete,
    Insert,
    Join,
    Select,
    TableClause,
    TableSample,
    TypeDecorator,
    Update,
    select,
    true,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.elements import _anonymous_label
from sqlalchemy.sql.expression import CompoundSelect
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.selectable import ForUpdateArg, FromGrouping
from sqlalchemy.sql.visitors import InternalTraversal
from sqlalchemy.util import immutabledict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from sqlalchemy import BindParameter, Column, ColumnElement, Connection, FromClause, Table
    from sqlalchemy.dialects.mysql.dml import OnDuplicateClause
    from sqlalchemy.dialects.postgresql.dml import OnConflictDoUpdate
    from sqlalchemy.engine import Dialect
    from sqlalchemy.engine.default import DefaultExecutionContext
    from sqlalchemy.ext.asyncio import AsyncConnection
    from sqlalchemy.sql.base import ExecutableOption, SchemaEventTarget
    from sqlalchemy.sql.compiler import SQLCompiler
    from sqlalchemy.types import TypeEngine

    Assignment = tuple[Any, object]
    """A column, or its name, and the value that it is set to."""

Element = TypeVar("Element")
Copied = TypeVar("Copied", bound=ClauseElement)
Write = TypeVar("Write", Insert, Update)
Filtered = TypeVar("Filtered", Select[Any], Update, Delete)

ANNOTATED: Final = "_Annotated__element"
"""The attribute in which the ORM's wrapping keeps the wrapped element, see `original`."""

where_criteria: Callable[[object], tuple[ColumnElement[bool], ...]] = attrgetter("_where_criteria")
loader_options: Callable[[object], tuple[ExecutableOption, ...]] = attrgetter("_with_options")


def all_options(statement: Any) -> Iterator[ExecutableOption]:
    """Yield the options of a SELECT, including those from before a `with_only_columns`."""
    yield from statement._with_options
    for memoized in getattr(statement, "_memoized_select_entities", ()):
        yield from memoized._with_options


def invoked(context: DefaultExecutionContext) -> Any:
    """Return the statement that an execution was given; of ``from_statement()``, the inner one."""
    statement: Any = context.invoked_statement
    return statement.element if statement.is_from_statement else statement


def original(element: Element) -> Element:
    """Return a FROM element without the ORM's wrapping, or the element itself if it has none.

    Inside ORM statements a `Table` comes wrapped ("annotated"). The wrapping has a ``__dict__``
    and an identity of its own, so always take the original to read what is kept on the Table, or to
    compare with it.
    """
    return getattr(element, ANNOTATED, element)


def leaves(source: FromClause) -> Iterator[FromClause]:
    """Yield the FROM elements that a join consists of; any other element is its own only leaf."""
    if isinstance(source, Join):
        yield from leaves(source.left)
        yield from leaves(source.right)
    elif isinstance(source, FromGrouping):
        yield from leaves(source.element)
    else:
        yield source


def table_of(source: object) -> object:
    """Return the table behind an alias or a sample; of any other element, the element itself."""
    while isinstance(source, (Alias, TableSample)):
        source = source.element
    return original(source)


def copied(element: Copied, /, **attributes: object) -> Copied:
    """Return a copy of an element in which some (public) attributes have other values."""
    clone = element._clone()
    for name, value in attributes.items():
        setattr(clone, name, value)
    return clone


def with_criteria(statement: Filtered, criteria: Iterable[ColumnElement[bool]]) -> Filtered:
    """Return a statement with other conditions in its WHERE clause."""
    copy = statement._generate()
    copy._where_criteria = tuple(criteria)
    return copy


class Resolved(NamedTuple):
    """An UPDATE or DELETE with the FROM elements and WHERE conditions that will be rendered.

    The first FROM element is the one that it changes. The ORM adds conditions to WHERE.
    """

    statement: Update | Delete
    sources: Sequence[FromClause]
    criteria: Sequence[ColumnElement[bool]]


def resolved(
    statement: Update | Delete, compiler: SQLCompiler, kw: Mapping[str, object]
) -> Resolved:
    """Return a statement with what its compile state makes of it.

    Only the compile state knows which tables a WHERE or a SET clause brings in, and which table an
    ORM entity stands for.
    """
    factory: Any = statement._compile_state_factory
    state = factory(statement, compiler, **kw)
    table = state.statement.table
    named = set(table._from_objects)  # of a join, also its tables
    extra = [source for source in state._extra_froms if source not in named]
    return Resolved(statement, [table, *extra], where_criteria(state.statement))


def is_limited(statement: Update | Delete) -> bool:
    """Return whether an UPDATE or DELETE has a LIMIT, which MariaDB and MySQL allow."""
    in_2_1 = getattr(statement, "_post_criteria_clause", None)
    options = statement.dialect_kwargs
    return in_2_1 is not None or any(name.endswith("_limit") for name in options)


def from_elements(select: Select[Any]) -> list[object]:
    """Return the elements that a SELECT itself names in its FROM clause."""
    return [*select._from_obj, *(join[0] for join in select._setup_joins)]


def assignments(statement: Insert | Update) -> list[Assignment]:
    """Return the columns that a statement itself sets in one row, with their values or SQL."""
    ordered = getattr(statement, "_ordered_values", None)  # SQLAlchemy 2.0
    return list(ordered or (statement._values or {}).items())


def with_assignments(statement: Write, pairs: list[Assignment]) -> Write:
    """Return a statement with other assignments for one row."""
    copy: Any = statement._generate()
    if getattr(statement, "_ordered_values", None) is not None:  # SQLAlchemy 2.0
        copy._ordered_values = pairs
    else:
        copy._values = immutabledict(pairs)  # `values()` may follow
    return copy  # type: ignore[no-any-return]


def is_ordered(statement: Update) -> bool:
    """Return whether an UPDATE has ordered values, to which no more can be added."""
    in_2_0 = getattr(statement, "_ordered_values", None)
    return bool(in_2_0 or getattr(statement, "_maintain_values_ordering", False))


def is_anonymous(value: BindParameter[Any]) -> bool:
    """Return whether SQLAlchemy makes up the name of a bound value."""
    return isinstance(value.key, _anonymous_label)


def value_lists(statement: Insert | Update) -> Sequence[Sequence[object]]:
    """Return the lists of rows given to a multi-values INSERT; empty for any other statement."""
    return statement._multi_values


def with_value_lists(statement: Insert, lists: Iterable[Sequence[Any]]) -> Insert:
    """Return a multi-values INSERT with other rows."""
    copy = statement._generate()
    copy._multi_values = tuple(lists)
    return copy


def is_asked_to_return(compiler: SQLCompiler) -> bool:
    """Return whether the caller gave the innermost UPDATE in the compiler a `returning()`.

    The columns that the ORM itself makes the statement return are in a copy of it only.
    """
    updates = [one["selectable"] for one in compiler.stack if isinstance(one["selectable"], Update)]
    if not updates:
        return False
    executed: Any = compiler.statement
    is_outermost = len(compiler.stack) == 1
    return bool(updates[-1]._returning or (is_outermost and executed._returning))


def has_prefixes(statement: Insert | Update) -> bool:
    """Return whether a prefix such as IGNORE or OR REPLACE follows INSERT or UPDATE."""
    return bool(statement._prefixes)


def is_temporary(table: Table) -> bool:
    """Return whether a table is created as a temporary one."""
    return "TEMPORARY" in map(str.upper, table._prefixes)


def is_upsert(statement: Insert | Update) -> bool:
    """Return whether an INSERT specifies what happens on a conflict."""
    return getattr(statement, "_post_values_clause", None) is not None


def ignores_conflicts(statement: Insert) -> bool:
    """Return whether an INSERT leaves out rows whose keys are taken: DO NOTHING, or IGNORE."""
    clause: Any = getattr(statement, "_post_values_clause", None)
    if getattr(clause, "__visit_name__", "") == "on_conflict_do_nothing":
        return True
    return any("IGNORE" in str(prefix).upper().split() for prefix, _ in statement._prefixes)


def selected_names(statement: Insert | Update) -> Sequence[str]:
    """Return the columns of an INSERT FROM SELECT, in order; empty for any other statement."""
    return statement._select_names or ()


def with_selection(
    statement: Insert, names: Sequence[str], columns: Iterable[ColumnElement[Any]]
) -> Insert:
    """Return an INSERT FROM SELECT with other columns."""
    # SQLite takes the ON of an ON CONFLICT that follows a FROM clause for that of a join.
    rows = select(*columns).where(true())
    return copied(statement, select=rows, _select_names=list(names))


def emitted(statement: Insert) -> Insert:
    """Return an INSERT as it is rendered.

    The ORM's bulk INSERT of a joined subclass is one statement for all tables of the class; its
    annotation names the table that is meant.
    """
    table = statement._annotations.get("_emit_insert_table")
    if table is None or table is original(statement.table):
        return statement
    attributes: Any = attributes_of(statement)
    copy: Any = copied(statement, table=table)
    copy._values = {
        key: value
        for key, value in (statement._values or {}).items()
        if original(attributes.get(key) if isinstance(key, str) else key).table is table
    }
    return copy  # type: ignore[no-any-return]


def is_bulk(statement: Any) -> bool:
    """Return whether it is an ORM INSERT of mappings, which reports no number of rows."""
    return "_emit_insert_table" in statement._annotations


def attributes_of(statement: Insert | Update) -> Mapping[str, Column[Any]]:
    """Return the columns of the class that a statement is about, by attribute; empty for Core's."""
    mapper: Any = statement._propagate_attrs.get("plugin_subject")
    return {} if mapper is None else mapper.columns


def column_key(statement: Insert | Update, column: Any) -> str:
    """Return the key of a column that a statement sets by a column or an attribute's name."""
    if not isinstance(column, str):
        return str(column.key)
    mapped = attributes_of(statement).get(column)
    return column if mapped is None else str(mapped.key)


class UpdateHalf(NamedTuple):
    """The update half of an upsert.

    Attributes:
        values: The values that it sets, by column key.
        where: The condition for the conflicting rows that it updates, if there is one.
        met_by: The columns by which it finds conflicting rows, as far as it names them.
    """

    values: dict[str, object]
    where: ColumnElement[bool] | None
    met_by: frozenset[str]


def update_half(statement: Insert) -> UpdateHalf | None:
    """Return the update half of an INSERT; None if it has none."""
    clause: Any = statement._post_values_clause
    values = {} if clause is None else conflict_values(clause)
    if not values:
        return None
    met_by = getattr(clause, "inferred_target_elements", None) or ()
    keys = frozenset(str(getattr(element, "key", element)) for element in met_by)
    return UpdateHalf(values, getattr(clause, "update_whereclause", None), keys)


def conflict_values(clause: Any) -> dict[str, object]:
    """Return the values that ``ON CONFLICT`` or ``ON DUPLICATE KEY`` sets, by column key."""
    values = getattr(clause, "update_values_to_set", None) or getattr(clause, "update", None) or {}
    return {str(getattr(key, "key", key)): value for key, value in dict(values).items()}


def with_conflict_values(
    clause: OnConflictDoUpdate, values: dict[str, object], where: ColumnElement[bool]
) -> OnConflictDoUpdate:
    """Return an ``ON CONFLICT DO UPDATE`` with other values and another condition."""
    # A list of pairs in SQLAlchemy 2.0, a dict in 2.1.
    is_list = isinstance(clause.update_values_to_set, list)
    pairs = list(values.items()) if is_list else values
    return copied(clause, update_values_to_set=pairs, update_whereclause=where)


def with_duplicate_values(
    clause: OnDuplicateClause, values: dict[str, object], first: str
) -> OnDuplicateClause:
    """Return an ``ON DUPLICATE KEY UPDATE`` with other values, of which `first` comes first."""
    rest = [key for key in clause._parameter_ordering or values if key != first]
    return copied(clause, update=values, _parameter_ordering=[first, *rest])


def wrap_handlers(wrapper: type) -> bool:
    """Wrap each compile handler of SELECT, UPDATE, DELETE and INSERT that isn't wrapped yet.

    Returns:
        Whether there was one to wrap.
    """
    is_new = False
    for construct in (Select, CompoundSelect, Update, Delete, Insert):
        if "_compiler_dispatcher" not in vars(construct):
            compiles(construct)(wrapper(None))
            is_new = True
        handlers = vars(construct)["_compiler_dispatcher"].specs
        for name, handler in handlers.items():
            if not isinstance(handler, wrapper):
                handlers[name] = wrapper(handler)
                is_new = True
    return is_new


def affinity(type_: TypeEngine[Any]) -> type:
    """Return the general type to which a column's type belongs."""
    return type_._type_affinity or object


def undecorated(type_: TypeEngine[Any], dialect: Dialect) -> TypeEngine[Any]:
    """Return the type that a column has on a dialect: the variant for it, without decorators."""
    kept = type_.dialect_impl(dialect)
    while isinstance(kept, TypeDecorator):
        kept = kept.load_dialect_impl(dialect)
        if isinstance(kept, TypeDecorator):
            kept = kept.dialect_impl(dialect)
    return kept


def variant_of(type_: TypeEngine[Any], dialect: Dialect) -> TypeEngine[Any]:
    """Return the type that a column has on a dialect, by ``with_variant()``."""
    return type_._variant_mapping.get(dialect.name, type_)


def storage_format(type_: TypeEngine[Any]) -> str | None:
    """Return the format in which a type of SQLite stores a datetime."""
    return getattr(type_, "_storage_format", None)


def attach(item: SchemaEventTarget, column: Column[Any]) -> None:
    """Attach a default or a constraint to a column that already belongs to a table."""
    item._set_parent_with_dispatch(column)


def isolation_level(connection: Connection) -> str | None:
    """Return the isolation level of a connection's transactions, as far as SQLAlchemy knows it."""
    options = connection.get_execution_options()
    return options.get("isolation_level") or connection.default_isolation_level


def isolate(connection: Connection, level: str) -> None:
    """Give a connection an isolation level, which the pool resets when the connection returns.

    With some drivers, setting and resetting send statements, whose errors SQLAlchemy doesn't wrap.
    And if the server is lost while the level is reset, the pool would lose the slot of the
    connection; here it can open a new connection in that slot.

    Raises:
        DBAPIError: The server was lost.
    """
    dialect = connection.dialect
    base: Any = dialect.loaded_dbapi.Error
    try:
        connection.execution_options(isolation_level=level)
    except base as error:
        connection.invalidate(error)
        raise DBAPIError.instance(
            None, None, error, base, connection_invalidated=True, dialect=dialect
        ) from error
    record: Any = connection.connection._connection_record
    resets = record.finalize_callback
    resets.append(_lossy(record, resets.pop()))


def run_aside(connection: Connection, statement: str) -> None:
    """Run a statement without a result outside of a transaction, and begin none.

    SQLAlchemy would begin one, whose end is another round trip to the server. SQLAlchemy's events
    don't see the statement. Errors are wrapped, and a lost connection is invalidated, as usual.
    """
    driver, cursor = connection.connection, None
    try:
        cursor = driver.cursor()
        cursor.execute(statement)
        cursor.close()
    except BaseException as error:  # noqa: BLE001 (it is raised again, as SQLAlchemy's)
        connection._handle_dbapi_exception(error, statement, None, cursor, None)


def _lossy(record: Any, reset: Callable[[object], None]) -> Callable[[object], None]:
    def finalizer(dbapi_connection: object) -> None:
        try:
            reset(dbapi_connection)
        except Exception as error:  # noqa: BLE001 (each driver has its own)
            record.invalidate(error)

    return finalizer


def async_types(*names: str) -> tuple[type[Any], ...]:
    """Return classes of SQLAlchemy's asyncio by name, for `isinstance`; none if it isn't imported.

    Importing it here would fail without greenlet in SQLAlchemy 2.1. Objects of these classes exist
    only after the application has imported it.
    """
    asynchronous = sys.modules.get("sqlalchemy.ext.asyncio")
    return () if asynchronous is None else tuple(getattr(asynchronous, name) for name in names)


def async_connection(connection: Connection) -> AsyncConnection:
    """Return the asyncio connection around this one."""
    from sqlalchemy.ext.asyncio import AsyncConnection  # noqa: PLC0415 (see `async_types`)

    return AsyncConnection._retrieve_proxy_for_target(connection)


def is_mysql(dialect: Dialect) -> bool:
    """Return whether a dialect is MySQL's, or derived from it, and not MariaDB's."""
    return getattr(dialect, "is_mariadb", None) is False


def in_driver_format(dialect: Dialect, sql: str) -> str:
    """Return SQL with its percent signs doubled, for drivers that use them for parameters."""
    return sql.replace("%", "%%") if dialect.identifier_preparer._double_percents else sql


def out_of_driver_format(dialect: Dialect, sql: str) -> str:
    """Return SQL as the database gets it: the reverse of `in_driver_format`."""
    return sql.replace("%%", "%") if dialect.identifier_preparer._double_percents else sql


def as_listeners_have_it(context: Any, statement: str, parameters: object) -> tuple[str, object]:
    """Return a batch's statement and parameters, changed by ``before_cursor_execute`` listeners."""
    connection = context.root_connection
    if connection._has_events or connection.engine._has_events:
        for listener in connection.dispatch.before_cursor_execute:
            statement, parameters = listener(
                connection, context.cursor, statement, parameters, context, context.executemany
            )
    return statement, parameters


def sends_otherwise(context: Any) -> bool:
    """Return whether the dialect's ``do_execute`` must not be used to send a statement.

    That is so with an option of the execution, and where a listener sends statements itself.
    """
    dialect = context.dialect
    return context.no_parameters or (dialect._has_events and bool(dialect.dispatch.do_execute))


def fails_late(context: Any) -> bool:
    """Return whether a write may fail only when its rows are read.

    MariaDB begins to return rows before it has written all of them, and a cursor that streams them
    doesn't wait for the end.
    """
    return context._is_server_side and bool(context.compiled.effective_returning)


def place_of(options: Mapping[str, Any], table: TableClause) -> tuple[str | None, str]:
    """Return a table's schema and name under execution options, which may translate schemas."""
    schemas = options.get("schema_translate_map") or {}
    return schemas.get(table.schema, table.schema), table.name


class NamedTable(TableClause):
    """A table of which only names are known.

    Executions may translate its schema, as otherwise only that of a `Table`.
    """

    inherit_cache = True
    _use_schema_map = True


def in_schemas(context: Any, statement: str) -> str:
    """Return a statement with the schemas of an execution.

    A preparer of the compiled statement must have quoted the names in it.
    """
    if not context.compiled.schema_translate_map:
        return statement
    schemas = context.execution_options.get("schema_translate_map", {})
    return context.compiled.preparer._render_schema_translates(statement, schemas)  # type: ignore[no-any-return]


def set_rowcount(context: Any, rowcount: int) -> None:
    """Set the number of rows that an execution reports to have written."""
    context._rowcount = rowcount


def lock_for_share(rows: Select[Any]) -> None:
    """Let a SELECT, which no other code uses yet, lock the rows that it reads, in place."""
    rows._for_update_arg = ForUpdateArg(read=True)


def set_parameter(context: Any, number: int, name: str, value: object) -> None:
    """Change the value of a parameter in one of an execution's statements, just before it is sent.

    The value must be in the driver's form.
    """
    context.compiled_parameters[number][name] = value
    sent, compiled = context.parameters[number], context.compiled
    if not compiled.positional:
        sent[compiled.escaped_bind_names.get(name, name)] = value
        return
    places = zip(compiled.positiontup, sent, strict=True)
    changed = [value if place == name else old for place, old in places]
    context.parameters[number] = context.dialect.execute_sequence_format(changed)


class SQLTemplate(FunctionElement[Any]):
    """SQL that SQLAlchemy can't express: a text in which ``{0}``, ``{1}``... are expressions.

    The text never contains anything from outside this package. It has parentheses around the
    expressions that need them, and around itself if it needs them.
    """

    inherit_cache = True
    _traverse_internals = [  # noqa: RUF012 (SQLAlchemy's)
        *FunctionElement._traverse_internals,
        ("text", InternalTraversal.dp_string),
        ("type", InternalTraversal.dp_type),
    ]

    def __init__(self, text: str, type_: TypeEngine[Any], *parts: ColumnElement[Any]) -> None:
        super().__init__(*parts)
        self.text = text
        self.type = type_

    def self_group(self, against: object = None) -> SQLTemplate:  # noqa: ARG002 (SQLAlchemy's signature)
        """Return the element itself: a condition needs no ``= 1`` on databases without booleans."""
        return self


@compiles(SQLTemplate)
def _render_template(element: SQLTemplate, compiler: SQLCompiler, **kw: object) -> str:
    kw.pop("add_to_result_map", None)  # the element itself is the result column, not its parts
    kw["within_columns_clause"] = False
    return element.text.format(*(compiler.process(part, **kw) for part in element.clauses))
