"""Several at once: an expired key has one winner, no write revives, no live row is lost."""

from __future__ import annotations

from contextlib import nullcontext
from threading import Barrier, Thread
from typing import TYPE_CHECKING, Any

import pytest
from django.db import DatabaseError, IntegrityError, OperationalError, connections, transaction

from tests.django_app.data import kill, raw
from tests.django_app.shop.models import Seat, Session
from ttl_odm import ExpiredError
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.test.utils import CaptureQueriesContext

    from tests.backends import Backend

# Locks and snapshots are each server's own.
pytestmark = [pytest.mark.databases("postgres", "mariadb", "mysql"), pytest.mark.every_server]


def at_once(number: int, action: Callable[[int], Any]) -> list[Any]:
    """Run an action in threads that begin together; what it returns or raises."""
    start, told = Barrier(number), []

    def run(which: int) -> None:
        start.wait()
        try:
            told.append(action(which))
        except Exception as error:  # noqa: BLE001 (it is what the test looks at)
            told.append(error)
        finally:
            connections.close_all()

    threads = [Thread(target=run, args=[which]) for which in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return told


@pytest.mark.slow
@pytest.mark.parametrize("atomic", [False, True])
@pytest.mark.parametrize("by", ["primary key", "unique constraint"])
def test_of_many_who_want_an_expired_key_one_gets_it(
    backend: Backend,
    by: str,
    atomic: bool,  # noqa: FBT001
) -> None:
    key = {"pk": 1} if by == "primary key" else {}
    for _ in range(3):
        raw("DELETE FROM shop_seat")
        Seat.objects.create(pk=1, row="a", number=1, label="old")
        kill(Seat, [1])

        def create(which: int) -> Any:
            place = {"row": str(which), "number": 1} if key else {"row": "a", "number": 1}
            with transaction.atomic() if atomic else nullcontext():
                Seat(**key, **place, label=str(which)).save(force_insert=True)
            return which

        told = at_once(16, create)
        won = [each for each in told if isinstance(each, int)]
        others = [each for each in told if not isinstance(each, int)]
        assert len(won) == 1, told
        assert all(isinstance(each, IntegrityError) for each in others), told
        assert raw("SELECT label FROM shop_seat") == [(str(won[0]),)]


def test_many_get_or_create_one(backend: Backend) -> None:
    Session.objects.create(pk=1, key="a", number=1)
    kill(Session, [1])
    told = at_once(6, lambda _: Session.objects.get_or_create(key="a"))
    got = [each for each in told if isinstance(each, tuple)]
    # InnoDB may choose a victim of a deadlock, as it may without us; PostgreSQL has no reason to.
    victims = [each for each in told if not isinstance(each, tuple)]
    assert all(isinstance(each, OperationalError) for each in victims), told
    assert not victims or backend.database in {"mariadb", "mysql"}
    assert sum(created for _, created in got) == 1
    assert len({row.pk for row, _ in got}) == 1


def test_a_save_that_waited_until_the_row_had_expired_does_not_revive_it(backend: Backend) -> None:
    row = Session.objects.create(pk=1, key="a", ttl=60)

    def save(_: int) -> None:
        row.save()

    with transaction.atomic():
        Session.objects.filter(pk=1).update(number=7)
        held = Thread(target=lambda: told.extend(at_once(1, save)))
        told: list[Any] = []
        held.start()
        kill(Session, [1])
    held.join()
    assert isinstance(told[0], ExpiredError), told
    assert isinstance(told[0], DatabaseError)
    assert not Session.objects.exists()


def test_a_sweeper_loses_no_row_that_is_renewed_meanwhile(backend: Backend) -> None:
    Session.objects.bulk_create([Session(pk=n, key=str(n)) for n in range(1, 201)])
    raw("UPDATE shop_session SET ttl = 1 WHERE id > 100")
    kill(Session, range(101, 201), 2)

    def work(which: int) -> Any:
        if which == 0:
            return Sweeper(connections["default"], Session, batch_size=7, lease=False).run_once()
        return [Session.objects.filter(pk=pk).update(number=which) for pk in range(1, 201)]

    report, writes = sorted(at_once(2, work), key=lambda each: isinstance(each, list))
    assert (report.deleted, report.problems) == (100, ())
    assert writes == [1] * 100 + [0] * 100
    assert Session.all_objects.count() == 100


@pytest.mark.databases("postgres")
def test_a_sweep_judges_a_row_when_it_has_its_lock(
    backend: Backend, django_queries: Callable[[], CaptureQueriesContext]
) -> None:
    Session.objects.create(pk=1, key="a")
    kill(Session, [1])
    with django_queries() as queries:
        assert Sweeper(connections["default"], Session, lease=False).run_once().deleted == 1
    sent = [each["sql"] for each in queries]
    (delete,) = (sql for sql in sent if sql.startswith('DELETE FROM "shop_session"'))
    assert "clock_timestamp()" in delete
