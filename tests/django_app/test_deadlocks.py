"""A sweeper doesn't wait with rows of its own locked, so it is not part of anybody's deadlock."""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connections, transaction

from tests.django_app.data import kill, raw
from tests.django_app.shop.models import Session
from tests.locks import A_WHILE, WAITS
from ttl_odm.sweeper import Skip, Sweeper

if TYPE_CHECKING:
    from tests.backends import Backend

# Locks are each server's own.
pytestmark = pytest.mark.every_server

HOLD = "UPDATE shop_session SET ttl = ttl WHERE id = %s"


@pytest.mark.databases("mariadb", "mysql")
def test_a_writer_that_holds_one_row_and_wants_another_is_no_victim(backend: Backend) -> None:
    Session.objects.bulk_create([Session(pk=n, key=str(n)) for n in (1, 2, 3)])
    kill(Session, [1, 2, 3])
    reports: list[Any] = []

    def sweep() -> None:
        reports.append(Sweeper(connections["default"], Session, lease=False).run_once())
        connections.close_all()

    with transaction.atomic():
        raw(HOLD, [2])
        sweeping = Thread(target=sweep)
        sweeping.start()
        while sweeping.is_alive():
            if raw(WAITS[backend.database]) != [(0,)]:
                raw(HOLD, [3])
            sweeping.join(A_WHILE)
        raw(HOLD, [3])
    (report,) = reports
    assert (report.deleted, report.problems) == (2, ())
    assert report.targets[0].skips == {Skip.LOCKED: 1}
