"""What else a database's own job does: hours, a fuse, stored defaults, archives, rows that stay."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import Column, DateTime, String, Table, text
from sqlalchemy.orm import DeclarativeBase, mapped_column

from tests.migrations.conftest import fill, models
from tests.migrations.swept import (
    ADD,
    DROP,
    age,
    alone,
    events,
    left,
    log,
    postgresql,
    rows,
    run,
)
from ttl_odm import Stored
from ttl_odm.alembic import MigrationRefusedError
from ttl_odm.database_sweep.sqlalchemy.catalogue import read_job
from ttl_odm.sqlalchemy import TTLMixin
from ttl_odm.sqlalchemy.sweep.leases import TableLeases
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper import Sweeper
from ttl_odm.sweeper.hooks import Archive

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine

pytestmark = [
    pytest.mark.databases("mariadb", "mysql", "postgres"),
    pytest.mark.usefixtures("scheduler"),
]


ADD_STORED = "import ttl_odm; op.add_ttl('web_sessions', ttl_odm.Stored({}), sweep='database')"


def hours(begin: int, end: int, zone: str = "UTC") -> str:
    """A window that begins and ends so many hours from now."""
    now = datetime.now(timezone.utc).astimezone(ZoneInfo(zone))
    first, last = (now + timedelta(hours=hour) for hour in (begin, end))
    return f"{first:%H:%M}-{last:%H:%M}"


def job_of(engine: Engine, table: str = "web_sessions") -> Any:
    with engine.connect() as connection:
        return read_job(connection, None, table)


# --- the window -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_it_works_in_its_hours_only(there: Any, call: Callable[[], Any], engine: Engine) -> None:
    age(engine, "a", 7_200)
    later, now = hours(2, 3), hours(-1, 1)
    there.revision(f"op.alter_ttl('web_sessions', 3600, window='{later}')")
    there.upgrade()
    assert call() == (0, 0, "outside its window")
    assert job_of(engine).window == f"{later} UTC"
    there.revision(f"op.alter_ttl('web_sessions', 3600, window='{now}')")
    there.upgrade()
    assert call() == (1, 1, "swept")
    there.check()


@pytest.mark.slow
def test_a_window_may_be_over_midnight_and_be_given_up(
    there: Any, call: Callable[[], Any], engine: Engine
) -> None:
    """All hours but those two, and no window at all."""
    there.revision(f"op.alter_ttl('web_sessions', 3600, window='{hours(-1, 22)}')")
    there.upgrade()
    age(engine, "a", 7_200)
    assert call() == (1, 1, "swept")
    there.revision(f"op.alter_ttl('web_sessions', 3600, window='{hours(1, -1)}')")
    there.revision("op.alter_ttl('web_sessions', 3600, window='always')")
    there.upgrade("+1")
    age(engine, "b", 7_200)
    assert call()[2] == "outside its window"
    there.upgrade()
    assert job_of(engine).window is None
    assert call() == (1, 2, "swept")


def test_another_default_leaves_the_window_as_it_is(there: Any, engine: Engine) -> None:
    there.revision("op.alter_ttl('web_sessions', 3600, window='01:00-05:00', max_fraction=0.25)")
    there.revision("op.alter_ttl('web_sessions', 60)")
    there.upgrade()
    job = job_of(engine)
    assert (job.default, job.window, job.max_fraction) == ("60", "01:00-05:00 UTC", 0.25)


@pytest.mark.slow
def test_a_downgrade_brings_the_settings_back(there: Any, engine: Engine) -> None:
    there.revision("op.alter_ttl('web_sessions', 3600, window='01:00-05:00', max_fraction=0.25)")
    there.upgrade()
    there.metadata = models().metadata
    assert "op.drop_ttl('web_sessions')" in there.autogenerate()
    there.upgrade()
    assert job_of(engine) is None
    there.downgrade()
    job = job_of(engine)
    assert (job.window, job.max_fraction) == ("01:00-05:00 UTC", 0.25)
    there.upgrade()


@pytest.mark.slow
@postgresql
def test_the_window_may_be_in_any_time_zone(
    there: Any, call: Callable[[], Any], engine: Engine
) -> None:
    zone = "Asia/Kathmandu"
    age(engine, "a", 7_200)
    for window, outcome in (
        (hours(1, 2, zone), "outside its window"),
        (hours(-1, 1, zone), "swept"),
    ):
        there.revision(f"op.alter_ttl('web_sessions', 3600, window='{window}', timezone='{zone}')")
        there.upgrade()
        assert call()[2] == outcome


@events
def test_a_time_zone_that_was_not_loaded_is_refused(there: Any) -> None:
    there.revision(
        "op.alter_ttl('web_sessions', 3600, window='01:00-05:00', timezone='Asia/Kathmandu')"
    )
    with pytest.raises(MigrationRefusedError, match="mysql_tzinfo_to_sql"):
        there.upgrade()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("window='1-5'", "window = '1-5': give hours"),
        ("window='01:00-05:00', timezone='Mars'", "timezone = 'Mars'"),
        ("max_fraction=2", "max_fraction=2"),
        ("sweep='index', max_fraction=0.5", "there is none"),
    ],
)
def test_settings_that_cannot_be_are_refused(there: Any, options: str, reason: str) -> None:
    there.revision(f"op.alter_ttl('web_sessions', 3600, {options})")
    with pytest.raises(MigrationRefusedError, match=reason):
        there.upgrade()


# --- the fuse -------------------------------------------------------------------------------------


def fill_up(engine: Engine, expired: int, live: int) -> None:
    """Rows of which some have expired."""
    clock = clock_of(engine.dialect)
    past = f"{clock.now} - 10 * {clock.second}"
    insert = text("INSERT INTO web_sessions (id, views, ttl) VALUES (:id, 0, :ttl)")
    rows = [{"id": f"new{number}", "ttl": None} for number in range(live)]
    rows += [{"id": f"old{number}", "ttl": 5} for number in range(expired)]
    with engine.begin() as connection:
        connection.execute(insert, rows)
        connection.execute(text(f"UPDATE web_sessions SET _ts = {past} WHERE ttl = 5"))  # noqa: S608


@pytest.mark.slow
def test_too_many_expired_rows_blow_the_fuse(
    there: Any, call: Callable[[], Any], engine: Engine
) -> None:
    there.revision("op.alter_ttl('web_sessions', 3600, max_fraction=0.5)")
    there.upgrade()
    fill_up(engine, 1_600, 1_397)
    deleted, _, outcome = call()
    assert deleted == 0
    assert outcome == (
        "fuse: more than 1500 rows have expired, max_fraction=0.5 of 3000 rows; nothing was deleted"
    )
    assert job_of(engine).problem[0] == "fuse"
    assert call()[2] == outcome
    assert Sweeper(engine, models(3600), max_fraction=0.5, force=True).run_once().deleted == 1_600
    fill_up(engine, 900, 0)
    if engine.dialect.name != "postgresql":  # it looks again after a minute
        run(engine, "UPDATE web_sessions_ttl_sweeps SET ran_at = ran_at - 61000000")
    assert call() == (900, 900, "swept")


@pytest.mark.slow
def test_a_share_that_is_allowed_goes_at_once(
    there: Any, call: Callable[[], Any], engine: Engine
) -> None:
    there.revision("op.alter_ttl('web_sessions', 3600, max_fraction=0.9)")
    there.upgrade()
    fill_up(engine, 2_100, 897)
    assert call() == (2_100, 2_100, "swept")


@pytest.mark.slow
def test_a_fuse_may_be_taken_out(there: Any, call: Callable[[], Any], engine: Engine) -> None:
    there.revision("op.alter_ttl('web_sessions', 3600, max_fraction=0.1)")
    there.upgrade()
    fill_up(engine, 1_100, 10)
    assert call()[2].startswith("fuse: ")
    there.revision("op.alter_ttl('web_sessions', 3600, max_fraction=1)")
    there.upgrade()
    assert job_of(engine).max_fraction is None
    assert call() == (1_100, 1_100, "swept")


# --- stored defaults ------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_stored_default_is_looked_up(before: Any, engine: Engine, project: Any) -> None:
    here = project(models(Stored(3600)))
    here.revision(ADD_STORED.format(3600), DROP)
    here.upgrade()
    here.check()
    assert job_of(engine).default == "stored"
    with alone(engine) as let_run:
        age(engine, "a", 7_200)
        assert let_run() == (1, 1, "swept")
        age(engine, "b", 600)
        age(engine, "c", 600, 60)
        run(engine, "UPDATE ttl_odm_policies SET ttl = NULL")
        assert let_run()[0] == 1  # as it was: TTL is off
        assert rows(engine) == ["b", "c"]
        run(engine, "UPDATE ttl_odm_policies SET ttl = -1")
        assert let_run() == (1, 2, "swept")
        assert rows(engine) == ["b"]
        run(engine, "UPDATE ttl_odm_policies SET ttl = 500")
        assert let_run() == (1, 3, "swept")
        fill(engine, "web_sessions")
        age(engine, "a", 90_000, 5)
        run(engine, "DELETE FROM ttl_odm_policies")
        assert let_run()[1] == 3  # nothing is stored, so nothing expires
    here.downgrade()
    assert left(engine) == []


@pytest.mark.slow
@pytest.mark.parametrize("ttl", [60, -1, None, 2_147_483_647])
def test_with_a_stored_default_it_deletes_what_a_sweeper_would(
    before: Any, engine: Engine, project: Any, ttl: int | None
) -> None:
    here = project(models(Stored(5)))
    here.revision(ADD_STORED.format(5), DROP)
    here.upgrade()
    with alone(engine) as let_run:
        run(engine, "UPDATE ttl_odm_policies SET ttl = :ttl", ttl=ttl)
        for seconds in (-3_600, 10, 300, 7_200, 2 * 86_400):
            for own in (None, -1, 1, 30, 600, 86_400, 2_147_483_647):
                key = f"{seconds} {own}"
                run(engine, "INSERT INTO web_sessions (id, views) VALUES (:key, 0)", key=key)
                age(engine, key, seconds, own)
        assert let_run()[0] == 38 - len(rows(engine))
    assert Sweeper(engine, models(Stored(5)), lease=False).run_once().deleted == 0
    here.downgrade()


@pytest.mark.slow
def test_scopes_may_have_defaults_of_their_own(before: Any, engine: Engine, project: Any) -> None:
    here = project(models())
    here.revision(ADD_STORED.format("60, by='views'"), DROP)
    here.upgrade()
    with alone(engine) as let_run:
        run(
            engine,
            "INSERT INTO ttl_odm_policies (name, scope, ttl, changed_at) "
            "SELECT name, '7', 3600, changed_at FROM ttl_odm_policies",
        )
        run(engine, "UPDATE web_sessions SET views = 7 WHERE id = 'b'")
        for key in "ab":
            age(engine, key, 600)
        assert let_run() == (1, 1, "swept")
    assert rows(engine) == ["b", "c"]
    here.downgrade()
    assert left(engine) == []


@events
def test_scopes_that_no_index_tells_apart_are_refused(
    before: Any, engine: Engine, project: Any
) -> None:
    run(engine, "ALTER TABLE web_sessions ADD COLUMN tenant TEXT")
    here = project(models())
    here.revision(ADD_STORED.format("60, by='tenant'"), DROP)
    with pytest.raises(MigrationRefusedError, match="older than the shortest default every second"):
        here.upgrade()


# --- archives -------------------------------------------------------------------------------------


def archive_of(model: Any, name: str = "old_sessions") -> Table:
    return Table(
        name,
        model.metadata,
        Column("id", String(40), primary_key=True),
        Column("views", String(10)),
        Column("kept_at", DateTime),
    )


@pytest.fixture
def archived(before: Any, engine: Engine, project: Any) -> Any:
    """A project whose rows are kept in old_sessions."""
    archive = archive_of(models(), "old_sessions")
    archive.create(engine)
    model = models(
        3600, __ttl_archive__=Archive(lambda: model.metadata.tables["old_sessions"], "kept_at")
    )
    archive_of(model)
    here = project(model)
    here.revision(ADD, DROP)
    here.upgrade()
    return here


def test_rows_are_kept_in_an_archive(archived: Any, engine: Engine) -> None:
    assert job_of(engine).archive == "old_sessions"
    with alone(engine) as let_run:
        run(engine, "UPDATE web_sessions SET views = 7 WHERE id = 'a'")
        age(engine, "a", 7_200)
        age(engine, "b", 600, 300)
        assert let_run() == (2, 2, "swept")
    kept = run(engine, "SELECT id, views, kept_at FROM old_sessions ORDER BY id")
    assert [(key, int(views)) for key, views, _ in kept] == [("a", 7), ("b", 0)]
    now = datetime.now(timezone.utc).replace(tzinfo=None)
    assert all(abs(at - now) < timedelta(hours=1) for *_, at in kept)
    assert rows(engine) == ["c"]
    archived.check()
    archived.downgrade()
    assert left(engine) == []


def test_a_row_that_the_archive_has_already_stays_and_the_others_go(
    archived: Any, engine: Engine
) -> None:
    run(engine, "INSERT INTO old_sessions (id) VALUES ('a')")
    with alone(engine) as let_run:
        age(engine, "a", 7_200)
        age(engine, "b", 7_100)
        deleted, _, outcome = let_run()
        assert deleted == 1
        assert outcome.startswith("failed: ")
        assert rows(engine) == ["a", "c"]
        assert [key for (key,) in run(engine, "SELECT id FROM old_sessions")] == ["a", "b"]
        run(engine, "DELETE FROM old_sessions WHERE id = 'a'")
        assert let_run() == (1, 2, "swept")


def test_an_archive_that_is_not_there_is_refused(before: Any, engine: Engine, project: Any) -> None:
    model = models(3600, __ttl_archive__=Archive(lambda: model.metadata.tables["old_sessions"]))
    archive_of(model)
    here = project(model)
    here.revision(ADD, DROP)
    with pytest.raises(MigrationRefusedError, match="'old_sessions', which doesn't exist"):
        here.upgrade()


# --- rows that can't go, and tables elsewhere -----------------------------------------------------


def test_a_row_that_cannot_be_deleted_does_not_keep_the_others(
    call: Callable[[], Any], engine: Engine
) -> None:
    for seconds, key in ((7_300, "b"), (7_200, "a"), (7_400, "c")):
        age(engine, key, seconds)
    if engine.dialect.name == "postgresql":
        run(
            engine,
            "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS "
            "$$BEGIN IF old.id = 'b' THEN RAISE 'not b'; END IF; RETURN old; END$$",
        )
        what = "EXECUTE FUNCTION keep()"
    else:
        what = "IF old.id = 'b' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not b'; END IF"
    run(engine, f"CREATE TRIGGER kept BEFORE DELETE ON web_sessions FOR EACH ROW {what}")
    assert call() == (2, 2, "failed: not b")
    assert rows(engine) == ["b"]


def test_a_table_in_another_schema_has_the_lease_and_the_defaults_of_all(
    engine: Engine, project: Any
) -> None:
    """A job's own schema is that of the table; the lease is where sweepers have it."""
    other = f"{engine.url.database}_other"
    run(engine, f"CREATE SCHEMA {other}")
    try:
        _sweep_elsewhere(engine, project, other)
    finally:
        cascade = " CASCADE" if engine.dialect.name == "postgresql" else ""
        run(engine, f"DROP SCHEMA {other}{cascade}")


def _sweep_elsewhere(engine: Engine, project: Any, other: str) -> None:
    class Base(DeclarativeBase):
        pass

    class Visit(TTLMixin, Base):
        __tablename__ = "visits"
        __table_args__ = {"schema": other}
        __ttl__ = Stored(60)
        id = mapped_column(String(40), primary_key=True)

    run(engine, f"CREATE TABLE {other}.visits (id VARCHAR(40) PRIMARY KEY)")
    run(engine, f"INSERT INTO {other}.visits (id) VALUES ('a')")  # noqa: S608
    here = project(Visit)
    here.revision(
        "import ttl_odm; "
        f"op.add_ttl('visits', ttl_odm.Stored(60), schema='{other}', sweep='database')",
        f"op.drop_ttl('visits', schema='{other}')",
    )
    here.upgrade()
    leases, clock = TableLeases(engine), clock_of(engine.dialect)
    leases.set_paused("ttl_odm", paused=True)
    with alone(engine, "visits", other) as let_run:
        assert let_run()[2] == "paused"
        leases.set_paused("ttl_odm", paused=False)
        run(engine, f"UPDATE {other}.visits SET _ts = {clock.now} - 600 * {clock.second}")  # noqa: S608
        run(engine, "UPDATE ttl_odm_policies SET ttl = -1")
        assert let_run()[1:] == (0, "swept")
        run(engine, "UPDATE ttl_odm_policies SET ttl = 60")
        assert let_run() == (1, 1, "swept")
    here.downgrade()
    assert left(engine) == []


def test_what_it_did_is_there_before_it_has_run(there: Any, engine: Engine) -> None:
    """Its settings are in the same row."""
    if engine.dialect.name == "postgresql":  # an EVENT may have run by now
        assert job_of(engine).ran_ago is None
        assert job_of(engine).problem is not None
    assert log(engine)[0] == 0
