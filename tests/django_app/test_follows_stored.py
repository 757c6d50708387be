"""Rows that follow others whose default the database stores, and others with hooks."""

# ruff: noqa: DJ008
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.db import connections, models

from tests.django_app.data import kill, tables_of
from tests.django_app.following import stored
from tests.django_app.stored import declared
from ttl_odm import Follows
from ttl_odm.django import ExpiredError, TTLModel, set_policy
from ttl_odm.stored.django.changes import begin_policies
from ttl_odm.sweeper import Hook, Purged, Sweeper

if TYPE_CHECKING:
    from tests.backends import Backend


def test_a_stored_default_of_a_tenant_holds_for_what_follows(backend: Backend) -> None:
    kinds = declared()
    message = kinds.Message

    class Reply(models.Model):
        __ttl__ = Follows("message")
        message = models.ForeignKey(kinds.Message, models.CASCADE)

        class Meta:
            app_label = "shop"

    with tables_of(*vars(kinds).values(), Reply):
        begin_policies()
        for key, tenant in ((1, "acme"), (2, "other"), (3, None)):
            message.objects.create(pk=key, tenant=tenant)
            Reply.objects.create(pk=key, message_id=key)
        kill(message, [1, 2, 3], 7200)
        assert not Reply.objects.exists()
        set_policy(message, 80_000, scope="acme", by="ann")
        assert [reply.pk for reply in Reply.objects.all()] == [1]
        assert Reply.objects.update(message=1) == 1
        with pytest.raises(ExpiredError):
            Reply.objects.create(pk=4, message_id=2)
        report = Sweeper(connections["default"], [message], lease=False).run_once()
        report.raise_for_failures()
        assert stored(message, Reply) == [1, 1]


def test_hooks_of_a_parent_hear_of_it_and_its_followers_go(backend: Backend) -> None:
    heard: list[Purged] = []

    class Heard(TTLModel):
        __ttl__: Any = 3600
        __ttl_on_purged__ = Hook(heard.append, rows=True)

        class Meta:
            app_label = "shop"
            db_table = "heard_orders"

    class Part(models.Model):
        __ttl__ = Follows(Heard, on={"nr": "id"})
        nr = models.BigIntegerField(db_index=True)

        class Meta:
            app_label = "shop"

    with tables_of(Heard, Part):
        for key in (1, 2, 3):
            Heard.objects.create(pk=key)
            Part.objects.bulk_create([Part(nr=key), Part(nr=key)])
        kill(Heard, [1, 2], 7200)
        Heard.objects.create(pk=1)
        assert [(purged.reason, purged.count) for purged in heard] == [("displaced", 1)]
        assert stored(Heard, Part) == [3, 4]
        Sweeper(connections["default"], [Heard], lease=False).run_once().raise_for_failures()
        assert [purged.count for purged in heard] == [1, 1]
        assert stored(Heard, Part) == [2, 2]
