"""The work of one transaction with the tables of checkpoints, for both kinds of engines.

Nothing here checks whether a thread has expired, or deletes an expired one: the tables' policies
do, as for any model. This module must not know how values become bytes, nor who commits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import delete, select

from ttl_odm.sqlalchemy import touch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy.orm import Session

    from ttl_odm.integrations.langgraph.tables import CheckpointTables

    Row = dict[str, Any]
    """Columns of a row, by their names."""


class CheckpointKey(NamedTuple):
    """The primary key of a checkpoint."""

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str


class StoredWrite(NamedTuple):
    """A write of a task; `typed` is its value: the serializer's name of the type, and the bytes.

    Writes sort in the order in which LangGraph applies them. Python sorts them, since a database's
    collations order texts differently.
    """

    task_path: str
    task_id: str
    idx: int
    channel: str
    typed: tuple[str, bytes]


class StoredCheckpoint(NamedTuple):
    """A checkpoint with its sorted writes; for `typed` see `StoredWrite`."""

    key: CheckpointKey
    parent_id: str | None
    details: dict[str, Any]
    typed: tuple[str, bytes]
    writes: Sequence[StoredWrite]


def find_keys(  # noqa: PLR0913 - LangGraph's list() has as many
    tables: CheckpointTables,
    session: Session,
    criteria: Mapping[str, str],
    *,
    details: Mapping[str, object] | None = None,
    before: str | None = None,
    limit: int | None = None,
) -> Sequence[CheckpointKey]:
    """Return the keys of checkpoints, the latest first.

    Args:
        tables: The tables.
        session: The session, in a transaction.
        criteria: Parts of the key.
        details: Entries that the metadata must have. Python compares them, since each database has
            its own way to compare JSON.
        before: A checkpoint_id; only smaller ones are returned.
        limit: The most keys to return.
    """
    model = tables.Checkpoint
    key = [getattr(model, name) for name in CheckpointKey._fields]
    statement = (
        select(*key, *([model.details] if details else []))
        .filter_by(**criteria)
        .order_by(model.checkpoint_id.desc(), model.thread_id, model.checkpoint_ns)
    )
    if before is not None:
        statement = statement.where(model.checkpoint_id < before)
    if not details:
        return [CheckpointKey(*row) for row in session.execute(statement.limit(limit))]
    matching = [
        CheckpointKey(*names)
        for *names, stored in session.execute(statement)
        if all(name in stored and stored[name] == value for name, value in details.items())
    ]
    return matching[:limit]


def read(
    tables: CheckpointTables, session: Session, keys: Sequence[CheckpointKey]
) -> Sequence[StoredCheckpoint]:
    """Return the checkpoints of keys, in the order of the keys, without deleted ones."""
    groups: dict[tuple[str, str], set[str]] = {}
    for thread_id, namespace, checkpoint_id in keys:
        groups.setdefault((thread_id, namespace), set()).add(checkpoint_id)
    stored: dict[CheckpointKey, StoredCheckpoint] = {}
    for (thread_id, namespace), ids in groups.items():
        stored |= _read_namespace(tables, session, thread_id, namespace, ids)
    return [stored[key] for key in keys if key in stored]


def _read_namespace(
    tables: CheckpointTables, session: Session, thread_id: str, namespace: str, ids: set[str]
) -> dict[CheckpointKey, StoredCheckpoint]:
    def rows(model: Any, *columns: Any) -> Any:
        statement = select(model.checkpoint_id, *columns, model.type, model.value)
        statement = statement.filter_by(thread_id=thread_id, checkpoint_ns=namespace)
        return session.execute(statement.where(model.checkpoint_id.in_(ids)))

    # Writes first: if the checkpoint is found afterwards, its thread was live when they were read.
    model = tables.Write
    writes: dict[str, list[StoredWrite]] = {}
    columns = (model.task_path, model.task_id, model.idx, model.channel)
    for checkpoint_id, path, task_id, idx, channel, *typed in rows(model, *columns):
        write = StoredWrite(path, task_id, idx, channel, tuple(typed))
        writes.setdefault(checkpoint_id, []).append(write)
    model = tables.Checkpoint
    stored = {}
    for checkpoint_id, parent_id, details, *typed in rows(model, model.parent_id, model.details):
        key = CheckpointKey(thread_id, namespace, checkpoint_id)
        ordered = sorted(writes.get(checkpoint_id, ()))
        stored[key] = StoredCheckpoint(key, parent_id, details, tuple(typed), ordered)
    return stored


def renew(tables: CheckpointTables, session: Session, thread_id: str) -> None:
    """Restart the lifetime of a live thread."""
    thread = session.get(tables.Thread, thread_id)
    if thread is not None:
        touch(thread, at_most_every=tables.at_most_every)
        session.flush()


def put(tables: CheckpointTables, session: Session, key: CheckpointKey, row: Row) -> None:
    """Store a checkpoint; it replaces one with the same key."""
    _begin_thread(tables, session, key.thread_id)
    session.merge(tables.Checkpoint(**key._asdict(), **row))


def put_writes(
    tables: CheckpointTables,
    session: Session,
    key: CheckpointKey,
    task_id: str,
    rows: Sequence[Row],
) -> None:
    """Store writes of a task.

    If a task runs again, its earlier writes stay. Only those with a number below 0 are replaced:
    errors, interrupts and similar ones.
    """
    _begin_thread(tables, session, key.thread_id)
    model = tables.Write
    names = {**key._asdict(), "task_id": task_id}
    stored = set(session.scalars(select(model.idx).filter_by(**names)))
    for row in rows:
        if row["idx"] not in stored:
            session.add(model(**names, **row))
        elif row["idx"] < 0:
            session.merge(model(**names, **row))


def delete_thread(tables: CheckpointTables, session: Session, thread_id: str) -> None:
    """Delete a thread with its checkpoints and writes; an expired one is left to sweeps."""
    # Other transactions that write to this thread wait, and then create it again.
    if session.get(tables.Thread, thread_id, with_for_update=True) is None:
        return
    for model in (tables.Write, tables.Checkpoint, tables.Thread):
        session.execute(
            delete(model).filter_by(thread_id=thread_id),
            execution_options={"keep_last_modified": True, "synchronize_session": False},
        )


def _begin_thread(tables: CheckpointTables, session: Session, thread_id: str) -> None:
    """Create the thread unless it is live; the key of an expired one is free."""
    if session.get(tables.Thread, thread_id) is None:
        session.add(tables.Thread(thread_id=thread_id))
        session.flush()
