"""Failures that pass by themselves, provoked for real: a sweep tries again and gets through."""

from __future__ import annotations

import signal
import socket
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine, event, make_url, text

from tests.faults.carts import HOUR, add, cart, create, kept_keys, left
from tests.guard import GUARD
from tests.locks import answers, wait_until_blocked
from ttl_odm.sqlalchemy.sweep import transactions
from ttl_odm.sqlalchemy.sweep.transactions import store_errors
from ttl_odm.sweeper import Pace, Sweeper, TransientStoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection, Engine

# Each server has errors of its own.
pytestmark = pytest.mark.every_server

servers = pytest.mark.databases("postgres", "mariadb", "mysql")

# Ways to be in the middle of a DELETE for as long as a test wants, or until it hurries.
_SLEEP = (
    "BEGIN IF EXISTS (SELECT 1 FROM slowly) THEN PERFORM pg_sleep({seconds}); END IF; "
    "RETURN OLD; END"
)
_LOCK = "CONCAT('fast ', DATABASE())"
SLOW = {
    "postgresql": (
        "CREATE TABLE slowly AS SELECT 1",
        f"CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ {_SLEEP} $$",
        "CREATE TRIGGER slow BEFORE DELETE ON carts FOR EACH ROW EXECUTE FUNCTION slow()",
    ),
    "mysql": (
        (
            "CREATE TRIGGER slow BEFORE DELETE ON carts FOR EACH ROW "
            f"SET @slept = IF(IS_FREE_LOCK({_LOCK}), SLEEP({{seconds}}), 0)"
        ),
    ),
}
# A trigger of MariaDB would lock the row of a table, so it looks at a lock of this connection's.
HURRY = {"postgresql": "DELETE FROM slowly", "mysql": f"DO GET_LOCK({_LOCK}, 0)"}
OTHERS = {
    "postgresql": "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
    "AND pid <> pg_backend_pid() AND state = 'active' AND query LIKE 'DELETE%'",
    "mysql": "SELECT id FROM information_schema.processlist WHERE db = DATABASE() "
    "AND id <> CONNECTION_ID() AND (info LIKE 'DELETE%' OR info LIKE '%SLEEP%')",
}
KILL = {"postgresql": "SELECT pg_terminate_backend({id})", "mysql": "KILL CONNECTION {id}"}


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again nearly without waiting."""
    monkeypatch.setattr("random.random", lambda: 0.001)


def made(engine: Engine, expired: int = 20) -> Any:
    model = cart("hook")
    with engine.begin() as connection:
        create(connection, model)
        add(connection, range(expired), age=2 * HOUR)
        add(connection, range(expired, expired + 5), age=HOUR / 2)
    return model


def assert_swept(engine: Engine, expired: int = 20) -> None:
    with engine.connect() as connection:
        assert kept_keys(connection) == list(range(expired))
        assert len(left(connection, cart("hook"))) == 5


def is_postgresql(engine: Engine) -> bool:
    return engine.dialect.name == "postgresql"


def is_mariadb(engine: Engine) -> bool:
    with engine.connect() as connection:
        return bool(getattr(connection.dialect, "is_mariadb", False))


@contextmanager
def errors_of(engine: Engine) -> Iterator[list[str]]:
    """Collect what the driver raises inside."""
    met: list[str] = []

    def note(context: Any) -> None:
        met.append(str(context.original_exception))

    event.listen(engine, "handle_error", note)
    yield met
    event.remove(engine, "handle_error", note)


def slow(engine: Engine, seconds: float) -> None:
    with engine.begin() as connection:
        for statement in SLOW[engine.dialect.name]:
            connection.execute(text(statement.format(seconds=seconds)))


@servers
def test_a_connection_that_is_cut_in_the_middle_of_a_delete_is_replaced(engine: Engine) -> None:
    model = made(engine)
    slow(engine, 30)
    cut: list[int] = []
    swept = threading.Event()

    def watch() -> None:
        other = create_engine(engine.url, isolation_level="AUTOCOMMIT")
        with other.connect() as connection:
            cut.extend(answers(connection, OTHERS[engine.dialect.name]))
            connection.execute(text(HURRY[engine.dialect.name]))
            connection.execute(text(KILL[engine.dialect.name].format(id=cut[0])))
            swept.wait()
        other.dispose()

    killer = threading.Thread(target=watch)
    killer.start()
    with errors_of(engine) as met:
        report = Sweeper(engine, model).run_once()
    swept.set()
    killer.join()
    report.raise_for_failures()
    assert met
    assert report.deleted == 20
    assert_swept(engine)


@pytest.mark.in_turns
@pytest.mark.databases("postgres", "mariadb")  # MySQL has nothing that limits a DELETE
def test_a_statement_that_takes_too_long_makes_the_batch_smaller(engine: Engine) -> None:
    model = made(engine)
    slow(engine, 0.15)
    pace = Pace(start=20, lowest=1, highest=20, target=10)
    with errors_of(engine) as met:
        report = Sweeper(engine, model, pace=pace, statement_timeout=1.25).run_once()
    report.raise_for_failures()
    assert met
    assert report.targets[0].batches >= 4
    assert_swept(engine)
    with engine.connect() as connection:  # what was set for the session is set back
        if engine.dialect.name == "mysql":
            assert connection.scalar(text("SELECT @@max_statement_time")) == 0


@pytest.mark.slow
@servers
def test_a_deadlock_is_survived(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody holds a row in the middle, and then wants one that the sweeper has locked.

    As on a server that can't be told not to wait; and there has to be a deadlock before a wait is
    over, however slow the machine is. PostgreSQL looks for one once in a wait. On MySQL, where the
    sweeper waits for no row that it deletes, it is one that a trigger changes.
    """
    monkeypatch.setattr(transactions, "NO_WAIT", {"innodb_lock_wait_timeout": GUARD})
    is_mysql = engine.dialect.name == "mysql" and not is_mariadb(engine)
    if is_mysql:
        monkeypatch.setattr(transactions, "SHORT_WAITS", {"innodb_lock_wait_timeout": GUARD})
    hold = "SELECT id FROM carts WHERE id = 10 FOR UPDATE"
    monkeypatch.setattr(transactions, "_POSTGRESQL_WAIT", "600s")
    monkeypatch.setattr(transactions, "_settings", transactions._settings.__wrapped__)
    model = made(engine)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE weights (id int)"))
        if is_postgresql(engine):  # before the sweeper stops waiting
            name = engine.url.database
            connection.execute(text(f"ALTER DATABASE {name} SET deadlock_timeout = '3s'"))
        if is_mysql:
            connection.execute(text("CREATE TABLE goings SELECT 0 AS number"))
            hold = "UPDATE goings SET number = number + 1"
            trigger = f"CREATE TRIGGER going AFTER DELETE ON carts FOR EACH ROW {hold}"
            connection.execute(text(trigger))
    engine.dispose()
    held, done = threading.Event(), threading.Event()

    def rival() -> None:
        with engine.connect() as connection:
            connection.execution_options(isolation_level="READ COMMITTED")
            if is_postgresql(engine):
                connection.execute(text("SET LOCAL deadlock_timeout = '10min'"))
            # InnoDB rolls the transaction back that has changed less.
            connection.execute(text("INSERT INTO weights VALUES (:n)"), [{"n": 1}] * 500)
            connection.execute(text(hold))
            held.set()
            wait_until_blocked(engine, "%" if is_mysql else "DELETE FROM carts%")
            connection.execute(text("SELECT id FROM carts WHERE id = 0 FOR UPDATE"))
            if not is_mysql:  # where nothing goes without that trigger
                done.wait(GUARD)
            connection.rollback()

    thread = threading.Thread(target=rival)
    thread.start()
    assert held.wait(GUARD)
    with errors_of(engine) as met:
        report = Sweeper(engine, model).run_once()
    done.set()
    thread.join()
    report.raise_for_failures()
    assert any("eadlock" in each for each in met), met
    Sweeper(engine, model).run_once().raise_for_failures()
    assert_swept(engine)


@pytest.mark.every_driver
def test_errors_that_pass_by_themselves_are_told_from_others(engine: Engine) -> None:
    made(engine)
    wrong = ["SELECT nothing FROM carts", "SELECT * FROM nowhere", "SELECT 1 +"]
    for statement in wrong:
        with engine.connect() as connection, pytest.raises(Exception) as caught:  # noqa: PT011
            _raise(connection, statement)
        assert not isinstance(caught.value, TransientStoreError)


def _raise(connection: Connection, statement: str) -> None:
    with store_errors():
        connection.execute(text(statement))


@pytest.mark.databases("postgres")
def test_a_serialization_failure_passes_by_itself(engine: Engine) -> None:
    made(engine)
    serial = engine.execution_options(isolation_level="SERIALIZABLE")
    with serial.connect() as one, serial.connect() as other:
        for connection, key in ((one, 1), (other, 2)):
            connection.execute(text("SELECT count(*) FROM carts"))
            connection.execute(text(f"DELETE FROM carts WHERE id = {key}"))  # noqa: S608
        one.commit()
        with pytest.raises(TransientStoreError, match="could not serialize"), store_errors():
            other.commit()


@pytest.mark.databases("sqlite")
def test_a_locked_file_passes_by_itself(engine: Engine) -> None:
    made(engine)
    with engine.begin() as holder:
        holder.execute(text("DELETE FROM carts WHERE id = 1"))
        hasty = create_engine(engine.url, connect_args={"timeout": 0})
        with hasty.connect() as connection, pytest.raises(TransientStoreError, match="locked"):
            _raise(connection, "DELETE FROM carts")
        hasty.dispose()


# A server that is restarted


class _Server:
    """A server of our own, which can be killed and started again."""

    def __init__(self, kind: str, folder: Path) -> None:
        sys.path.append(str(Path(__file__).parents[2] / "tools"))
        try:
            from local_servers.children import Children, unprivileged_account
            from local_servers.mariadb import MARIADB
            from local_servers.mysql import MYSQL
            from local_servers.postgres import POSTGRES
        finally:
            sys.path.pop()
        known = {
            "postgres": (POSTGRES, "postgres"),
            "mariadb": (MARIADB, "mysql"),
            "mysql": (MYSQL, "mysql"),
        }
        chosen, account = known[kind]
        programs = chosen.find()
        assert programs is not None
        self._account = unprivileged_account(account)
        self._children = Children()
        self.url = chosen.start(programs, folder, self._children)
        self._process = self._children._children[-1]

    def crash_and_restart(self) -> None:
        self._process.send(signal.SIGKILL)
        self._process.process.wait()
        arguments: Any = self._process.process.args
        again = [each for each in arguments if not each.startswith("--init-file")]
        # PostgreSQL ends at once while a process from before the crash is still there.
        while not self._is_listening():
            if self._process.process.poll() is None:
                time.sleep(0.02)
                continue
            self._process = self._children.start(
                again,
                log=self._process.log,
                account=self._account,
                stop_signal=self._process.stop_signal,
            )

    def _is_listening(self) -> bool:
        port = make_url(self.url).port
        assert port is not None
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        self._children.stop_all()


@pytest.mark.slow
@pytest.mark.usefixtures("postgres_url")
def test_a_postgresql_that_crashes_in_the_middle_of_a_batch_loses_nothing() -> None:
    _sweep_through_a_crash("postgres", "postgresql+psycopg")


@pytest.mark.slow
@pytest.mark.usefixtures("mariadb_url")
def test_a_mariadb_that_crashes_in_the_middle_of_a_batch_loses_nothing() -> None:
    _sweep_through_a_crash("mariadb", "mysql+pymysql")


@pytest.mark.slow
@pytest.mark.usefixtures("mysql_url")
def test_a_mysql_that_crashes_in_the_middle_of_a_batch_loses_nothing() -> None:
    _sweep_through_a_crash("mysql", "mysql+pymysql")


def _sweep_through_a_crash(kind: str, driver: str) -> None:
    # Not in pytest's own folder: the server's user may not pass through it.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o711)
        server = _Server(kind, folder)
        engine = create_engine(make_url(server.url).set(drivername=driver))
        try:
            _crash(server, engine)
        finally:
            engine.dispose()
            server.stop()


def _crash(server: _Server, engine: Engine) -> None:
    # Our servers say that something is committed before it is written down.
    safe = {
        "postgresql": f"ALTER DATABASE {engine.url.database} SET synchronous_commit = on",
        "mysql": "SET GLOBAL innodb_flush_log_at_trx_commit = 1",
    }
    with engine.begin() as connection:
        connection.execute(text(safe[engine.dialect.name]))
    engine.dispose()
    model = made(engine)
    slow(engine, 0.05)

    def crash() -> None:
        with engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT")
            answers(connection, OTHERS[engine.dialect.name])
            connection.invalidate()
        server.crash_and_restart()

    thread = threading.Thread(target=crash)
    thread.start()
    with errors_of(engine) as met:
        report = Sweeper(engine, model).run_once()
    thread.join()
    report.raise_for_failures()
    assert met
    assert_swept(engine)
