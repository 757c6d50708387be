"""Transactions that have read a partitioned table, and then write to it, don't die of a sweep."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Column, DateTime, Integer, MetaData, Table, event, text

from tests.locks import wait_until_blocked
from tests.sql.cutting import (
    MOVING,
    add,
    ago,
    create,
    dropping,
    keys,
    log,
    looking,
    partitions,
    run,
    swept,
    visits,
)
from ttl_odm import Partitions
from ttl_odm.partitions.facts import PARTITIONS
from ttl_odm.sqlalchemy import Archive
from ttl_odm.sqlalchemy.sweep.store import SQLAlchemyStore
from ttl_odm.sweeper import BatchRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection, Engine

pytestmark = [pytest.mark.databases("postgres"), pytest.mark.usefixtures("noon")]

KEEPING_OUT = {"ShareLock", "ShareRowExclusiveLock", "ExclusiveLock", "AccessExclusiveLock"}
"""The modes for which writers wait."""

Scene = tuple[Any, list[int], set[str]]


def making(engine: Engine) -> Scene:
    """Rows of tomorrow are in the partition for the rest, and belong in one that is missing."""
    model = log()
    create(engine, model)
    with engine.connect() as connection:
        tomorrow = f"events_p{ago(connection, -1):%Y%m%d}"
    run(engine, f"DROP TABLE {tomorrow}")
    add(engine, model, -1, range(20))
    add(engine, model, 0, [99])
    return model, [*range(20), 99], {tomorrow}


def moving(engine: Engine) -> Scene:
    """Two rows of a partition live on."""
    model = visits(cut=MOVING)
    create(engine, model, 3)
    add(engine, model, 3, range(20))
    add(engine, model, 3, [97, 98], ttl="-1")
    add(engine, model, 0, [99])
    return model, [97, 98, 99], {"visits_d3"}


def handing_over(engine: Engine) -> Scene:
    """The archive gets a partition."""
    into = Table(
        "old_events",
        MetaData(),
        Column("id", Integer, primary_key=True),
        Column("created_at", DateTime(timezone=True), primary_key=True),
        postgresql_partition_by="RANGE (created_at)",
    )
    model = log(days=2, __ttl_archive__=Archive(into))
    create(engine, model, 5)
    into.create(engine)
    add(engine, model, 5, range(20))
    add(engine, model, 0, [99])
    return model, [99], {"events_d5"}


def emptying(engine: Engine) -> Scene:
    """A partition that goes by batches, and is empty."""
    model = log(days=2, __ttl_purge__="orm")
    create(engine, model, 5)
    add(engine, model, 0, [99])
    return model, [99], {"events_d5"}


def emptying_what_others_refer_to(engine: Engine) -> Scene:
    """The same, where foreign keys of another table refer to the table."""
    model = log(days=2)
    create(engine, model, 5)
    run(
        engine,
        "CREATE TABLE notes (id int, at timestamptz, FOREIGN KEY (id, at) REFERENCES events)",
    )
    add(engine, model, 0, [99])
    return model, [99], {"events_d5"}


DROPS = [dropping, looking, moving, emptying]
SCENES = [*DROPS, emptying_what_others_refer_to, making, handing_over]


def refer(engine: Engine, table: str) -> None:
    """Let the rows of a table refer to users."""
    run(
        engine,
        "CREATE TABLE users (id int PRIMARY KEY, name text)",
        "INSERT INTO users VALUES (1, 'ann')",
        f"ALTER TABLE {table} ADD owner int REFERENCES users",
        f"UPDATE {table} SET owner = 1",  # noqa: S608 (ours)
        "ALTER TABLE IF EXISTS old_events ADD owner int",
    )


@contextmanager
def patient(engine: Engine) -> Iterator[None]:
    """Let what a sweeper locks be waited for until it is free, so that nothing hangs on time."""

    def wait(_c: Any, cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith(("LOCK TABLE", "ALTER TABLE", "DROP TABLE", "CREATE TABLE")):
            cursor.execute("SET LOCAL lock_timeout = 0")
            cursor.execute("SET LOCAL statement_timeout = 0")

    event.listen(engine, "before_cursor_execute", wait)
    try:
        yield
    finally:
        event.remove(engine, "before_cursor_execute", wait)


def purge_all(engine: Engine, model: Any) -> list[str]:
    """Do what there is to do with partitions once, however often it takes a try."""
    store, notes = SQLAlchemyStore(engine, model), []
    resume: object = None
    while True:
        result = store.purge(BatchRequest(model.__tablename__, PARTITIONS, 1_000, resume))
        notes += result.notes
        resume = result.resume
        if resume is None:
            return notes


@contextmanager
def sweeping(engine: Engine, model: Any) -> Iterator[None]:
    """Work on partitions in another thread."""
    notes: list[str] = []
    thread = threading.Thread(target=lambda: notes.extend(purge_all(engine, model)))
    with patient(engine):
        thread.start()
        try:
            yield
        finally:
            thread.join()
    assert not [note for note in notes if "batches" not in note]


@contextmanager
def trying(engine: Engine, model: Any) -> Iterator[None]:
    """Work on partitions in another thread, as patiently as a sweeper, and at last to the end."""
    is_over = threading.Event()

    def repeat() -> None:
        while not is_over.is_set():
            purge_all(engine, model)

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
    with patient(engine):
        purge_all(engine, model)


@pytest.mark.parametrize("level", ["READ COMMITTED", "SERIALIZABLE"])
@pytest.mark.parametrize("scene", SCENES)
def test_a_transaction_that_reads_and_then_writes_goes_before_the_sweeper(
    engine: Engine, other: Engine, scene: Any, level: Any
) -> None:
    model, left, changed = scene(engine)
    table, before = model.__tablename__, partitions(engine, model.__tablename__)
    with other.connect() as reader:
        reader.execution_options(isolation_level=level)
        count = text(f"SELECT count(*) FROM {table}")  # noqa: S608 (ours)
        rows = reader.scalar(count)
        with sweeping(engine, model):
            wait_until_blocked(other)
            # All partitions, and one row.
            reader.execute(text(f"UPDATE {table} SET id = id WHERE id = 99"))  # noqa: S608
            reader.execute(text(f"DELETE FROM {table} WHERE id = -1"))  # noqa: S608
            assert reader.scalar(count) == rows
            reader.commit()
    assert keys(engine, model) == left
    assert partitions(engine, table) ^ before == changed


@pytest.mark.parametrize("scene", DROPS)
def test_a_partition_is_dropped_while_a_table_that_it_refers_to_is_written(
    engine: Engine, other: Engine, scene: Any
) -> None:
    model, left, changed = scene(engine)
    refer(engine, model.__tablename__)
    before = partitions(engine, model.__tablename__)
    with other.connect() as writer:
        writer.execution_options(isolation_level="READ COMMITTED")
        assert writer.scalar(text("SELECT name FROM users")) == "ann"
        writer.execute(text("UPDATE users SET name = 'bob'"))
        purge_all(engine, model)
        writer.commit()
    assert keys(engine, model) == left
    assert partitions(engine, model.__tablename__) ^ before == changed


@pytest.mark.parametrize("refers", [False, True])
@pytest.mark.parametrize("scene", SCENES)
def test_no_lock_that_keeps_writers_out_is_exchanged_for_a_stronger_one(
    engine: Engine, other: Engine, scene: Any, refers: Any
) -> None:
    model, *_ = scene(engine)
    if refers:
        refer(engine, model.__tablename__)
    locks = text(
        "SELECT c.relname::text, l.mode FROM pg_locks l JOIN pg_class c ON c.oid = l.relation "
        "WHERE l.pid = :pid AND c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')"
    )
    first: dict[str, set[str]] = {}  # by table: what the first statement that locks it takes
    exchanged: list[tuple[str, set[str], set[str]]] = []
    locked: set[str] = set()

    def note(connection: Connection, *_: object) -> None:
        process: Any = connection.connection.driver_connection
        held: dict[str, set[str]] = {}
        with other.connect() as third:
            for table, mode in third.execute(locks, {"pid": process.info.backend_pid}):
                if mode in KEEPING_OUT:
                    held.setdefault(table, set()).add(mode)
        for table in first.keys() - held.keys():
            del first[table]
        for table, modes in held.items():
            before = first.setdefault(table, modes)
            locked.add(table)
            if len(before) > 1 or before not in (modes, {"AccessExclusiveLock"}):
                exchanged.append((table, before, modes))

    event.listen(engine, "after_cursor_execute", note)
    purge_all(engine, model)
    event.remove(engine, "after_cursor_execute", note)
    assert locked
    assert exchanged == []
    # Nobody who only drops a partition needs the tables that it refers to.
    if scene in DROPS:
        assert "users" not in locked


@pytest.mark.slow
def test_who_reads_and_then_writes_a_table_that_refers_to_the_partitions_goes_before_the_sweeper(
    engine: Engine, other: Engine
) -> None:
    model, left, changed = emptying_what_others_refer_to(engine)
    before = partitions(engine, "events")
    with other.connect() as reader:
        reader.execution_options(isolation_level="READ COMMITTED")
        assert reader.scalar(text("SELECT count(*) FROM notes")) == 0
        # The foreign key wants a lock on the table that the sweeper has, and only the limit of its
        # wait ends that: PostgreSQL might end the reader, if it has looked at the sweeper before.
        with trying(engine, model):
            wait_until_blocked(other)
            reader.execute(text("INSERT INTO notes VALUES (1, NULL)"))
            reader.commit()
    assert keys(engine, model) == left
    assert partitions(engine, "events") ^ before == changed


@pytest.mark.slow
def test_a_row_that_a_writer_by_the_name_of_the_partition_renews_keeps_it(
    engine: Engine, other: Engine
) -> None:
    model, *_ = looking(engine)
    with other.connect() as writer:
        writer.execution_options(isolation_level="READ COMMITTED")
        writer.execute(text("UPDATE visits_d3 SET ttl = -1 WHERE id = 7"))
        assert [note for note in purge_all(engine, model) if "is in use" in note]
        writer.commit()
    swept(engine, model, lease=False)
    assert keys(engine, model) == [7, 99]


def test_writers_to_the_rest_go_on_while_rows_are_brought_to_a_new_partition(
    engine: Engine, other: Engine
) -> None:
    model, left, changed = making(engine)
    before = partitions(engine, "events")
    written: list[int] = []

    def write(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        # Once the rows are moved, and before anybody is kept off.
        if statement.startswith("LOCK TABLE") and not written:
            written.append(200)
            add(other, model, -1, written)
            add(other, model, -400, [201])
            assert keys(other, model) == sorted([*left, 200, 201])

    event.listen(engine, "before_cursor_execute", write)
    assert purge_all(engine, model) == []
    event.remove(engine, "before_cursor_execute", write)
    assert written
    assert keys(engine, model) == sorted([*left, 200, 201])
    assert partitions(engine, "events") ^ before == changed
    with engine.connect() as connection:
        assert connection.scalars(text("SELECT id FROM events_rest")).all() == [201]


@pytest.mark.parametrize(
    ("statement", "rows"),
    [
        ("SELECT id FROM events", 21),
        ("UPDATE events SET id = id WHERE id < 20", 20),
        ("DELETE FROM events WHERE id < 20", 20),
        ("INSERT INTO events VALUES (200, statement_timestamp() + interval '24 hours')", 1),
    ],
    ids=["select", "update", "delete", "insert"],
)
def test_who_waits_while_a_partition_is_attached_finds_the_rows_that_were_brought_to_it(
    engine: Engine, other: Engine, statement: Any, rows: Any
) -> None:
    # PostgreSQL reads which partitions there are once it has the table, and then waits for each.
    model, _, changed = making(engine)
    before, numbers = partitions(engine, "events"), []

    def wait() -> None:
        with other.begin() as connection:
            numbers.append(connection.execute(text(statement)).rowcount)

    thread = threading.Thread(target=wait)

    def start(_c: Any, _cursor: Any, sql: str, *_: Any) -> None:
        if sql.startswith("ALTER TABLE"):
            thread.start()
            wait_until_blocked(other)

    event.listen(engine, "before_cursor_execute", start)
    try:
        assert purge_all(engine, model) == []
    finally:
        event.remove(engine, "before_cursor_execute", start)
        thread.join()
    assert numbers == [rows]
    assert partitions(engine, "events") ^ before == changed


@pytest.mark.slow
def test_a_partition_that_somebody_is_detaching_is_not_dropped(
    engine: Engine, other: Engine
) -> None:
    model = log(days=2, cut=Partitions("1 day", ahead=2, made_by="others"))
    create(engine, model, 5)
    add(engine, model, 5, range(20))
    with other.connect() as reader, engine.connect() as detaching:
        reader.execution_options(isolation_level="REPEATABLE READ")
        reader.scalar(text("SELECT count(*) FROM events"))
        detaching.execution_options(isolation_level="AUTOCOMMIT")
        detaching.execute(text("SET statement_timeout = 200"))
        with pytest.raises(Exception, match="statement timeout"):
            detaching.execute(text("ALTER TABLE events DETACH PARTITION events_d5 CONCURRENTLY"))
        detaching.execute(text("SET statement_timeout = 0"))
    assert "another session is detaching it" in " ".join(swept(engine, model).notes)
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM events_d5")) == 20


@pytest.mark.slow
def test_survivors_keep_what_they_hold_when_they_are_moved(engine: Engine) -> None:
    model = visits(cut=MOVING)
    create(engine, model, 3)
    run(
        engine,
        "ALTER TABLE visits ADD gone int, ADD pair point, ADD many text[], ADD blob bytea",
        "ALTER TABLE visits DROP gone",
        "ALTER TABLE visits ADD twice int GENERATED ALWAYS AS (id * 2) STORED",
    )
    more = {"ttl": "-1", "pair": "'(1,2)'", "many": "'{a,\"b,c\"}'", "blob": "'\\x00ff'"}
    add(engine, model, 3, [7], **more)
    add(engine, model, 3, range(8, 20))
    everything = text("SELECT * FROM visits WHERE id = 7")
    with engine.connect() as connection:
        before = connection.execute(everything).one()
    swept(engine, model)
    assert partitions(engine, "visits").isdisjoint({"visits_d3"})
    with engine.connect() as connection:
        assert connection.execute(everything).one() == before
