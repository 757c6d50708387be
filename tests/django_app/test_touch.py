"""`touch` of a queryset: rows are renewed by one UPDATE, without being loaded."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.sessions.models import Session as DjangoSession
from django.utils import timezone

from tests.django_app.data import kill
from tests.django_app.family.models import Item
from tests.django_app.shop.models import Concert, Event, Link, Session, Upload, User
from ttl_odm import InvalidTTL, TTLConfigurationError, TTLError
from ttl_odm.django import include_expired, touch

if TYPE_CHECKING:
    from tests.backends import Backend
    from ttl_odm.testing import TTLClock

HOUR = 3600


@pytest.fixture
def rows(backend: Backend) -> None:
    """Rows that were written 100 seconds ago; one of them has expired."""
    for pk, ttl in enumerate((None, 50, -1, 1000), start=1):
        Session.objects.create(pk=pk, key=str(pk), ttl=ttl)
    kill(Session, [1, 2, 3, 4], 100)


def renewed() -> list[int]:
    """The rows that are younger than the oldest, which nothing renews; expired ones too."""
    stamps = dict(include_expired(Session.objects).values_list("pk", "last_modified"))
    oldest = min(stamps.values())
    return sorted(pk for pk, at in stamps.items() if at - oldest > timedelta(seconds=50))


def test_one_statement_renews_live_rows_and_counts_them(rows: None, django_queries: Any) -> None:
    with django_queries() as queries:
        assert Session.objects.filter(pk=1).touch() == 1
        assert Session.objects.filter(pk=2).touch() == 0
        assert Session.objects.filter(key="none").touch() == 0
    assert [query["sql"].split()[0] for query in queries] == ["UPDATE"] * 3
    assert renewed() == [1]
    assert Session.objects.touch() == 3
    assert include_expired(Session.objects.filter(pk=2)).touch() == 0
    assert renewed() == [1, 3, 4]


def test_rows_written_recently_are_left_alone_and_not_counted(rows: None) -> None:
    assert Session.objects.filter(pk=1).touch(at_most_every=130.5) == 0
    assert Session.objects.filter(pk=1).touch(at_most_every=90) == 1
    assert Session.objects.filter(pk=1).touch(at_most_every=90) == 0
    assert Session.objects.touch(at_most_every=timedelta(minutes=1)) == 2


def test_expire_in_gives_rows_their_own_life(rows: None) -> None:
    assert Session.objects.touch(expire_in=timedelta(minutes=5)) == 3
    ends = [(row.ttl, row.expires_at - row.last_modified) for row in Session.objects.all()]  # type: ignore[operator]
    assert ends == [(300, timedelta(minutes=5))] * 3
    assert Session.objects.filter(pk=1).touch(expire_in=0) == 1
    assert not Session.objects.filter(pk=1).exists()
    assert Session.objects.filter(pk=1).touch() == 0


# The rows end in 3500 and in 900 seconds, and never.
@pytest.mark.parametrize(
    ("only_if", "life", "granted"),
    [
        ("longer", None, [1, 4]),
        ("has_ttl", None, [1, 4]),
        ("no_ttl", None, [3]),
        ("shorter", None, []),
        ("longer", 2000, [4]),
        ("longer", 4000, [1, 4]),
        ("longer", 500, []),
        ("shorter", 2000, [1, 3]),
        ("shorter", 4000, [3]),
        ("shorter", 0, [1, 3, 4]),
        ("has_ttl", 2000, [1, 4]),
        ("no_ttl", 2000, [3]),
    ],
)
def test_a_condition_chooses_the_same_rows_as_for_instances(
    rows: None, only_if: Any, life: int | None, granted: list[int]
) -> None:
    instances = list(Session.objects.order_by("pk"))
    assert Session.objects.touch(only_if=only_if, expire_in=life) == len(granted)
    if life != 0:
        assert renewed() == granted
        return
    for row in instances:
        assert row.expire_in(0, only_if=only_if) is (row.pk in granted)


def test_related_rows_subclasses_and_joins_are_touched(rows: None) -> None:
    user = User.objects.create(name="ann")
    Session.objects.filter(pk=1).update(user=user)
    kill(Session, [1], 100)
    assert user.session_set.touch(only_if="longer", expire_in=5000) == 1
    kill(Session, [1], 100)
    assert Session.objects.filter(user__name="ann").touch(expire_in=50, only_if="shorter") == 1
    for pk in (1, 2):
        Concert.objects.create(pk=pk, title=str(pk), band="b")
    kill(Event, [1], 100)
    assert Concert.objects.filter(band="b").touch(at_most_every=60, expire_in=70) == 1
    assert Concert.objects.filter(band="b").touch(expire_in=60, only_if="shorter") == 2
    assert list(Concert.objects.values_list("ttl", flat=True)) == [60, 60]


def test_asynchronous_code_has_a_twin(rows: None) -> None:
    @async_to_sync
    async def renew() -> tuple[int, int]:
        mine = Session.objects.filter(pk=1)
        return await mine.atouch(expire_in=60), await Session.objects.atouch(at_most_every=60)

    assert renew() == (1, 2)


def test_a_date_of_expiry_is_set_by_a_touch_that_says_how_long(
    backend: Backend, ttl_clock: TTLClock
) -> None:
    later = timezone.now() + timedelta(seconds=600)
    Link.objects.create(token="a", expires=later)
    Link.objects.create(token="b")
    ours = Link.objects.all()
    assert touch(ours, expire_in=900, only_if="no_ttl") == 1
    assert touch(ours, expire_in=500, only_if="longer") == 0
    assert touch(ours.filter(pk="a"), expire_in=700, only_if="longer") == 1
    DjangoSession.objects.create(session_key="s", expire_date=later)
    assert touch(DjangoSession.objects.filter(session_key="s"), expire_in=1000) == 1
    ttl_clock.advance(800)
    assert list(ours.values_list("pk", flat=True)) == ["b"]
    assert DjangoSession.objects.exists()
    assert touch(ours, expire_in=0) == 1
    assert not ours.exists()


def test_what_has_nothing_to_touch_is_rejected(backend: Backend, django_queries: Any) -> None:
    with django_queries() as queries:
        for late in (Link, Upload):
            with pytest.raises(TTLError, match=rf"{late.__name__}\.touch\(\): with Expire"):
                touch(late.objects.all())
        with pytest.raises(TTLError, match="at_most_every"):
            touch(Link.objects.all(), expire_in=60, at_most_every=5)
        with pytest.raises(TTLError, match="no lifetime of its own"):
            touch(Upload.objects.all(), expire_in=60)
        with pytest.raises(TTLConfigurationError, match="has no lifetime of its own"):
            touch(Item.objects.all())
        with pytest.raises(TTLConfigurationError, match="User has no policy"):
            touch(User.objects.all())
        for wrong in ({"at_most_every": 0}, {"only_if": "GT"}):
            with pytest.raises(TTLConfigurationError, match=next(iter(wrong))):
                Session.objects.touch(**wrong)  # type: ignore[arg-type]
        for life in (1.5, True, 2**31):
            with pytest.raises(InvalidTTL, match=r"Session\.ttl"):
                Session.objects.touch(expire_in=life)
        with pytest.raises(TypeError, match="slice"):
            Session.objects.all()[:1].touch()
    assert not queries
