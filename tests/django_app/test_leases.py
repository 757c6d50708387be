"""The leases of Django's sweepers, beyond what the shipped suite asks of any lease."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from django.db import connections

from tests.django_app.shop.models import Nick
from ttl_odm.sweeper import Sweeper
from ttl_odm.sweeper.leases import ROW_WAIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.test.utils import CaptureQueriesContext

    from tests.backends import Backend

# Leases rest on each server's transactions.
pytestmark = pytest.mark.every_server


def test_an_idle_sweep_has_three_statements_for_its_lease(
    backend: Backend, django_queries: Callable[[], CaptureQueriesContext]
) -> None:
    """It takes it, reads its state, and records as it gives it back."""
    sweeper = Sweeper(connections["default"], [Nick])
    sweeper.run_once().raise_for_failures()
    with django_queries() as captured:
        sweeper.run_once().raise_for_failures()
    of_lease = [each["sql"] for each in captured if "ttl_odm_lease" in each["sql"]]
    assert [sql.split()[0] for sql in of_lease] == ["UPDATE", "SELECT", "UPDATE"]


@pytest.mark.databases("postgres", "mariadb", "mysql")
def test_it_waits_longer_for_the_lease_than_for_rows(
    backend: Backend, django_queries: Callable[[], CaptureQueriesContext]
) -> None:
    """Nobody holds the row of a lease for longer than a statement."""
    sweeper = Sweeper(connections["default"], [Nick])
    with django_queries() as captured:
        sweeper.run_once().raise_for_failures()
    wait = re.compile(rf"lock_timeout', '{ROW_WAIT}000ms'|lock_wait_timeout = {ROW_WAIT}\b")
    assert [each for each in captured if wait.search(each["sql"])]


def test_a_pause_before_the_first_sweep_makes_the_row(backend: Backend) -> None:
    sweeper = Sweeper(connections["default"], [Nick], lease_name="ours")
    sweeper.pause()
    sweeper.pause()
    assert sweeper.status().paused
    sweeper.resume()
    assert not sweeper.status().paused
    assert sweeper.status().token == 0
