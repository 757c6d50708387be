"""`enforce="view"`: live rows for readers and writers outside Python, on every SQL database."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Integer, Table, create_engine, func, inspect, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import DeclarativeBase, Session, mapped_column

from tests.migrations.conftest import models
from tests.migrations.projects import catalogue, is_mysql
from ttl_odm.alembic import MigrationRefusedError
from ttl_odm.sqlalchemy import expires_at
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from sqlalchemy import Engine

ADD = "op.add_ttl('web_sessions', 3600, enforce='view')"
DROP = "op.drop_ttl('web_sessions')"


@pytest.fixture
def there(before: Any, engine: Engine, project: Any) -> Any:
    """A project whose table has the view."""
    del before
    here = project(models(3600))
    here.revision(ADD, DROP)
    here.upgrade()
    return here


def run(engine: Engine, statement: str, **parameters: Any) -> Any:
    """Run a statement as somebody else's program does; its rows, or how many it wrote."""
    with engine.begin() as connection:
        result = connection.execute(text(statement), parameters)
        return list(result) if result.returns_rows else result.rowcount


def shown(engine: Engine) -> list[str]:
    return [key for (key,) in run(engine, "SELECT id FROM web_sessions_live ORDER BY id")]


def age(engine: Engine, key: str, seconds: int, ttl: int | None = None) -> None:
    """Let a row have been written so long ago."""
    clock = clock_of(engine.dialect)
    run(
        engine,
        f"UPDATE web_sessions SET _ts = {clock.now} - {seconds} * {clock.second}, ttl = :ttl "  # noqa: S608
        "WHERE id = :key",
        ttl=ttl,
        key=key,
    )


@pytest.mark.slow
def test_the_view_shows_live_rows_and_follows_the_default(
    there: Any, before: Any, engine: Engine
) -> None:
    age(engine, "a", 600)
    age(engine, "b", 600, -1)
    assert shown(engine) == ["a", "b", "c"]
    there.check()
    there.metadata = models(60).metadata
    assert "op.alter_ttl('web_sessions', 60)" in there.autogenerate()
    there.upgrade()
    there.check()
    assert shown(engine) == ["b", "c"]
    age(engine, "b", 600, 599)
    age(engine, "c", 600, 1_000)
    assert shown(engine) == ["c"]
    there.downgrade()
    assert shown(engine) == ["a", "c"]
    there.upgrade()
    there.metadata = models(None).metadata
    there.autogenerate()
    there.upgrade()
    there.check()
    assert shown(engine) == ["a", "b", "c"]


@pytest.mark.parametrize("default", [-1, None, 60, 2_147_483_647])
def test_it_shows_what_the_gate_shows(
    before: Any, engine: Engine, project: Any, default: int | None
) -> None:
    here = project(models(default))
    here.revision(f"op.add_ttl('web_sessions', {default}, enforce='view')", DROP)
    here.upgrade()
    ttls = (None, -1, 1, 30, 600, 86_400, 2_147_483_647)
    for seconds in (-3_600, 10, 300, 7_200, 2 * 86_400):
        for ttl in ttls:
            key = f"{seconds} {ttl}"
            run(engine, "INSERT INTO web_sessions (id, views) VALUES (:key, 0)", key=key)
            age(engine, key, seconds, ttl)
    with Session(engine) as session:
        live = set(session.scalars(select(models(default).id)))
    assert set(shown(engine)) == live
    here.downgrade()


@pytest.mark.slow
def test_nothing_of_it_is_left(before: Any, engine: Engine, project: Any) -> None:
    plain = catalogue(engine, "web_sessions")
    here = project(models(3600))
    here.revision(ADD, DROP)
    here.revision(
        "op.alter_ttl('web_sessions', 3600, enforce='off')",
        "op.alter_ttl('web_sessions', 3600, enforce='view')",
    )
    for _ in range(2):
        here.upgrade()
        assert inspect(engine).get_view_names() == []
        here.downgrade()
        assert shown(engine) == ["a", "b", "c"]
        here.downgrade()
        assert inspect(engine).get_view_names() == []
        assert catalogue(engine, "web_sessions") == plain
    if engine.dialect.name == "sqlite":
        assert run(engine, "SELECT name FROM sqlite_master WHERE type = 'trigger'") == []


def test_it_says_when_a_row_expires(there: Any, engine: Engine) -> None:
    age(engine, "a", 600)
    age(engine, "b", 600, 900)
    age(engine, "c", 600, -1)
    model = models(3600)
    rows = run(engine, "SELECT id, expires_at FROM web_sessions_live ORDER BY id")
    said = {key: _aware(value) for key, value in rows}
    with Session(engine) as session:
        ends = session.execute(select(model.id, expires_at(model)))
        wanted = {row.id: row[1] for row in ends}
    assert said == wanted
    assert said["c"] is None


def _aware(value: Any) -> datetime | None:
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    return value and (value if value.tzinfo else value.replace(tzinfo=timezone.utc))


def test_rows_are_written_through_it_and_expired_ones_are_not_there(
    there: Any, engine: Engine
) -> None:
    age(engine, "a", 7_200)
    write = "INSERT INTO web_sessions_live (id, views, ttl) VALUES ('n', 1, 7)"
    if is_mysql(engine):
        with pytest.raises(DBAPIError, match="not insertable-into"):
            run(engine, write)
        run(engine, write.replace("_live", ""))
    else:
        run(engine, write)
    (row,) = run(engine, "SELECT views, ttl FROM web_sessions_live WHERE id = 'n'")
    assert row == (1, 7)
    changed = [
        "UPDATE web_sessions_live SET views = 5 WHERE id IN ('a', 'b')",
        "DELETE FROM web_sessions_live WHERE id IN ('a', 'c')",
    ]
    for statement in changed:
        run(engine, statement)
    stored = run(engine, "SELECT id, views FROM web_sessions ORDER BY id")
    assert stored == [("a", 0), ("b", 5), ("n", 1)]


def test_a_row_may_be_let_expire_through_it(there: Any, engine: Engine) -> None:
    age(engine, "a", 600)
    run(engine, "UPDATE web_sessions_live SET ttl = 60 WHERE id = 'a'")
    assert shown(engine) == ["b", "c"]


def test_what_is_computed_takes_no_value(there: Any, engine: Engine) -> None:
    with pytest.raises(DBAPIError, match=r"expires_at"):
        run(engine, "UPDATE web_sessions_live SET expires_at = NULL")
    with pytest.raises(DBAPIError, match=r"expires_at|insertable"):
        run(
            engine,
            "INSERT INTO web_sessions_live (id, views, expires_at) VALUES ('n', 1, '2026-01-01')",
        )
    assert shown(engine) == ["a", "b", "c"]


def test_writes_through_it_are_stamped_by_the_touch_trigger(
    before: Any, engine: Engine, project: Any
) -> None:
    here = project(models(3600))
    here.revision("op.add_ttl('web_sessions', 3600, touch_trigger=True, enforce='view')", DROP)
    here.upgrade()
    age(engine, "a", 600)
    age(engine, "b", 600)
    run(engine, "UPDATE web_sessions_live SET views = 1 WHERE id = 'a'")
    ends = dict(run(engine, "SELECT id, expires_at FROM web_sessions_live"))
    assert _aware(ends["a"]) - _aware(ends["b"]) > timedelta(minutes=9)  # type: ignore[operator]
    here.downgrade()


def test_it_gets_new_columns_and_keeps_its_place(there: Any, engine: Engine) -> None:
    run(engine, "ALTER TABLE web_sessions ADD COLUMN shop VARCHAR(9) DEFAULT 'x' NOT NULL")
    there.revision("op.alter_ttl('web_sessions', 3600)")
    there.upgrade()
    assert run(engine, "SELECT DISTINCT shop FROM web_sessions_live") == [("x",)]
    if not is_mysql(engine):
        run(engine, "INSERT INTO web_sessions_live (id, views) VALUES ('n', 1)")
        assert run(engine, "SELECT shop FROM web_sessions_live WHERE id = 'n'") == [("x",)]


@pytest.mark.databases("postgres", "mariadb", "mysql")  # SQLite refuses to rename it
def test_it_follows_a_renamed_column(there: Any, engine: Engine) -> None:
    there.revision(
        "op.execute('ALTER TABLE web_sessions RENAME COLUMN views TO hits')\n"
        "    op.add_column('web_sessions', sa.Column('note', sa.Text))\n"
        "    op.alter_ttl('web_sessions', 7200)"
    )
    there.upgrade()
    assert run(engine, "SELECT id, hits, note FROM web_sessions_live WHERE id = 'a'") == [
        ("a", 0, None)
    ]


def test_a_column_of_the_tables_own_goes_first(engine: Engine, project: Any) -> None:
    models(expires_at=mapped_column(Integer)).metadata.create_all(engine)
    here = project()
    here.revision(ADD, DROP)
    here.upgrade()
    run(engine, "INSERT INTO web_sessions_live (id, views, expires_at) VALUES ('n', 1, 7)")
    assert run(engine, "SELECT expires_at FROM web_sessions_live") == [(7,)]
    here.downgrade()


@pytest.mark.slow
def test_it_may_have_another_name(before: Any, engine: Engine, project: Any) -> None:
    here = project(models(3600))
    here.revision("op.add_ttl('web_sessions', 3600, enforce='view', view='fresh one')", DROP)
    here.upgrade()
    here.check()
    here.metadata = models(60).metadata
    assert "op.alter_ttl('web_sessions', 60)" in here.autogenerate()
    here.upgrade()
    here.check()
    assert inspect(engine).get_view_names() == ["fresh one"]
    age(engine, "a", 600)
    quoted = engine.dialect.identifier_preparer.quote("fresh one")
    assert run(engine, f"SELECT count(*) FROM {quoted}") == [(2,)]  # noqa: S608
    here.revision("op.alter_ttl('web_sessions', 60, enforce='view', view='fresh')")
    here.upgrade()
    assert inspect(engine).get_view_names() == ["fresh"]
    here.downgrade("base")
    assert inspect(engine).get_view_names() == []


def test_a_name_is_for_a_view(before: Any, project: Any) -> None:
    here = project()
    here.revision("op.add_ttl('web_sessions', 3600, view='fresh')")
    with pytest.raises(MigrationRefusedError, match="view='fresh' names the view that enforce"):
        here.upgrade()


@pytest.mark.parametrize("other", ["web_sessions_old", "web sessions"])
def test_views_of_several_tables_are_told_apart(engine: Engine, project: Any, other: str) -> None:
    names = ("web_sessions", other)
    for name in names:
        models(name=name).metadata.create_all(engine)
    here = project()
    adds = [f"op.add_ttl('{name}', 60, enforce='view')" for name in names]
    here.revision("\n    ".join(adds), DROP)
    here.upgrade()
    here.downgrade()
    assert inspect(engine).get_view_names() == [f"{other}_live"]


def test_the_view_of_somebody_else_stays(before: Any, engine: Engine, project: Any) -> None:
    run(engine, "CREATE VIEW web_sessions_live AS SELECT 1 AS one")
    here = project()
    here.revision("op.add_ttl('web_sessions', 3600)", DROP)
    here.upgrade()
    here.revision("op.alter_ttl('web_sessions', 3600, enforce='view')")
    with pytest.raises(DBAPIError, match="already exists"):
        here.upgrade()
    here.downgrade()
    assert run(engine, "SELECT one FROM web_sessions_live") == [(1,)]


def test_the_gate_leaves_a_model_of_the_view_alone(there: Any, engine: Engine) -> None:
    class Base(DeclarativeBase):
        pass

    live = Table("web_sessions_live", Base.metadata, autoload_with=engine)
    statement = str(select(live.c.id).compile(engine))
    assert "WHERE" not in statement
    age(engine, "a", 7_200)
    with engine.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(live)) == 2


@pytest.mark.databases("postgres", "mariadb", "mysql")
def test_grants_are_kept_and_the_readers_own_rights_count(there: Any, engine: Engine) -> None:
    is_postgresql = engine.dialect.name == "postgresql"
    who = f"reads_{engine.url.database}"[:30]
    account = who if is_postgresql else f"'{who}'@'%'"
    run(engine, f"CREATE {'ROLE' if is_postgresql else 'USER'} {account}")
    try:
        run(engine, f"GRANT SELECT ON web_sessions_live TO {account}")
        if not is_postgresql:  # INVOKER: the view is not a way around the table's grants
            run(engine, f"GRANT SELECT ON web_sessions TO {account}")
        there.revision("op.alter_ttl('web_sessions', 60)")
        there.upgrade()
        age(engine, "a", 600)
        if is_postgresql:
            with engine.connect() as connection:
                connection.execute(text(f"SET ROLE {account}"))
                rows = connection.scalars(text("SELECT id FROM web_sessions_live ORDER BY id"))
                assert rows.all() == ["b", "c"]
                with pytest.raises(DBAPIError, match="permission denied"):
                    connection.execute(text("SELECT id FROM web_sessions"))
        else:
            reader = create_engine(engine.url.set(username=who, password=None))
            assert shown(reader) == ["b", "c"]
            run(engine, f"REVOKE SELECT ON web_sessions FROM {account}")  # noqa: S608
            with pytest.raises(DBAPIError, match=r"denied|lack"):
                shown(reader)
            reader.dispose()
            kind = (
                "SELECT security_type FROM information_schema.views WHERE table_schema = DATABASE()"
            )
            assert run(engine, kind) == [("INVOKER",)]
    finally:
        run(engine, f"DROP {'OWNED BY' if is_postgresql else 'USER'} {account}")
        if is_postgresql:
            run(engine, f"DROP ROLE {account}")


@pytest.mark.databases("postgres")
def test_no_function_of_a_readers_sees_what_it_hides(there: Any, engine: Engine) -> None:
    age(engine, "a", 7_200)
    run(
        engine,
        "CREATE FUNCTION tell(varchar) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS "
        "$$ BEGIN IF $1 = 'a' THEN RAISE EXCEPTION 'seen'; END IF; RETURN true; END $$",
    )
    assert len(run(engine, "SELECT id FROM web_sessions_live WHERE tell(id)")) == 2


@pytest.mark.databases("sqlite")
def test_sqlites_own_library_reads_and_writes(there: Any, engine: Engine) -> None:
    age(engine, "a", 7_200)
    with closing(sqlite3.connect(str(engine.url.database))) as connection, connection:
        assert connection.execute("SELECT count(*) FROM web_sessions_live").fetchone() == (2,)
        connection.execute("INSERT OR FAIL INTO web_sessions_live (id, views) VALUES ('n', 1)")
        with pytest.raises(sqlite3.IntegrityError, match="NOT NULL"):
            connection.execute("INSERT INTO web_sessions_live (id) VALUES ('m')")
        with pytest.raises(sqlite3.IntegrityError, match="expires_at is computed"):
            connection.execute("UPDATE web_sessions_live SET expires_at = 7")
    assert shown(engine) == ["b", "c", "n"]


@pytest.mark.databases("sqlite")
def test_rows_without_a_key_can_be_inserted_and_not_changed(engine: Engine, project: Any) -> None:
    run(engine, "CREATE TABLE web_sessions (id TEXT, views INT, twice INT AS (views * 2))")
    here = project()
    here.revision(ADD, DROP)
    here.upgrade()
    run(engine, "INSERT INTO web_sessions_live (id, views) VALUES ('n', 1)")
    assert run(engine, "SELECT id, twice FROM web_sessions_live") == [("n", 2)]
    with pytest.raises(DBAPIError, match="cannot modify web_sessions_live because it is a view"):
        run(engine, "DELETE FROM web_sessions_live")
    here.downgrade()


@pytest.mark.databases("sqlite")
def test_a_table_that_is_copied_has_no_view_meanwhile(there: Any, engine: Engine) -> None:
    body = (
        "with op.batch_alter_table('web_sessions', recreate='always') as batch_op:\n"
        "        batch_op.alter_column('views', server_default='0')"
    )
    off, on = (f"op.alter_ttl('web_sessions', 3600, enforce='{how}')" for how in ("off", "view"))
    there.revision(f"{off}\n    {body}\n    {on}")
    there.upgrade()
    assert shown(engine) == ["a", "b", "c"]


@pytest.mark.databases("sqlite")
def test_a_script_for_sqlite_can_not_make_it(project: Any) -> None:
    here = project()
    here.revision(ADD, DROP)
    with pytest.raises(MigrationRefusedError, match="reads the table's columns from SQLite"):
        here.script()


@pytest.mark.databases("mariadb", "mysql")
def test_a_script_makes_it_and_takes_it_off(before: Any, engine: Engine, project: Any) -> None:
    here = project()
    here.revision(ADD, DROP)
    assert "SQL SECURITY INVOKER VIEW web_sessions_live" in here.script()
    assert "DROP VIEW IF EXISTS web_sessions_live" in here.script("downgrade", "r1:base")


@pytest.mark.databases("sqlite", "mariadb", "mysql")
def test_row_level_security_is_refused_where_there_is_none(
    before: Any, engine: Engine, project: Any
) -> None:
    here = project()
    here.revision("op.add_ttl('web_sessions', 3600, enforce='rls')")
    with pytest.raises(MigrationRefusedError, match=r"for PostgreSQL.*enforce='view'"):
        here.upgrade()


@pytest.mark.databases("postgres")
def test_a_view_in_an_earlier_schema_of_the_search_path_is_found(
    before: Any, engine: Engine, project: Any
) -> None:
    del before
    run(engine, "CREATE SCHEMA reports")
    options = {"options": "-c search_path=reports,public"}
    searching = create_engine(engine.url, connect_args=options)
    here = project(models(3600))
    here.engine = searching
    here.revision(f"{ADD}\n    op.alter_ttl('web_sessions', 60)", DROP)
    here.upgrade()
    age(engine, "a", 600)
    assert run(engine, "SELECT id FROM reports.web_sessions_live ORDER BY id") == [("b",), ("c",)]
    here.downgrade()
    assert run(engine, "SELECT FROM pg_views WHERE schemaname = 'reports'") == []
    searching.dispose()
