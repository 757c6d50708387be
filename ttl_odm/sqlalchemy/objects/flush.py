"""A flush that meets an expired row: `ExpiredError` instead of silence.

The predicate in the UPDATE or DELETE of a flush already keeps it from touching an expired row; this
module reports it. SQLAlchemy raises a bare StaleDataError for the UPDATE, only warns for the
DELETE, and with drivers that don't count the rows of executemany (asyncpg) notices nothing.
SQLAlchemy has no event at these places, so the functions that emit the statements are wrapped;
tables without a policy pass straight through.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from itertools import chain, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import ColumnElement, Table, bindparam, inspect, select
from sqlalchemy.orm.exc import ObjectDeletedError, StaleDataError

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.objects.ends import checked, rows_of_keys
from ttl_odm.sqlalchemy.objects.identity_map import drop_if_gone, release_key
from ttl_odm.sqlalchemy.objects.lifetime import lifetime_of
from ttl_odm.sqlalchemy.objects.new_rows import read_later
from ttl_odm.sqlalchemy.policy.bindings import Binding, binding_of, root_binding_of
from ttl_odm.sqlalchemy.policy.predicate import (
    KEEP_LAST_MODIFIED,
    base_row_written,
    include_expired,
    unlinking,
)
from ttl_odm.sqlalchemy.policy.references import done_by_flush, rule_of
from ttl_odm.sqlalchemy.purge.errors import ExpiredError
from ttl_odm.sqlalchemy.purge.statements import chunks
from ttl_odm.sqlalchemy.rewrite.from_clauses import binding_of_source
from ttl_odm.sqlalchemy.rewrite.writes import Stamp
from ttl_odm.sqlalchemy.time.clock import dialect_of, monotonic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from sqlalchemy import Connection, Delete
    from sqlalchemy.orm import Mapper, Session, UOWTransaction

    from ttl_odm.sqlalchemy.compat import Handler, Record, State
    from ttl_odm.sqlalchemy.objects.ends import Key
    from ttl_odm.sqlalchemy.policy.rules import Rule

_EXPLICIT: Final = "ttl_odm_explicitly_deleted"
"""In ``InstanceState.info``: the object was given to ``session.delete()`` itself."""


def flushing(flush: Callable[..., None]) -> Callable[..., None]:
    """Let a flush of a new object forget an expired one that had its key."""

    def live_flush(session: Session, *args: object, **kw: object) -> None:
        # New objects whose rows the server stamps, with the attribute of the stamp.
        stamped: list[tuple[Any, str]] = []
        for state, row in list(compat.pending_states(session).items()):
            mapper = state.manager.mapper
            table = mapper.local_table
            # Most tables have no info at all.
            has_info = bool(getattr(table, "info", None))
            binding = root_binding_of(table) if has_info else None
            if binding is None and not (has_info and rule_of(table) is not None):
                continue
            stamp = None
            if binding is not None and binding.stamps:
                stamp = compat.properties(mapper).get(binding.last_modified)
            if stamp is not None and not isinstance(row.__dict__.get(stamp.key), ColumnElement):
                stamped.append((state, stamp.key))
            if session.connection_callable is not None:
                dialect_of(session, row)  # gives the object its shard's token
            key = compat.identity_keys(mapper)(state)
            known = session.identity_map.get(key)
            if known is not None:
                drop_if_gone(session, known, mapper.class_, key)
        token = done_by_flush.set(set())
        try:
            flush(session, *args, **kw)
        finally:
            done_by_flush.reset(token)
        for state, attribute in stamped:
            row = state.obj()
            if state.key is not None and row is not None and attribute not in row.__dict__:
                state.ttl_odm_note = monotonic(), state.runid

    return live_flush


def ordering(register: Callable[..., None]) -> Callable[..., None]:
    """Let a flush save parents before the rows that follow them, and delete them after these.

    SQLAlchemy orders classes by their relationships, and others by their names. A follower without
    a relationship to its parent would come under an expired row that the flush is about to replace,
    or would have lost its parent when it is deleted.
    """

    def register_ordered(uow: UOWTransaction, mapper: Mapper[Any]) -> None:
        register(uow, mapper)
        if not getattr(mapper.local_table, "info", None):  # most tables have none
            return
        for other in uow.mappers.keys() - {mapper}:
            for parent, child in ((mapper, other), (other, mapper)):
                rule = rule_of(child.local_table)
                if rule is not None and rule.links().parent in parent.tables:
                    compat.order_flush(uow, parent, child)

    return register_ordered


def saving(organize: Handler) -> Handler:
    """Let a flush insert objects with the keys of others whose rows are gone.

    `flushing` has looked already, but a new object may have got its key from its parent meanwhile.
    """

    def live_save(base_mapper: Mapper[Any], states: Iterable[State], uow: UOWTransaction) -> object:
        states = list(states)
        for state in states:
            # Most tables have an empty info.
            if state.key is None and getattr(state.mapper.local_table, "info", None) != {}:
                key = compat.identity_keys(state.mapper)(state)
                known = uow.session.identity_map.get(key)
                if known is not None:
                    release_key(uow, state, known, key)
        return organize(base_mapper, states, uow)

    return live_save


def reading_stamps(emit: Handler) -> Handler:
    """Let the INSERTs of a flush read no stamps of rows that their keys don't identify."""

    def emit_inserts(
        base_mapper: Mapper[Any],
        uow: UOWTransaction | None,
        mapper: Mapper[Any],
        table: Table,
        insert: Iterable[Record],
        **options: object,
    ) -> object:
        binding = binding_of(table)
        of_flush = options.get("use_orm_insert_stmt") is None
        if binding is not None and binding.stamps and of_flush:
            insert = list(insert)
            if len(insert) > 1:
                insert = read_later(insert, table, binding.last_modified)
        return emit(base_mapper, uow, mapper, table, insert, **options)

    return emit_inserts


def checking_updates(emit: Callable[..., None]) -> Callable[..., None]:
    """Let the UPDATEs of a flush raise `ExpiredError`."""

    def emit_updates(
        base_mapper: Mapper[Any],
        uow: UOWTransaction | None,  # None: a bulk update by primary key
        mapper: Mapper[Any],
        table: Table,
        update: Iterable[Record],
        **options: object,
    ) -> None:
        binding = root_binding_of(table)
        if binding is None:
            rule = rule_of(table)
            emit_all = emit if rule is None else _updating_by_rule(rule, emit)
            emit_all(base_mapper, uow, mapper, table, update, **options)
            return
        try:
            records = list(update)
        except ObjectDeletedError as error:
            # The object's attributes had to be loaded first (as after every commit).
            raise _expired_on_load(binding, mapper, uow) from error
        if not records:  # as in the flush of new objects
            return
        _leave_stamps_to_the_gate(binding, records)
        # The objects whose row in the root table this flush has updated.
        at_root: set[State] = (
            set() if uow is None else uow.attributes.setdefault("ttl_odm_written_at_root", set())
        )
        known = [r for r in records if r[compat.STATE] in at_root] if at_root else []
        if known:
            records = [r for r in records if r[compat.STATE] not in at_root]
        runs = checked(binding, mapper, records, "updated", compat.written)
        runs = chain([known], runs) if known else runs
        for batch, unlinks in _batches(table, runs):
            _check_uncounted(uow, mapper, binding, table, batch)
            send = _keeping_stamps(emit) if unlinks else emit
            token = base_row_written.set(batch[0][compat.STATE] in at_root)
            try:
                send(base_mapper, uow, mapper, table, batch, **options)
            except StaleDataError as error:
                keys = _updated_keys(mapper, table, binding, batch)
                _reject_gone(uow, mapper, binding, keys, batch[0][compat.CONNECTION], error)
                raise
            finally:
                base_row_written.reset(token)
            if uow is not None:
                _remember(binding, table, batch, at_root)

    return emit_updates


def _batches(table: Table, runs: Iterable[list[Record]]) -> Iterator[tuple[list[Record], bool]]:
    """Yield what a flush updates, and whether a purge unlinks it: then the stamps are kept.

    When a live row expires must not depend on the time at which a row that it refers to is purged.
    """
    is_purge = base_row_written.get()
    for run in runs:
        groups = [(False, run)]
        if is_purge:
            kinds = groupby(run, partial(_unlinks, table))
            groups = [(unlinks, list(records)) for unlinks, records in kinds]
        for unlinks, records in groups:
            for batch in _countable(records):
                yield batch, unlinks


def _unlinks(table: Table, record: Record) -> bool:
    """Return whether an UPDATE sets nothing but references to NULL, as for a deleted object."""
    columns = ((table.c.get(key), value) for key, value in compat.given_values(record).items())
    return not record[compat.SQL_VALUES] and all(
        value is None and column.foreign_keys for column, value in columns if column is not None
    )


def _keeping_stamps(emit: Callable[..., None]) -> Callable[..., None]:
    """Let UPDATEs leave ``_ts`` alone."""

    def emit_updates(*args: object, **options: object) -> None:
        written, kept = base_row_written.set(True), unlinking.set(True)
        try:
            emit(*args, **options)
        finally:
            unlinking.reset(kept)
            base_row_written.reset(written)

    return emit_updates


def _updating_by_rule(rule: Rule, emit: Callable[..., None]) -> Callable[..., None]:
    """Let the UPDATEs of rows that expire by a rule, which have no stamps, raise `ExpiredError`."""

    def emit_updates(
        base_mapper: Mapper[Any],
        uow: UOWTransaction | None,
        mapper: Mapper[Any],
        table: Table,
        update: Iterable[Record],
        **options: object,
    ) -> None:
        try:
            records = list(update)
        except ObjectDeletedError as error:
            raise _expired_on_load(rule, mapper, uow) from error
        for batch in _countable(records):
            _check_uncounted(uow, mapper, rule, table, batch)
            try:
                emit(base_mapper, uow, mapper, table, batch, **options)
            except StaleDataError as error:
                keys = _updated_keys(mapper, table, rule, batch)
                _reject_gone(uow, mapper, rule, keys, batch[0][compat.CONNECTION], error)
                raise

    return emit_updates


def _reject_gone(  # noqa: PLR0913, PLR0917 (three for the error, three for the question)
    uow: UOWTransaction | None,
    mapper: Mapper[Any],
    binding: Binding | Rule,
    keys: list[Key],
    connection: Connection,
    cause: StaleDataError | None = None,
) -> None:
    """Raise `ExpiredError` for the keys of an UPDATE that no live row has.

    If all have one, a version id was changed meanwhile, and the cause is the right error. So is an
    `ExpiredError`, which a preparation has raised.
    """
    if isinstance(cause, ExpiredError):
        return
    gone = _missing(mapper, binding, keys, connection)
    if gone:
        raise _gone_error(uow, mapper, gone, "updated") from cause


def _updated_keys(
    mapper: Mapper[Any], table: Table, binding: Binding | Rule, records: list[Record]
) -> list[Key]:
    return [compat.updated_key(mapper, table, binding.table, record) for record in records]


def _check_uncounted(
    uow: UOWTransaction | None,
    mapper: Mapper[Any],
    binding: Binding | Rule,
    table: Table,
    records: list[Record],
) -> None:
    """Raise `ExpiredError` if an UPDATE would miss rows, on drivers that don't count them."""
    connection = records[0][compat.CONNECTION]
    if not connection.dialect.supports_sane_rowcount:
        keys = _updated_keys(mapper, table, binding, records)
        _reject_gone(uow, mapper, binding, keys, connection)


def _missing(
    mapper: Mapper[Any], binding: Binding | Rule, keys: list[Key], connection: Connection
) -> list[Key]:
    """Return those of the keys that no live row has."""
    live = set(_present(mapper, binding, keys, connection))
    return [key for key in keys if key not in live]


def _present(
    mapper: Mapper[Any],
    binding: Binding | Rule,
    keys: list[Key],
    connection: Connection,
    *,
    with_expired: bool = False,
) -> list[Key]:
    """Return those of the keys that a live row has, or any row."""
    columns = compat.identity_columns(mapper, binding.table)
    every = select(*columns)
    if with_expired:
        every = every.options(include_expired())
    elif connection.dialect.name in MYSQL_FAMILY:
        # A plain read would answer from this transaction's snapshot, which the UPDATE didn't.
        every = every.with_for_update(read=True)
    return [
        key for some in chunks(keys) for key, _ in rows_of_keys(connection, every, columns, some)
    ]


def _gone_error(
    uow: UOWTransaction | None, mapper: Mapper[Any], keys: list[Key], verb: str
) -> ExpiredError:
    """Return the error for objects whose rows a flush has not found."""
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


def _countable(records: list[Record], connection_at: int = compat.CONNECTION) -> list[list[Record]]:
    """Return what a flush writes, in batches whose rows the driver counts."""
    if len(records) > 1 and not records[0][connection_at].dialect.supports_sane_multi_rowcount:
        return [[record] for record in records]
    return [records] if records else []


def checking_post_updates(emit: Callable[..., None]) -> Callable[..., None]:
    """Let the UPDATEs that a flush makes for ``post_update`` raise `ExpiredError`."""

    def emit_post_updates(
        base_mapper: Mapper[Any],
        uow: UOWTransaction,
        mapper: Mapper[Any],
        table: Table,
        update: Iterable[Record],
    ) -> None:
        binding = root_binding_of(table)
        if binding is None:
            emit(base_mapper, uow, mapper, table, update)
            return
        runs = checked(binding, mapper, list(update), "updated", compat.post_written)
        for batch in (batch for run in runs for batch in _countable(run, connection_at=3)):
            try:
                emit(base_mapper, uow, mapper, table, batch)
            except StaleDataError as error:
                keys = [state.key[1] for state, *_ in batch]
                _reject_gone(uow, mapper, binding, keys, batch[0][3], error)
                raise

    return emit_post_updates


def checking_bulk_saves(save: Callable[..., None]) -> Callable[..., None]:
    """Let ``bulk_save_objects()`` raise `ExpiredError` for objects that are over."""

    def bulk_save(
        session: Session,
        mapper: Mapper[Any],
        mappings: Iterable[Any],
        *,
        isupdate: bool,
        isstates: bool,
        **options: object,
    ) -> None:
        binding = root_binding_of(inspect(mapper).local_table)
        runs: Iterable[Iterable[Any]] = [mappings]
        if binding is not None and isstates and isupdate:
            connection = session.connection(bind_arguments={"mapper": mapper})
            runs = checked(
                binding,
                inspect(mapper),
                list(mappings),
                "updated",
                lambda state: (state, connection),
            )
        try:
            for run in runs:
                save(session, mapper, run, isupdate=isupdate, isstates=isstates, **options)
        except ExpiredError:
            # As SQLAlchemy does when a flush fails; earlier runs are written already.
            transaction = session.get_nested_transaction() or session.get_transaction()
            if transaction is not None and transaction.is_active:
                transaction.rollback()
            raise

    return bulk_save


def releasing_secondary_rows(write: Callable[..., None]) -> Callable[..., None]:
    """Treat expired rows of a ``secondary`` table as deleted, as cascades do.

    A flush that deletes them, or moves them with an owner's key, no longer finds them. Whether they
    are only out of sight or swept already must make no difference.
    """

    def write_secondary_rows(
        processor: Any,
        uow: UOWTransaction,
        new: Sequence[object],
        moved: Sequence[object],
        gone: Sequence[object],
    ) -> None:
        if binding_of_source(processor.secondary) is not None:
            for changes in ((), (), gone), ((), moved, ()):
                with suppress(StaleDataError):  # raised once the statement has run
                    write(processor, uow, *changes)
            moved = gone = ()
        write(processor, uow, new, moved, gone)

    return write_secondary_rows


def _leave_stamps_to_the_gate(binding: Binding, records: Iterable[Record]) -> None:
    """Remove the stamps that `touch` has set from UPDATEs, which get the same stamp anyway.

    With SQL among its values SQLAlchemy makes a new statement for each object, and sends it alone.
    """
    column = binding.last_modified
    for record in records:
        values = record[compat.SQL_VALUES]
        is_touched = values and type(values.get(column)) is Stamp
        if is_touched and not compat.options_of(record[compat.CONNECTION]).get(KEEP_LAST_MODIFIED):
            del values[column]


def _remember(binding: Binding, table: Table, batch: Iterable[Record], at_root: set[State]) -> None:
    """Note what is known of the ends of objects' rows after UPDATEs: objects forget their stamps.

    For rows that keep theirs, `checked` has noted it.
    """
    now, has_stamps = monotonic(), binding.stamps
    for record in batch:
        state, connection = compat.written(record)
        is_kept = compat.options_of(connection).get(KEEP_LAST_MODIFIED)
        if has_stamps and not is_kept and state not in at_root:
            stamp = record[compat.SQL_VALUES].get(binding.last_modified)
            known = now if stamp is None else None
            state.ttl_odm_note = known, state.runid
        if table is binding.table:
            at_root.add(state)
        else:  # _ts was reset in the root table, and the objects have the old one
            lifetime = lifetime_of(state.mapper)
            if lifetime is not None and lifetime.is_mapped:
                compat.expire(state, [lifetime.stamp])


def _expired_on_load(binding: Binding | Rule, mapper: Mapper[Any], uow: Any) -> ExpiredError:
    keys = [
        state.key[1]
        for state, (is_delete, is_listed_only) in uow.states.items()
        if state.key is not None and not (is_delete or is_listed_only)
        if binding in (root_binding_of(table := state.mapper.local_table), rule_of(table))
    ]
    connection = uow.transaction.connection(mapper)
    return _gone_error(uow, mapper, _missing(mapper, binding, keys, connection) or keys, "updated")


def marking(delete: Callable[..., None]) -> Callable[..., None]:
    """Let the session remember which objects were given to ``session.delete()`` itself."""

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
        delete: Iterable[Record],
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
        key_of = compat.identity_columns if table is binding.table else compat.primary_key
        columns = [column.key for column in key_of(mapper, table)]
        is_of_many = not isinstance(mapper.local_table, Table)
        records: list[Record] = []
        for parameters, connection in deletes:
            key = tuple([parameters[column] for column in columns])
            # The keys of a join differ from those of its tables, and no row of it may go alone.
            is_checked = is_of_many or (table, key) in explicit
            records.append((parameters, key, connection, is_checked))
        runs: Iterable[list[Record]] = [records]
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
            for batch in _countable(list(group), connection_at=2):
                rows = [parameters for parameters, *_ in batch]
                result = connection.execute(statement, rows, execution_options=options)
                if is_checked and result.rowcount != len(batch):
                    keys = [key for _, key, *_ in batch]
                    held = _present(mapper, binding, keys, connection, with_expired=True)
                    raise _gone_error(uow, mapper, held or keys, "deleted")

    return emit_deletes


def _written(states: Mapping[Key, State], record: Record) -> tuple[State | None, Connection]:
    _, key, connection, _ = record
    return states.get(key), connection


def _explicitly_deleted(uow: UOWTransaction) -> AbstractSet[tuple[object, Key]]:
    """Return the rows of a flush that were given to ``session.delete()``: root tables, and keys.

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
