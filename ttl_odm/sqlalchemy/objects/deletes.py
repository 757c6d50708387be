"""The DELETEs of a flush that meet an expired row; see `ttl_odm.sqlalchemy.objects.flush`."""

from __future__ import annotations

from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Table, bindparam

from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.objects.ends import gone_error, present
from ttl_odm.sqlalchemy.objects.written_rows import checked, countable
from ttl_odm.sqlalchemy.policy.binding import Binding, root_binding_of
from ttl_odm.sqlalchemy.policy.rules import Rule, rule_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from sqlalchemy import Connection, Delete
    from sqlalchemy.orm import Mapper, Session, UOWTransaction

    from ttl_odm.sqlalchemy.compat import State
    from ttl_odm.sqlalchemy.objects.ends import Key

_EXPLICIT: Final = "ttl_odm_explicitly_deleted"
"""In ``InstanceState.info``: the object was given to ``session.delete()`` itself."""


def marking(delete: Callable[..., None]) -> Callable[..., None]:
    """Let the session remember what was given to ``session.delete()`` itself."""

    def marked(session: Session, state: State, obj: object, head: bool) -> None:  # noqa: FBT001 - SQLAlchemy's signature
        delete(session, state, obj, head)
        table = state.mapper.local_table
        if head and (root_binding_of(table) or rule_of(table)) is not None:
            state.info[_EXPLICIT] = True

    return marked


def checking_deletes(emit: Callable[..., None]) -> Callable[..., None]:
    """Let the DELETEs of a flush raise `ExpiredError`."""

    def emit_deletes(
        base_mapper: Mapper[Any],
        uow: UOWTransaction,
        mapper: Mapper[Any],
        table: Table,
        delete: Iterable[Any],
    ) -> None:
        binding: Binding | Rule | None = root_binding_of(table) or rule_of(table)
        if binding is None:
            emit(base_mapper, uow, mapper, table, delete)
            return
        deletes = list(delete)
        if not deletes:
            return
        # A joined sub-table follows its base, if that is mapped too.
        leads = table is binding.table or binding.table not in mapper.tables
        explicit = _explicitly_deleted(uow) if leads else frozenset()
        columns = [column.key for column in compat.primary_key(mapper, table)]
        is_of_many = not isinstance(mapper.local_table, Table)
        records = []
        for parameters, connection in deletes:
            key = tuple([parameters[column] for column in columns])
            # A join's rows have other keys than its tables', and none of them may go alone.
            is_checked = is_of_many or (table, key) in explicit
            records.append((parameters, key, connection, is_checked))
        runs: Iterable[list[Any]] = [records]
        if isinstance(binding, Binding) and table is binding.table:
            classes = base_mapper.self_and_descendants
            mappers = {m for m in classes if root_binding_of(m.local_table) is binding}
            states = {
                state.key[1]: state
                for state, (is_delete, _) in uow.states.items()
                if is_delete and state.key is not None and state.manager.mapper in mappers
            }
            written = partial(_written, states)
            runs = checked(binding, mapper, records, "deleted", written)
        statement = _delete_by_key(base_mapper, mapper, table)
        options = {"compiled_cache": compat.compiled_cache(base_mapper)}
        groups = (group for run in runs for group in groupby(run, key=itemgetter(2, 3)))
        for (connection, is_checked), group in groups:
            for batch in countable(list(group), connection_at=2):
                rows = [parameters for parameters, *_ in batch]
                result = connection.execute(statement, rows, execution_options=options)
                if is_checked and result.rowcount != len(batch):
                    keys = [key for _, key, *_ in batch]
                    held = present(binding, keys, connection, with_expired=True)
                    raise gone_error(uow, mapper, held or keys, "deleted")

    return emit_deletes


def _written(states: Mapping[Key, State], record: Any) -> tuple[State | None, Connection]:
    _, key, connection, _ = record
    return states.get(key), connection


def _explicitly_deleted(uow: UOWTransaction) -> AbstractSet[tuple[object, Key]]:
    """What of a flush's was given to ``session.delete()``: tables at the root, and keys.

    Collected once: a flush deletes from several tables, and from one in several batches.
    """
    explicit: set[tuple[object, Key]] | None = uow.attributes.get(_EXPLICIT)
    if explicit is None:
        explicit = uow.attributes[_EXPLICIT] = set()
        bindings: dict[Mapper[Any], Binding | Rule | None] = {}
        for state, (is_delete, _) in uow.states.items():
            if is_delete and state.key is not None and state.info.pop(_EXPLICIT, False):
                mapper = state.manager.mapper
                if mapper not in bindings:
                    table = mapper.local_table
                    bindings[mapper] = root_binding_of(table) or rule_of(table)
                binding = bindings[mapper]
                if binding is not None:
                    explicit.add((binding.table, state.key[1]))
    return explicit


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
