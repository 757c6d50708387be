"""Expiry by partition: which are made, which go as a whole, and which may not."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    BigInteger,
    Column,
    Date,
    DateTime,
    Integer,
    MetaData,
    Table,
    event,
    select,
    text,
)

from tests.sql.cutting import (
    DAILY,
    DAY,
    add,
    ago,
    create,
    instant,
    is_mysql,
    keys,
    log,
    partitions,
    run,
    swept,
    tables,
    unmake,
    visits,
)
from ttl_odm import TTL, ExpireAfter, ExpireAt, Partitions
from ttl_odm.partitions.facts import PARTITIONS
from ttl_odm.partitions.sqlalchemy.catalogue import read_leaves
from ttl_odm.partitions.sqlalchemy.leaf_tables import LeafPosition
from ttl_odm.sqlalchemy import Archive, enable, include_expired
from ttl_odm.sqlalchemy.policy.bindings import binding_of
from ttl_odm.sqlalchemy.sweep.store import SQLAlchemyStore
from ttl_odm.sweeper import AsyncSweeper, BatchRequest, Hook, Part, PartitionsCounted, Sweeper

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

# Each server has partitions of its own.
pytestmark = [
    pytest.mark.databases("postgres", "mariadb", "mysql"),
    pytest.mark.every_driver,
    pytest.mark.usefixtures("noon"),
    pytest.mark.every_server,
]
POSTGRES = pytest.mark.databases("postgres")


def day(engine: Engine, table: str, days: int) -> str:
    """The name that the partition of a day gets."""
    with engine.connect() as connection:
        return f"{table}_p{ago(connection, days):%Y%m%d}"


def days(engine: Engine, table: str, *ahead: int) -> set[str]:
    others = {f"{table}_rest", f"{table}_past"} if is_mysql(engine) else {f"{table}_rest"}
    return {day(engine, table, -number) for number in ahead} | others


def rows_in(connection: Connection, table: str, partition: str) -> int:
    """How many rows a partition has."""
    source = f"{table} PARTITION ({partition})" if is_mysql(connection) else partition
    return int(connection.scalar(text(f"SELECT count(*) FROM {source}")))  # noqa: S608


def test_a_table_is_made_with_its_first_partitions(engine: Engine) -> None:
    model = log()
    model.metadata.create_all(engine)
    assert partitions(engine, "events") == days(engine, "events", 0, 1, 2)
    model.metadata.drop_all(engine)
    assert tables(engine) == set()


def test_partitions_go_when_their_last_row_has_expired(engine: Engine) -> None:
    model = log(days=2)
    create(engine, model, 1, 2, 3, 4)
    for number in (1, 2, 3, 4):
        add(engine, model, number, range(10 * number, 10 * number + 5))
    report = swept(engine, model)
    # The youngest of the second may not have expired when its day began.
    assert partitions(engine, "events") == {
        *days(engine, "events", 0, 1, 2),
        "events_d1",
        "events_d2",
    }
    assert report.deleted == 10
    assert keys(engine, model) == [*range(10, 15), *range(20, 25)]
    assert not tables(engine) & {"events_d3", "events_d4"}


def test_expired_rows_wait_for_their_partition(engine: Engine) -> None:
    model = log(days=2)
    create(engine, model, 2)
    with engine.connect() as connection:
        midnight = instant(connection, ago(connection, 2))
    add(engine, model, 2, [1], created_at=midnight)  # expired, but its day is not over
    report = swept(engine, model)
    assert report.deleted == 0
    assert report.oldest_before == 0.0
    assert keys(engine, model) == [1]
    with engine.connect() as connection:
        assert list(connection.scalars(select(model.id))) == []  # and nobody sees it


@POSTGRES
def test_workers_divide_no_partition_that_another_one_has(engine: Engine) -> None:
    model = log(days=2)
    create(engine, model, 1, 2, 3, 4)
    store = SQLAlchemyStore(engine, model)
    first, second, third = (LeafPosition(("public", f"events_d{day}")) for day in (1, 2, 3))

    def marks(until: LeafPosition | None) -> list[object]:
        request = BatchRequest("events", Part.INHERITING, 100, resume=first, until=until)
        return list(store.divide(request, 2))

    assert marks(None) != []
    assert (marks(third), marks(second)) == ([second], [])


def test_rows_of_the_rest_wait_for_nothing(engine: Engine) -> None:
    model = log(days=2)
    create(engine, model)
    add(engine, model, 30, [1, 2])
    assert swept(engine, model).deleted == 2
    assert keys(engine, model) == []


def test_what_is_wanted_is_made_although_nothing_is_due(engine: Engine) -> None:
    model = log()
    create(engine, model)
    unmake(engine, "events", day(engine, "events", -1), day(engine, "events", -2))
    store = SQLAlchemyStore(engine, model)
    due = store.due("events")
    assert due is not None
    assert due.parts == (PARTITIONS,)
    assert swept(engine, model).deleted == 0
    assert partitions(engine, "events") == days(engine, "events", 0, 1, 2)
    due = store.due("events")
    assert due is not None
    assert due.parts == ()


def test_rows_of_the_rest_are_brought_to_a_new_partition(engine: Engine) -> None:
    model = log()
    create(engine, model)
    tomorrow = day(engine, "events", -1)
    unmake(engine, "events", tomorrow, day(engine, "events", -2))
    add(engine, model, -1, range(20))
    add(engine, model, -9, [99])
    swept(engine, model)
    assert partitions(engine, "events") == days(engine, "events", 0, 1, 2)
    assert keys(engine, model) == [*range(20), 99]
    with engine.connect() as connection:
        assert rows_in(connection, "events", tomorrow) == 20
        assert rows_in(connection, "events", "events_rest") == 1
        if is_mysql(engine):
            return
        indexes = "SELECT count(*) FROM pg_index WHERE indrelid = '{}'::regclass"
        of_leaf = connection.scalar(text(indexes.format(tomorrow)))
        assert of_leaf == connection.scalar(text(indexes.format("events")))


def test_partitions_are_made_while_ttl_is_off(engine: Engine) -> None:
    model = visits(None)
    create(engine, model, 40)
    add(engine, model, 40, [1])
    unmake(engine, "visits", day(engine, "visits", -1), day(engine, "visits", -2))
    assert swept(engine, model).deleted == 0
    assert partitions(engine, "visits") == {*days(engine, "visits", 0, 1, 2), "visits_d40"}
    assert Sweeper(engine, model).run_once().targets == ()


def test_partitions_of_another_span_are_made_around(engine: Engine) -> None:
    model = log()
    create(engine, model)
    weekly = log(cut=Partitions("1 week", ahead=1))
    swept(engine, weekly)
    binding = binding_of(weekly.__table__)
    assert binding is not None
    with engine.connect() as connection:
        leaves, today = read_leaves(connection, binding), ago(connection, 0)
    assert leaves is not None
    assert list(leaves.missing()) == []
    for one, following in pairwise(leaves.every):
        assert one.upper == following.lower
    weeks = list(Partitions("1 week", ahead=1).wanted(today))
    if is_mysql(engine):  # what is older is in the lowest one
        assert leaves.edges(leaves.every[0])[0] == today
        assert leaves.edges(leaves.every[-1])[1] == weeks[-1].end
        return
    assert leaves.edges(leaves.every[0])[0] == weeks[0].start
    assert leaves.edges(leaves.every[-1])[1] == weeks[-1].end


@POSTGRES
@pytest.mark.parametrize(
    "kind", [DateTime(timezone=True), DateTime(), Date()], ids=["zoned", "naive", "date"]
)
@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo"])
def test_columns_of_every_kind_are_cut(engine: Engine, kind: Any, zone: str) -> None:
    table = Table(
        "events",
        MetaData(),
        Column("id", Integer, primary_key=True),
        Column("at", kind, primary_key=True),
    )
    enable(table, ExpireAt("at"), partition=DAILY)
    run(engine, f"ALTER DATABASE \"{engine.url.database}\" SET timezone = '{zone}'")
    engine.dispose()
    table.create(engine)
    with engine.begin() as connection:
        connection.execute(text("SET LOCAL timezone = 'UTC'"))
        for number in (1, 2):
            first, last = (f"'{ago(connection, each)}'" for each in (number, number - 1))
            connection.execute(
                text(
                    f"CREATE TABLE d{number} PARTITION OF events "
                    f"FOR VALUES FROM ({first}) TO ({last})"
                )
            )
            connection.execute(text(f"INSERT INTO d{number} VALUES ({number}, {first})"))  # noqa: S608
    report = Sweeper(engine, table).run_once()
    report.raise_for_failures()
    assert report.deleted == 2
    assert partitions(engine, "events") == days(engine, "events", 0, 1, 2)


@POSTGRES
@pytest.mark.parametrize(("unit", "per_second"), [("s", 1), ("ms", 1_000), ("us", 1_000_000)])
def test_epoch_numbers_are_cut(engine: Engine, unit: Any, per_second: int) -> None:
    table = Table(
        "events",
        MetaData(),
        Column("id", Integer, primary_key=True),
        Column("at", BigInteger, primary_key=True),
    )
    enable(table, ExpireAfter("at", DAY, unit=unit), partition=DAILY)
    table.create(engine)
    with engine.begin() as connection:
        first, last = (int(ago(connection, each).timestamp()) * per_second for each in (3, 2))
        connection.execute(
            text(f"CREATE TABLE d3 PARTITION OF events FOR VALUES FROM ({first}) TO ({last})")
        )
        connection.execute(table.insert(), [{"id": 1, "at": first}, {"id": 2, "at": last - 1}])
    assert Sweeper(engine, table).run_once().deleted == 2
    assert partitions(engine, "events") == days(engine, "events", 0, 1, 2)


# --- how many there are --------------------------------------------------------------------------


def test_a_report_says_how_many_partitions_a_sweep_has_left(engine: Engine) -> None:
    model = log(days=2)
    create(engine, model, 2, 5, 6)
    unmake(engine, "events", day(engine, "events", -1), day(engine, "events", -2))
    add(engine, model, 5, range(5))
    before = swept(engine, model, dry_run=True)
    assert before.partitions == PartitionsCounted(4, over=2, missing=2, dead=2)
    assert swept(engine, model).partitions == PartitionsCounted(4, over=0, missing=0)
    assert swept(engine, model).partitions == PartitionsCounted(4, over=0, missing=0)


def test_a_partition_that_is_kept_by_a_row_is_over_and_not_dead(engine: Engine) -> None:
    model = visits(3600)
    create(engine, model, 3, 4)
    add(engine, model, 3, range(5))
    add(engine, model, 4, [500], ttl="-1")
    assert swept(engine, model).partitions == PartitionsCounted(4, over=1, missing=0)


def test_a_partition_that_goes_by_batches_is_dead_until_it_is_empty(engine: Engine) -> None:
    model = log(days=2)
    create(engine, model, 5)
    add(engine, model, 5, range(5))
    report = swept(engine, model, on_purged=hook)
    assert report.partitions == PartitionsCounted(4, over=1, missing=0, dead=1)
    assert swept(engine, model, on_purged=hook).partitions == PartitionsCounted(3, 0, 0)


def test_partitions_that_others_make_are_never_missing(engine: Engine) -> None:
    model = log(days=2, cut=Partitions("1 day", made_by="others"))
    create(engine, model, 4, 5)
    assert swept(engine, model, dry_run=True).partitions == PartitionsCounted(2, 2, 0, dead=2)


def test_a_table_that_is_not_cut_has_none(engine: Engine) -> None:
    model = log(days=2, cut=None)
    model.metadata.create_all(engine)
    assert swept(engine, model).partitions is None


def test_nothing_is_read_to_count_them(engine: Engine) -> None:
    model = log(days=2)
    create(engine, model)
    store = SQLAlchemyStore(engine, model)
    catalogue = "information_schema.partitions" if is_mysql(engine) else "pg_inherits"
    reads: list[str] = []

    def note(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if catalogue in statement:
            reads.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    report = Sweeper(store, lease=False).run_once()
    event.remove(engine, "before_cursor_execute", note)
    assert report.targets[0].partitions == PartitionsCounted(3, 0, 0)
    assert len(reads) == 1  # to see whether there is anything to do


# --- what lives longer ---------------------------------------------------------------------------


LONGER = {
    "own ttl": {"ttl": str(10 * DAY)},
    "never": {"ttl": "-1"},
    "renewed": {"_ts": "{now}"},
}


@pytest.mark.parametrize("why", LONGER)
def test_a_row_that_lives_longer_keeps_its_partition(engine: Engine, why: str) -> None:
    model = visits(3600)
    create(engine, model, 3)
    add(engine, model, 3, range(100))
    now = "clock_timestamp()"
    if is_mysql(engine):
        now = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
    more = {name: value.format(now=now) for name, value in LONGER[why].items()}
    add(engine, model, 3, [500], **more)
    assert swept(engine, model).deleted == 100
    assert keys(engine, model) == [500]
    assert "visits_d3" in partitions(engine, "visits")
    began = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', began)" if is_mysql(engine) else "began"
    run(engine, f"UPDATE visits SET ttl = 60, _ts = {began}")  # noqa: S608
    swept(engine, model)
    swept(engine, model)
    assert keys(engine, model) == []
    assert partitions(engine, "visits") == days(engine, "visits", 0, 1, 2)


def test_nothing_lives_longer_than_the_limit(engine: Engine) -> None:
    model = visits(3600, days=5)
    create(engine, model, 8)
    add(engine, model, 8, range(10), ttl="-1")
    report = swept(engine, model)
    assert report.deleted == 10
    assert partitions(engine, "visits") == days(engine, "visits", 0, 1, 2)


def test_a_partition_that_is_over_goes_when_nothing_in_it_is_live(engine: Engine) -> None:
    model = visits(3600)
    create(engine, model, 3)
    add(engine, model, 3, range(50))
    add(engine, model, 3, range(50, 90), ttl="7200")
    report = swept(engine, model)
    assert report.deleted == 90
    assert partitions(engine, "visits") == days(engine, "visits", 0, 1, 2)


def test_a_raised_default_decides_at_once(engine: Engine) -> None:
    model = visits(3600)
    create(engine, model, 3)
    add(engine, model, 3, range(50))
    model.__ttl__ = TTL(20 * DAY, max_lifetime=30 * DAY, created="began")
    assert swept(engine, model).deleted == 0
    assert keys(engine, model) == [*range(50)]


def test_nothing_goes_while_a_kind_has_no_ttl(engine: Engine) -> None:
    model = visits(3600, days=2)
    create(engine, model, 5)
    add(engine, model, 5, range(5))
    model.__ttl__ = TTL(None, max_lifetime=2 * DAY, created="began")
    assert Sweeper(engine, model).run_once().deleted == 0
    assert keys(engine, model) == [*range(5)]


def test_few_survivors_are_moved_if_the_model_says_so(engine: Engine) -> None:
    model = visits(3600, cut=Partitions("1 day", ahead=2, survivors="move"))
    create(engine, model, 3)
    add(engine, model, 3, range(100))
    add(engine, model, 3, [500, 501], ttl="-1")
    with engine.connect() as connection:
        before = connection.execute(text("SELECT * FROM visits WHERE ttl = -1 ORDER BY id")).all()
    assert swept(engine, model).deleted == 100
    assert partitions(engine, "visits") == days(engine, "visits", 0, 1, 2)
    with engine.connect() as connection:
        source = "visits PARTITION (visits_past)" if is_mysql(engine) else "visits_rest"
        after = connection.execute(text(f"SELECT * FROM {source} ORDER BY id")).all()  # noqa: S608
    assert after == before
    assert keys(engine, model) == [500, 501]
    swept(engine, model)
    assert keys(engine, model) == [500, 501]


@POSTGRES
def test_survivors_are_not_moved_where_a_trigger_would_hear_of_them(engine: Engine) -> None:
    model = visits(3600, cut=Partitions("1 day", ahead=2, survivors="move"))
    create(engine, model, 3)
    add(engine, model, 3, range(10))
    add(engine, model, 3, [500], ttl="-1")
    run(
        engine,
        "CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
        "CREATE TRIGGER tell BEFORE INSERT ON visits FOR EACH ROW EXECUTE FUNCTION tell()",
    )
    report = swept(engine, model)
    assert report.notes == ("survivors are not moved: triggers would treat them as new rows",)
    assert "visits_d3" in partitions(engine, "visits")
    assert keys(engine, model) == [500]


@POSTGRES
def test_a_partition_with_a_live_row_is_not_looked_through_all_the_time(engine: Engine) -> None:
    model = visits(3600)
    create(engine, model, 3)
    add(engine, model, 3, [500], ttl="-1")
    looks: list[str] = []

    def note(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if "FROM public.visits_d3" in statement or "LIMIT 1) AS anon" in statement:
            looks.append(statement)

    sweeper = Sweeper(engine, model)
    event.listen(engine, "before_cursor_execute", note)
    sweeper.run_once()
    first = len(looks)
    sweeper.run_once()
    event.remove(engine, "before_cursor_execute", note)
    assert first
    assert len(looks) == first


# --- what has to go by batches -------------------------------------------------------------------


def hook(_: object) -> None:
    pass


REASONS = {
    "hook": ({"on_purged": hook}, [], "a hook receives each row"),
    "rows": ({"on_purged": Hook(hook, rows=True)}, [], "a hook receives each row"),
    "reference": (
        {},
        [
            (
                "CREATE TABLE notes (event int, at timestamptz, FOREIGN KEY (event, at) "
                "REFERENCES events ON DELETE CASCADE)"
            ),
            "CREATE INDEX ON notes (event, at)",
        ],
        "foreign keys refer to the table, and dropping a partition would bypass them",
    ),
    "trigger": (
        {},
        [
            "CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN OLD; END'",
            "CREATE TRIGGER tell BEFORE DELETE ON events FOR EACH ROW EXECUTE FUNCTION tell()",
        ],
        "triggers for DELETE or TRUNCATE would not fire",
    ),
}


@pytest.mark.parametrize("case", REASONS)
def test_rows_that_have_to_go_one_by_one_do_and_the_report_says_why(
    engine: Engine, case: str
) -> None:
    options, statements, reason = REASONS[case]
    if statements and is_mysql(engine):
        pytest.skip("other statements make a trigger, and there are no foreign keys")
    model = log(days=2)
    create(engine, model, 2, 5)
    run(engine, *statements)
    with engine.connect() as connection:
        midnight = instant(connection, ago(connection, 2))
    add(engine, model, 5, range(50))
    add(engine, model, 2, [99], created_at=midnight)
    report = swept(engine, model, **options)
    assert report.notes == (f"partitions are swept in batches: {reason}",)
    assert report.deleted == 51  # none waits for a partition that doesn't go
    swept(engine, model, **options)
    assert partitions(engine, "events") == {*days(engine, "events", 0, 1, 2), "events_d2"}


@pytest.mark.slow
@POSTGRES
def test_row_level_security_keeps_partitions(engine: Engine) -> None:
    model = log(days=2)
    create(engine, model, 5)
    add(engine, model, 5, range(5))
    run(engine, "ALTER TABLE events ENABLE ROW LEVEL SECURITY")
    report = swept(engine, model)
    assert report.notes == (
        "partitions are swept in batches: row-level security may hide some of its rows",
    )
    assert report.deleted == 5
    assert "events_d5" in partitions(engine, "events")


def test_rows_that_the_orm_deletes_go_one_by_one(engine: Engine) -> None:
    model = log(days=2, __ttl_purge__="orm")
    create(engine, model, 5)
    add(engine, model, 5, range(5))
    report = swept(engine, model)
    assert report.deleted == 5
    assert "deleted through the ORM" in report.notes[0]


@POSTGRES
def test_a_partition_that_the_database_keeps_is_swept_by_batches(engine: Engine) -> None:
    model = log(days=2)
    create(engine, model, 5)
    add(engine, model, 5, range(5))
    run(engine, "CREATE VIEW one_day AS SELECT * FROM events_d5")
    report = swept(engine, model)
    assert "the partition events_d5 can't be changed: " in report.notes[0]
    assert report.deleted == 5
    assert "events_d5" in partitions(engine, "events")


# --- who makes them, and where they go -----------------------------------------------------------


@pytest.mark.slow
@POSTGRES
def test_the_partitions_of_others_are_dropped_as_told_and_not_made(engine: Engine) -> None:
    model = log(days=2, cut=Partitions("1 day", made_by="others"))
    create(engine, model, 4, 5)
    run(engine, "CREATE TABLE events_default PARTITION OF events DEFAULT")
    add(engine, model, 4, [1])
    add(engine, model, 5, [2])
    add(engine, model, 20, [3])
    assert swept(engine, model).deleted == 3
    assert partitions(engine, "events") == {"events_default"}


def test_a_table_that_nobody_has_cut_is_swept_by_batches(engine: Engine) -> None:
    model = log(days=2)
    kind = "datetime" if is_mysql(engine) else "timestamptz"
    key = "PRIMARY KEY (id, created_at)"
    run(engine, f"CREATE TABLE events (id int, created_at {kind}, {key})")
    add(engine, model, 5, range(5))
    assert swept(engine, model).deleted == 5


def archive(*columns: Any, cut: bool = True) -> Table:
    return Table(
        "old_events",
        MetaData(),
        Column("id", Integer, primary_key=True),
        Column("created_at", DateTime(timezone=True), primary_key=True),
        *columns,
        postgresql_partition_by="RANGE (created_at)" if cut else None,
    )


@POSTGRES
def test_an_archive_that_is_cut_alike_gets_the_partition_itself(engine: Engine) -> None:
    into = archive()
    model = log(days=2, __ttl_archive__=Archive(into))
    create(engine, model, 4, 5)
    into.create(engine)
    add(engine, model, 4, range(7))
    add(engine, model, 5, range(10, 13))
    report = swept(engine, model)
    assert (report.deleted, report.archived, report.notes) == (10, 10, ())
    assert partitions(engine, "old_events") == {"events_d4", "events_d5"}
    assert partitions(engine, "events") == days(engine, "events", 0, 1, 2)
    with engine.connect() as connection:
        assert len(connection.execute(select(into)).all()) == 10
        checks = "SELECT count(*) FROM pg_constraint WHERE conname = 'ttl_odm_range'"
        assert connection.scalar(text(checks)) == 0


@POSTGRES
@pytest.mark.parametrize(
    ("into", "reason"),
    [
        (archive(cut=False), "the archive old_events isn't partitioned by created_at"),
        (archive(Column("more", Integer)), "the archive old_events has different columns"),
    ],
)
def test_another_archive_gets_its_rows_by_batches(engine: Engine, into: Table, reason: str) -> None:
    model = log(days=2, __ttl_archive__=Archive(into))
    create(engine, model, 5)
    into.create(engine)
    if "more" in into.c:
        run(engine, "CREATE TABLE everything PARTITION OF old_events DEFAULT")
    add(engine, model, 5, range(10))
    report = swept(engine, model)
    assert (report.deleted, report.archived) == (10, 10)
    assert report.notes == (f"partitions are swept in batches: {reason}",)


@POSTGRES
def test_an_archive_in_another_schema_gets_the_partition_there(engine: Engine) -> None:
    run(engine, "CREATE SCHEMA kept")
    into = archive().to_metadata(MetaData(), schema="kept")
    model = log(days=2, __ttl_archive__=Archive(into))
    create(engine, model, 5)
    into.create(engine)
    add(engine, model, 5, range(10))
    assert swept(engine, model).archived == 10
    assert partitions(engine, "kept.old_events") == {"kept.events_d5"}


# --- the rest of the sweeper ---------------------------------------------------------------------


def test_a_dry_run_counts_and_changes_nothing(engine: Engine) -> None:
    model = log(days=2)
    create(engine, model, 5)
    add(engine, model, 5, range(10))
    unmake(engine, "events", day(engine, "events", -2))
    before = partitions(engine, "events")
    report = swept(engine, model, dry_run=True)
    assert (report.due, report.deleted) == (10, 0)
    assert partitions(engine, "events") == before


@pytest.mark.slow
def test_the_fuse_counts_the_rows_of_a_partition(engine: Engine) -> None:
    model = log(days=2)
    create(engine, model, 5)
    add(engine, model, 5, range(1_500))
    report = Sweeper(engine, model, max_fraction=0.5).run_once()
    assert "1,500 rows have expired" in str(report.targets[0].error)
    assert "events_d5" in partitions(engine, "events")


def test_a_partition_goes_whole_whatever_a_batch_may_have(engine: Engine) -> None:
    model = log(days=2)
    create(engine, model, 5, 6)
    add(engine, model, 5, range(30))
    add(engine, model, 6, range(30, 60))
    report = Sweeper(engine, model, max_rows=10).run_once()
    assert (report.deleted, report.limited) == (30, True)
    assert len(partitions(engine, "events") & {"events_d5", "events_d6"}) == 1


def test_the_clock_of_a_test_decides(engine: Engine, ttl_clock: Any) -> None:
    model = log(days=2)
    create(engine, model)
    add(engine, model, 0, range(5))
    today = day(engine, "events", 0)
    ttl_clock.advance(4 * DAY)
    assert swept(engine, model).deleted == 5
    assert today not in partitions(engine, "events")
    assert day(engine, "events", -2) in partitions(engine, "events")


@POSTGRES
def test_a_schema_of_the_connection_is_respected(engine: Engine) -> None:
    run(engine, "CREATE SCHEMA tenant")
    translated = engine.execution_options(schema_translate_map={None: "tenant"})
    model = log(days=2)
    model.metadata.create_all(translated)
    tomorrow = day(engine, "events", -1)
    run(engine, f"DROP TABLE tenant.{tomorrow}")
    Sweeper(translated, model, lease=False).run_once().raise_for_failures()
    assert f"tenant.{tomorrow}" in partitions(engine, "tenant.events")
    assert tables(engine) == set()


@POSTGRES
async def test_an_asynchronous_engine_does_the_same(async_engine: AsyncEngine) -> None:
    model = visits(3600, days=20_000, cut=Partitions("1 day", ahead=2, survivors="move"))
    async with async_engine.begin() as connection:
        await connection.run_sync(model.metadata.create_all)
        for statement in (
            "CREATE TABLE d9 PARTITION OF visits FOR VALUES FROM ('2020-01-01') TO ('2020-01-02')",
            (
                "INSERT INTO visits (id, began, _ts, ttl) SELECT i, '2020-01-01 12:00', now(), -1 "
                "FROM generate_series(1, 3) i"
            ),
            (
                "INSERT INTO visits (id, began, _ts) SELECT i, '2020-01-01 12:00', "
                "'2020-01-01 12:00' FROM generate_series(11, 15) i"
            ),
        ):
            await connection.execute(text(statement))
    report = await AsyncSweeper(async_engine, model).run_once()
    report.raise_for_failures()
    assert report.deleted == 5
    async with async_engine.connect() as connection:
        left = select(model.id).options(include_expired())
        assert sorted(await connection.scalars(left)) == [1, 2, 3]
        assert await connection.scalar(text("SELECT to_regclass('d9')")) is None
