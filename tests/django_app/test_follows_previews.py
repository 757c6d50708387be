"""A preview, a plan and an approval count the rows that follow those of a model, too."""

# ruff: noqa: DJ008
from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import call_command
from django.db import models

from tests.django_app.data import kill, tables_of
from tests.django_app.following import fill
from ttl_odm import TTL, Follows, Stored
from ttl_odm.django import TTLModel, begin_policies
from ttl_odm.forecast import django as forecast
from ttl_odm.forecast.django_change import NotApprovedError, approve_policy, preview_policy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.backends import Backend

DAY = 86_400
CRATES, LOADS, LABELS = 10, 30, 60


@pytest.fixture
def crates(backend: Backend) -> Iterator[Any]:
    """Each crate has three loads, each of these two labels; the last crate never expires."""

    class Crate(TTLModel):
        __ttl__ = Stored(30 * DAY, least=1)

        class Meta:
            app_label = "shop"

    class Load(models.Model):
        __ttl__ = Follows("crate")
        crate = models.ForeignKey(Crate, models.CASCADE)

        class Meta:
            app_label = "shop"

    class Label(models.Model):
        __ttl__ = Follows(Load, on={"load": "id"})
        load = models.BigIntegerField()

        class Meta:
            app_label = "shop"

    with tables_of(Crate, Load, Label):
        begin_policies()
        for n in range(CRATES + 1):
            Crate.objects.create(pk=n + 1, ttl=-1 if n == CRATES else None)
        kill(Crate, range(1, CRATES + 1), 120)
        Load.objects.bulk_create(Load(pk=n + 1, crate_id=n // 3 + 1) for n in range(LOADS + 3))
        Label.objects.bulk_create(Label(pk=n + 1, load=n // 2 + 1) for n in range(LABELS + 6))
        Crate.label = Label
        yield Crate


@pytest.mark.every_server
def test_a_preview_counts_what_follows_and_is_kept_to(crates: Any) -> None:
    preview = preview_policy(crates, 60)
    assert (preview.at_most, preview.followers) == (100, 90)
    crates.label.objects.create(pk=1_000, load=1)
    with pytest.raises(NotApprovedError, match="100 rows"):
        approve_policy(crates, 60, token=preview.token, by="ann")
    approve_policy(crates, 60, token=preview_policy(crates, 60).token, by="ann")


@pytest.mark.every_server
@pytest.mark.parametrize("big", [100, 5])
def test_a_plan_counts_what_follows(crates: Any, big: int) -> None:
    measured = forecast.measure(crates, TTL(3_600), "default", big)
    assert measured.is_sample is (big == 5)
    assert measured.followers("planned 0").rows == 0
    along = measured.followers("planned 3600")
    assert abs(along.rows - 90) <= along.margin


def test_the_command_shows_what_follows(backend: Backend) -> None:
    fill()
    out = StringIO()
    call_command("ttl_plan", "family.Cart", "--json", stdout=out)
    assert '"followers": [{"label": "now", "rows": 6, "margin": 0}' in out.getvalue()
