"""SQLite with a write-ahead log: a write that meets a sweep between two statements isn't hurt."""

from __future__ import annotations

from contextlib import nullcontext
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connections, transaction

from tests.django_app.data import kill, raw
from tests.django_app.shop.models import Session
from ttl_odm.django import DjangoStore
from ttl_odm.django.sweep import transactions
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.backends import Backend

pytestmark = pytest.mark.databases("sqlite")


def sweep() -> None:
    """Sweep as another process would; whoever writes keeps the sweeper out."""

    def run() -> None:
        for target in Sweeper(DjangoStore("default", [Session]), lease=False).run_once().targets:
            assert target.error is None or "locked" in str(target.error)
        connections.close_all()

    thread = Thread(target=run)
    thread.start()
    thread.join()


UPSERT: dict[str, Any] = {
    "update_conflicts": True,
    "update_fields": ["number"],
    "unique_fields": ["id"],
}
WRITES: dict[str, Callable[[Session], object]] = {
    "save": lambda row: row.save(force_insert=True),
    "bulk_create": lambda row: Session.objects.bulk_create([row]),
    "upsert": lambda row: Session.objects.bulk_create([row], **UPSERT),
}


@pytest.mark.parametrize("atomic", [False, True])
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_sweep_between_any_two_statements_of_a_write_does_not_hurt_it(
    backend: Backend,
    monkeypatch: pytest.MonkeyPatch,
    write: Callable[[Session], object],
    *,
    atomic: bool,
) -> None:
    monkeypatch.setattr("ttl_odm.sweeper.batch_gate.ATTEMPTS", 1)
    monkeypatch.setattr(transactions, "FILE_WAIT", 0)
    raw("PRAGMA journal_mode = WAL")
    place = statements = 0
    while place <= statements:
        Session.objects.create(pk=place + 1, key=f"key {place}")
        kill(Session, [place + 1])
        statements = 0

        def between(execute: Any, sql: str, *rest: Any, at: int = place) -> Any:
            nonlocal statements
            if statements == at:
                statements += 1
                sweep()
            else:
                statements += 1
            return execute(sql, *rest)

        row = Session(pk=place + 1, key=f"key {place}", number=2)
        block = transaction.atomic() if atomic else nullcontext()
        with connections["default"].execute_wrapper(between), block:
            write(row)
        place += 1
    assert place > 2
    assert Session.objects.filter(number=2).count() == place
    connections["default"].close()
    raw("PRAGMA journal_mode = DELETE")
