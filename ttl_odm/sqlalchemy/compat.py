"""What of SQLAlchemy has no public name, and what differs between its versions 2.0 and 2.1.

A gate inside SQLAlchemy can't do without internals. All of them are here, each under a name that
says what it is for, so that a release of SQLAlchemy which changes one is answered in one place.
(What a subclass overrides stays in the subclass: of the compiler, of the execution context, of
elements of SQL.) What is asked whenever a statement runs is an `operator.attrgetter` or a name for
``getattr()``: neither adds a call in Python.

This module must not know what a policy is, and imports nothing of this package.
"""

from __future__ import annotations

from functools import update_wrapper
from inspect import getattr_static
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from sqlalchemy import ClauseElement, CursorResult, Delete, Insert, Select, Update, select, true
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import Mapper, Session, loading, persistence
from sqlalchemy.orm.mapper import _all_registries
from sqlalchemy.sql.base import CompileState
from sqlalchemy.sql.elements import ColumnClause, _anonymous_label
from sqlalchemy.sql.expression import CompoundSelect
from sqlalchemy.util import HasMemoized, immutabledict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from sqlalchemy import (
        BindParameter,
        Column,
        ColumnElement,
        Connection,
        FromClause,
        Subquery,
        Table,
    )
    from sqlalchemy.dialects.mysql.dml import OnDuplicateClause
    from sqlalchemy.dialects.postgresql.dml import OnConflictDoUpdate
    from sqlalchemy.engine import Dialect
    from sqlalchemy.engine.default import DefaultExecutionContext
    from sqlalchemy.orm import InstanceState, QueryContext
    from sqlalchemy.sql.base import ExecutableOption, SchemaEventTarget
    from sqlalchemy.sql.compiler import SQLCompiler
    from sqlalchemy.types import TypeEngine

    Handler = Callable[..., Any]
    Assignment = tuple[Any, Any]
    """A column, or its name, and what it is set to."""

Element = TypeVar("Element")
Copied = TypeVar("Copied", bound=ClauseElement)
Write = TypeVar("Write", Insert, Update)
Filtered = TypeVar("Filtered", Select[Any], Update, Delete)

# What is replaced, and wrapped.

_INTERNALS: Final[Mapping[str, Sequence[tuple[Any, str]]]] = {
    "flush updates": [(persistence, "_emit_update_statements")],
    "flush deletes": [(persistence, "_emit_delete_statements")],
    "flush post-updates": [(persistence, "_emit_post_update_statements")],
    "bulk save": [(Session, "_bulk_save_mappings")],
    "reload": [
        # The second name is that of SQLAlchemy 2.0.
        (loading, "_load_on_ident" if hasattr(loading, "_load_on_ident") else "load_on_ident")
    ],
    "session.delete": [(Session, "_delete_impl")],
    "session.flush": [(Session, "_flush")],
    "session.merge": [(Session, "_merge")],
    "identity lookup": [(Session, "_identity_lookup")],
    "bulk update": [(CompileState.plugins["orm", "update"], "orm_pre_session_exec")],
    "bulk evaluation": [
        (CompileState.plugins["orm", verb], name)
        for verb in ("update", "delete")
        for name in ("_do_pre_synchronize_auto", "_do_pre_synchronize_evaluate")
    ],
}


def install(wrappers: Mapping[str, Callable[[Handler], Handler]]) -> None:
    """Replace functions of the ORM, which has no events at these places, by wrappers of them."""
    for name, wrap in wrappers.items():
        for owner, attribute in _INTERNALS[name]:
            function: Any = getattr_static(owner, attribute)
            if isinstance(function, classmethod):
                inner = function.__func__
                setattr(owner, attribute, classmethod(update_wrapper(wrap(inner), inner)))
            else:
                setattr(owner, attribute, update_wrapper(wrap(function), function))


def install_row_receiver(receiver_of: Callable[[Mapper[Any]], Any]) -> None:
    """Let classes do something more with the rows that they are loaded from.

    A receiver has the ``create_row_processor()`` of a mapper's properties, and is none of those:
    the mapper has it where it makes objects of rows, and nowhere else.
    """
    properties: Handler = getattr_static(Mapper, "_prop_set").fget

    def _prop_set(mapper: Mapper[Any]) -> Any:
        receiver, own = receiver_of(mapper), properties(mapper)
        return own if receiver is None else own | {receiver}

    owner: Any = Mapper  # mypy: methods can't be assigned to
    owner._prop_set = HasMemoized.memoized_attribute(_prop_set)


def wrap_handlers(wrapper: type[Any]) -> bool:
    """Put a wrapper around whatever compiles SELECT, UPDATE, DELETE and INSERT and has none yet.

    Returns whether there was such a handler.
    """

    def visit(element: Any, compiler: SQLCompiler, **kw: object) -> Any:
        return getattr(compiler, f"visit_{element.__visit_name__}")(element, **kw)

    is_new = False
    for construct in (Select, CompoundSelect, Update, Delete, Insert):
        if "_compiler_dispatcher" not in vars(construct):
            compiles(construct)(visit)
        handlers = vars(construct)["_compiler_dispatcher"].specs
        for name, handler in handlers.items():
            if not isinstance(handler, wrapper):
                handlers[name] = wrapper(handler)
                is_new = True
    return is_new


# Statements, and elements of them.

ANNOTATED: Final = "_Annotated__element"
"""What the ORM's wrapping of an element keeps it under, see `original`."""

where_criteria: Callable[[Any], tuple[ColumnElement[bool], ...]] = attrgetter("_where_criteria")
loader_options: Callable[[Any], tuple[ExecutableOption, ...]] = attrgetter("_with_options")


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


def copied(element: Copied, /, **attributes: Any) -> Copied:
    """A copy of an element, with other values for some of its (public) attributes."""
    copy: Any = element._clone()
    for name, value in attributes.items():
        setattr(copy, name, value)
    return copy  # type: ignore[no-any-return]


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


def selected_names(statement: Insert | Update) -> Sequence[str]:
    """The columns of an INSERT FROM SELECT, in order; empty for any other statement."""
    return statement._select_names or ()


def named_rows(rows: Any) -> Subquery:
    """What an INSERT selects, as a subquery.

    A literal column has no name there by which the rest of a statement could refer to it.
    """

    def named(element: Any) -> Any:
        if isinstance(element, CompoundSelect):  # named as its first SELECT is
            first, *rest = element.selects
            return copied(element, selects=[named(first), *rest])
        columns = element._all_selected_columns if isinstance(element, Select) else ()
        if not any(isinstance(column, ColumnClause) and column.is_literal for column in columns):
            return element
        return element.with_only_columns(
            *(
                column.label(None) if getattr(column, "is_literal", False) else column
                for column in columns
            )
        )

    return named(rows).subquery()  # type: ignore[no-any-return]


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


def default_name(column: Column[Any], number: int) -> str:
    """What the parameter is called that a default of Python's fills, in a row of a statement."""
    return f"{column.key}_m{number}" if number else column.key


def attributes_of(statement: Insert | Update) -> Mapping[str, Column[Any]]:
    """The columns of the class that a statement was made for, by attribute; empty for Core's."""
    mapper: Any = statement._propagate_attrs.get("plugin_subject")
    return {} if mapper is None else mapper.columns


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


# The schema and its types.


def affinity(type_: TypeEngine[Any]) -> type[Any]:
    """The general type that a column's type is a kind of."""
    return type_._type_affinity or object


def storage_format(type_: TypeEngine[Any]) -> str | None:
    """How a type of SQLite's spells a datetime."""
    return getattr(type_, "_storage_format", None)


def attach(item: SchemaEventTarget, column: Column[Any]) -> None:
    """Put a default or a constraint on a column that exists already."""
    item._set_parent_with_dispatch(column)


# Mappers and sessions.

memo_of: Callable[[Mapper[Any]], dict[Any, Any]] = attrgetter("_memoized_values")
"""What is remembered with a mapper, until its configuration changes."""

compiled_cache: Callable[[Mapper[Any]], Any] = attrgetter("_compiled_cache")
"""The compiled statements of the flushes of a base mapper."""

pending_states: Callable[[Session], Mapping[InstanceState[Any], Any]] = attrgetter("_new")
"""The objects that wait for their INSERT."""

identity_class: Callable[[Mapper[Any]], type[Any]] = attrgetter("_identity_class")
"""The class under which the objects of a mapper are in the identity map."""

identity_keys: Callable[[Mapper[Any]], Callable[[InstanceState[Any]], Any]] = attrgetter(
    "_identity_key_from_state"
)
"""The function that makes the key which an object will have in the identity map."""


def mappers() -> Iterator[Mapper[Any]]:
    """Every mapper of the process."""
    for registry in _all_registries():
        # Not registry.mappers, which fails where a class's own mapping has failed.
        yield from (manager.mapper for manager in registry._managers if manager.is_mapped)


def forget_memos(mapper: Mapper[Any]) -> None:
    """Empty what `memo_of` has, and what the mapper itself remembers there."""
    mapper._expire_memoizations()


def inherited_pairs(mapper: Mapper[Any]) -> Sequence[tuple[Column[Any], Column[Any]]]:
    """The columns that join a subclass to its base: the base's column, the subclass's."""
    pairs: Any = mapper._inherits_equated_pairs
    return pairs  # type: ignore[no-any-return]


def primary_key(mapper: Mapper[Any], table: Table) -> list[ColumnElement[Any]]:
    """The columns of one of a mapper's tables that are its primary key, in order."""
    columns: Any = mapper._pks_by_table[table]
    return list(columns)


def version_column(mapper: Mapper[Any], table: Table) -> ColumnElement[Any] | None:
    """The column of one of a mapper's tables that an UPDATE or DELETE of a flush checks."""
    version = mapper.version_id_col
    return version if version in mapper._cols_by_table[table] else None


STATE: Final = 0
CONNECTION: Final = 4
SQL_VALUES: Final = 5
"""Where these are in what SQLAlchemy keeps of each UPDATE of a flush."""

written: Callable[[Any], Any] = itemgetter(STATE, CONNECTION)
"""The object of such an UPDATE, and the connection."""

post_written: Callable[[Any], Any] = itemgetter(0, 3)
"""The same of an UPDATE for ``post_update``."""

options_of: Callable[[Connection], Mapping[str, Any]] = attrgetter("_execution_options")
"""The execution options of a connection."""


def updated_key(
    mapper: Mapper[Any], table: Table, root: Table, record: Sequence[Any]
) -> tuple[Any, ...]:
    """The primary key that a row has, which an UPDATE of a flush is for, in the table at its root.

    (A class may be mapped to a join, whose primary key is that of several tables.)
    """
    state, values, parameters, *_ = record
    if state is None:  # a bulk update by primary key has no states, only parameters
        return tuple(parameters[column._label] for column in mapper._pks_by_table[table])
    read: Any = mapper._get_committed_state_attr_by_column
    return tuple(read(state, values, column) for column in mapper._pks_by_table[root])


def expire(state: InstanceState[Any], attributes: Iterable[str]) -> None:
    """Let an object forget attributes; the next that asks for one loads it."""
    state._expire_attributes(state.dict, attributes)


class Judge(Protocol):
    """What is asked of rows before the ORM makes objects of them."""

    def judge(self, rows: Sequence[Any]) -> list[int]:
        """Return the indexes of some of the rows."""
        ...

    def switch(self, *, is_on: bool) -> None:
        """Called before one of those becomes an object, and after it."""


class _JudgedResult(CursorResult[Any]):
    """A result whose rows are judged, many at a time."""

    __slots__ = ()

    def fetchmany(self, size: int | None = None) -> Any:
        """As the ORM reads rows in portions."""
        return self._judged(super().fetchmany(size))

    def _raw_all_tuples(self) -> Any:
        inherited: Any = super()
        return self._judged(inherited._raw_all_tuples())

    def _raw_all_rows(self) -> Any:  # the same in SQLAlchemy 2.0
        inherited: Any = super()
        return self._judged(inherited._raw_all_rows())

    def _judged(self, rows: Sequence[Any]) -> Iterable[Any]:
        judges = [judge for judge in judges_of(self).values() if judge is not None]
        indexes = [index for judge in judges for index in judge.judge(rows)]
        return _in_turn(rows, judges, set(indexes)) if indexes else rows


def _in_turn(rows: Sequence[Any], judges: list[Judge], indexes: set[int]) -> Iterator[Any]:
    for index, row in enumerate(rows):
        if index not in indexes:
            yield row
            continue
        for judge in judges:
            judge.switch(is_on=True)
        yield row
        for judge in judges:
            judge.switch(is_on=False)


def judges_of(result: Any) -> dict[Any, Any]:
    """Who judges the rows of a statement before the ORM makes objects of them, by names; or None.

    They are with the result, which nothing of theirs refers to: so there is no circle of references
    that only the garbage collector would find.
    """
    if result.__class__ is CursorResult:
        result.__class__ = _JudgedResult
    judges: dict[Any, Any] = vars(result).setdefault("ttl_odm_judges", {})
    return judges


class Lookup(NamedTuple):
    """How a session finds what it has in memory of a row.

    That is, what a key in the identity map is made of, and the function that takes one.
    """

    class_: type[Any]
    key_of: Callable[[Any], tuple[Any, ...]]
    token: Any
    find: Callable[[Any], InstanceState[Any] | None]


def lookup_of(context: QueryContext, mapper: Mapper[Any], path: Any) -> Lookup | None:
    """How the rows of a statement are found in memory; None where it is for one object anyway."""
    compile_state: Any = context.compile_state
    key_of = path.get(compile_state.attributes, ("getters", mapper))["primary_key_getter"]
    find = context.session.identity_map._dict.get
    return key_of and Lookup(identity_class(mapper), key_of, context.identity_token, find)


def populate(
    context: QueryContext,
    state: InstanceState[Any],
    row: Any,
    populators: dict[str, Any],
    forgotten: Iterable[str],
) -> None:
    """Let an object without changes forget attributes, and load it from a row as a new one.

    What the row hasn't is loaded when it is asked for.
    """
    expire(state, forgotten)
    populate_full: Any = loading._populate_full
    populate_full(
        context,
        row,
        state,
        state.dict,
        isnew=True,
        load_path=state.load_path,
        loaded_instance=False,
        populate_existing=True,
        populators=populators,
    )
    state._commit_all(state.dict, context.session.identity_map)
    state.manager.dispatch.refresh(state, context, None)


def bulk_mapper(options: Any) -> Mapper[Any]:
    """The mapper whose rows a bulk UPDATE or DELETE changes, by its options."""
    return options._subject_mapper  # type: ignore[no-any-return]


def synchronize_by_fetch(state_class: Any, *arguments: Any) -> Any:
    """Let a bulk UPDATE or DELETE ask the database which rows it matches."""
    *rest, options = arguments
    options += {"_synchronize_session": "fetch"}
    return state_class._do_pre_synchronize_fetch(*rest, options)


# Engines.


def async_connection(connection: Connection) -> AsyncConnection:
    """The connection of asyncio's whose inside is this one."""
    return AsyncConnection._retrieve_proxy_for_target(connection)


def error_code(dialect: Dialect, error: BaseException) -> int | None:
    """The number of an error of MariaDB's or MySQL's."""
    return dialect._extract_error_code(error)  # type: ignore[attr-defined, no-any-return]
