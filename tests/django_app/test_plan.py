"""``manage.py ttl_plan``: counted by the predicate that reads use, at other times and by others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from tests.django_app.data import LIVE, fill, kill
from tests.django_app.shop.models import Concert, Event, Link, Session, Tag, Upload
from ttl_odm import ExpireAfter
from ttl_odm.django import keep_last_modified, only_expired
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.forecast.django import measure
from ttl_odm.forecast.estimates import Drawn
from ttl_odm.forecast.sample import HORIZONS
from ttl_odm.testing import TTLClock

if TYPE_CHECKING:
    from tests.backends import Backend


def planned(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """The forecast that a command prints."""
    capsys.readouterr()
    call_command("ttl_plan", *words, "--json")
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def expired_in(forecast: dict[str, Any], scenario: str) -> list[int]:
    return [count["rows"] for count in forecast[scenario]["expired"]]


@pytest.mark.parametrize("model", [Session, Event, Link, Upload])
def test_it_counts_what_will_be_expired_when_its_time_has_come(
    backend: Backend, capsys: pytest.CaptureFixture[str], model: Any
) -> None:
    fill()
    if model is Session:
        keep_last_modified(Session.objects.filter(pk=LIVE)).update(ttl=2 * 86_400)
        keep_last_modified(Session.objects.filter(pk=LIVE + 1)).update(ttl=-1)
    with TTLClock() as clock:
        clock.freeze()
        forecast = planned(capsys, model._meta.label)
        later = []
        passed = 0
        for seconds, _ in HORIZONS:
            clock.advance(seconds - passed)
            passed = seconds
            later.append(only_expired(model.objects.all()).count())
    assert expired_in(forecast, "current") == later
    assert later[-1] > later[0] > 0
    assert forecast["rows"] == model._base_manager.count() + later[0]


def test_another_default_is_tried_before_it_is_declared(
    backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    Session.objects.bulk_create([Session(pk=number, key=str(number)) for number in range(1, 7)])
    kill(Session, [1, 2, 3], 1800)
    kill(Session, [4], 5400)
    shorter = planned(capsys, "shop.Session", "--default-ttl", "20m")
    assert expired_in(shorter, "current")[0] == 1
    assert expired_in(shorter, "planned")[0] == 4
    assert (shorter["planned"]["expired_at_once"], shorter["planned"]["visible_again"]) == (3, 0)
    longer = planned(capsys, "shop_session", "--default-ttl", "2h")
    assert (longer["planned"]["expired_at_once"], longer["planned"]["visible_again"]) == (0, 1)
    off = planned(capsys, "shop.Session", "--default-ttl", "off")
    assert expired_in(off, "planned") == [0, 0, 0, 0, 0]
    assert Session.__ttl__ == 3600
    assert Session.objects.count() == 5
    call_command("ttl_plan", "shop.Session", "--default-ttl", "20m")
    said = capsys.readouterr().out
    assert said.startswith("shop.Session (shop_session): 6 rows\ncurrent  TTL(3600)\nplanned  TTL")
    assert "! Live rows that would be expired at once, and deleted by the next sweep: 3." in said
    assert "10 min to 1 h  3  █" in said


def test_a_subclass_is_planned_with_the_root_that_has_the_policy(
    backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    fill()
    forecast = planned(capsys, Concert._meta.label)
    assert (forecast["model"], forecast["target"]) == ("shop.Event", "shop_event")


def test_a_policy_is_tried_on_a_model_that_has_none_or_another(
    backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    Link.objects.create(token="a", expires=timezone.now())
    Link.objects.create(token="b", expires=None)
    forecast = planned(capsys, "shop.Link", "--policy", "ExpireAfter('expires', '1h')")
    assert expired_in(forecast, "planned")[:3] == [0, 1, 1]
    assert forecast["planned"]["visible_again"] == 1
    users = planned(capsys, "auth.User", "--policy", "ExpireAfter('last_login', '1h')")
    assert (users["current"], users["rows"]) == (None, 0)
    with pytest.raises(TTLConfigurationError, match="no such field"):
        measure(Tag, ExpireAfter("nothing", 60), "default")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["shop.Nobody"], "there is no model 'shop.Nobody'; those with a policy are: "),
        (["shop.Tag"], "shop.Tag has no policy yet: give one with --policy"),
        (["shop.Session", "--default-ttl", "1.5"], "--default-ttl 1.5: give whole seconds"),
        (["shop.Session", "--policy", "TTL("], "is not a policy"),
    ],
)
def test_what_can_not_be_planned_is_refused(backend: Backend, words: list[str], said: str) -> None:
    with pytest.raises(CommandError) as refused:
        call_command("ttl_plan", *words)
    assert said in str(refused.value)
    assert refused.value.returncode == 2


@pytest.mark.slow
def test_a_big_table_is_sampled_and_the_error_is_told(backend: Backend) -> None:
    rows, links = 15_000, 2_000
    now = int(timezone.now().timestamp())
    Upload.objects.bulk_create(
        [Upload(name="", created=now - 2 * number) for number in range(rows)], batch_size=1_000
    )
    Link.objects.bulk_create(
        [Link(token=f"{number:05}", expires=timezone.now()) for number in range(links)]
    )
    by_key = measure(Upload, None, "default", big=1_000)
    drawn_singly = measure(Link, None, "default", big=1_000)  # whose key is a text
    assert (by_key.drawn, drawn_singly.drawn) == (Drawn.STRETCHES, Drawn.SINGLY)
    expired = by_key.estimate("current 0")
    assert abs(expired.rows - (rows - 1_800)) <= 3 * expired.margin
    assert drawn_singly.estimate("current 0").rows == drawn_singly.rows.rows == links
    assert not measure(Upload, None, "default").is_sample
