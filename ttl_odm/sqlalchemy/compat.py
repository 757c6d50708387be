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
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sqlalchemy import ClauseElement, Delete, Insert, Select, Update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import Session, persistence
from sqlalchemy.orm.mapper import _all_registries
from sqlalchemy.sql.base import CompileState
from sqlalchemy.sql.expression import CompoundSelect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from sqlalchemy import Column, ColumnElement, Connection, Table
    from sqlalchemy.dialects.mysql.dml import OnDuplicateClause
    from sqlalchemy.dialects.postgresql.dml import OnConflictDoUpdate
    from sqlalchemy.engine import Dialect
    from sqlalchemy.orm import InstanceState, Mapper
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


def original(element: Element) -> Element:
    """A FROM element without the ORM's wrapping, or the element itself where it has none.

    Inside ORM statements a `Table` comes wrapped ("annotated"). The wrapping has a ``__dict__``
    and an identity of its own, so whatever is kept on the Table or compared with it is asked of
    the original.
    """
    return getattr(element, ANNOTATED, element)


def copied(element: Copied, **attributes: Any) -> Copied:
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


def resolved(
    statement: Update | Delete, compiler: SQLCompiler, kw: Mapping[str, object]
) -> tuple[Any, list[Any]]:
    """A statement as it is about to be rendered, and the FROM elements that it names.

    The compile state is asked, since only it knows which tables a WHERE or a SET clause brings
    in, and which table an ORM entity stands for.
    """
    factory: Any = statement._compile_state_factory
    state = factory(statement, compiler, **kw)
    return state.statement, [state.statement.table, *state._extra_froms]


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
        copy._values = dict(pairs)
    return copy  # type: ignore[no-any-return]


def is_ordered(statement: Update) -> bool:
    """Whether an UPDATE was given its values in order, and can be given no more of them."""
    in_2_0 = getattr(statement, "_ordered_values", None)
    return bool(in_2_0 or getattr(statement, "_maintain_values_ordering", False))


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
"""Where these are in what SQLAlchemy keeps of each UPDATE of a flush."""


def updated_key(mapper: Mapper[Any], table: Table, record: Sequence[Any]) -> tuple[Any, ...]:
    """The primary key of the row that an UPDATE of a flush is for, as the row has it."""
    state, values, parameters, *_ = record
    if state is None:  # a bulk update by primary key has no states, only parameters
        return tuple(parameters[column._label] for column in mapper._pks_by_table[table])
    read: Any = mapper._get_committed_state_attr_by_column
    return tuple(read(state, values, column) for column in mapper.primary_key)


def expire(state: InstanceState[Any], attributes: Iterable[str]) -> None:
    """Let an object forget attributes; the next that asks for one loads it."""
    state._expire_attributes(state.dict, attributes)


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
