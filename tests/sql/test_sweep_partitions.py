"""Partitioned tables on PostgreSQL: their leaves are swept one by one, as one table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Column, ForeignKey, Integer, MetaData, Table, create_engine, event, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from tests.sql.sweeping import HOUR, left, sweeps
from ttl_odm.sqlalchemy import Archive, TTLMixin
from ttl_odm.sqlalchemy.sweep.counts import estimate
from ttl_odm.sweeper import Purged, Skip, Sweeper

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine

pytestmark = pytest.mark.databases("postgres")

ROWS = 600
LEAVES = ("e0", "e1", "e2a", "e2b", "e9")
kept = Table("kept", MetaData(), Column("id", Integer))


def log(sweep: str = "index", purge: str = "delete", archive: Any = None) -> Any:
    """Declare a table of events, by ranges of their numbers, and what refers to them."""

    class Base(DeclarativeBase):
        pass

    class Event(TTLMixin, Base):
        __tablename__ = "events"
        __table_args__ = {"postgresql_partition_by": "RANGE (id)"}
        __ttl__ = HOUR
        __ttl_sweep__ = sweep
        __ttl_purge__ = purge
        __ttl_archive__ = archive

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

    class Note(Base):
        __tablename__ = "notes"

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        event: Mapped[int] = mapped_column(ForeignKey(Event.id), index=True)

    return Event


def create(engine: Engine, model: Any) -> None:
    """Make five leaves, one of them the default, two of them a level deeper; fill all of them.

    Of six rows two are live, two have expired by the default and two by a ttl of their own.
    """
    with engine.begin() as connection:
        model.metadata.create_all(connection)
        kept.create(connection)
        for statement in (
            "CREATE TABLE e1 PARTITION OF events FOR VALUES FROM (100) TO (200)",
            "CREATE TABLE e0 PARTITION OF events FOR VALUES FROM (0) TO (100)",
            (
                "CREATE TABLE e2 PARTITION OF events FOR VALUES FROM (200) TO (400) "
                "PARTITION BY RANGE (id)"
            ),
            "CREATE TABLE e2a PARTITION OF e2 FOR VALUES FROM (200) TO (300)",
            "CREATE SCHEMA elsewhere",
            "CREATE TABLE elsewhere.e2b PARTITION OF e2 FOR VALUES FROM (300) TO (400)",
            "CREATE TABLE e9 PARTITION OF events DEFAULT",
            (
                "INSERT INTO events (id, ttl, _ts) SELECT i, CASE WHEN mod(i, 3) = 1 THEN 60 END, "
                "now() - CASE WHEN mod(i, 3) = 0 THEN 0 ELSE 7200 + i END * interval '1 second' "
                "FROM generate_series(0, :last) i"
            ),
            "ANALYZE events",
        ):
            values = {"last": ROWS - 1} if ":last" in statement else {}
            connection.execute(text(statement), values)


LIVE = set(range(0, ROWS, 3))
EXPIRED = set(range(ROWS)) - LIVE


def statements_of(engine: Engine, kind: str, action: Callable[[], object]) -> list[str]:
    """The statements of a kind that something runs."""
    found: list[str] = []

    def note(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith(kind):
            found.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    action()
    event.remove(engine, "before_cursor_execute", note)
    return found


def keys_kept(engine: Engine) -> list[int]:
    with engine.connect() as connection:
        return sorted(connection.scalars(text("SELECT id FROM kept")))


def test_the_rows_of_leaves_are_estimated_once(engine: Engine) -> None:
    model = log("index")
    create(engine, model)
    with engine.connect() as connection:
        # A backend says what it has written when it is idle, or asked to.
        connection.execute(text("SELECT pg_stat_force_next_flush()"))
        connection.commit()
        assert estimate(connection, model.__table__) == ROWS


@pytest.mark.slow
@sweeps
def test_leaves_are_swept_one_by_one(engine: Engine, sweep: str) -> None:
    model = log(sweep)
    create(engine, model)
    reports = []
    deletes = statements_of(
        engine,
        "DELETE",
        lambda: reports.append(Sweeper(engine, model, batch_size=30).run_once()),
    )
    (report,) = reports
    report.raise_for_failures()
    assert [(each.table, each.deleted) for each in report.targets] == [("events", len(EXPIRED))]
    swept = [statement.split()[2].rpartition(".")[2] for statement in deletes]
    assert set(swept) == set(LEAVES)
    with engine.connect() as connection:
        assert left(connection, model) == LIVE
    assert Sweeper(engine, model).run_once().deleted == 0


@pytest.mark.slow
def test_leaves_that_come_later_are_swept_one_by_one_by_the_same_sweeper(engine: Engine) -> None:
    model = log()
    model.metadata.create_all(engine)
    sweeper = Sweeper(engine, model)
    assert sweeper.run_once().deleted == 0
    create(engine, model)
    deletes = statements_of(engine, "DELETE", lambda: sweeper.run_once().raise_for_failures())
    assert {statement.split()[2].rpartition(".")[2] for statement in deletes} == set(LEAVES)
    with engine.connect() as connection:
        assert left(connection, model) == LIVE


@pytest.mark.slow
def test_a_leaf_is_searched_by_its_own_index(engine: Engine) -> None:
    model = log()
    create(engine, model)
    plans: list[str] = []

    def explain(connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.startswith("DELETE"):
            cursor = connection.connection.cursor()
            cursor.execute("SET LOCAL enable_seqscan = off")  # the leaves are small
            cursor.execute(f"EXPLAIN {statement}", parameters)
            plans.append("\n".join(line for (line,) in cursor.fetchall()))
            cursor.close()

    event.listen(engine, "before_cursor_execute", explain)
    Sweeper(engine, model).run_once().raise_for_failures()
    event.remove(engine, "before_cursor_execute", explain)
    assert len(plans) == 2 * len(LEAVES)  # inheriting rows and others
    for plan in plans:
        assert len([leaf for leaf in LEAVES if f" on {leaf} " in plan]) == 1, plan
        assert "_ts_idx" in plan or "_timezone_idx" in plan, plan


@pytest.mark.slow
@pytest.mark.parametrize(
    ("purge", "archive"),
    [("delete", None), ("orm", None), ("delete", Archive(kept))],
    ids=["delete", "orm", "archive"],
)
def test_each_row_of_a_partitioned_table_is_archived_and_told_once(
    engine: Engine, purge: str, archive: Archive | None
) -> None:
    model = log(purge=purge, archive=archive)
    create(engine, model)
    told: list[Purged] = []
    report = Sweeper(engine, model, batch_size=30, on_purged={"events": told.append}).run_once()
    report.raise_for_failures()
    assert report.deleted == len(EXPIRED)
    assert {each.table for each in told} == {"events"}
    assert sorted(key for each in told for (key,) in each.keys) == sorted(EXPIRED)
    assert keys_kept(engine) == (sorted(EXPIRED) if archive is not None else [])


@pytest.mark.slow
def test_an_archive_takes_the_rows_of_leaves_where_nobody_is_told(engine: Engine) -> None:
    model = log(archive=Archive(kept))
    create(engine, model)
    Sweeper(engine, model, batch_size=30).run_once().raise_for_failures()
    assert keys_kept(engine) == sorted(EXPIRED)


@pytest.mark.slow
@sweeps
def test_rows_of_leaves_that_have_to_stay_are_counted_once(engine: Engine, sweep: str) -> None:
    model = log(sweep)
    create(engine, model)
    held, referred = (1, 101, 502), (2, 202, 301)
    with engine.begin() as connection:
        connection.execute(
            text("INSERT INTO notes VALUES (:id, :id)"), [{"id": key} for key in referred]
        )
    with engine.connect() as holder:
        holder.execute(text(f"SELECT FROM events WHERE id IN {held} FOR UPDATE"))
        report = Sweeper(engine, model, batch_size=30).run_once()
    report.raise_for_failures()
    assert report.targets[0].skips == {Skip.LOCKED: 3, Skip.RESTRICTED: 3}
    with engine.connect() as connection:
        assert left(connection, model) == LIVE | {*held, *referred}


@pytest.mark.slow
def test_leaves_may_come_and_go_during_a_sweep(engine: Engine) -> None:
    model = log()
    create(engine, model)
    changes = [
        "ALTER TABLE events DETACH PARTITION e1",
        "CREATE TABLE e1b PARTITION OF events FOR VALUES FROM (1000) TO (2000)",
        (
            "INSERT INTO events (id, _ts) SELECT i, now() - interval '1 day' "
            "FROM generate_series(1000, 1099) i"
        ),
    ]

    def change(_: object) -> None:
        with engine.begin() as connection:
            while changes:
                connection.execute(text(changes.pop(0)))

    Sweeper(engine, model, batch_size=30, on_progress=change).run_once().raise_for_failures()
    Sweeper(engine, model).run_once().raise_for_failures()
    with engine.connect() as connection:
        assert left(connection, model) == LIVE - set(range(100, 200))
        assert connection.scalar(text("SELECT count(*) FROM e1")) > len(LIVE) // 6


HINDRANCES = {
    "grants": ["REVOKE DELETE ON e1 FROM {who}"],
    "row-level security": [
        "ALTER TABLE events ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY all_of_it ON events USING (true)",
    ],
    "statement triggers": [
        "CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        "CREATE TRIGGER tell AFTER DELETE ON events FOR EACH STATEMENT EXECUTE FUNCTION tell()",
    ],
}


@pytest.mark.parametrize("hindrance", HINDRANCES.values(), ids=HINDRANCES)
def test_the_table_is_swept_as_a_whole_where_its_leaves_are_not_the_same(
    engine: Engine, hindrance: list[str]
) -> None:
    model = log()
    create(engine, model)
    who = f'"{engine.url.database}"'
    with engine.begin() as connection:
        for statement in (
            f"CREATE ROLE {who} LOGIN",
            f"GRANT USAGE ON SCHEMA elsewhere TO {who}",
            f"GRANT SELECT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public, elsewhere TO {who}",
            *(each.format(who=who) for each in hindrance),
        ):
            connection.execute(text(statement))
    poor = create_engine(engine.url.set(username=engine.url.database, password=None))
    try:
        deletes = statements_of(
            poor,
            "DELETE",
            lambda: Sweeper(poor, model, lease=False).run_once().raise_for_failures(),
        )
    finally:
        poor.dispose()
        with engine.begin() as connection:
            connection.execute(text(f"DROP OWNED BY {who}"))
            connection.execute(text(f"DROP ROLE {who}"))
    assert {statement.split()[2] for statement in deletes} == {"events"}
    with engine.connect() as connection:
        assert left(connection, model) == LIVE
