"""`sweep="database"`: the database deletes expired rows with no process of ours."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import String, inspect, text
from sqlalchemy.orm import DeclarativeBase, mapped_column

from tests.migrations.conftest import models
from tests.migrations.projects import catalogue
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
    whole,
)
from ttl_odm.alembic import MigrationRefusedError
from ttl_odm.sqlalchemy.sweep.leases import TableLeases
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper import Sweeper
from ttl_odm.sweeper.hooks import Archive

if TYPE_CHECKING:
    from sqlalchemy import Engine

    Log = tuple[int, int, str]

pytestmark = [
    pytest.mark.databases("mariadb", "mysql", "postgres"),
    pytest.mark.usefixtures("scheduler"),
]


class Sink:
    """An archive that is no table."""

    def write(self, batch: object) -> None:
        raise AssertionError(batch)


LIMITED = "ttl_odm.TTL(60, max_lifetime=90, created='day')"


@pytest.mark.slow
@events
def test_expired_rows_go_by_themselves(before: Any, engine: Engine, project: Any) -> None:
    here = project(models(3600))
    here.revision(ADD, DROP)
    here.upgrade()
    age(engine, "a", 7_200)
    age(engine, "b", 600, 300)
    deadline = time.monotonic() + 120
    while rows(engine) != ["c"]:
        assert time.monotonic() < deadline, (rows(engine), log(engine))
        time.sleep(0.2)
    here.downgrade()


@pytest.mark.slow
@pytest.mark.parametrize("default", [-1, None, 60, 2_147_483_647])
def test_it_deletes_what_a_sweeper_would(
    before: Any, engine: Engine, project: Any, default: int | None
) -> None:
    here = project(models(default))
    here.revision(f"op.add_ttl('web_sessions', {default}, sweep='database')", DROP)
    here.upgrade()
    with alone(engine) as let_run:
        for seconds in (-3_600, 10, 300, 7_200, 2 * 86_400):
            for ttl in (None, -1, 1, 30, 600, 86_400, 2_147_483_647):
                key = f"{seconds} {ttl}"
                run(engine, "INSERT INTO web_sessions (id, views) VALUES (:key, 0)", key=key)
                age(engine, key, seconds, ttl)
        deleted, _, outcome = let_run()
        assert outcome == "swept"
        assert deleted == 38 - len(rows(engine))
    assert Sweeper(engine, models(default), lease=False).run_once().deleted == 0
    assert (deleted > 0) is (default is not None)
    here.downgrade()


@pytest.mark.slow
def test_many_rows_go_in_several_batches(call: Any, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(
            text("INSERT INTO web_sessions (id, views, ttl) VALUES (:id, 0, 1)"),
            [{"id": f"n{number}"} for number in range(2_500)],
        )
        clock = clock_of(engine.dialect)
        past = f"{clock.now} - 10 * {clock.second}"
        connection.execute(text(f"UPDATE web_sessions SET _ts = {past} WHERE ttl = 1"))  # noqa: S608
    assert whole(call) == (2_500, 2_500, "swept")
    assert rows(engine) == ["a", "b", "c"]


def test_rows_that_somebody_holds_wait_for_the_next_run(call: Any, engine: Engine) -> None:
    age(engine, "a", 7_200)
    age(engine, "b", 7_200)
    with engine.begin() as connection:
        connection.execute(text("SELECT * FROM web_sessions WHERE id = 'a' FOR UPDATE"))
        assert call()[0] == 1
        assert rows(engine) == ["a", "c"]
    assert call() == (1, 2, "swept")


def test_it_rests_while_sweepers_are_paused_or_at_work(call: Any, engine: Engine) -> None:
    leases = TableLeases(engine)
    age(engine, "a", 7_200)
    leases.set_paused("ttl_odm", paused=True)
    assert call() == (0, 0, "paused")
    leases.set_paused("ttl_odm", paused=False)
    lease = leases.acquire("ttl_odm", "a sweeper", 60)
    assert lease is not None
    assert call() == (0, 0, "a sweeper holds the lease")
    leases.release(lease)
    assert call() == (1, 1, "swept")


@events
def test_one_runs_at_a_time(call: Any, engine: Engine) -> None:
    age(engine, "a", 7_200)
    run(engine, "CALL web_sessions_ttl_sweep()")
    assert "a" in rows(engine)
    assert call()[0] == 1


@postgresql
def test_one_batch_runs_at_a_time(call: Any, engine: Engine) -> None:
    age(engine, "a", 7_200)
    body = run(engine, "SELECT prosrc FROM pg_proc WHERE proname = 'web_sessions_ttl_sweep'")
    (key,) = re.findall(r"pg_try_advisory_xact_lock\((-?\d+)\)", body[0][0])
    assert call()[0] == 1
    age(engine, "b", 7_200)
    with engine.begin() as connection:
        connection.execute(text(f"SELECT pg_advisory_xact_lock({key})"))
        assert call()[0] == 1  # as it was: the run found another at work, and did nothing
        assert "b" in rows(engine)
    assert call() == (1, 2, "swept")


def test_a_run_that_fails_says_why(call: Any, engine: Engine) -> None:
    age(engine, "a", 7_200)
    of_table = ""
    if engine.dialect.name == "postgresql":
        run(
            engine,
            "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS "
            "$$BEGIN RAISE 'they stay'; END$$",
        )
        what, of_table = "EXECUTE FUNCTION keep()", " ON web_sessions"
    else:
        what = "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'they stay'"
    run(engine, f"CREATE TRIGGER kept BEFORE DELETE ON web_sessions FOR EACH ROW {what}")
    assert call() == (0, 0, "failed: they stay")
    run(engine, f"DROP TRIGGER kept{of_table}")
    assert call() == (1, 1, "swept")


@pytest.mark.slow
@events
def test_a_migration_gives_it_another_default(there: Any, call: Any, engine: Engine) -> None:
    there.check()
    run(engine, "ALTER EVENT web_sessions_ttl_sweep DISABLE")
    age(engine, "a", 600)
    assert call()[0] == 0
    there.metadata = models(60).metadata
    assert "op.alter_ttl('web_sessions', 60)" in there.autogenerate()
    there.upgrade()
    there.check()
    assert call()[0] == 1
    query = "SELECT status FROM information_schema.events WHERE event_schema = DATABASE()"
    assert [status for (status,) in run(engine, query)] == ["DISABLED"]
    there.revision("op.alter_ttl('web_sessions', 60, sweep='database')")
    there.upgrade()
    assert [status for (status,) in run(engine, query)] == ["ENABLED"]
    there.check()


@pytest.mark.slow
def test_nothing_of_it_is_left(before: Any, engine: Engine, project: Any) -> None:
    plain = catalogue(engine, "web_sessions")
    tables = set(inspect(engine).get_table_names())
    here = project(models(3600))
    here.revision(ADD, DROP)
    here.revision(
        "op.alter_ttl('web_sessions', 3600, sweep='index')",
        "op.alter_ttl('web_sessions', 3600, sweep='database')",
    )
    for _ in range(2):
        here.upgrade()
        here.check()
        assert left(engine) == []
        here.downgrade()
        assert left(engine)
        here.downgrade()
        assert left(engine) == []
        assert catalogue(engine, "web_sessions") == plain
        more = set(inspect(engine).get_table_names()) - tables
        assert more <= {"alembic_version", "ttl_odm_migration"}, more


@pytest.mark.slow
def test_a_model_that_loses_its_ttl_loses_the_job(there: Any, engine: Engine) -> None:
    there.metadata = models().metadata
    assert "op.drop_ttl('web_sessions')" in there.autogenerate()
    there.upgrade()
    there.check()
    assert left(engine) == []
    there.downgrade()
    assert left(engine)
    there.upgrade()


@events
def test_keys_of_any_type_are_found_again(engine: Engine, project: Any) -> None:
    run(
        engine,
        "CREATE TABLE pairs (tenant BIGINT UNSIGNED, `order` VARCHAR(20) CHARACTER SET utf8mb4 "
        "COLLATE utf8mb4_bin, day DATE, total INT, PRIMARY KEY (tenant, `order`, day))",
    )
    run(engine, "INSERT INTO pairs VALUES (18446744073709551615, 'a', '2020-01-01', 1)")
    run(engine, "INSERT INTO pairs VALUES (18446744073709551615, 'A', '2020-01-01', 1)")
    here = project()
    here.revision("op.add_ttl('pairs', 60, sweep='database')", "op.drop_ttl('pairs')")
    here.upgrade()
    with alone(engine, "pairs") as let_run:
        run(engine, "UPDATE pairs SET _ts = 1 WHERE `order` = 'a'")
        assert let_run() == (1, 1, "swept")
    assert [key for (key,) in run(engine, "SELECT `order` FROM pairs")] == ["A"]
    here.downgrade()


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        ({"__ttl_on_purged__": print}, "__ttl_on_purged__"),
        ({"__ttl_archive__": Archive("elsewhere")}, "Archive"),
        ({"__ttl_archive__": Sink()}, "__ttl_archive__"),
        ({"__ttl_purge__": "orm"}, "__ttl_purge__"),
    ],
)
def test_what_only_python_can_do_is_refused(
    before: Any, engine: Engine, project: Any, declared: dict[str, Any], reason: str
) -> None:
    plain = catalogue(engine, "web_sessions")
    here = project(models(3600, **declared))
    here.revision(ADD, DROP)
    with pytest.raises(MigrationRefusedError, match=reason):
        here.upgrade()
    assert catalogue(engine, "web_sessions") == plain


def test_a_foreign_key_that_keeps_rows_is_refused(
    before: Any, engine: Engine, project: Any
) -> None:
    class Base(DeclarativeBase):
        pass

    class Visit(Base):
        __tablename__ = "visits"
        id = mapped_column(String(40), primary_key=True)
        session = mapped_column(String(40))

    Base.metadata.create_all(engine)
    key = (
        "ALTER TABLE visits ADD CONSTRAINT kept FOREIGN KEY (session) REFERENCES web_sessions (id)"
    )
    here = project(models(3600))
    here.revision(ADD, DROP)
    run(engine, key)
    with pytest.raises(MigrationRefusedError, match="visits"):
        here.upgrade()
    word = "CONSTRAINT" if engine.dialect.name == "postgresql" else "FOREIGN KEY"
    run(engine, f"ALTER TABLE visits DROP {word} kept")
    run(engine, f"{key} ON DELETE CASCADE")
    if engine.dialect.name == "postgresql":
        with pytest.raises(MigrationRefusedError, match="CREATE INDEX CONCURRENTLY"):
            here.upgrade()
        run(engine, "CREATE INDEX ON visits (session)")
    here.upgrade()
    here.downgrade()


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        ("op.add_ttl('web_sessions', ttl_odm.ExpireAt('day'), sweep='database')", "no column"),
        (f"op.add_ttl('web_sessions', {LIMITED}, sweep='database')", "no column 'day'"),
        (
            "op.add_ttl('web_sessions', 60, sweep='database', partition='1 day')",
            "partitioned tables",
        ),
    ],
)
def test_other_policies_are_refused(before: Any, project: Any, operation: str, reason: str) -> None:
    here = project(models())
    here.revision(f"import ttl_odm; {operation}")
    with pytest.raises(MigrationRefusedError, match=reason):
        here.upgrade()


@events
def test_a_scheduler_that_is_off_is_refused(before: Any, engine: Engine, project: Any) -> None:
    here = project(models(3600))
    here.revision(ADD, DROP)
    run(engine, "SET GLOBAL event_scheduler = OFF")
    with pytest.raises(MigrationRefusedError, match="event_scheduler = ON"):
        here.upgrade()


@events
def test_a_script_refuses_it_and_drops_it(before: Any, project: Any) -> None:
    here = project(models(3600))
    first = here.revision(ADD, DROP)
    with pytest.raises(MigrationRefusedError, match="--sql"):
        here.script()
    script = here.script("downgrade", f"{first}:base")
    assert "DROP EVENT IF EXISTS web_sessions_ttl_sweep" in script
    assert "DROP TABLE IF EXISTS web_sessions_ttl_sweeps" in script


@pytest.mark.slow
@postgresql
def test_a_migration_gives_postgresql_another_default(
    there: Any, call: Any, engine: Engine
) -> None:
    there.check()
    age(engine, "a", 600)
    assert call()[0] == 0
    there.metadata = models(60).metadata
    assert "op.alter_ttl('web_sessions', 60)" in there.autogenerate()
    there.upgrade()
    there.check()
    assert call()[0] == 1


@pytest.mark.slow
@postgresql
def test_a_run_ends_when_a_migration_has_replaced_its_default(there: Any, engine: Engine) -> None:
    with ThreadPoolExecutor(1) as pool:
        old = pool.submit(_call_for, engine, 50)
        while not run(engine, "SELECT 1 FROM web_sessions_ttl_sweeps") and not old.done():
            time.sleep(0.05)
        there.revision("op.alter_ttl('web_sessions', -1)", "op.alter_ttl('web_sessions', 3600)")
        there.upgrade()
        age(engine, "a", 7_200)
        old.result(20)
    assert "a" in rows(engine)


def _call_for(engine: Engine, seconds: int) -> None:
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(f"CALL web_sessions_ttl_sweep({seconds})"))


@postgresql
def test_a_script_refuses_it_and_drops_it_on_postgresql(before: Any, project: Any) -> None:
    here = project(models(3600))
    first = here.revision(ADD, DROP)
    with pytest.raises(MigrationRefusedError, match="--sql"):
        here.script()
    script = here.script("downgrade", f"{first}:base")
    assert "jobname = current_schema() || '.web_sessions_ttl_sweep'" in script
    assert "DROP PROCEDURE IF EXISTS web_sessions_ttl_sweep(integer)" in script
    assert "DROP TABLE IF EXISTS web_sessions_ttl_sweeps" in script


@pytest.mark.slow
@postgresql
def test_it_says_what_to_schedule_where_pg_cron_is_not_here(
    before: Any, project: Any, caplog: pytest.LogCaptureFixture
) -> None:
    here = project(models(3600))
    here.revision(ADD, DROP)
    here.upgrade()
    assert "SELECT cron.schedule_in_database('" in caplog.text
    assert ".public.web_sessions_ttl_sweep', '* * * * *'" in caplog.text
    assert "'CALL public.web_sessions_ttl_sweep(59)'" in caplog.text
