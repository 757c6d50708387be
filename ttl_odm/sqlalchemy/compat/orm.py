"""Private names of the ORM: replaced functions, mappers, sessions, flushes and loads."""

from __future__ import annotations

from contextlib import suppress
from functools import update_wrapper
from inspect import getattr_static
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Alias, Join, Subquery, Table, inspect
from sqlalchemy.exc import NoReferenceError
from sqlalchemy.orm import (
    MANYTOMANY,
    Mapper,
    RelationshipProperty,
    Session,
    decl_api,
    dependency,
    loading,
    persistence,
    strategies,
    unitofwork,
)
from sqlalchemy.orm.base import PassiveFlag
from sqlalchemy.orm.exc import UnmappedClassError
from sqlalchemy.orm.mapper import _all_registries
from sqlalchemy.sql.base import CompileState
from sqlalchemy.sql.selectable import ForUpdateArg, FromGrouping
from sqlalchemy.util import HasMemoized

from ttl_odm.sqlalchemy.compat.core import copied

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence

    from sqlalchemy import (
        Column,
        ColumnElement,
        Connection,
        ForeignKeyConstraint,
        FromClause,
        Select,
    )
    from sqlalchemy.orm import InstanceState, MapperProperty, QueryContext, UOWTransaction
    from sqlalchemy.orm.identity import IdentityMap
    from sqlalchemy.orm.path_registry import PathRegistry

    Handler = Callable[..., object]
    State = InstanceState[Any]
    """SQLAlchemy's record of an object, beside its attributes."""
    Record = tuple[Any, ...]
    """What SQLAlchemy keeps of a row that a flush writes: its state, the values, the connection."""
    Lookup = tuple[
        type,
        Callable[[object], tuple[object, ...]],
        object,
        Callable[[object], State | None],
    ]
    """How to find the object of a row: the parts of its key in the identity map (a class, a
    function of the row, a token), and a function that returns the state for a key.
    """

_ROW_ADAPTER: Final = "_generate_row_adapter"

_INTERNALS: Final[Mapping[str, Sequence[tuple[object, str]]]] = {
    "flush order": [(unitofwork.UOWTransaction, "_per_mapper_flush_actions")],
    "flush objects": [(persistence, "_organize_states_for_save")],
    "flush inserts": [(persistence, "_emit_insert_statements")],
    "flush updates": [(persistence, "_emit_update_statements")],
    "flush deletes": [(persistence, "_emit_delete_statements")],
    "flush post-updates": [(persistence, "_emit_post_update_statements")],
    "flush ties": [(dependency._direction_to_processor[MANYTOMANY], "_run_crud")],
    "bulk save": [(Session, "_bulk_save_mappings")],
    "reload": [
        # The second name is that of SQLAlchemy 2.0.
        (loading, "_load_on_ident" if hasattr(loading, "_load_on_ident") else "load_on_ident")
    ],
    "eager joins": [
        # The second name is that of SQLAlchemy 2.0.
        (vars(strategies).get("_JoinedLoader") or vars(strategies)["JoinedLoader"], _ROW_ADAPTER)
    ],
    # The properties that a mapper uses only to make objects of rows.
    "row receivers": [(Mapper, "_prop_set")],
    "class attribute": [(decl_api, "_add_attribute")],
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
    "bulk values": [(CompileState.plugins["orm", "update"], "_apply_update_set_values_to_objects")],
}


def install(wrappers: Mapping[str, Callable[[Callable[..., Any]], Handler]]) -> None:
    """Wrap functions of the ORM at places for which it has no events."""
    for name, wrap in wrappers.items():
        for owner, attribute in _INTERNALS[name]:
            function = getattr_static(owner, attribute)
            inner = getattr(function, "__func__", getattr(function, "fget", function))
            wrapped = update_wrapper(wrap(inner), inner)
            decorated = isinstance(function, (classmethod, HasMemoized.memoized_attribute))
            setattr(owner, attribute, type(function)(wrapped) if decorated else wrapped)


# The second names are those of SQLAlchemy 2.0.
_SAVE_ALL: Final = vars(unitofwork).get("_SaveUpdateAll") or vars(unitofwork)["SaveUpdateAll"]
_DELETE_ALL: Final = vars(unitofwork).get("_DeleteAll") or vars(unitofwork)["DeleteAll"]


def order_flush(uow: UOWTransaction, parent: Mapper[Any], child: Mapper[Any]) -> None:
    """Let a flush save objects of a parent class first, and delete them last."""
    parent, child = parent.base_mapper, child.base_mapper
    if parent is child:  # the objects of a tree are ordered among themselves, or not at all
        return
    uow.dependencies.add((_SAVE_ALL(uow, parent), _SAVE_ALL(uow, child)))
    uow.dependencies.add((_DELETE_ALL(uow, child), _DELETE_ALL(uow, parent)))


def take_as_deleted(uow: UOWTransaction, state: State) -> None:
    """Let a flush, and its session, take the row of an object for deleted already."""
    uow.session._remove_newly_deleted([state])
    if state in uow.states:
        uow.states[state] = True, True


memo_of: Callable[[Mapper[Any]], dict[object, Any]] = attrgetter("_memoized_values")
"""Values remembered with a mapper until its configuration changes."""

compiled_cache: Callable[[Mapper[Any]], MutableMapping[object, object]] = attrgetter(
    "_compiled_cache"
)
"""The compiled statements of the flushes of a base mapper."""

pending_states: Callable[[Session], Mapping[State, object]] = attrgetter("_new")
"""The objects that wait for their INSERT."""

properties: Callable[[Mapper[Any]], Mapping[object, MapperProperty[Any]]] = attrgetter(
    "_columntoproperty"
)
"""A mapper's properties by column. Read it with ``get()`` or ``in`` only."""

identity_class: Callable[[Mapper[Any]], type] = attrgetter("_identity_class")
"""The class under which the objects of a mapper are in the identity map."""

objects_of: Callable[[IdentityMap], dict[object, State]] = attrgetter("_dict")
"""The states of the objects in an identity map, by their keys."""

identity_keys: Callable[[Mapper[Any]], Callable[[State], Any]] = attrgetter(
    "_identity_key_from_state"
)
"""The function that returns the key which an object will have in the identity map."""


def mapper_of(target: object) -> Mapper[Any] | None:
    """Return the mapper of a class; None if it isn't a class, or isn't mapped yet.

    SQLAlchemy raises an error of its own for classes that wait for a ``prepare()``, even with
    ``raiseerr=False``.
    """
    try:
        mapper: object = inspect(target, raiseerr=False) if isinstance(target, type) else None
    except UnmappedClassError:
        return None
    return mapper if isinstance(mapper, Mapper) else None


def mappers() -> Iterator[Mapper[Any]]:
    """Yield every mapper of the process."""
    for registry in _all_registries():
        # Not registry.mappers, which fails if the mapping of a class has failed.
        yield from (manager.mapper for manager in registry._managers if manager.is_mapped)


def forget_memos(mapper: Mapper[Any]) -> None:
    """Empty `memo_of`, and what the mapper itself remembers there."""
    mapper._expire_memoizations()


def relationship_of(mapper: Mapper[Any], name: str) -> RelationshipProperty[Any] | None:
    """Return a relationship of a mapper, which need not be configured."""
    mapped = mapper._props.get(name)
    return mapped if isinstance(mapped, RelationshipProperty) else None


def only_foreign_key(relationship: RelationshipProperty[Any]) -> ForeignKeyConstraint | None:
    """Return the foreign key that a many-to-one relationship uses; mappers need not be configured.

    None if its arguments choose one of several.

    Raises:
        InvalidRequestError: Its target isn't declared yet; this may also be a NameError.
    """
    arguments = relationship._init_args
    if arguments.primaryjoin.argument is not None or arguments.foreign_keys.argument is not None:
        return None
    relationship._setup_entity()
    table: Any = relationship.parent.local_table
    keys = []
    for key in table.foreign_key_constraints:
        with suppress(NoReferenceError):  # the key of another table, which isn't declared yet
            if key.referred_table in relationship.entity.mapper.tables:
                keys.append(key)
    return keys[0] if len(keys) == 1 else None


def inherited_pairs(mapper: Mapper[Any]) -> Sequence[tuple[Column[Any], Column[Any]]]:
    """Return the columns that join a subclass to its base: the base's column, the subclass's."""
    pairs: Any = mapper._inherits_equated_pairs
    return pairs  # type: ignore[no-any-return]


def primary_key(mapper: Mapper[Any], table: Table) -> list[ColumnElement[Any]]:
    """Return the columns of one of a mapper's tables that are its primary key, in order."""
    columns: Any = mapper._pks_by_table[table]
    return list(columns)


def identity_columns(mapper: Mapper[Any], table: Table) -> list[ColumnElement[Any]]:
    """Return the columns of a table whose values are the keys of a mapper's objects, in order.

    A class may name other columns than the table does, or another order (``primary_key=``). A class
    that is mapped to a join has the keys of several tables; then these are the table's own.
    """
    columns = list(mapper.primary_key)
    is_whole = all(table.c.contains_column(column) for column in columns)
    return columns if is_whole else list(table.primary_key)


def version_column(mapper: Mapper[Any], table: Table) -> ColumnElement[Any] | None:
    """Return the column of one of a mapper's tables that an UPDATE or DELETE of a flush checks."""
    version = mapper.version_id_col
    return version if version in mapper._cols_by_table[table] else None


def flushes_from_memory(session: Session, passive: PassiveFlag | None) -> bool:
    """Return whether a flush looks up an object to order its statements, and may not load it."""
    may_load = passive is None or passive & PassiveFlag.RELATED_OBJECT_OK
    return not may_load and session._flushing


STATE: Final = 0
CONNECTION: Final = 4
SQL_VALUES: Final = 5
"""Indexes in the record that SQLAlchemy keeps of each INSERT or UPDATE of a flush."""

given_values: Callable[[Record], Mapping[str, object]] = itemgetter(2)
"""The values of such an INSERT, by column key."""


def read_later(record: Record, table: Table, column: Column[Any]) -> Record:
    """Return the record of an INSERT, from whose row no value of this column is to be read.

    It stays as it is if other columns have to be read, too.
    """
    *rest, has_all = record
    if has_all:
        return record
    defaults = rest[3]._server_default_col_keys[table]
    return (*rest, defaults.difference(given_values(record)) <= {column.key})


written: Callable[[Record], tuple[Any, Connection]] = itemgetter(STATE, CONNECTION)
"""The object of such an UPDATE, and the connection."""

post_written: Callable[[Record], tuple[Any, Connection]] = itemgetter(0, 3)
"""The same for an UPDATE of ``post_update``."""

options_of: Callable[[Connection], Mapping[str, object]] = attrgetter("_execution_options")
"""The execution options of a connection."""


def updated_key(
    mapper: Mapper[Any], table: Table, root: Table, record: Record
) -> tuple[object, ...]:
    """Return the current primary key, in the table at its root, of a row that a flush updates.

    A class may be mapped to a join, whose primary key is that of several tables.
    """
    state, values, parameters, *_ = record
    if state is None:  # a bulk update by primary key has no states, only parameters
        keys: list[Any] = identity_columns(mapper, table)
        return tuple(parameters[column._label] for column in keys)
    read: Any = mapper._get_committed_state_attr_by_column
    if state.key is None:  # a new object takes the place of one that is deleted
        read = mapper._get_state_attr_by_column
    return tuple(read(state, values, column) for column in identity_columns(mapper, root))


def expire(state: State, attributes: Iterable[str]) -> None:
    """Let an object forget attributes; the next one that is read loads them."""
    state._expire_attributes(state.dict, attributes)


def lookup_of(context: QueryContext, mapper: Mapper[Any], path: PathRegistry) -> Lookup | None:
    """Return how a session finds the objects in memory for a statement's rows.

    None if the statement is for one object anyway.
    """
    compile_state: Any = context.compile_state
    getters = compile_state.attributes[("getters", mapper), path.natural_path]
    key_of = getters["primary_key_getter"]
    find = objects_of(context.session.identity_map).get
    return key_of and (identity_class(mapper), key_of, context.identity_token, find)


def populate(
    context: QueryContext,
    state: State,
    row: object,
    populators: Mapping[str, object],
    forgotten: Iterable[str],
) -> None:
    """Let an object without changes forget attributes, and load it from a row like a new one.

    Attributes that the row lacks are loaded when they are read.
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
    """Return the mapper whose rows a bulk UPDATE or DELETE changes, given its options."""
    return options._subject_mapper  # type: ignore[no-any-return]


def synchronize_by_fetch(state_class: Any, *arguments: Any) -> object:
    """Let a bulk UPDATE or DELETE ask the database which rows it matches."""
    *rest, options = arguments
    options += {"_synchronize_session": "fetch"}
    return state_class._do_pre_synchronize_fetch(*rest, options)


def has_objects_of(*arguments: Any) -> bool:
    """Return whether a session holds objects whose rows a bulk UPDATE or DELETE may match."""
    session: Session = arguments[0]
    mapper = bulk_mapper(arguments[-1]).base_mapper
    return any(state.mapper.isa(mapper) for state in session.identity_map.all_states())


def synchronize_nothing(*arguments: Any) -> object:
    """Let a bulk UPDATE or DELETE assume that it matches no object's row."""
    options = arguments[-1]
    return options + {
        "_synchronize_session": "fetch",
        "_matched_rows": [],
        "_can_use_returning": False,
    }


def inner_joined(loader: Any, compile_state: Any) -> list[FromClause]:
    """Return the elements that the eager load planned last joins; none for an outer join."""
    *_, adapter, is_inner, _, _ = compile_state.create_eager_joins[-1]
    secondary = loader.parent_property.secondary
    joined = [adapter.selectable] if secondary is None else [adapter.selectable, secondary]
    return joined if is_inner else []


def join_outer(compile_state: Any, planned: tuple[object, ...]) -> tuple[object, ...]:
    """Turn that join into an outer join, also for what is loaded further along."""
    *join, _, _, criteria = compile_state.create_eager_joins[-1]
    compile_state.create_eager_joins[-1] = (*join, False, True, criteria)
    lock = compile_state._for_update_arg
    if lock is not None and lock.of is None:
        compile_state._for_update_arg = _LockOfInner(
            read=lock.read,
            nowait=lock.nowait,
            skip_locked=lock.skip_locked,
            key_share=lock.key_share,
        )
    return (*planned[:-1], True)


class _LockOfInner(ForUpdateArg):
    """FOR UPDATE of a SELECT in which `join_outer` has made a join an outer one."""

    inherit_cache = True


def locking_inner(rows: Select[Any]) -> Select[Any]:
    """Return a SELECT whose FOR UPDATE names the tables to lock, if `join_outer` changed its joins.

    PostgreSQL rejects a FOR UPDATE that includes the optional side of an outer join.
    """
    lock: Any = rows._for_update_arg
    if not isinstance(lock, _LockOfInner):
        return rows
    inner = list(_inner(rows.get_final_froms()))
    return copied(rows, _for_update_arg=copied(lock, of=inner)) if inner else rows


def _inner(sources: Iterable[FromClause]) -> Iterator[FromClause]:
    """Yield the tables and subqueries on the sides of joins that aren't optional."""
    for source in sources:
        if isinstance(source, Join):
            if not source.full:
                yield from _inner([source.left] if source.isouter else [source.left, source.right])
        elif isinstance(source, FromGrouping):
            yield from _inner([source.element])
        elif isinstance(source, (Table, Alias, Subquery)):
            yield source
