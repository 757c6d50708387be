"""Private names of SQLAlchemy Core: statements and elements of them, types, engines."""

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
    TableSample,
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

    from sqlalchemy import BindParameter, Column, ColumnElement, Connection, FromClause
    from sqlalchemy.dialects.mysql.dml import OnDuplicateClause
    from sqlalchemy.dialects.postgresql.dml import OnConflictDoUpdate
    from sqlalchemy.engine import Dialect
    from sqlalchemy.engine.default import DefaultExecutionContext
    from sqlalchemy.ext.asyncio import AsyncConnection
    from sqlalchemy.sql.base import ExecutableOption, SchemaEventTarget
    from sqlalchemy.sql.compiler import SQLCompiler
    from sqlalchemy.sql.expression import TableClause
    from sqlalchemy.types import TypeEngine

    Assignment = tuple[Any, Any]
    """A column, or its name, and what it is set to."""

Element = TypeVar("Element")
Copied = TypeVar("Copied", bound=ClauseElement)
Write = TypeVar("Write", Insert, Update)
Filtered = TypeVar("Filtered", Select[Any], Update, Delete)

ANNOTATED: Final = "_Annotated__element"
"""What the ORM's wrapping of an element keeps it under, see `original`."""

where_criteria: Callable[[Any], tuple[ColumnElement[bool], ...]] = attrgetter("_where_criteria")
loader_options: Callable[[Any], tuple[ExecutableOption, ...]] = attrgetter("_with_options")


def all_options(statement: Any) -> Iterator[ExecutableOption]:
    """The options of a SELECT, with those that it had before `with_only_columns`."""
    yield from statement._with_options
    for memoized in getattr(statement, "_memoized_select_entities", ()):
        yield from memoized._with_options


def invoked(context: DefaultExecutionContext) -> Any:
    """The statement that an execution was given; of ``from_statement()``, the one inside."""
    statement: Any = context.invoked_statement
    return statement.element if statement.is_from_statement else statement


def original(element: Element) -> Element:
    """A FROM element without the ORM's wrapping, or the element itself where it has none.

    Inside ORM statements a `Table` comes wrapped ("annotated"). The wrapping has a ``__dict__``
    and an identity of its own, so whatever is kept on the Table or compared with it is asked of
    the original.
    """
    return getattr(element, ANNOTATED, element)


def leaves(source: FromClause) -> Iterator[FromClause]:
    """The FROM elements that a join is made of; an element that is not a join, itself."""
    if isinstance(source, Join):
        yield from leaves(source.left)
        yield from leaves(source.right)
    elif isinstance(source, FromGrouping):
        yield from leaves(source.element)
    else:
        yield source


def table_of(source: object) -> object:
    """The table that an alias or a sample stands for, or what it is itself."""
    while isinstance(source, (Alias, TableSample)):
        source = source.element
    return original(source)


def copied(element: Copied, /, **attributes: Any) -> Copied:
    """A copy of an element, with other values for some of its (public) attributes."""
    clone: Any = element._clone()
    for name, value in attributes.items():
        setattr(clone, name, value)
    return clone  # type: ignore[no-any-return]


def with_criteria(statement: Filtered, criteria: Iterable[ColumnElement[bool]]) -> Filtered:
    """A statement with other conditions in its WHERE clause."""
    copy = statement._generate()
    copy._where_criteria = tuple(criteria)
    return copy


class Resolved(NamedTuple):
    """An UPDATE or DELETE, and what it is about to be rendered with: its FROM elements, its WHERE.

    The first FROM element is what it changes. The ORM adds to WHERE.
    """

    statement: Update | Delete
    sources: Sequence[FromClause]
    criteria: Sequence[ColumnElement[bool]]


def resolved(
    statement: Update | Delete, compiler: SQLCompiler, kw: Mapping[str, object]
) -> Resolved:
    """Ask the compile state.

    Only it knows which tables a WHERE or a SET clause brings in, and which an ORM entity stands
    for.
    """
    factory: Any = statement._compile_state_factory
    state = factory(statement, compiler, **kw)
    table = state.statement.table
    named = set(table._from_objects)  # of a join, also its tables
    extra = [source for source in state._extra_froms if source not in named]
    return Resolved(statement, [table, *extra], where_criteria(state.statement))


def is_limited(statement: Update | Delete) -> bool:
    """Whether an UPDATE or DELETE ends after some rows, as MariaDB and MySQL let it."""
    in_2_1 = getattr(statement, "_post_criteria_clause", None)
    options = statement.dialect_kwargs
    return in_2_1 is not None or any(name.endswith("_limit") for name in options)


def from_elements(select: Select[Any]) -> list[Any]:
    """What a SELECT itself names in its FROM clause."""
    return [*select._from_obj, *(join[0] for join in select._setup_joins)]


def assignments(statement: Insert | Update) -> list[Assignment]:
    """What a statement itself sets one row to: values, or SQL."""
    ordered = getattr(statement, "_ordered_values", None)  # SQLAlchemy 2.0
    return list(ordered or (statement._values or {}).items())


def with_assignments(statement: Write, pairs: list[Assignment]) -> Write:
    """A statement that sets one row to something else."""
    copy: Any = statement._generate()
    if getattr(statement, "_ordered_values", None) is not None:  # SQLAlchemy 2.0
        copy._ordered_values = pairs
    else:
        copy._values = immutabledict(pairs)  # `values()` may follow
    return copy  # type: ignore[no-any-return]


def is_ordered(statement: Update) -> bool:
    """Whether an UPDATE was given its values in order, and can be given no more of them."""
    in_2_0 = getattr(statement, "_ordered_values", None)
    return bool(in_2_0 or getattr(statement, "_maintain_values_ordering", False))


def is_anonymous(value: BindParameter[Any]) -> bool:
    """Whether SQLAlchemy makes up the name of a bound value."""
    return isinstance(value.key, _anonymous_label)


def value_lists(statement: Insert | Update) -> Sequence[Sequence[Any]]:
    """The rows of a multi-values INSERT, in the lists that it was given; empty for any other."""
    return statement._multi_values


def with_value_lists(statement: Insert, lists: Iterable[Sequence[Any]]) -> Insert:
    """A multi-values INSERT of other rows."""
    copy = statement._generate()
    copy._multi_values = tuple(lists)
    return copy


def is_asked_to_return(compiler: SQLCompiler) -> bool:
    """Whether the innermost UPDATE that is being compiled has a `returning()` of the caller's.

    What the ORM makes the statement return for itself isn't the caller's: it stands in a copy.
    """
    updates = [one["selectable"] for one in compiler.stack if isinstance(one["selectable"], Update)]
    if not updates:
        return False
    executed: Any = compiler.statement
    is_outermost = len(compiler.stack) == 1
    return bool(updates[-1]._returning or (is_outermost and executed._returning))


def has_prefixes(statement: Insert | Update) -> bool:
    """Whether something stands behind INSERT or UPDATE, such as IGNORE or OR REPLACE."""
    return bool(statement._prefixes)


def is_upsert(statement: Insert | Update) -> bool:
    """Whether an INSERT says what becomes of a conflict."""
    return getattr(statement, "_post_values_clause", None) is not None


def ignores_conflicts(statement: Insert) -> bool:
    """Whether an INSERT leaves out rows whose keys are taken: DO NOTHING, or IGNORE."""
    clause: Any = getattr(statement, "_post_values_clause", None)
    if getattr(clause, "__visit_name__", "") == "on_conflict_do_nothing":
        return True
    return any("IGNORE" in str(prefix).upper().split() for prefix, _ in statement._prefixes)


def selected_names(statement: Insert | Update) -> Sequence[str]:
    """The columns of an INSERT FROM SELECT, in order; empty for any other statement."""
    return statement._select_names or ()


def with_selection(
    statement: Insert, names: Sequence[str], columns: Iterable[ColumnElement[Any]]
) -> Insert:
    """An INSERT FROM SELECT of other columns."""
    # SQLite takes the ON of an ON CONFLICT that follows a FROM clause for that of a join.
    rows = select(*columns).where(true())
    return copied(statement, select=rows, _select_names=list(names))


def emitted(statement: Insert) -> Insert:
    """An INSERT as it is rendered: the ORM's bulk INSERT of a joined subclass, for one table.

    It is the same statement for each of the class's tables, but for an annotation.
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
    """Whether it is one of the ORM's INSERTs of mappings, which tells nobody how many it wrote."""
    return "_emit_insert_table" in statement._annotations


def attributes_of(statement: Insert | Update) -> Mapping[str, Column[Any]]:
    """The columns of the class that a statement was made for, by attribute; empty for Core's."""
    mapper: Any = statement._propagate_attrs.get("plugin_subject")
    return {} if mapper is None else mapper.columns


def column_key(statement: Insert | Update, column: Any) -> str:
    """The key of a column that a statement sets, by whatever name."""
    if not isinstance(column, str):
        return str(column.key)
    mapped = attributes_of(statement).get(column)
    return column if mapped is None else str(mapped.key)


class UpdateHalf(NamedTuple):
    """What an upsert sets, by the keys of the columns, in which of the rows that it meets.

    `met_by`: the columns by which it meets them, as far as it says.
    """

    values: dict[str, Any]
    where: ColumnElement[bool] | None
    met_by: frozenset[str]


def update_half(statement: Insert) -> UpdateHalf | None:
    """That of an INSERT; None if it has none."""
    clause: Any = statement._post_values_clause
    values = {} if clause is None else conflict_values(clause)
    if not values:
        return None
    met_by = getattr(clause, "inferred_target_elements", None) or ()
    keys = frozenset(str(getattr(element, "key", element)) for element in met_by)
    return UpdateHalf(values, getattr(clause, "update_whereclause", None), keys)


def conflict_values(clause: Any) -> dict[str, Any]:
    """What an ``ON CONFLICT`` or ``ON DUPLICATE KEY`` sets, by the keys of the columns."""
    values = getattr(clause, "update_values_to_set", None) or getattr(clause, "update", None) or {}
    return {str(getattr(key, "key", key)): value for key, value in dict(values).items()}


def with_conflict_values(
    clause: OnConflictDoUpdate, values: dict[str, Any], where: ColumnElement[bool]
) -> OnConflictDoUpdate:
    """An ``ON CONFLICT DO UPDATE`` that sets other values, under another condition."""
    # A list of pairs in SQLAlchemy 2.0, a dict in 2.1.
    is_list = isinstance(clause.update_values_to_set, list)
    pairs = list(values.items()) if is_list else values
    return copied(clause, update_values_to_set=pairs, update_whereclause=where)


def with_duplicate_values(
    clause: OnDuplicateClause, values: dict[str, Any], first: str
) -> OnDuplicateClause:
    """An ``ON DUPLICATE KEY UPDATE`` that sets other values, one of them before the others."""
    rest = [key for key in clause._parameter_ordering or values if key != first]
    return copied(clause, update=values, _parameter_ordering=[first, *rest])


def wrap_handlers(wrapper: type[Any]) -> bool:
    """Put a wrapper around whatever compiles SELECT, UPDATE, DELETE and INSERT and has none yet.

    Returns whether there was such a handler.
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


def affinity(type_: TypeEngine[Any]) -> type[Any]:
    """The general type that a column's type is a kind of."""
    return type_._type_affinity or object


def storage_format(type_: TypeEngine[Any]) -> str | None:
    """How a type of SQLite's spells a datetime."""
    return getattr(type_, "_storage_format", None)


def attach(item: SchemaEventTarget, column: Column[Any]) -> None:
    """Put a default or a constraint on a column that exists already."""
    item._set_parent_with_dispatch(column)


def isolation_level(connection: Connection) -> str | None:
    """The isolation level of a connection's transactions, as far as SQLAlchemy knows it."""
    options = connection.get_execution_options()
    return options.get("isolation_level") or connection.default_isolation_level


def isolate(connection: Connection, level: str) -> None:
    """Give a connection an isolation level, which the pool sets back when it gets it.

    Both are statements of some drivers, whose own errors SQLAlchemy doesn't wrap. And if the server
    is lost when the level is set back, the pool never gets its connection; here it gets a place for
    a new one.

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
    """Run a statement without a result while a connection has no transaction, and begin none.

    SQLAlchemy would begin one, whose end is another round trip to the server. No event of its sees
    the statement; an error is wrapped, and a lost connection given up, as for any other.
    """
    driver, cursor = connection.connection, None
    try:
        cursor = driver.cursor()
        cursor.execute(statement)
        cursor.close()
    except BaseException as error:  # noqa: BLE001 (it is raised again, as SQLAlchemy's)
        connection._handle_dbapi_exception(error, statement, None, cursor, None)


def _lossy(record: Any, reset: Callable[[Any], None]) -> Callable[[Any], None]:
    def finalizer(dbapi_connection: Any) -> None:
        try:
            reset(dbapi_connection)
        except Exception as error:  # noqa: BLE001 (each driver has its own)
            record.invalidate(error)

    return finalizer


def async_types(*names: str) -> tuple[type[Any], ...]:
    """Return classes of SQLAlchemy's asyncio by name, for `isinstance`; none if nobody imported it.

    Importing it here would fail without greenlet in SQLAlchemy 2.1. Objects of these classes exist
    only after the application has imported it.
    """
    asynchronous = sys.modules.get("sqlalchemy.ext.asyncio")
    return () if asynchronous is None else tuple(getattr(asynchronous, name) for name in names)


def async_connection(connection: Connection) -> AsyncConnection:
    """The connection of asyncio's whose inside is this one."""
    from sqlalchemy.ext.asyncio import AsyncConnection  # noqa: PLC0415 (see `async_types`)

    return AsyncConnection._retrieve_proxy_for_target(connection)


def is_mysql(dialect: Dialect) -> bool:
    """Whether it is MySQL itself: those that may be MariaDB say whether they are, and no others."""
    return getattr(dialect, "is_mariadb", None) is False


def error_code(dialect: Dialect, error: BaseException) -> int | None:
    """The number of an error of MariaDB's or MySQL's."""
    return dialect._extract_error_code(error)  # type: ignore[attr-defined, no-any-return]


def in_driver_format(dialect: Dialect, sql: str) -> str:
    """SQL with its percent signs doubled, for a driver that formats what it is given."""
    return sql.replace("%", "%%") if dialect.identifier_preparer._double_percents else sql


def out_of_driver_format(dialect: Dialect, sql: str) -> str:
    """The same backwards: SQL as the database gets it."""
    return sql.replace("%%", "%") if dialect.identifier_preparer._double_percents else sql


def as_listeners_have_it(context: Any, statement: str, parameters: Any) -> tuple[str, Any]:
    """A batch's statement and parameters, as ``before_cursor_execute`` makes them."""
    connection = context.root_connection
    if connection._has_events or connection.engine._has_events:
        for listener in connection.dispatch.before_cursor_execute:
            statement, parameters = listener(
                connection, context.cursor, statement, parameters, context, context.executemany
            )
    return statement, parameters


def sends_otherwise(context: Any) -> bool:
    """Whether a statement may not be handed to the driver by the dialect's ``do_execute``.

    That is so by an option of its execution, and where somebody listens to do that himself.
    """
    dialect = context.dialect
    return context.no_parameters or (dialect._has_events and bool(dialect.dispatch.do_execute))


def place_of(options: Mapping[str, Any], table: TableClause) -> tuple[str | None, str]:
    """The schema and name that a table has under execution options, which may translate schemas."""
    schemas = options.get("schema_translate_map") or {}
    return schemas.get(table.schema, table.schema), table.name


def in_schemas(context: Any, statement: str) -> str:
    """A statement that a compiled one's preparer has made, with the schemas of an execution."""
    if not context.compiled.schema_translate_map:
        return statement
    schemas = context.execution_options.get("schema_translate_map", {})
    return context.compiled.preparer._render_schema_translates(statement, schemas)  # type: ignore[no-any-return]


def set_rowcount(context: Any, rowcount: int) -> None:
    """Let an execution tell how many rows it wrote."""
    context._rowcount = rowcount


def lock_for_share(rows: Select[Any]) -> None:
    """Let a SELECT, which nobody else has, lock what it reads: `with_for_update()` in place."""
    rows._for_update_arg = ForUpdateArg(read=True)


def set_parameter(context: Any, number: int, name: str, value: object) -> None:
    """Give one of an execution's statements another value for a parameter, just before it is sent.

    The value is what the driver gets.
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
    """SQL that SQLAlchemy has no words for: a text in which ``{0}``, ``{1}``... are expressions.

    There is nothing in the text that comes from outside of this package. It puts parentheses around
    the expressions that need them, and around itself if it does.
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

    def self_group(self, against: object = None) -> Any:  # noqa: ARG002 (SQLAlchemy's signature)
        """As it is: a condition needs no ``= 1`` on databases without booleans."""
        return self


@compiles(SQLTemplate)
def _render_template(element: SQLTemplate, compiler: SQLCompiler, **kw: object) -> str:
    kw.pop("add_to_result_map", None)  # the element itself is the result column, not its parts
    kw["within_columns_clause"] = False
    return element.text.format(*(compiler.process(part, **kw) for part in element.clauses))
