"""The options of the operations, and the ways to run them."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import DateTime, Integer, text
from sqlalchemy.orm import Session, mapped_column

from tests.migrations.conftest import fill, models
from tests.migrations.projects import catalogue
from tests.migrations.swept import run

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine


def rows(engine: Engine, what: str, where: str = "1 = 1") -> list[Any]:
    with engine.connect() as connection:
        query = f"SELECT {what} FROM web_sessions WHERE {where} ORDER BY id"  # noqa: S608
        return list(connection.execute(text(query)).scalars())


def test_a_batch_adds_changes_and_drops_ttl_after_its_own_work(
    before: Any, engine: Engine, project: Any
) -> None:
    here = project(models(60, clicks=mapped_column(Integer, default=0, nullable=False)))
    body = "with op.batch_alter_table('web_sessions') as batch_op:\n        "
    column = "sa.Column('clicks', sa.Integer(), nullable=False, server_default='0')"
    here.revision(
        f"{body}batch_op.add_ttl(60)\n        batch_op.add_column({column})",
        f"{body}batch_op.drop_ttl()\n        batch_op.drop_column('clicks')",
    )
    plain = catalogue(engine, "web_sessions")
    here.upgrade()
    here.check()
    here.revision(f"{body}batch_op.alter_ttl(60, sweep='scan')")
    here.upgrade()
    assert "ttl_own" not in str(catalogue(engine, "web_sessions"))
    here.downgrade("base")
    assert catalogue(engine, "web_sessions") == plain


@pytest.mark.databases("sqlite")
def test_what_a_batch_that_copies_the_table_loses_is_found(engine: Engine, project: Any) -> None:
    model = models(60)
    model.metadata.create_all(engine)
    here = project(model)
    here.revision(
        "with op.batch_alter_table('web_sessions', recreate='always') as batch_op:\n"
        "        batch_op.alter_column('views', server_default='0')"
    )
    here.upgrade()
    assert "op.alter_ttl('web_sessions', 60, sweep='index')" in here.autogenerate()
    here.upgrade()
    here.check()


def test_rows_begin_where_a_column_says(engine: Engine, project: Any) -> None:
    from datetime import datetime, timedelta, timezone

    model = models(created_at=mapped_column(DateTime))
    model.metadata.create_all(engine)
    dates = {"a": "2026-01-01 10:00:00", "b": None, "c": "2100-01-01 00:00:00"}
    with engine.begin() as connection:
        for key, at in dates.items():
            connection.execute(
                text("INSERT INTO web_sessions (id, views, created_at) VALUES (:id, 0, :at)"),
                {"id": key, "at": at},
            )
    after = models(-1, created_at=mapped_column(DateTime))
    here = project(after)
    here.revision("op.add_ttl('web_sessions', -1, backfill='created_at')")
    here.upgrade()
    with Session(engine) as session:
        stamps = {row.id: row.last_modified for row in session.query(after)}
    now = datetime.now(timezone.utc)
    assert stamps["a"] == datetime(2026, 1, 1, 10, tzinfo=timezone.utc)
    assert abs(stamps["b"] - now) < timedelta(minutes=5)
    assert stamps["c"] == stamps["b"]  # not in the future


@pytest.mark.databases("mariadb", "mysql")
def test_columns_that_mariadb_updates_by_itself_stay(engine: Engine, project: Any) -> None:
    with engine.begin() as connection:
        connection.execute(
            text(
                "CREATE TABLE web_sessions (id INT PRIMARY KEY, views INT, "
                "created_at TIMESTAMP NOT NULL DEFAULT '2026-01-01 10:00:00', "
                "updated_at DATETIME DEFAULT '2020-02-02' ON UPDATE CURRENT_TIMESTAMP)"
            )
        )
        connection.execute(text("INSERT INTO web_sessions (id) VALUES (1), (2)"))
    old = rows(engine, "updated_at")
    here = project()
    here.revision("op.add_ttl('web_sessions', 60, backfill='created_at')")
    here.upgrade()
    assert rows(engine, "updated_at") == old


def test_keys_of_several_columns_are_walked(engine: Engine, project: Any) -> None:
    with engine.begin() as connection:
        connection.execute(
            text(
                "CREATE TABLE web_sessions (id INTEGER, shop VARCHAR(9), created_at TIMESTAMP, "
                "PRIMARY KEY (shop, id))"
            )
        )
        for number in range(20):
            connection.execute(
                text(
                    f"INSERT INTO web_sessions VALUES ({number}, '{number % 3}', "  # noqa: S608
                    "'2026-01-01 10:00:00')"
                )
            )
    here = project(ttl_odm={"batch_rows": 3})
    here.revision("op.add_ttl('web_sessions', 60, backfill='created_at')")
    here.upgrade()
    stamps = rows(engine, "_ts")
    assert len(stamps) == 20
    assert len(set(stamps)) == 1


@pytest.mark.slow
@pytest.mark.databases("sqlite")
@pytest.mark.parametrize(
    "definition",
    [
        "(id, shop, PRIMARY KEY (id))",  # SQLite lets NULL into such a key
        "(id, shop, PRIMARY KEY (shop, id))",
        "(rowid, id, shop)",
        "(_rowid_, oid, rowid, id, shop)",
        "(id, shop, PRIMARY KEY (id)) WITHOUT\n  ROWID",
    ],
    ids=["text", "pair", "rowid", "hidden", "without"],
)
def test_every_row_is_written_on_sqlite_whatever_its_key(
    engine: Engine, project: Any, definition: str
) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE TABLE web_sessions {definition}")
        for number in range(20):
            key = "NULL" if number % 3 and "WITHOUT" not in definition else number
            connection.exec_driver_sql(
                f"INSERT INTO web_sessions (id, shop) VALUES ({key}, 'x')"  # noqa: S608
            )
    here = project(ttl_odm={"batch_rows": 3})
    here.revision("op.add_ttl('web_sessions', 60)", "op.drop_ttl('web_sessions')")
    for _ in range(2):
        here.upgrade()
        assert all(isinstance(stamp, int) for stamp in rows(engine, "_ts"))
        assert len(rows(engine, "_ts")) == 20
        with engine.connect() as connection:
            assert connection.scalar(text("PRAGMA integrity_check")) == "ok"
        here.downgrade()


@pytest.mark.databases("sqlite")
def test_a_trigger_stamps_one_row_where_a_column_has_the_name_of_the_rowid(
    engine: Engine, project: Any
) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE web_sessions (rowid TEXT, id INTEGER)")
        connection.exec_driver_sql("INSERT INTO web_sessions VALUES ('a', 1), ('a', 2), (NULL, 3)")
    here = project()
    here.revision("op.add_ttl('web_sessions', 60, touch_trigger=True)")
    here.upgrade()
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE web_sessions SET _ts = 1")
        connection.exec_driver_sql("UPDATE web_sessions SET id = 9 WHERE id <> 2")
    assert [stamp > 1 for stamp in rows(engine, "_ts")] == [False, True, True]


@pytest.mark.databases("mariadb", "mysql")
def test_a_walk_ends_over_a_key_that_is_not_read_exactly(engine: Engine, project: Any) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE TABLE web_sessions (price FLOAT, id INT, created_at TIMESTAMP NOT NULL "
            "DEFAULT '2026-01-01 10:00:00', PRIMARY KEY (price, id))"
        )
        values = ", ".join(f"(1.1, {number})" for number in range(20))
        connection.exec_driver_sql(
            f"INSERT INTO web_sessions (price, id) VALUES {values}"  # noqa: S608
        )
    here = project(ttl_odm={"batch_rows": 3})
    here.revision("op.add_ttl('web_sessions', 60, backfill='created_at')")
    here.upgrade()
    assert len(set(rows(engine, "_ts"))) == 1


def test_raw_updates_are_stamped_by_the_trigger(before: Any, engine: Engine, project: Any) -> None:
    here = project(models(3600))
    here.revision(
        "op.add_ttl('web_sessions', 3600, touch_trigger=True)", "op.drop_ttl('web_sessions')"
    )
    here.upgrade()
    here.check()
    past = "now() - interval '1 day'" if engine.dialect.name == "postgresql" else "1000"
    with engine.begin() as connection:
        # A stamp that is given is kept.
        connection.execute(text(f"UPDATE web_sessions SET _ts = {past}"))  # noqa: S608
    old = rows(engine, "_ts", "id = 'a'")
    assert rows(engine, "_ts", "id = 'b'") == old
    with engine.begin() as connection:
        connection.execute(text("UPDATE web_sessions SET views = 7 WHERE id = 'a'"))
    assert rows(engine, "_ts", "id = 'a'") > old
    assert rows(engine, "_ts", "id = 'b'") == old
    here.downgrade()
    with engine.begin() as connection:
        connection.execute(text("UPDATE web_sessions SET views = 8"))


@pytest.mark.databases("postgres")
def test_row_level_security_hides_expired_rows_from_those_who_only_read(
    before: Any, engine: Engine, project: Any
) -> None:
    here = project(models(3600))
    here.revision("op.add_ttl('web_sessions', 3600, enforce='rls')", "op.drop_ttl('web_sessions')")
    plain = catalogue(engine, "web_sessions")
    here.upgrade()
    here.check()
    reader, writer = (f"{name}_{engine.url.database}"[:60] for name in ("reads", "writes"))
    grants = {reader: "SELECT", writer: "SELECT, INSERT, UPDATE, DELETE"}
    seen = {}
    with engine.connect() as connection, connection.begin() as transaction:
        connection.execute(
            text("UPDATE web_sessions SET _ts = now() - interval '2 hours' WHERE id = 'a'")
        )
        for role, grant in grants.items():
            connection.execute(text(f"CREATE ROLE {role}"))
            connection.execute(text(f"GRANT {grant} ON web_sessions TO {role}"))
            connection.execute(text(f"SET LOCAL ROLE {role}"))
            query = text("SELECT id FROM web_sessions ORDER BY id")
            seen[role] = list(connection.execute(query).scalars())
            if role == writer:
                connection.execute(text("INSERT INTO web_sessions (id, views) VALUES ('n', 0)"))
                deleted = connection.execute(text("DELETE FROM web_sessions WHERE id = 'a'"))
                assert deleted.rowcount == 1
            connection.execute(text("RESET ROLE"))
        transaction.rollback()
    assert seen == {reader: ["b", "c"], writer: ["a", "b", "c"]}
    here.downgrade()
    assert catalogue(engine, "web_sessions") == plain


@pytest.mark.slow
@pytest.mark.databases("postgres")
def test_policies_and_views_of_somebody_else_stay(
    before: Any, engine: Engine, project: Any
) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE POLICY own ON web_sessions USING (views = 0)"))
        connection.execute(text("ALTER TABLE web_sessions ENABLE ROW LEVEL SECURITY"))
        connection.execute(text("CREATE VIEW web_sessions_live AS SELECT 1 AS one"))
    plain = catalogue(engine, "web_sessions")
    here = project()
    here.revision("op.add_ttl('web_sessions', 3600, enforce='rls')", "op.drop_ttl('web_sessions')")
    here.upgrade()
    assert "ttl_all" not in str(catalogue(engine, "web_sessions"))
    here.downgrade()
    assert catalogue(engine, "web_sessions") == plain
    with engine.connect() as connection:
        query = "SELECT relrowsecurity FROM pg_class WHERE relname = 'web_sessions'"
        assert connection.scalar(text(query)) is True
        assert connection.scalar(text("SELECT one FROM web_sessions_live")) == 1


@pytest.mark.databases("postgres")
def test_a_migration_may_stay_in_its_callers_transaction(engine: Engine) -> None:
    from alembic.migration import MigrationContext
    from alembic.operations import Operations

    models().metadata.create_all(engine)
    fill(engine, "web_sessions")
    plain = catalogue(engine, "web_sessions")
    with engine.connect() as connection, connection.begin() as transaction:
        operations: Any = Operations(MigrationContext.configure(connection))
        operations.add_ttl("web_sessions", 60, in_transaction=True)
        assert connection.scalar(text("SELECT count(_ts) FROM web_sessions")) == 3
        transaction.rollback()
    assert catalogue(engine, "web_sessions") == plain


async def test_an_asynchronous_env_py_migrates_too(
    async_engine: AsyncEngine, tmp_path: Path
) -> None:
    from alembic.migration import MigrationContext
    from alembic.operations import Operations

    async with async_engine.begin() as connection:
        await connection.run_sync(models().metadata.create_all)

    def migrate(connection: Any) -> None:
        context = MigrationContext.configure(connection)
        operations: Any = Operations(context)
        operations.add_ttl("web_sessions", 60)
        operations.drop_ttl("web_sessions")
        operations.add_ttl("web_sessions", 60)

    async with async_engine.connect() as connection:
        await connection.run_sync(migrate)
    async with async_engine.connect() as connection:
        await connection.execute(text("SELECT _ts, ttl FROM web_sessions"))


MODELS = """
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from ttl_odm.sqlalchemy import TTLMixin

class Carts(DeclarativeBase): ...
class Logs(DeclarativeBase): ...

class Cart(TTLMixin, Carts):
    __tablename__ = "carts"
    __ttl__ = 60
    id: Mapped[int] = mapped_column(primary_key=True)

class Log(TTLMixin, Logs):
    __tablename__ = "logs"
    __ttl__ = 3600
    id: Mapped[int] = mapped_column(primary_key=True)
"""

IMPORTS = """
import ttl_odm.alembic
import models
target_metadata = {"one": models.Carts.metadata, "two": models.Logs.metadata}
"""


@pytest.mark.slow
def test_every_database_of_an_environment_is_migrated_by_itself(tmp_path: Path) -> None:
    """Alembic's template for several databases, changed as the documentation says."""

    def alembic(*words: str) -> str:
        command = [sys.executable, "-m", "alembic", *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    alembic("init", "--template", "multidb", "scripts")
    (tmp_path / "models.py").write_text(MODELS)
    configuration = tmp_path / "alembic.ini"
    said = configuration.read_text().replace("databases = engine1, engine2", "databases = one, two")
    for old, name in (("engine1", "one"), ("engine2", "two")):
        section = f"[{name}]\nsqlalchemy.url = sqlite:///{name}.sqlite3"
        said = re.sub(rf"\[{old}\]\nsqlalchemy.url = .*", section, said)
    configuration.write_text(said)
    page = (Path(__file__).parents[2] / "docs" / "migrating.md").read_text()
    block = page.split("**Several databases.**")[1].split("```python\n")[1].split("```")[0]
    environment = tmp_path / "scripts" / "env.py"
    head, _, tail = environment.read_text().partition("def run_migrations_online() -> None:")
    last = tail[tail.index("if context.is_offline_mode()") :]
    online = f"def run_migrations_online():\n{indent(block, '    ')}\n\n"
    head = head.replace("target_metadata = {}", IMPORTS)
    environment.write_text(f"{head}{online}{last}")

    for name, table in (("one", "carts"), ("two", "logs")):
        with closing(sqlite3.connect(tmp_path / f"{name}.sqlite3")) as connection:
            connection.execute(f"CREATE TABLE {table} (id INTEGER NOT NULL PRIMARY KEY)")
    alembic("revision", "--autogenerate", "-m", "ttl")
    (revision,) = (tmp_path / "scripts" / "versions").glob("*.py")
    assert re.findall(r"op\.\w+\('\w+'", revision.read_text()) == [
        *("op.add_ttl('carts'", "op.drop_ttl('carts'"),
        *("op.add_ttl('logs'", "op.drop_ttl('logs'"),
    ]
    alembic("upgrade", "head")
    assert "No new upgrade operations detected" in alembic("check")
    with closing(sqlite3.connect(tmp_path / "two.sqlite3")) as connection:
        assert connection.execute("SELECT id, _ts, ttl FROM logs").fetchall() == []
    alembic("downgrade", "base")


@pytest.mark.parametrize("rule", ["", " ON DELETE CASCADE"])
def test_a_foreign_key_that_will_keep_rows_is_logged(
    before: Any, engine: Engine, project: Any, caplog: pytest.LogCaptureFixture, rule: str
) -> None:
    with engine.begin() as connection:
        connection.execute(
            text(
                "CREATE TABLE visits (id INTEGER PRIMARY KEY, session_id VARCHAR(40), "
                f"FOREIGN KEY (session_id) REFERENCES web_sessions (id){rule})"
            )
        )
    here = project(models(60))
    here.revision("op.add_ttl('web_sessions', 60)")
    here.upgrade()
    said = "__ttl__ = Follows('session_id') on the referring model" in caplog.text
    assert said is not bool(rule)


@pytest.mark.databases("mariadb", "mysql")
@pytest.mark.every_server
@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("SET('z', 'a', 'm')", ["", "z", "a", "m", "z,a", "z,m", "z,a,m"]),
        ("ENUM('z', 'a', 'm')", ["z", "a", "m"]),
        ("TIME(6)", ["01:00:00.5", "-100:30:00", "100:00:00", "-00:00:01", "05:00:00"]),
        ("FLOAT", ["0.1", "0.2", "0.3", "0.7", "1.7"]),
    ],
)
def test_a_backfill_walks_keys_that_python_reads_in_another_form(
    engine: Engine, project: Any, kind: str, keys: list[str]
) -> None:
    with engine.begin() as connection:
        columns = f"k {kind}, n INT, seen_at DATETIME DEFAULT '2020-01-01', PRIMARY KEY (k, n)"
        connection.execute(text(f"CREATE TABLE web_sessions ({columns})"))
        for key in keys:
            row = {"key": key}
            connection.execute(text("INSERT INTO web_sessions (k, n) VALUES (:key, 1)"), row)
            connection.execute(text("INSERT INTO web_sessions (k, n) VALUES (:key, 2)"), row)
    here = project(ttl_odm={"batch_rows": 2})
    here.revision("op.add_ttl('web_sessions', 3600, backfill='seen_at')")
    here.upgrade()
    assert run(engine, "SELECT DISTINCT _ts FROM web_sessions") == [(1_577_836_800_000_000,)]


@pytest.mark.databases("sqlite")
def test_a_batch_that_copies_the_table_makes_the_trigger_again(
    before: Any, engine: Engine, project: Any
) -> None:
    del before
    here = project()
    here.revision("op.add_ttl('web_sessions', 3600, touch_trigger=True)")
    here.upgrade()
    made = catalogue(engine, "web_sessions")
    here.revision(
        "with op.batch_alter_table('web_sessions', recreate='always') as batch_op:\n"
        "        batch_op.alter_ttl(3600, sweep='index', touch_trigger=True)"
    )
    here.upgrade()
    assert catalogue(engine, "web_sessions") == made
