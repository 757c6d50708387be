"""Nobody waits long: every lock that keeps writers out is given up soon and asked for again."""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event, text

from tests.guard import GUARD
from tests.migrations.conftest import models
from tests.migrations.projects import catalogue
from ttl_odm.errors import TTLError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

# Locks are each server's own.
pytestmark = pytest.mark.every_server


@contextmanager
def long_reader(engine: Engine) -> Iterator[Any]:
    """A transaction that has read the table and does not end."""
    with engine.connect() as connection:
        connection.execute(text("SELECT count(*) FROM web_sessions"))
        yield connection
        connection.rollback()


class Waits(logging.Handler):
    """Tells when the migration has given up its place and is about to try again."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.happened = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if "waiting for a lock" in record.getMessage():
            self.happened.set()


@pytest.fixture
def waits() -> Iterator[Waits]:
    logger = logging.getLogger("alembic.ttl_odm")
    handler, level = Waits(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


@pytest.mark.slow
@pytest.mark.databases("postgres", "mariadb", "mysql")
@pytest.mark.parametrize("operation", ["add_ttl('web_sessions', 60)", "drop_ttl('web_sessions')"])
def test_a_migration_waits_behind_a_long_reader_and_lets_others_pass(
    engine: Engine, project: Any, operation: str, waits: Waits
) -> None:
    adds = operation.startswith("add")
    model = models() if adds else models(60, __ttl_sweep__="scan")
    model.metadata.create_all(engine)
    here = project()
    here.revision(f"op.{operation}")
    with long_reader(engine) as reader:
        migration = threading.Thread(target=here.upgrade)
        migration.start()
        for _ in range(2):
            assert waits.happened.wait(GUARD)
            # A writer gets through, though the reader is still there.
            with engine.begin() as connection:
                connection.execute(text("UPDATE web_sessions SET views = 1"))
            waits.happened.clear()
        reader.rollback()
        migration.join(GUARD)
    assert not migration.is_alive()
    assert ("_ts" in str(catalogue(engine, "web_sessions"))) is adds


@pytest.mark.slow
@pytest.mark.every_driver
@pytest.mark.databases("postgres", "mariadb", "mysql")
def test_a_migration_that_gets_no_lock_gives_up_and_can_be_run_again(
    before: Any, engine: Engine, project: Any
) -> None:
    here = project(models(60), ttl_odm={"give_up_after": 0.5, "lock_timeout": 0.1})
    here.autogenerate()
    with long_reader(engine), pytest.raises(TTLError, match=r"Did not get .* in \d+ tries"):
        here.upgrade()
    here.upgrade()
    here.check()


@pytest.mark.slow
@pytest.mark.databases("postgres")
def test_no_lock_that_keeps_writers_out_is_held_or_awaited_longer_than_the_timeout(
    engine: Engine, project: Any
) -> None:
    """Every statement that may take such a lock runs under the timeout, and reads no rows."""
    model = models(60, created_at=_created_at())
    models(created_at=_created_at()).metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO web_sessions (id, views, created_at) "
                "SELECT i, 0, now() - i * interval '1 s' FROM generate_series(1, 20000) i"
            )
        )
    here = project(model)
    here.revision(
        "op.add_ttl('web_sessions', 60, backfill='created_at', touch_trigger=True, enforce='rls')",
        "op.drop_ttl('web_sessions')",
    )
    held: list[tuple[str, float]] = []

    def before_statement(connection: Any, _: Any, statement: str, *__: Any) -> None:
        connection.info["began"] = monotonic()

    def after_statement(connection: Any, _: Any, statement: str, *__: Any) -> None:
        took = monotonic() - connection.info["began"]
        held.append((statement, took))

    event.listen(engine, "before_cursor_execute", before_statement)
    event.listen(engine, "after_cursor_execute", after_statement)
    here.upgrade()
    here.downgrade("base")
    blocking = ("ALTER TABLE", "CREATE TRIGGER", "DROP TRIGGER", "CREATE POLICY", "DROP POLICY")
    seen = 0
    for statement, _ in held:
        if "web_sessions" not in statement or not any(word in statement for word in blocking):
            continue
        seen += 1
        if "VALIDATE CONSTRAINT" in statement:
            continue  # SHARE UPDATE EXCLUSIVE: it lets writers work
        assert statement.startswith("DO "), statement
        assert "SET LOCAL lock_timeout = '200ms'" in statement
    assert seen >= 5
    indexing = [each for each, _ in held if " INDEX " in each and "web_sessions" in each]
    assert indexing
    assert all("CONCURRENTLY" in each for each in indexing)


@pytest.mark.databases("postgres")
def test_no_step_rewrites_the_table_or_takes_its_strongest_lock_for_the_rows(
    before: Any, engine: Engine, project: Any
) -> None:
    def file() -> Any:
        with engine.connect() as connection:
            return connection.scalar(text("SELECT pg_relation_filenode('web_sessions')"))

    first = file()
    here = project(models(60))
    here.revision("op.add_ttl('web_sessions', 60)", "op.drop_ttl('web_sessions')")
    here.upgrade()
    here.downgrade("base")
    assert file() == first


def _created_at() -> Any:
    from sqlalchemy import DateTime
    from sqlalchemy.orm import mapped_column

    return mapped_column(DateTime(timezone=True))
