"""A sweeper of Django's whose server takes no writes, as a standby or a demoted primary."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import call_command
from django.db import connections
from django.db.backends.signals import connection_created

from tests.backends import READ_ONLY
from tests.django_app.data import kill, raw
from tests.django_app.shop.models import Session
from ttl_odm.django import DjangoStore
from ttl_odm.sweeper import Ending, Sweeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.backends import Backend

# Each server has its own words for it; SQLite has no standbys.
pytestmark = [pytest.mark.databases("postgres", "mariadb", "mysql"), pytest.mark.every_server]


@pytest.fixture
def promote(backend: Backend) -> Iterator[Callable[[], object]]:
    """Let new connections be read-only; what is returned ends that."""
    session = Session.objects.create(key="a")
    kill(Session, [session.pk])
    assert Sweeper(DjangoStore("default", Session), max_rows=1).run_once().deleted == 1
    session = Session.objects.create(key="b")
    kill(Session, [session.pk])

    def connected(connection: Any, **_: object) -> None:
        with connection.cursor() as cursor:
            cursor.execute(READ_ONLY[connection.vendor])

    def promoted() -> None:
        connection_created.disconnect(connected)

    connections["default"].close()
    connection_created.connect(connected)
    yield promoted
    promoted()
    connections["default"].close()


@pytest.mark.parametrize("lease", [True, False])
def test_a_sweep_ends_at_once_without_an_error(
    promote: Callable[[], object], *, lease: bool
) -> None:
    sweeper = Sweeper(DjangoStore("default", Session), standby="exit", lease=lease)
    report = sweeper.run_once()
    assert (report.outcome, report.problems, report.deleted) == ("standby", (), 0)
    promote()
    assert sweeper.run_once().deleted == 1


@pytest.mark.parametrize("lease", [True, False])
def test_a_sweep_goes_on_with_another_connection(
    promote: Callable[[], object], monkeypatch: pytest.MonkeyPatch, *, lease: bool
) -> None:
    monkeypatch.setattr("ttl_odm.sweeper.batch_gate.backoff", lambda *_: promote() or 0.01)
    report = Sweeper(DjangoStore("default", Session), lease=lease).run_once()
    assert (report.ended, report.deleted) == (Ending.FINISHED, 1)


def test_the_status_names_the_server(promote: Callable[[], object]) -> None:
    out = StringIO()
    call_command("ttl_status", "--model", "shop.Session", stdout=out)
    port = str(connections["default"].settings_dict["PORT"])
    if connections["default"].vendor == "postgresql":
        assert f":{port}): it takes no writes" in out.getvalue()
    promote()
    connections["default"].close()
    out = StringIO()
    call_command("ttl_status", "--model", "shop.Session", stdout=out)
    assert f":{port}.\n" in out.getvalue()


@pytest.mark.parametrize("every", [(), ("--every", "60")])
def test_the_command_has_an_exit_status_for_it(
    promote: Callable[[], object], every: tuple[str, ...]
) -> None:
    out, words = StringIO(), ["--model", "shop.Session", "--standby", "exit", *every]
    with pytest.raises(SystemExit) as exit_:
        call_command("ttl_sweep", *words, stdout=out)
    assert exit_.value.code == 5
    assert "takes no writes" in out.getvalue()
    promote()
    connections["default"].close()
    assert raw("SELECT count(*) FROM shop_session") == [(1,)]
