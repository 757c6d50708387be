"""A flush that meets an expired row: `ExpiredError` instead of silence.

The predicate in the UPDATE or DELETE of a flush already keeps it from touching an expired row;
what is left is to say so. SQLAlchemy raises a bare StaleDataError for the UPDATE, only warns
for the DELETE, and on drivers without row counts for executemany (asyncpg) notices nothing.
SQLAlchemy has no event at these places, so the two functions that emit the statements are
wrapped; tables without a policy go straight through.
"""

from __future__ import annotations

from functools import wraps
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Select, and_, bindparam, or_, select
from sqlalchemy.exc import DontWrapMixin
from sqlalchemy.orm import Session, persistence
from sqlalchemy.orm.exc import ObjectDeletedError, StaleDataError

from ttl_odm import errors
from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.sqlalchemy.policy.binding import Binding, root_binding_of
from ttl_odm.sqlalchemy.policy.parameters import base_row_written, include_expired

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from sqlalchemy import Connection, Delete, Table
    from sqlalchemy.orm import InstanceState, Mapper

_EXPLICIT: Final = "ttl_odm_explicitly_deleted"
"""In ``InstanceState.info``: the object was given to ``session.delete()`` itself."""


class ExpiredError(errors.ExpiredError, StaleDataError, DontWrapMixin):
    """The row has expired (or was deleted), so it can't be changed or deleted."""


def _wrap_updates(emit: Callable[..., None]) -> Callable[..., None]:
    @wraps(emit)
    def emit_updates(
        base_mapper: Mapper[Any],
        uow: Any,
        mapper: Mapper[Any],
        table: Table,
        update: Iterable[Any],
        **options: Any,
    ) -> None:
        binding = root_binding_of(table)
        if binding is None:
            emit(base_mapper, uow, mapper, table, update, **options)
            return
        try:
            found = list(update)
        except ObjectDeletedError as error:
            # The object's attributes had to be loaded first (as after every commit).
            raise _expired_on_load(binding, mapper, uow) from error
        at_root = _written_at_root(uow)
        for records in _countable(found, connection_at=4, apart=at_root):
            token = base_row_written.set(records[0][0] in at_root)
            try:
                emit(base_mapper, uow, mapper, table, records, **options)
            except StaleDataError as error:
                keys = [_key_of_update(mapper, table, record) for record in records]
                gone = _missing(binding, keys, records[0][4])
                if not gone:  # all are live: somebody else changed a version id
                    raise
                raise _expired(uow, mapper, gone, "updated") from error
            finally:
                base_row_written.reset(token)
            if table is binding.table:
                at_root.update(record[0] for record in records)
            else:
                _expire_stamps(binding, records)

    return emit_updates


def _written_at_root(uow: Any) -> set[Any]:
    """The objects whose row in the table at the root this flush has updated."""
    if uow is None:  # a bulk update by primary key
        return set()
    written: set[Any] = uow.attributes.setdefault("ttl_odm_written_at_root", set())
    return written


def _expire_stamps(binding: Binding, records: list[Any]) -> None:
    """Let objects forget a ``_ts`` that an UPDATE of their sub-table has reset at the root."""
    for state, state_dict, *_ in records:
        if state is not None:
            key = state.mapper.get_property_by_column(binding.last_modified).key
            state._expire_attributes(state_dict, [key])


def _wrap_deletes(emit: Callable[..., None]) -> Callable[..., None]:
    @wraps(emit)
    def emit_deletes(
        base_mapper: Mapper[Any],
        uow: Any,
        mapper: Mapper[Any],
        table: Table,
        delete: Iterable[Any],
    ) -> None:
        binding = root_binding_of(table)
        if binding is None:
            emit(base_mapper, uow, mapper, table, delete)
            return
        statement = base_mapper._memo(("ttl_odm_delete", table), lambda: _by_key(mapper, table))
        counts = table is binding.table  # a joined sub-table follows its base
        explicit = _explicitly_deleted(uow) if counts else set()
        records = [
            (params, connection, _key_of_delete(mapper, table, params) in explicit)
            for params, connection in delete
        ]
        for (connection, checked), group in groupby(records, key=lambda record: record[1:]):
            for batch in _countable([params for params, *_ in group], dialect=connection.dialect):
                result = connection.execute(
                    statement,
                    batch,
                    execution_options={"compiled_cache": base_mapper._compiled_cache},
                )
                if checked and result.rowcount != len(batch):
                    keys = [_key_of_delete(mapper, table, params) for params in batch]
                    left = _present(binding, keys, connection)
                    raise _expired(uow, mapper, left or keys, "deleted")

    return emit_deletes


def _expired_on_load(binding: Binding, mapper: Mapper[Any], uow: Any) -> ExpiredError:
    states = [
        state
        for state, (isdelete, listonly) in uow.states.items()
        if state.key is not None and not (isdelete or listonly)
        if root_binding_of(state.mapper.local_table) is binding
    ]
    keys = [state.key[1] for state in states]
    connection = uow.transaction.connection(mapper)
    gone = _missing(binding, keys, connection) or keys
    return _expired(uow, mapper, gone, "updated")


def _countable(
    records: list[Any],
    *,
    connection_at: int | None = None,
    dialect: Any = None,
    apart: Collection[Any] = (),
) -> Iterator[list[Any]]:
    """The records in batches whose row count the driver will tell; those of some objects apart."""
    if apart:
        written = [record for record in records if record[0] in apart]
        records = [record for record in records if record[0] not in apart]
        yield from _countable(written, connection_at=connection_at, dialect=dialect)
    if connection_at is not None and records:
        dialect = records[0][connection_at].dialect
    if dialect is None or dialect.supports_sane_multi_rowcount or len(records) == 1:
        if records:
            yield records
    else:
        yield from ([record] for record in records)


def _by_key(mapper: Mapper[Any], table: Table) -> Delete:
    columns: list[Any] = list(mapper._pks_by_table[table])
    version = mapper.version_id_col
    if version is not None and version in mapper._cols_by_table[table]:
        columns.append(version)
    return table.delete().where(
        *(column == bindparam(column.key, type_=column.type) for column in columns)
    )


def _key_of_update(mapper: Any, table: Table, record: Any) -> tuple[Any, ...]:
    state, state_dict = record[0], record[1]
    if state is None:  # a bulk update by primary key has no states, only values
        params = record[2]
        return tuple(params[column._label] for column in mapper._pks_by_table[table])
    return tuple(
        mapper._get_committed_state_attr_by_column(state, state_dict, column)
        for column in mapper.primary_key
    )


def _key_of_delete(mapper: Mapper[Any], table: Table, params: Any) -> tuple[Any, ...]:
    return tuple(params[column.key] for column in mapper._pks_by_table[table])


def _explicitly_deleted(uow: Any) -> set[tuple[Any, ...]]:
    return {
        state.key[1]
        for state, (isdelete, _) in uow.states.items()
        if isdelete and state.key is not None and state.info.pop(_EXPLICIT, False)
    }


def _missing(
    binding: Binding, keys: list[tuple[Any, ...]], connection: Connection
) -> list[tuple[Any, ...]]:
    """Those of the keys that no live row has."""
    statement = _keys(binding, keys)
    if connection.dialect.name in MYSQL_FAMILY:
        # A plain read would answer from this transaction's snapshot, which the UPDATE didn't.
        statement = statement.with_for_update(read=True)
    live = {tuple(row) for row in connection.execute(statement)}
    return [key for key in keys if key not in live]


def _present(
    binding: Binding, keys: list[tuple[Any, ...]], connection: Connection
) -> list[tuple[Any, ...]]:
    """Those of the keys that a row still has, live or not."""
    statement = _keys(binding, keys).options(include_expired())
    return [tuple(row) for row in connection.execute(statement)]


def _keys(binding: Binding, keys: list[tuple[Any, ...]]) -> Select[Any]:
    columns = list(binding.table.primary_key)
    return select(*columns).where(
        or_(*(and_(*(c == v for c, v in zip(columns, key, strict=True))) for key in keys))
    )


def _expired(uow: Any, mapper: Mapper[Any], keys: list[tuple[Any, ...]], verb: str) -> ExpiredError:
    # The mapper is that of the table; the object may be of a class below it.
    classes = {
        state.key[1]: state.class_
        for state in (() if uow is None else uow.states)  # None: a bulk update by primary key
        if state.key is not None and state.mapper.base_mapper is mapper.base_mapper
    }
    model = classes.get(keys[0], mapper.class_).__name__
    shown = [key[0] if len(key) == 1 else key for key in keys]
    names = f"{model} {shown[0]!r}" if len(shown) == 1 else f"one of {model} {shown!r}"
    return ExpiredError(
        f"{names} can't be {verb}: the row has expired, or was deleted meanwhile.",
        model=model,
        key=shown[0] if len(shown) == 1 else shown,
    )


def _wrap_delete_impl(delete_impl: Callable[..., None]) -> Callable[..., None]:
    @wraps(delete_impl)
    def marked(session: Session, state: InstanceState[Any], obj: object, head: bool) -> None:  # noqa: FBT001 - SQLAlchemy's signature
        delete_impl(session, state, obj, head)
        if head and root_binding_of(state.mapper.local_table) is not None:
            state.info[_EXPLICIT] = True

    return marked


def install() -> None:
    """Wrap SQLAlchemy's emitters; called once, when ``ttl_odm.sqlalchemy`` is imported."""
    module: Any = persistence
    module._emit_update_statements = _wrap_updates(module._emit_update_statements)
    module._emit_delete_statements = _wrap_deletes(module._emit_delete_statements)
    session: Any = Session
    session._delete_impl = _wrap_delete_impl(session._delete_impl)
