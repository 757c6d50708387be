"""A table that somebody has locked as a whole: nothing of ours waits for it without bound.

``LOCK TABLE``, an ALTER that stands behind an open transaction, a backup that holds the file: MySQL
would wait for a day, PostgreSQL for ever, and an application may let SQLite wait for an hour.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from sqlalchemy import QueuePool, String, create_engine, event, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from tests.sql.sweeping import HOUR, add, left
from ttl_odm.cli.commands import cli
from ttl_odm.sqlalchemy import TTLMixin, lease_table
from ttl_odm.sqlalchemy.sweep import leases, transactions
from ttl_odm.sweeper import Ending, Sweeper, TransientStoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from tests.backends import Backend

# Locks are each server's own.
pytestmark = pytest.mark.every_server

_LOCK = {
    "postgresql": "LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE",
    "mysql": "LOCK TABLES {table} WRITE",
    "sqlite": "BEGIN EXCLUSIVE",
}
_PATIENCE = {
    "postgresql": "SELECT current_setting('lock_timeout')",
    "mysql": "SELECT CONCAT(@@lock_wait_timeout, ' ', @@innodb_lock_wait_timeout)",
    "sqlite": "PRAGMA busy_timeout",
}
_OWN = {
    "postgresql": ("SET lock_timeout = '17min'",),
    "mysql": ("SET SESSION lock_wait_timeout = 1700, innodb_lock_wait_timeout = 1800",),
    "sqlite": ("PRAGMA busy_timeout = 1717000",),
}


class Base(DeclarativeBase):
    pass


class Barrow(TTLMixin, Base):
    __tablename__ = "locked_barrows"
    __ttl__ = HOUR

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class Crate(TTLMixin, Base):
    __tablename__ = "locked_crates"
    __ttl__ = HOUR

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    label: Mapped[str | None] = mapped_column(String(20))


lease_table(Base.metadata)


@pytest.fixture
def patient(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """An engine of an application that waits for long, with expired rows in two tables."""
    monkeypatch.setattr("random.random", lambda: 0.001)  # try again nearly without waiting
    monkeypatch.setattr("ttl_odm.sweeper.batch_gate.ATTEMPTS", 2)
    monkeypatch.setattr(transactions, "FILE_WAIT", 20)
    monkeypatch.setattr(leases, "_POSTGRESQL_WAIT", text("SET LOCAL lock_timeout = '20ms'"))
    assert backend.sync_url is not None
    engine = create_engine(backend.sync_url, poolclass=QueuePool, pool_size=1)

    def wait_long(dbapi_connection: Any, _: Any) -> None:
        cursor = dbapi_connection.cursor()
        for statement in _OWN[engine.dialect.name]:
            cursor.execute(statement)
        dbapi_connection.commit()

    event.listen(engine, "connect", wait_long)
    Base.metadata.create_all(engine)
    with engine.begin() as connection:
        for model in (Barrow, Crate):
            add(connection, model.__tablename__, [(key, None, 2 * HOUR + key) for key in range(5)])
    yield engine
    assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]
    engine.dispose()


@contextmanager
def locked(engine: Engine, table: str = "locked_crates") -> Iterator[None]:
    """Hold a table (SQLite: the file), and see afterwards that the pool's settings are as before.

    Who would wait for the table without bound is let go after ten minutes.
    """
    question, dialect = text(_PATIENCE[engine.dialect.name]), engine.dialect.name
    with engine.connect() as connection:
        before = connection.scalar(question)
    other = create_engine(engine.url, isolation_level=None if dialect == "sqlite" else "AUTOCOMMIT")
    with other.connect() as holder:
        if dialect == "postgresql":
            holder.execute(text("SET idle_in_transaction_session_timeout = '600s'"))
            holder.execute(text("BEGIN"))
        elif dialect == "mysql":
            holder.execute(text("SET SESSION wait_timeout = 600"))
        holder.connection.cursor().execute(_LOCK[dialect].format(table=table))
        try:
            yield
        finally:
            holder.invalidate()
    other.dispose()
    with engine.connect() as connection:
        assert connection.scalar(question) == before


@pytest.mark.slow
def test_a_locked_table_is_left_and_reported_and_the_next_sweep_takes_it_up(
    patient: Engine,
) -> None:
    sweeper = Sweeper(patient, Base, lease=False)
    with locked(patient):
        report = sweeper.run_once()
    failed = [target.table for target in report.failed]
    if patient.dialect.name == "sqlite":  # a file is locked as a whole
        assert set(failed) == {"locked_barrows", "locked_crates"}
    else:
        assert failed == ["locked_crates"]
        assert "lock" in report.problems[0].lower()
        with patient.connect() as connection:
            assert left(connection, Barrow) == set()
    sweeper.run_once().raise_for_failures()
    with patient.connect() as connection:
        assert left(connection, Crate) == set()


@pytest.mark.slow
def test_a_sweep_that_meets_a_locked_table_can_be_stopped(patient: Engine) -> None:
    sweeper = Sweeper(patient, Crate, lease=False)
    event.listen(patient, "handle_error", lambda _: sweeper.stop())
    with locked(patient):
        report = sweeper.run_once()
    assert report.ended is Ending.STOPPED


@pytest.mark.slow
def test_questions_about_a_locked_table_fail_in_time(patient: Engine) -> None:
    sweeper = Sweeper(patient, Base)
    sweeper.run_once().raise_for_failures()
    with locked(patient):
        store = sweeper._store
        for question in (store.due, store.count):
            with pytest.raises(TransientStoreError):
                question("locked_crates")
    with locked(patient, "ttl_odm_lease"):
        for ask in (sweeper.status, sweeper.pause):
            with pytest.raises(TransientStoreError):
                ask()


@pytest.mark.slow
@pytest.mark.databases("postgres", "mariadb", "mysql")
@pytest.mark.parametrize("command", ["status", "check"])
def test_the_command_line_reports_a_locked_table_and_goes_on(patient: Engine, command: str) -> None:
    url = patient.url.render_as_string(hide_password=False)
    with locked(patient):
        shown = CliRunner().invoke(cli, [command, "--app", f"{__name__}:Base", "--url", url])
    assert shown.exit_code == 1, shown.output
    assert "locked_crates" in shown.output
    assert "lock" in shown.output.replace("locked_", "").lower()
    assert ("locked_barrows" if command == "status" else "2 targets checked") in shown.output
