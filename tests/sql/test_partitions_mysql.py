"""Expiry by partition on MariaDB and MySQL: what is particular to their partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    TIMESTAMP,
    BigInteger,
    Column,
    Date,
    DateTime,
    ForeignKey,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    event,
    inspect,
    text,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from tests.sql.cutting import (
    DAILY,
    DAY,
    MOVING,
    add,
    ago,
    create,
    dropping,
    instant,
    keys,
    kill_at_every_statement,
    log,
    looking,
    partitions,
    race_with_drops,
    run,
    swept,
    tables,
    unmake,
    visits,
)
from ttl_odm import TTL, ExpireAfter, ExpireAt, Partitions, TTLConfigurationError
from ttl_odm.partitions.facts import PARTITIONS
from ttl_odm.partitions.sqlalchemy import mysql_work
from ttl_odm.partitions.sqlalchemy.catalogue import read_leaves
from ttl_odm.partitions.sqlalchemy.work import TRIES
from ttl_odm.sqlalchemy import Archive, enable
from ttl_odm.sqlalchemy.policy.bindings import binding_of
from ttl_odm.sqlalchemy.sweep.store import SQLAlchemyStore
from ttl_odm.sqlalchemy.time.clock import LastModified
from ttl_odm.sweeper import AsyncSweeper, BatchRequest, Sweeper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

# MariaDB and MySQL partition differently.
pytestmark = [
    pytest.mark.databases("mariadb", "mysql"),
    pytest.mark.usefixtures("noon"),
    pytest.mark.every_server,
]


def number(engine: Engine, question: str) -> int:
    with engine.connect() as connection:
        return int(connection.scalar(text(question)))


def tomorrow_on(engine: Engine, table: str = "events") -> list[str]:
    """The names of the partitions of tomorrow and the day after."""
    with engine.connect() as connection:
        return [f"{table}_p{ago(connection, -days):%Y%m%d}" for days in (1, 2)]


# --- which columns, and which tables -------------------------------------------------------------


@pytest.mark.every_driver
@pytest.mark.parametrize("zone", ["+00:00", "+09:00"])
@pytest.mark.parametrize("kind", [DateTime(timezone=True), DateTime(), Date()])
def test_columns_of_dates_are_cut(engine: Engine, kind: Any, zone: str) -> None:
    table = Table("events", MetaData(), Column("id", Integer, primary_key=True))
    table.append_column(Column("created_at", kind, primary_key=True))
    enable(table, ExpireAt("created_at"), partition=DAILY)

    def set_zone(connection: Any, _: Any) -> None:
        cursor = connection.cursor()
        cursor.execute(f"SET time_zone = '{zone}'")
        cursor.close()

    event.listen(engine, "connect", set_zone)
    table.create(engine)
    with engine.begin() as connection:
        for days in (0, 1, 2):
            day = instant(connection, ago(connection, days))
            connection.execute(text(f"INSERT INTO events VALUES ({days}, {day})"))  # noqa: S608
    report = Sweeper(engine, table).run_once()
    report.raise_for_failures()
    assert report.deleted == 2  # by batches, of the lowest partition
    assert number(engine, "SELECT count(*) FROM events") == 1
    binding = binding_of(table)
    assert binding is not None
    with engine.connect() as connection:
        leaves, today = read_leaves(connection, binding), ago(connection, 0)
    assert leaves is not None
    assert leaves.past is not None
    assert leaves.edges(leaves.past) == (None, today)
    assert [leaves.edges(leaf)[0] for leaf in leaves.every] == [
        time_range.start for time_range in DAILY.wanted(today)
    ]


@pytest.mark.parametrize(("unit", "per_second"), [("s", 1), ("ms", 1_000), ("us", 1_000_000)])
@pytest.mark.parametrize("method", ["RANGE COLUMNS", "RANGE"])
def test_epoch_numbers_are_cut(engine: Engine, unit: Any, per_second: int, method: str) -> None:
    partition = Partitions("1 day", made_by="others")
    table = Table("events", MetaData(), Column("id", Integer, primary_key=True))
    table.append_column(Column("at", BigInteger, primary_key=True))
    enable(table, ExpireAfter("at", DAY, unit=unit), partition=partition)
    table.create(engine)
    with engine.begin() as connection:
        first, last = (int(ago(connection, days).timestamp()) * per_second for days in (3, 2))
        connection.execute(
            text(
                f"ALTER TABLE events PARTITION BY {method} (at) "
                f"(PARTITION d3 VALUES LESS THAN ({last}), "
                f"PARTITION top VALUES LESS THAN {'(MAXVALUE)' if ' ' in method else 'MAXVALUE'})"
            )
        )
        connection.execute(table.insert(), [{"id": 1, "at": first}, {"id": 2, "at": last - 1}])
    assert Sweeper(engine, table).run_once().deleted == 2
    assert partitions(engine, "events") == {"top"}


def test_partitions_of_others_by_days_are_read(engine: Engine) -> None:
    model = log(days=2, cut=Partitions("1 day", made_by="others"))
    create(engine, model)
    with engine.begin() as connection:
        ends = [f"TO_DAYS({instant(connection, ago(connection, days))})" for days in (4, 0)]
        connection.execute(
            text(
                "ALTER TABLE events PARTITION BY RANGE (TO_DAYS(created_at)) (PARTITION old "
                f"VALUES LESS THAN ({ends[0]}), PARTITION new VALUES LESS THAN ({ends[1]}), "
                "PARTITION top VALUES LESS THAN MAXVALUE)"
            )
        )
    add(engine, model, 6, range(5))
    add(engine, model, 3, [10])
    add(engine, model, 0, [11])
    assert swept(engine, model).deleted == 5
    assert partitions(engine, "events") == {"new", "top"}
    assert keys(engine, model) == [10, 11]  # waits, unseen


def test_an_instant_of_the_model_is_cut_in_microseconds(engine: Engine) -> None:
    class Base(DeclarativeBase):
        pass

    class Event(Base):
        __tablename__ = "events"
        __ttl__ = ExpireAfter("at", 2 * DAY)
        __ttl_partition__ = DAILY

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        at: Mapped[Any] = mapped_column(LastModified(), primary_key=True)

    Base.metadata.create_all(engine)
    description = (
        "SELECT partition_description FROM information_schema.partitions "
        "WHERE table_schema = DATABASE() AND partition_name = 'events_past'"
    )
    with engine.connect() as connection:
        assert int(connection.scalar(text(description))) == 1_000_000 * int(
            ago(connection, 0).timestamp()
        )
    assert swept(engine, Event).notes == ()


def test_a_timestamp_is_refused_before_the_table_is_made(engine: Engine) -> None:
    table = Table("events", MetaData(), Column("id", Integer, primary_key=True))
    table.append_column(Column("created_at", TIMESTAMP(), primary_key=True))
    enable(table, ExpireAt("created_at"), partition=DAILY)
    with pytest.raises(TTLConfigurationError, match="a TIMESTAMP, which MariaDB and MySQL"):
        table.create(engine)
    assert tables(engine) == set()


@pytest.mark.parametrize("which", ["own", "to it"])
def test_foreign_keys_are_refused_before_the_table_is_made(engine: Engine, which: str) -> None:
    model = log()
    metadata = model.metadata
    if which == "own":
        Table("kinds", metadata, Column("id", Integer, primary_key=True))
        model.__table__.append_column(Column("kind", ForeignKey("kinds.id")))
    else:
        Table(
            "notes", metadata, Column("event", ForeignKey("events.id")), Column("text", String(9))
        )
    with pytest.raises(TTLConfigurationError, match="has foreign keys in it or to it"):
        metadata.create_all(engine)
    assert "events" not in tables(engine)


def test_columns_and_indexes_of_the_sweeper_are_there(engine: Engine) -> None:
    model = visits()
    create(engine, model)
    indexes = {index["name"] for index in inspect(engine).get_indexes("visits")}
    assert {"ix_visits_ttl_inherited", "ix_visits_ttl_own"} <= indexes


# --- the lowest and the highest partition --------------------------------------------------------


def test_nulls_keep_the_lowest_partition_of_others(engine: Engine) -> None:
    table = Table("events", MetaData(), Column("id", Integer), Column("at", DateTime))
    enable(table, ExpireAfter("at", 2 * DAY), partition=Partitions("1 day", made_by="others"))
    table.create(engine)
    with engine.begin() as connection:
        ends = [instant(connection, ago(connection, days)) for days in (5, 4)]
        connection.execute(
            text(
                "ALTER TABLE events PARTITION BY RANGE COLUMNS (at) (PARTITION a VALUES LESS THAN "
                f"({ends[0]}), PARTITION b VALUES LESS THAN ({ends[1]}))"
            )
        )
        connection.execute(text("INSERT INTO events VALUES (1, NULL)"))
    Sweeper(engine, table, lease=False).run_once()
    assert partitions(engine, "events") == {"a"}
    assert number(engine, "SELECT count(*) FROM events") == 1


def last_partitions(engine: Engine, *days: int, **hook: Any) -> Table:
    """A table with nothing but partitions that have ended: others make the next one late."""
    partition = Partitions("1 day", made_by="others")
    table = Table("events", MetaData(), Column("id", Integer, primary_key=True))
    table.append_column(Column("at", DateTime, primary_key=True))
    enable(table, ExpireAfter("at", 2 * DAY), partition=partition, **hook)
    table.create(engine)
    with engine.begin() as connection:
        ends = [instant(connection, ago(connection, day)) for day in days]
        parts = (
            f"PARTITION d{day} VALUES LESS THAN ({end})"
            for day, end in zip(days, ends, strict=True)
        )
        connection.execute(
            text(f"ALTER TABLE events PARTITION BY RANGE COLUMNS (at) ({', '.join(parts)})")
        )
        for day in days:
            day_before = instant(connection, ago(connection, day + 1))
            connection.execute(text(f"INSERT INTO events VALUES ({day}, {day_before})"))  # noqa: S608
    return table


@pytest.mark.parametrize("days", [(9, 7, 5), (5,)])
def test_the_last_partition_stays_and_its_rows_go_by_batches(
    engine: Engine, days: tuple[int, ...]
) -> None:
    table = last_partitions(engine, *days)
    for rows in (len(days), 0, 0):
        (target,) = Sweeper(engine, table, lease=False).run_once().targets
        assert (target.deleted, target.error, target.skipped) == (rows, None, 0)
        assert [note.partition(": ")[2] for note in target.notes] == (rows > 0) * [
            "it is the last partition of its table, and a table must have one"
        ]
        assert partitions(engine, "events") == {"d5"}
    assert number(engine, "SELECT count(*) FROM events") == 0
    with engine.begin() as connection:
        days_ago = instant(connection, ago(connection, 1))
        connection.execute(
            text(f"ALTER TABLE events ADD PARTITION (PARTITION d1 VALUES LESS THAN ({days_ago}))")
        )
    assert Sweeper(engine, table, lease=False).run_once().problems == ()
    assert partitions(engine, "events") == {"d1"}


@pytest.mark.slow
def test_the_last_partition_stays_where_rows_go_by_batches_anyway(engine: Engine) -> None:
    told: list[Any] = []
    table = last_partitions(engine, 9, 5, on_purged=told.append)
    for rows in (2, 0, 0):
        report = Sweeper(engine, table, lease=False).run_once()
        assert (report.deleted, report.problems) == (rows, ())
    assert partitions(engine, "events") == {"d5"}
    assert told


def test_the_last_partition_stays_where_a_trigger_is_told_of_each_row(engine: Engine) -> None:
    table = last_partitions(engine, 9, 5)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE gone (id INT)"))
        connection.execute(
            text(
                "CREATE TRIGGER hears AFTER DELETE ON events FOR EACH ROW "
                "INSERT INTO gone VALUES (OLD.id)"
            )
        )
    for _ in range(3):
        assert Sweeper(engine, table, lease=False).run_once().problems == ()
    assert partitions(engine, "events") == {"d5"}
    assert number(engine, "SELECT count(*) FROM gone") == 2


def test_batches_find_the_rows_of_several_partitions(engine: Engine) -> None:
    # MariaDB goes down an index on a virtual column in no order there.
    model = visits(3600)
    create(engine, model, 3, 4, 5)
    for days in (3, 4, 5):
        add(engine, model, days, range(days * 100, days * 100 + 50))
        add(engine, model, days, [days], ttl="-1")
    assert swept(engine, model).deleted == 150
    assert keys(engine, model) == [3, 4, 5]


def test_rows_wait_for_their_partition_where_the_table_is_walked(engine: Engine) -> None:
    model = log(days=2)
    create(engine, model, 2)
    run(engine, "ALTER TABLE events DROP INDEX ix_events_created_at_ttl")
    with engine.connect() as connection:
        midnight = instant(connection, ago(connection, 2))
    add(engine, model, 2, range(5), created_at=midnight)
    add(engine, model, 9, [10])
    assert swept(engine, model).deleted == 1
    assert keys(engine, model) == [*range(5)]


def test_the_lowest_partition_of_ours_stays(engine: Engine) -> None:
    model = log(days=2)
    create(engine, model, 5)
    add(engine, model, 30, [1, 2])
    assert swept(engine, model).deleted == 2
    assert "events_past" in partitions(engine, "events")


def test_a_row_that_comes_late_is_in_the_next_partition_and_goes_with_it(engine: Engine) -> None:
    model = log(days=2)
    create(engine, model, 4, 5)
    assert swept(engine, model).deleted == 0
    assert not {"events_d4", "events_d5"} & partitions(engine, "events")
    add(engine, model, 5, [1])
    assert keys(engine, model) == [1]
    assert swept(engine, model).deleted == 0  # it waits, unseen


def test_no_partition_is_made_from_a_rest_that_is_large(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mysql_work, "COPIED", 10)
    model = log()
    create(engine, model)
    unmake(engine, "events", *tomorrow_on(engine))
    add(engine, model, -9, range(11))
    notes = swept(engine, model).notes
    assert (
        "was not created, because more than 10 rows would have to be copied from events_rest"
        in notes[0]
    )
    run(engine, "DELETE FROM events WHERE id = 1")
    assert swept(engine, model).notes == ()
    assert {*tomorrow_on(engine)} <= partitions(engine, "events")
    assert len(keys(engine, model)) == 10


def test_survivors_are_moved_from_one_partition_after_the_other(engine: Engine) -> None:
    model = visits(cut=MOVING)
    create(engine, model, 3, 4)
    for days in (3, 4):
        add(engine, model, days, [days], ttl="-1")
    swept(engine, model)
    assert not {"visits_d3", "visits_d4"} & partitions(engine, "visits")
    assert keys(engine, model) == [3, 4]
    assert number(engine, "SELECT count(*) FROM visits PARTITION (visits_past)") == 2


# --- what goes by batches ------------------------------------------------------------------------


def test_a_trigger_keeps_partitions(engine: Engine) -> None:
    model = log(days=2)
    create(engine, model, 5)
    add(engine, model, 5, range(5))
    run(engine, "CREATE TRIGGER heard BEFORE DELETE ON events FOR EACH ROW SET @heard = 1")
    report = swept(engine, model)
    assert "triggers for DELETE or TRUNCATE would not fire" in report.notes[0]
    assert report.deleted == 5
    swept(engine, model)
    assert "events_d5" not in partitions(engine, "events")  # empty


def test_an_archive_gets_the_rows_by_batches(engine: Engine) -> None:
    into = Table("old_events", MetaData(), Column("id", Integer, primary_key=True))
    into.append_column(Column("created_at", DateTime, primary_key=True))
    model = log(days=2, __ttl_archive__=Archive(into))
    create(engine, model, 5)
    into.create(engine)
    add(engine, model, 5, range(10))
    report = swept(engine, model)
    assert (report.deleted, report.archived) == (10, 10)
    assert "this database archives rows by copying them" in report.notes[0]


@pytest.fixture
def poor(engine: Engine) -> Iterator[Engine]:
    """An engine of a user who may read and write rows, and see triggers, but drop nothing."""
    name, database = "ttl_poor", engine.url.database
    run(engine, f"DROP USER IF EXISTS {name}", f"CREATE USER {name}")
    run(engine, f"GRANT SELECT, INSERT, UPDATE, DELETE, TRIGGER ON `{database}`.* TO {name}")
    second = create_engine(engine.url.set(username=name, password=None))
    yield second
    second.dispose()
    run(engine, f"DROP USER {name}")


def test_who_may_drop_nothing_sweeps_by_batches(engine: Engine, poor: Engine) -> None:
    model = log(days=2)
    create(engine, model, 5)
    add(engine, model, 5, range(5))
    report = swept(poor, model, lease=False)
    assert report.deleted == 5
    assert "the partition events_d5 can't be changed: " in report.notes[0]


def test_who_is_shown_no_triggers_sweeps_by_batches(engine: Engine, poor: Engine) -> None:
    model = log(days=2)
    create(engine, model, 5)
    add(engine, model, 5, range(5))
    run(engine, f"REVOKE TRIGGER ON `{engine.url.database}`.* FROM ttl_poor")
    report = swept(poor, model, lease=False)
    assert report.deleted == 5
    assert "only users with the TRIGGER privilege can see" in report.notes[0]


# --- others at work ------------------------------------------------------------------------------


def making(engine: Engine) -> tuple[Any, list[int], set[str]]:
    model = log(cut=Partitions("1 day", ahead=1))
    create(engine, model)
    tomorrow = tomorrow_on(engine)[0]
    unmake(engine, "events", tomorrow)
    add(engine, model, -1, range(20))
    return model, list(range(20)), {tomorrow}


def moving(engine: Engine) -> tuple[Any, list[int], set[str]]:
    model = visits(cut=MOVING)
    create(engine, model, 3)
    add(engine, model, 3, [97, 98], ttl="-1")
    add(engine, model, 0, [99])
    return model, [97, 98, 99], {"visits_d3"}


SCENES = [making, dropping, looking, moving]


@pytest.mark.slow
@pytest.mark.parametrize("scene", SCENES)
def test_a_kill_at_every_statement_leaves_nothing_half_done(
    engine: Engine, other: Engine, scene: Any
) -> None:
    model = kill_at_every_statement(engine, other, scene)
    add(other, model, 0, [1_000])  # nobody has it locked


@pytest.mark.slow
def test_a_long_reader_keeps_a_partition_and_nobody_waits_behind_the_sweeper(
    engine: Engine, other: Engine
) -> None:
    model, left, _ = dropping(engine)
    store = SQLAlchemyStore(engine, model)
    is_mariadb = bool(getattr(engine.dialect, "is_mariadb", False))
    with engine.connect() as reader:
        assert reader.scalar(text("SELECT count(*) FROM events")) == 21
        reader.scalar(text("SELECT SLEEP(0.1)"))  # long enough to be seen
        resume: object = None
        locks: list[str] = []

        def note(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
            if statement.startswith(("LOCK", "ALTER")):
                locks.append(statement)

        event.listen(engine, "before_cursor_execute", note)
        tries = 0
        while True:
            result = store.purge(BatchRequest("events", PARTITIONS, 1_000, resume))
            resume = result.resume
            if result.notes or resume is None:
                break
            tries += 1
            assert 0 < result.pause < 10
        event.remove(engine, "before_cursor_execute", note)
        assert tries == TRIES - 1
        assert "the partition events_d5 is in use, and left to the next sweep" in result.notes[0]
        # On MySQL it doesn't even ask for the lock; on MariaDB it asks without queueing.
        assert all("NOWAIT" in each for each in locks) if is_mariadb else locks == []
        with other.connect() as connection:
            assert connection.scalar(text("SELECT count(*) FROM events")) == 21
        assert swept(engine, model, lease=False).deleted == 0  # nor do batches what a drop will do
    assert swept(engine, model, lease=False).deleted == 20
    assert keys(engine, model) == left


@pytest.mark.slow
@pytest.mark.databases("mysql")
def test_where_nobody_sees_who_has_the_table_the_wait_is_bounded(
    engine: Engine, other: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, left, _ = dropping(engine)
    unseen = "SELECT COUNT(*) FROM performance_schema.nothing_that_is_there"
    monkeypatch.setattr(mysql_work.MySQLPartitions, "busy", unseen)
    monkeypatch.setattr("ttl_odm.partitions.sqlalchemy.work.TRIES", 1)
    with other.connect() as reader:
        reader.execution_options(isolation_level="REPEATABLE READ")
        assert reader.scalar(text("SELECT count(*) FROM events")) == 21
        assert "is in use" in swept(engine, model, lease=False).notes[0]
        reader.rollback()
    assert swept(engine, model, lease=False).deleted == 20
    assert keys(engine, model) == left


@pytest.mark.every_driver
@pytest.mark.parametrize("scene", SCENES)
def test_the_pool_gets_a_connection_that_has_nothing_locked(engine: Engine, scene: Any) -> None:
    model, left, _ = scene(engine)
    setting = "max_execution_time"
    if getattr(engine.dialect, "is_mariadb", False):
        setting = "max_statement_time"
    engine.dispose()
    with engine.connect() as connection:
        before = connection.execute(text(f"SELECT @@{setting}, @@lock_wait_timeout")).one()
        place: Any = connection.scalar(text("SELECT CONNECTION_ID()"))
    run(engine, "CREATE TABLE another (id INT)")
    swept(engine, model, lease=False)
    assert keys(engine, model) == left
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT CONNECTION_ID()")) == place
        after = connection.execute(text(f"SELECT @@{setting}, @@lock_wait_timeout")).one()
        connection.execute(text("SELECT * FROM another"))  # refused under LOCK TABLES
    assert after == before


@pytest.mark.parametrize("scene", [dropping, looking])
def test_a_drop_that_fails_leaves_nothing_locked(engine: Engine, other: Engine, scene: Any) -> None:
    model, *_ = scene(engine)

    def fail(_c: Any, _cursor: Any, statement: str, values: Any, *_: Any) -> tuple[str, Any]:
        is_drop = "DROP PARTITION" in statement
        return ("ALTER TABLE nothing DROP PARTITION p" if is_drop else statement), values

    event.listen(engine, "before_cursor_execute", fail, retval=True)
    with pytest.raises(DBAPIError):
        run(engine, "ALTER TABLE x DROP PARTITION y")
    report = Sweeper(engine, model, lease=False).run_once()
    event.remove(engine, "before_cursor_execute", fail)
    assert "can't be changed" in report.targets[0].notes[0]
    add(other, model, 0, [1_000])
    run(engine, "CREATE TABLE another (id INT)", "SELECT * FROM another")


def test_a_row_that_is_renewed_before_the_lock_keeps_its_partition(
    engine: Engine, other: Engine
) -> None:
    model, *_ = looking(engine)
    written: list[int] = []

    def renew(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("LOCK TABLES") and not written:
            written.append(1)
            run(other, "UPDATE visits SET ttl = -1 WHERE id = 7")

    event.listen(engine, "before_cursor_execute", renew)
    swept(engine, model, lease=False)
    event.remove(engine, "before_cursor_execute", renew)
    assert written
    assert keys(engine, model) == [7, 99]


def test_a_default_that_is_raised_before_the_lock_is_heeded(engine: Engine) -> None:
    model, *_ = looking(engine)
    raised = TTL(20 * DAY, max_lifetime=30 * DAY, created="began")

    def change(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("LOCK TABLES"):
            model.__ttl__ = raised

    event.listen(engine, "before_cursor_execute", change)
    swept(engine, model, lease=False)
    event.remove(engine, "before_cursor_execute", change)
    assert keys(engine, model) == [*range(20), 99]


def test_a_partition_that_was_made_anew_meanwhile_is_not_dropped(
    engine: Engine, other: Engine
) -> None:
    model, *_ = dropping(engine)
    changed: list[int] = []

    def change(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("LOCK TABLES") and not changed:
            changed.append(1)
            with other.connect() as connection:
                end = instant(connection, ago(connection, 3))
                today = f"events_p{ago(connection, 0):%Y%m%d}"
                below = instant(connection, ago(connection, -1))
                connection.execute(
                    text(
                        f"ALTER TABLE events REORGANIZE PARTITION events_d5, {today} INTO "
                        f"(PARTITION events_d5 VALUES LESS THAN ({end}), "
                        f"PARTITION {today} VALUES LESS THAN ({below}))"
                    )
                )

    event.listen(engine, "before_cursor_execute", change)
    report = swept(engine, model, lease=False)
    event.remove(engine, "before_cursor_execute", change)
    assert changed
    assert report.deleted == 0
    assert len(keys(engine, model)) == 21


@pytest.mark.slow
@pytest.mark.parametrize("survivors", ["sweep", "move"])
def test_writers_and_readers_race_with_drops_and_lose_nothing(
    engine: Engine, other: Engine, survivors: Any
) -> None:
    race_with_drops(engine, other, survivors)


@pytest.mark.every_driver
async def test_an_asynchronous_engine_does_the_same(async_engine: AsyncEngine) -> None:
    model = visits(3600, days=20_000, cut=Partitions("1 day", made_by="others", survivors="move"))
    async with async_engine.begin() as connection:
        await connection.run_sync(model.metadata.create_all)
        for statement in (
            (
                "ALTER TABLE visits PARTITION BY RANGE COLUMNS (began) "
                "(PARTITION a VALUES LESS THAN ('2020-01-01'), "
                "PARTITION b VALUES LESS THAN ('2020-01-02'), "
                "PARTITION `c 100%%` VALUES LESS THAN ('2020-01-03'), "
                "PARTITION d VALUES LESS THAN (MAXVALUE))"
            ).replace("%%", "%"),
            "INSERT INTO visits (id, began, _ts, ttl) VALUES (1, '2020-01-01', 1, -1)",
            "INSERT INTO visits (id, began, _ts) VALUES (2, '2019-01-01', 1), (3, '2020-01-02', 1)",
        ):
            await connection.execute(text(statement))
    report = await AsyncSweeper(async_engine, model).run_once()
    report.raise_for_failures()
    assert report.deleted == 2
    async with async_engine.connect() as connection:
        found = text(
            "SELECT partition_name FROM information_schema.partitions "
            "WHERE table_schema = DATABASE() AND table_name = 'visits'"
        )
        assert set(await connection.scalars(found)) == {"b", "d"}
        assert list(await connection.scalars(text("SELECT id FROM visits"))) == [1]
