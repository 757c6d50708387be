"""A migration that failed in the middle finishes when it is run again, and does nothing twice."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import DateTime, bindparam, event, inspect, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import mapped_column

from tests.migrations.conftest import models
from tests.migrations.projects import catalogue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

OLD = datetime(2026, 1, 1, 10, 0, 0)  # noqa: DTZ001 - what a naive column holds


class BrokenOffError(Exception):
    """Somebody pulled the plug."""


@contextmanager
def breaking_off(engine: Engine, number: int) -> Iterator[list[str]]:
    """Let the change of this number fail, before the database gets it; count all of them."""
    sent: list[str] = []

    def before(_: Any, __: Any, statement: str, *___: Any) -> None:
        if statement.split(maxsplit=1)[0] in ("SELECT", "PRAGMA", "SHOW", "DESCRIBE"):
            return
        sent.append(statement)
        if len(sent) == number:
            raise BrokenOffError

    event.listen(engine, "before_cursor_execute", before)
    try:
        yield sent
    finally:
        event.remove(engine, "before_cursor_execute", before)


def make(engine: Engine, name: str) -> None:
    models(name=name, created_at=mapped_column(DateTime)).metadata.create_all(engine)
    with engine.begin() as connection:
        for key in "abcdefg":
            connection.execute(
                # Its type says how the instant is stored: sqlite3's own way is deprecated.
                text(f"INSERT INTO {name} (id, views, created_at) VALUES (:id, 0, :at)").bindparams(  # noqa: S608
                    bindparam("at", OLD, DateTime)
                ),
                {"id": key},
            )


@pytest.fixture(autouse=True)
def careless(engine: Engine) -> None:
    """Let SQLite not wait for the disk: these tests write small files very often."""
    if engine.dialect.name == "sqlite":
        event.listen(
            engine, "connect", lambda raw, _: raw.execute("PRAGMA synchronous = OFF").close()
        )


@pytest.mark.in_turns
@pytest.mark.slow
def test_a_migration_may_break_off_at_any_statement(engine: Engine, project: Any) -> None:
    break_off_everywhere(engine, project, "created_at")


@pytest.mark.slow
@pytest.mark.databases("mariadb", "mysql", "sqlite")  # on PostgreSQL it is one statement
def test_so_may_one_that_leaves_old_rows_alone(engine: Engine, project: Any) -> None:
    break_off_everywhere(engine, project, None)


def break_off_everywhere(engine: Engine, project: Any, backfill: str | None) -> None:
    add = f"op.add_ttl(name, 60, backfill={backfill!r}, touch_trigger=True)"
    here = project(ttl_odm={"batch_rows": 3, "give_up_after": 20})
    here.revision("pass")
    made: Any = None
    number = 0
    while True:
        number += 1
        name = f"t{number}"
        make(engine, name)
        here.write(
            "from alembic import op\nrevision = 'r1'\ndown_revision = None\n"
            f"name = {name!r}\ndef upgrade():\n    {add}\n"
            "def downgrade():\n    op.drop_ttl(name)\n"
        )
        with breaking_off(engine, number) as sent, suppress(BrokenOffError):
            here.upgrade()
        written = _write_meanwhile(engine, name)
        here.upgrade()
        found = str(catalogue(engine, name)).replace(name, "t")
        made = made or found
        assert found == made, sent[-1]
        _check_rows(engine, name, backfill, written)
        with breaking_off(engine, number), suppress(BrokenOffError):
            here.downgrade()
        here.upgrade()
        here.downgrade()
        assert "_ts" not in {each["name"] for each in inspect(engine).get_columns(name)}
        assert "ttl_odm_migration" not in inspect(engine).get_table_names()
        if len(sent) < number:
            break
    assert number > 10


def _write_meanwhile(engine: Engine, name: str) -> bool:
    """What an application does between the tries, if the columns are there already."""
    columns = {each["name"] for each in inspect(engine).get_columns(name)}
    if not {"_ts", "ttl"} <= columns:
        return False
    with engine.begin() as connection:
        stamp = "_ts + interval '7 s'" if engine.dialect.name == "postgresql" else "_ts + 7"
        connection.execute(text(f"UPDATE {name} SET ttl = 7, _ts = {stamp} WHERE id = 'g'"))  # noqa: S608
    return True


def _check_rows(engine: Engine, name: str, backfill: str | None, written: bool) -> None:  # noqa: FBT001
    with engine.connect() as connection:
        rows = connection.execute(text(f"SELECT id, ttl, _ts FROM {name} ORDER BY id")).all()  # noqa: S608
    assert [row[0] for row in rows] == list("abcdefg")
    own = -1 if backfill is None else None
    assert [row[1] for row in rows[:6]] == [own] * 6
    assert len({row[2] for row in rows[:6]}) == 1
    if written:
        assert rows[6][1] == 7
        assert rows[6][2] != rows[0][2]


def test_an_operation_that_was_done_is_not_done_again(engine: Engine, project: Any) -> None:
    for name in ("ones", "others"):
        make(engine, name)
    here = project()
    here.revision("op.add_ttl('ones', 1)\n    op.add_ttl('others', 2, backfill='nothing')")
    with pytest.raises(Exception, match="has no column 'nothing'"):
        here.upgrade()
    with engine.connect() as connection:
        before = connection.execute(text("SELECT _ts FROM ones")).all()
    here.edit("'nothing'", "'created_at'")
    here.upgrade()
    with engine.connect() as connection:
        assert connection.execute(text("SELECT _ts FROM ones")).all() == before
    assert "ttl_odm_migration" not in inspect(engine).get_table_names()


@pytest.mark.slow
@pytest.mark.databases("postgres")
def test_an_invalid_index_of_a_failed_try_is_replaced(engine: Engine, project: Any) -> None:
    model = models(60)
    model.metadata.create_all(engine)
    made = catalogue(engine, "web_sessions")
    with engine.connect() as connection:
        connection.execute(
            text(
                "UPDATE pg_index SET indisvalid = false "
                "WHERE indexrelid = CAST('ix_web_sessions_ttl_own' AS regclass)"
            )
        )
        connection.commit()
    here = project(model)
    assert "op.alter_ttl('web_sessions', 60, sweep='index')" in here.autogenerate()
    here.upgrade()
    assert catalogue(engine, "web_sessions") == made


@pytest.mark.slow
@pytest.mark.databases("postgres")
def test_an_index_that_can_be_neither_built_nor_dropped_says_why_it_was_not_built(
    engine: Engine, project: Any
) -> None:
    model = models(60)
    model.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(text("DROP INDEX ix_web_sessions_ttl_own"))
    here = project(model)
    here.autogenerate()
    instead = {"CREATE INDEX CONCURRENTLY": "SELECT 1 / 0", "DROP INDEX CONCURRENTLY": "SELECT x"}
    sent: list[str] = []

    def fail(_: Any, __: Any, statement: str, parameters: Any, *___: Any) -> tuple[str, Any]:
        for begin, other in instead.items():
            if statement.startswith(begin):
                sent.append(begin)
                return other, parameters
        return statement, parameters

    event.listen(engine, "before_cursor_execute", fail, retval=True)
    with pytest.raises(DBAPIError, match="division by zero"):
        here.upgrade()
    assert sent == [*instead]


def test_an_operation_on_another_table_of_the_same_name_is_not_taken_for_done(
    before: Any, engine: Engine, project: Any
) -> None:
    del before
    here = project()
    here.revision(
        "op.add_ttl('web_sessions', 60, sweep='scan')\n"
        "    op.rename_table('web_sessions', 'logins')\n"
        "    op.create_table('web_sessions', sa.Column('id', sa.String(40), primary_key=True))\n"
        "    op.add_ttl('web_sessions', 60, sweep='scan')",
        "op.drop_ttl('web_sessions')\n    op.drop_table('web_sessions')\n"
        "    op.rename_table('logins', 'web_sessions')\n    op.drop_ttl('web_sessions')",
    )
    for _ in range(2):
        here.upgrade()
        for table in ("web_sessions", "logins"):
            assert "_ts" in {each["name"] for each in inspect(engine).get_columns(table)}
        here.downgrade()
        assert {each["name"] for each in inspect(engine).get_columns("web_sessions")} == {
            "id",
            "views",
        }
