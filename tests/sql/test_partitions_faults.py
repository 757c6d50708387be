"""Partitions while connections are killed, others read, and others write."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    Column,
    DateTime,
    Integer,
    MetaData,
    Table,
    event,
    text,
    update,
)
from sqlalchemy.orm import Session

from tests.locks import wait_until_blocked
from tests.sql.cutting import (
    MOVING,
    add,
    ago,
    create,
    dropping,
    keys,
    kill_at_every_statement,
    log,
    looking,
    partitions,
    race_with_drops,
    swept,
    visits,
)
from ttl_odm import TTL, Partitions
from ttl_odm.partitions.facts import PARTITIONS
from ttl_odm.partitions.sqlalchemy.work import TRIES
from ttl_odm.sqlalchemy import Archive
from ttl_odm.sqlalchemy.sweep.store import SQLAlchemyStore
from ttl_odm.sweeper import BatchRequest, Sweeper

if TYPE_CHECKING:
    from sqlalchemy import Engine

pytestmark = [pytest.mark.databases("postgres"), pytest.mark.usefixtures("noon")]


def making(engine: Engine) -> tuple[Any, list[int], set[str]]:
    model = log()
    create(engine, model)
    with engine.begin() as connection:
        tomorrow = f"events_p{ago(connection, -1):%Y%m%d}"
        connection.execute(text(f"DROP TABLE {tomorrow}"))
    add(engine, model, -1, range(20))
    return model, list(range(20)), {tomorrow}


def moving(engine: Engine) -> tuple[Any, list[int], set[str]]:
    model = visits(cut=MOVING)
    create(engine, model, 3)
    add(engine, model, 3, range(20))
    add(engine, model, 3, [98, 99], ttl="-1")
    return model, [98, 99], {"visits_d3"}


def handing_over(engine: Engine) -> tuple[Any, list[int], set[str]]:
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


SCENES = [making, dropping, looking, moving, handing_over]


@pytest.mark.in_turns
@pytest.mark.parametrize("scene", SCENES)
def test_a_kill_at_every_statement_leaves_nothing_half_done(
    engine: Engine, other: Engine, scene: Any
) -> None:
    kill_at_every_statement(engine, other, scene)


@pytest.mark.slow
def test_a_reader_keeps_a_partition_and_nobody_waits_behind_it(
    engine: Engine, other: Engine
) -> None:
    model, left, _ = dropping(engine)
    rows = keys(engine, model)
    store = SQLAlchemyStore(engine, model)
    with engine.connect() as reader:  # a long transaction that has read the table
        assert reader.scalar(text("SELECT count(*) FROM events")) == len(rows)
        resume: object = None
        tries = 0
        while True:
            result = store.purge(BatchRequest("events", PARTITIONS, 1_000, resume))
            # Between two tries nobody is in the queue, so a reader goes on at once.
            waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
            with other.connect() as connection:
                assert connection.scalar(waiting) == 0
                assert connection.scalar(text("SELECT count(*) FROM events")) == len(rows)
            resume = result.resume
            if resume is None or result.notes:
                break
            tries += 1
            assert 0 < result.pause < 10
        assert tries == TRIES - 1
        assert "the partition events_d5 is in use, and left to the next sweep" in result.notes[0]
        # Nor do batches what the drop will do.
        assert swept(engine, model, lease=False).deleted == 0
    assert swept(engine, model, lease=False).deleted == 20
    assert keys(engine, model) == left


def test_counting_a_partition_before_its_drop_takes_no_longer_than_a_statement_may(
    engine: Engine,
) -> None:
    model, *_ = dropping(engine)
    limits: list[str] = []

    def note(_: Any, cursor: Any, statement: str, *__: Any) -> None:
        if statement.startswith("SELECT count(") and "events_d5" in statement:
            cursor.execute("SELECT current_setting('statement_timeout')")
            limits.append(cursor.fetchone()[0])

    event.listen(engine, "before_cursor_execute", note)
    assert swept(engine, model, statement_timeout=7).deleted == 20
    assert limits == ["7s"]


@pytest.mark.slow
def test_a_reader_behind_a_drop_waits_as_long_as_the_drop_itself_may(
    engine: Engine, other: Engine
) -> None:
    model, *_ = dropping(engine)
    seen: list[int] = []
    settings: list[tuple[str, str]] = []

    def note(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("LOCK TABLE ONLY"):
            cursor.execute("SELECT current_setting('lock_timeout')")
            settings.append(cursor.fetchone()[0])

    def read() -> None:
        with other.connect() as connection:
            seen.append(connection.scalar(text("SELECT count(*) FROM events")))

    event.listen(engine, "before_cursor_execute", note)
    with engine.connect() as holder:
        holder.execute(text("SELECT count(*) FROM events"))
        sweeper = threading.Thread(target=lambda: Sweeper(engine, model, lease=False).run_once())
        sweeper.start()
        wait_until_blocked(other, "LOCK TABLE%")
        reader = threading.Thread(target=read)
        reader.start()
        reader.join()  # although the holder still holds
        assert seen == [21]
    sweeper.join()
    event.remove(engine, "before_cursor_execute", note)
    assert set(settings) == {"50ms"}


def test_a_writer_that_renews_a_row_while_it_is_looked_for_keeps_it(
    engine: Engine, other: Engine
) -> None:
    model, *_ = looking(engine)
    written: list[int] = []

    def renew(connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        # After the look without a lock, before the lock.
        if statement.startswith("LOCK TABLE") and not written:
            written.append(1)
            with other.connect() as connection_:
                connection_.execute(text("UPDATE visits SET ttl = -1 WHERE id = 7"))

    event.listen(engine, "before_cursor_execute", renew)
    swept(engine, model)
    event.remove(engine, "before_cursor_execute", renew)
    assert written
    assert keys(engine, model) == [7, 99]


@pytest.mark.slow
def test_a_writer_that_has_begun_keeps_the_partition(engine: Engine, other: Engine) -> None:
    model, *_ = looking(engine)
    with engine.connect() as writer:
        writer.execute(text("UPDATE visits SET ttl = -1 WHERE id = 7"))
        Sweeper(other, model, lease=False).run_once()
        writer.commit()
    swept(engine, model)
    assert keys(engine, model) == [7, 99]


def test_a_default_that_is_raised_during_the_look_is_heeded(engine: Engine) -> None:
    model, *_ = looking(engine)
    raised = TTL(20 * 86_400, max_lifetime=30 * 86_400, created="began")

    def change(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("LOCK TABLE ONLY"):
            model.__ttl__ = raised

    event.listen(engine, "before_cursor_execute", change)
    swept(engine, model)
    event.remove(engine, "before_cursor_execute", change)
    assert keys(engine, model) == [*range(20), 99]


def test_a_partition_that_somebody_detaches_meanwhile_is_not_dropped(
    engine: Engine, other: Engine
) -> None:
    model, *_ = dropping(engine)

    def detach(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("LOCK TABLE ONLY") and "events_d5" in partitions(other, "events"):
            with other.connect() as connection:
                connection.execute(text("ALTER TABLE events DETACH PARTITION events_d5"))

    event.listen(engine, "before_cursor_execute", detach)
    assert swept(engine, model).deleted == 0
    event.remove(engine, "before_cursor_execute", detach)
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM events_d5")) == 20


def test_rows_that_come_while_a_partition_is_made_for_them_are_not_lost(
    engine: Engine, other: Engine
) -> None:
    model, *_ = making(engine)
    written: list[int] = []

    def write(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("CREATE TABLE") and len(written) < 2:
            written.append(100 + len(written))
            add(other, model, -1, written[-1:])

    event.listen(engine, "before_cursor_execute", write)
    swept(engine, model)
    event.remove(engine, "before_cursor_execute", write)
    assert keys(engine, model) == [*range(20), *written]
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM events_rest")) == 0


@pytest.mark.slow
@pytest.mark.parametrize("survivors", ["sweep", "move"])
def test_writers_and_readers_race_with_drops_and_lose_nothing(
    engine: Engine, other: Engine, survivors: Any
) -> None:
    race_with_drops(engine, other, survivors)


LIVES = """
INSERT INTO visits (id, began, _ts, ttl)
SELECT i, b, CASE WHEN r < 0.5 THEN b ELSE b + s * (statement_timestamp() - b) END,
    CASE WHEN r < 0.002 THEN -1 WHEN r < 0.1 THEN (1 + t * 5 * 86400)::int END
FROM (SELECT i, statement_timestamp() - random() * interval '9 days' AS b,
        random() r, random() s, random() t FROM generate_series(1, :rows) i) x
"""
EXPIRED = """
SELECT count(*) FROM visits WHERE began < :today AND (began + interval '7 days' <= :now
OR ttl > 0 AND _ts + ttl * interval '1 second' <= :now
OR ttl IS NULL AND _ts + interval '1 hour' <= :now)
"""
LIVE = """
SELECT id FROM visits WHERE began + interval '7 days' > :now AND (ttl = -1 OR ttl > 0
AND _ts + ttl * interval '1 second' > :now OR ttl IS NULL AND _ts + interval '1 hour' > :now)
"""


@pytest.mark.slow
@pytest.mark.parametrize("survivors", ["sweep", "move"])
def test_rows_of_random_lives_go_neither_early_nor_never(
    engine: Engine, other: Engine, survivors: Any
) -> None:
    """While others renew them, and the default is raised and lowered again."""
    rows = 30_000
    model = visits(3600, days=7, cut=Partitions("1 day", ahead=2, survivors=survivors))
    create(engine, model, *range(1, 10))
    with engine.begin() as connection:
        connection.execute(text(LIVES), {"rows": rows})
        # Who lives on for so long does so whatever happens in this test.
        minute = connection.scalar(text("SELECT statement_timestamp() + interval '10 minutes'"))
        live = set(connection.scalars(text(LIVE), {"now": minute}))
        young = text("SELECT id FROM visits WHERE began + interval '7 days' > :now")
        may_live = set(connection.scalars(young, {"now": minute}))
    over, renewed = threading.Event(), set[int]()
    numbers = random.Random(7)  # noqa: S311

    def renew() -> None:
        while not over.is_set():
            key = numbers.randrange(1, rows + 1)
            with Session(other) as session:
                never = update(model).where(model.id == key).values(ttl=-1)
                if session.execute(never).rowcount:  # type: ignore[attr-defined]
                    renewed.add(key)
                session.commit()

    writer = threading.Thread(target=renew)
    writer.start()
    for hours in (1, 6, 1):
        model.__ttl__ = TTL(hours * 3_600, max_lifetime=7 * 86_400, created="began")
        Sweeper(engine, model, lease=False).run_once().raise_for_failures()
    over.set()
    writer.join()
    assert live
    assert renewed
    assert live | (renewed & may_live) <= set(keys(engine, model))
    Sweeper(engine, model, lease=False).run_once().raise_for_failures()
    with engine.connect() as connection:
        today = ago(connection, 0)
        now = connection.scalar(text("SELECT statement_timestamp() - interval '1 minute'"))
        assert connection.scalar(text(EXPIRED), {"now": now, "today": today}) == 0
