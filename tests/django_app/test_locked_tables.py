"""A table that somebody has locked as a whole: nothing of ours waits for it without bound."""

from __future__ import annotations

from contextlib import closing, contextmanager
from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import call_command
from django.db import connections

from tests.django_app.data import kill, raw
from tests.django_app.shop.models import Nick, Seat
from ttl_odm.django import DjangoStore
from ttl_odm.django.sweep import transactions
from ttl_odm.sweeper import Ending, Sweeper, TransientStoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.backends import Backend

# Locks are each server's own.
pytestmark = pytest.mark.every_server

_WAITS = (
    "SET SESSION lock_wait_timeout = 1700, innodb_lock_wait_timeout = 1800",
    "SELECT CONCAT(@@lock_wait_timeout, ' ', @@innodb_lock_wait_timeout)",
)
_LOCK = {
    "postgres": "LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE",
    "mariadb": "LOCK TABLES {table} WRITE",
    "mysql": "LOCK TABLES {table} WRITE",
    "sqlite": "BEGIN EXCLUSIVE",
}
_OWN = {
    "postgres": ("SET lock_timeout = '17min'", "SHOW lock_timeout"),
    "mariadb": _WAITS,
    "mysql": _WAITS,
    "sqlite": ("PRAGMA busy_timeout = 1717000", "PRAGMA busy_timeout"),
}


@pytest.fixture(autouse=True)
def _hastily(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.random", lambda: 0.001)  # try again nearly without waiting
    monkeypatch.setattr("ttl_odm.sweeper.batch_gate.ATTEMPTS", 2)
    monkeypatch.setattr(transactions, "FILE_WAIT", 20)
    # Connecting anew after a failure, the project's own PRAGMA would wait for five seconds.
    monkeypatch.setitem(connections["default"].settings_dict, "CONN_MAX_AGE", None)
    connections["default"].close()
    monkeypatch.setattr(transactions, "_POSTGRESQL_WAIT", "20ms")


@contextmanager
def patient(backend: Backend) -> Iterator[None]:
    """Let the connection wait for long, and see that it does so afterwards."""
    own, question = _OWN[backend.database]
    connections["default"].close()
    with connections["default"].cursor() as cursor:
        cursor.execute(own)
        cursor.execute(question)
        before = cursor.fetchone()
        yield
        cursor.execute(question)
        assert cursor.fetchone() == before


@contextmanager
def locked(backend: Backend, table: str) -> Iterator[None]:
    """Hold a table (SQLite: the file), for ten minutes at most."""
    holder = connections["default"].copy("default")
    with closing(holder), holder.cursor() as cursor:
        if backend.database == "postgres":
            cursor.execute("SET idle_in_transaction_session_timeout = '600s'")
            cursor.execute("BEGIN")
        elif backend.database in ("mariadb", "mysql"):
            cursor.execute("SET SESSION wait_timeout = 600")
        cursor.execute(_LOCK[backend.database].format(table=table))
        yield


def expired_rows() -> None:
    Seat.objects.create(pk=1, row="a", number=1)
    Nick.objects.create(pk=1, name="a")
    kill(Seat, [1])
    kill(Nick, [1])


@pytest.mark.slow
def test_a_locked_table_is_left_and_reported_and_the_next_sweep_takes_it_up(
    backend: Backend,
) -> None:
    expired_rows()
    seats, nicks = Seat._meta.db_table, Nick._meta.db_table
    sweeper = Sweeper(DjangoStore("default", [Seat, Nick]), lease=False)
    with locked(backend, seats):
        report = sweeper.run_once()
        failed = {target.table for target in report.failed}
        assert failed == ({seats, nicks} if backend.database == "sqlite" else {seats})
        assert "lock" in report.problems[0].lower()
    with patient(backend):
        sweeper.run_once().raise_for_failures()
    assert raw(f"SELECT count(*) FROM {seats}") == [(0,)]  # noqa: S608


@pytest.mark.slow
def test_a_sweep_that_meets_a_locked_table_can_be_stopped(backend: Backend) -> None:
    expired_rows()
    sweeper = Sweeper(DjangoStore("default", [Seat]), lease=False)

    def stop(execute: Any, sql: str, *rest: Any) -> Any:
        if Seat._meta.db_table in sql:
            sweeper.stop()
        return execute(sql, *rest)

    with locked(backend, Seat._meta.db_table), connections["default"].execute_wrapper(stop):
        assert sweeper.run_once().ended is Ending.STOPPED


@pytest.mark.slow
def test_questions_about_a_locked_table_fail_in_time(backend: Backend) -> None:
    expired_rows()
    store = DjangoStore("default", [Seat])
    with patient(backend):
        store.due(Seat._meta.db_table)
        store.count(Seat._meta.db_table)
        store.leases.read("sweeper")
    with locked(backend, Seat._meta.db_table):
        for question in (store.due, store.count):
            with pytest.raises(TransientStoreError):
                question(Seat._meta.db_table)
    with locked(backend, "ttl_odm_lease"):
        with pytest.raises(TransientStoreError):
            store.leases.read("sweeper")
        with pytest.raises(TransientStoreError):
            store.leases.acquire("sweeper", "me", 60)


@pytest.mark.slow
@pytest.mark.databases("postgres", "mariadb", "mysql")
def test_ttl_status_reports_a_locked_table_and_goes_on(backend: Backend) -> None:
    expired_rows()
    out = StringIO()
    with locked(backend, Seat._meta.db_table), pytest.raises(SystemExit):
        call_command("ttl_status", model=["shop.Seat", "shop.Nick"], stdout=out)
    lines = out.getvalue().splitlines()
    (problem,) = (line for line in lines if line.startswith(f"! {Seat._meta.db_table}: "))
    assert "lock" in problem.lower()
    (nicks,) = (line for line in lines if line.startswith(Nick._meta.db_table))
    assert nicks.split()[2:5] == ["1", "0", "1"]
