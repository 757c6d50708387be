"""A flush that meets an expired row: `ExpiredError` instead of silence.

The predicate in the UPDATE or DELETE of a flush already keeps it from touching an expired row;
what is left is to say so. SQLAlchemy raises a bare StaleDataError for the UPDATE, only warns
for the DELETE, and on drivers without row counts for executemany (asyncpg) notices nothing.
SQLAlchemy has no event at these places, so the functions that emit the statements are wrapped;
tables without a policy go straight through.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Select, and_, bindparam, or_, select
from sqlalchemy.exc import DontWrapMixin
from sqlalchemy.orm.exc import ObjectDeletedError, StaleDataError

from ttl_odm import errors
from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.objects.identity_map import drop_if_gone
from ttl_odm.sqlalchemy.policy.binding import Binding, root_binding_of
from ttl_odm.sqlalchemy.policy.parameters import base_row_written, include_expired

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sqlalchemy import Connection, Delete, Table
    from sqlalchemy.orm import InstanceState, Mapper, Session, UOWTransaction

    Key = tuple[Any, ...]

_EXPLICIT: Final = "ttl_odm_explicitly_deleted"
"""In ``InstanceState.info``: the object was given to ``session.delete()`` itself."""


class ExpiredError(errors.ExpiredError, StaleDataError, DontWrapMixin):
    """The row has expired (or was deleted), so it can't be changed or deleted."""


def flushing(flush: Callable[..., None]) -> Callable[..., None]:
    """Let a flush of a new object forget an expired one that had its key."""

    def live_flush(session: Session, *args: object, **kw: object) -> None:
        for state in list(compat.pending_states(session)):
            table = state.mapper.local_table
            # Most tables have no info at all.
            if getattr(table, "info", None) and root_binding_of(table) is not None:
                key = compat.identity_keys(state.mapper)(state)
                known = session.identity_map.get(key)
                if known is not None:
                    drop_if_gone(session, known, state.mapper.class_, key)
        flush(session, *args, **kw)

    return live_flush


def marking(delete: Callable[..., None]) -> Callable[..., None]:
    """Let the session remember what was given to ``session.delete()`` itself."""

    def marked(session: Session, state: InstanceState[Any], obj: object, head: bool) -> None:  # noqa: FBT001 - SQLAlchemy's signature
        delete(session, state, obj, head)
        if head and root_binding_of(state.mapper.local_table) is not None:
            state.info[_EXPLICIT] = True

    return marked


def checking_updates(emit: Callable[..., None]) -> Callable[..., None]:
    """Let the UPDATEs of a flush raise `ExpiredError`."""

    def emit_updates(
        base_mapper: Mapper[Any],
        uow: UOWTransaction | None,  # None: a bulk update by primary key
        mapper: Mapper[Any],
        table: Table,
        update: Iterable[Any],
        **options: object,
    ) -> None:
        binding = root_binding_of(table)
        if binding is None:
            emit(base_mapper, uow, mapper, table, update, **options)
            return
        try:
            records = list(update)
        except ObjectDeletedError as error:
            # The object's attributes had to be loaded first (as after every commit).
            raise _expired_on_load(binding, mapper, uow) from error
        # The objects whose row in the table at the root this flush has updated.
        at_root: set[Any] = (
            set() if uow is None else uow.attributes.setdefault("ttl_odm_written_at_root", set())
        )
        apart = [record for record in records if record[compat.STATE] in at_root]
        rest = [record for record in records if record[compat.STATE] not in at_root]
        for batch in (*_countable(apart), *_countable(rest)):
            token = base_row_written.set(batch[0][compat.STATE] in at_root)
            try:
                emit(base_mapper, uow, mapper, table, batch, **options)
            except StaleDataError as error:
                keys = [compat.updated_key(mapper, table, record) for record in batch]
                gone = _missing(binding, keys, batch[0][compat.CONNECTION])
                if not gone:  # all are live: somebody else changed a version id
                    raise
                raise _expired(uow, mapper, gone, "updated") from error
            finally:
                base_row_written.reset(token)
            states = [record[compat.STATE] for record in batch if record[compat.STATE] is not None]
            if table is binding.table:
                at_root.update(states)
            else:  # its _ts was reset at the root, and the objects have the old one
                for state in states:
                    stamp = state.mapper.get_property_by_column(binding.last_modified)
                    compat.expire(state, [stamp.key])

    return emit_updates


def checking_deletes(emit: Callable[..., None]) -> Callable[..., None]:
    """Let the DELETEs of a flush raise `ExpiredError`."""

    def emit_deletes(
        base_mapper: Mapper[Any],
        uow: UOWTransaction,
        mapper: Mapper[Any],
        table: Table,
        delete: Iterable[Any],
    ) -> None:
        binding = root_binding_of(table)
        if binding is None:
            emit(base_mapper, uow, mapper, table, delete)
            return
        deletes = list(delete)
        if not deletes:
            return
        explicit = {
            state.key[1]
            for state, (is_delete, _) in uow.states.items()
            if table is binding.table  # a joined sub-table follows its base
            if is_delete and state.key is not None and state.info.pop(_EXPLICIT, False)
        }
        columns = compat.primary_key(mapper, table)
        records = []
        for parameters, connection in deletes:
            key = tuple(parameters[column.key] for column in columns)
            records.append((parameters, key, connection, key in explicit))
        statement = _delete_by_key(base_mapper, mapper, table)
        for (connection, is_checked), group in groupby(records, key=itemgetter(2, 3)):
            for batch in _countable(list(group), connection_at=2):
                result = connection.execute(
                    statement,
                    [parameters for parameters, *_ in batch],
                    execution_options={"compiled_cache": compat.compiled_cache(base_mapper)},
                )
                if is_checked and result.rowcount != len(batch):
                    keys = [key for _, key, *_ in batch]
                    present = _present(binding, keys, connection, with_expired=True)
                    raise _expired(uow, mapper, present or keys, "deleted")

    return emit_deletes


def _countable(records: list[Any], connection_at: int = compat.CONNECTION) -> list[list[Any]]:
    """What a flush writes, in batches of which the driver counts the rows."""
    if len(records) > 1 and not records[0][connection_at].dialect.supports_sane_multi_rowcount:
        return [[record] for record in records]
    return [records] if records else []


def _delete_by_key(base_mapper: Mapper[Any], mapper: Mapper[Any], table: Table) -> Delete:
    memo, name = compat.memo_of(base_mapper), ("ttl_odm_delete", table)
    if name not in memo:
        columns, version = compat.primary_key(mapper, table), compat.version_column(mapper, table)
        if version is not None:
            columns.append(version)
        memo[name] = table.delete().where(
            *(column == bindparam(column.key, type_=column.type) for column in columns)
        )
    statement: Delete = memo[name]
    return statement


def _expired_on_load(binding: Binding, mapper: Mapper[Any], uow: Any) -> ExpiredError:
    keys = [
        state.key[1]
        for state, (is_delete, is_listed_only) in uow.states.items()
        if state.key is not None and not (is_delete or is_listed_only)
        if root_binding_of(state.mapper.local_table) is binding
    ]
    connection = uow.transaction.connection(mapper)
    return _expired(uow, mapper, _missing(binding, keys, connection) or keys, "updated")


def _missing(binding: Binding, keys: list[Key], connection: Connection) -> list[Key]:
    """Those of the keys that no live row has."""
    live = set(_present(binding, keys, connection))
    return [key for key in keys if key not in live]


def _present(
    binding: Binding, keys: list[Key], connection: Connection, *, with_expired: bool = False
) -> list[Key]:
    """Those of the keys that a live row has, or any row."""
    columns = list(binding.table.primary_key)
    statement: Select[Any] = select(*columns).where(
        or_(*(and_(*(c == v for c, v in zip(columns, key, strict=True))) for key in keys))
    )
    if with_expired:
        statement = statement.options(include_expired())
    elif connection.dialect.name in MYSQL_FAMILY:
        # A plain read would answer from this transaction's snapshot, which the UPDATE didn't.
        statement = statement.with_for_update(read=True)
    return [tuple(row) for row in connection.execute(statement)]


def _expired(
    uow: UOWTransaction | None, mapper: Mapper[Any], keys: list[Key], verb: str
) -> ExpiredError:
    # The mapper is that of the table; the object may be of a class below it.
    classes = {
        state.key[1]: state.class_
        for state in (() if uow is None else uow.states)
        if state.key is not None and state.mapper.base_mapper is mapper.base_mapper
    }
    model = classes.get(keys[0], mapper.class_).__name__
    ids = [key[0] if len(key) == 1 else key for key in keys]
    names = f"{model} {ids[0]!r}" if len(ids) == 1 else f"one of {model} {ids!r}"
    return ExpiredError(
        f"{names} can't be {verb}: the row has expired, or was deleted meanwhile.",
        model=model,
        key=ids[0] if len(ids) == 1 else ids,
    )
