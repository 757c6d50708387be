"""`replicate=False`: what replicas and subscribers hear of a sweep of Django's models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connections
from sqlalchemy import create_engine

from tests.backends import Backend
from tests.django_app import project
from tests.django_app.data import kill
from tests.django_app.shop.models import Nick, Seat
from tests.subscribers import replicated, subscriber
from ttl_odm.django import DjangoStore
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from collections.abc import Iterator

# Each server replicates in its own way.
pytestmark = pytest.mark.every_server

SETTING = {
    "postgres": "SELECT pg_replication_origin_session_is_setup()",
    "mariadb": "SELECT @@skip_replication",
    "mysql": "SELECT NOT @@sql_log_bin",
}


@pytest.fixture
def subscribed(backend: Backend) -> Iterator[Any]:
    """Let ``other`` be a database with a subscriber."""
    with replicated(backend) as url:
        address = url.render_as_string(hide_password=False)
        project.point_at("other", project.database_settings(Backend(backend.name, address, None)))
        if backend.database != "postgres":  # where it is the database of the tests
            project.migrate("other")
        engine = create_engine(url)
        with subscriber(engine, backend.database) as made:
            yield made
        engine.dispose()
        connections["other"].close()


def is_hidden(backend: Backend) -> bool:
    with connections["other"].cursor() as cursor:
        cursor.execute(SETTING[backend.database])
        return bool(cursor.fetchone()[0])


def expired(*keys: int) -> None:
    Seat.objects.using("other").bulk_create(
        [Seat(pk=key, row="a", number=key, label=str(key)) for key in keys]
    )
    kill(Seat, keys, alias="other")


@pytest.mark.slow
@pytest.mark.databases("postgres", "mariadb", "mysql")
@pytest.mark.parametrize("hooks", [None, lambda _: None])
def test_a_subscriber_hears_of_the_application_and_not_of_the_sweeper(
    backend: Backend, subscribed: Any, hooks: Any
) -> None:
    lines = f"DELETE {Seat._meta.db_table}"
    expired(1, 2, 3)
    store = DjangoStore("other", [Seat])
    report = Sweeper(store, replicate=False, batch_size=2, on_purged=hooks).run_once()
    assert (report.deleted, report.problems) == (3, ())
    assert lines not in subscribed.hears(chosen=True)
    assert not is_hidden(backend)
    expired(4)
    Sweeper(store).run_once().raise_for_failures()
    assert lines in subscribed.hears(chosen=True)


@pytest.mark.slow
@pytest.mark.databases("postgres", "mariadb", "mysql")
@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt])
def test_a_hook_that_fails_leaves_the_connection_as_it_was(
    backend: Backend, subscribed: Any, failure: type[BaseException]
) -> None:
    expired(1, 2)
    hidden: list[bool] = []

    def fail(_: Any) -> None:
        hidden.append(is_hidden(backend))
        raise failure

    sweeper = Sweeper(DjangoStore("other", [Seat]), replicate=False, on_purged=fail, lease=False)
    if failure is ValueError:
        assert "ValueError" in str(sweeper.run_once().problems)
    else:
        with pytest.raises(KeyboardInterrupt):
            sweeper.run_once()
    assert hidden[0]
    assert not is_hidden(backend)
    assert f"DELETE {Seat._meta.db_table}" not in subscribed.hears()
    assert Seat.all_objects.using("other").count() == 2


@pytest.mark.databases("sqlite")
def test_a_database_without_replicas_says_so(backend: Backend) -> None:
    del backend
    with pytest.raises(CommandError, match=r"^replicate = False: sqlite can't hide a sweep"):
        call_command("ttl_sweep", "--no-replicate")
    call_command("ttl_sweep", "--replicate", model=[Nick._meta.label])
