"""Django as a typed user writes it: models, rows, querysets, the store."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db import connections, models
from typing_extensions import assert_type

from ttl_odm import ExpireAt, Stored
from ttl_odm.django import (
    Archive,
    DjangoStore,
    ExpiredError,
    PolicyChange,
    StoredPolicy,
    TTLModel,
    TTLQuerySet,
    include_expired,
    only_expired,
    policy_changes,
    set_policy,
    stored_policies,
    touch,
)
from ttl_odm.forecast.django_change import approve_policy, preview_policy
from ttl_odm.sweeper import Hook, Purged, Sweeper, SweepReport


def tell(purged: Purged) -> None:
    """Get a report."""


class WebSession(TTLModel):
    __ttl__ = 3600
    __ttl_archive__ = Archive("shop.OldSession", archived_at="archived_at")
    __ttl_on_purged__ = Hook(tell, when="commit")
    key: models.CharField[str, str] = models.CharField(max_length=40, unique=True)


class Cart(TTLModel):
    __ttl__ = Stored(3600, by="tenant", least=60)
    tenant: models.CharField[str, str] = models.CharField(max_length=40)


def policies() -> None:
    assert_type(set_policy(Cart, timedelta(days=1), scope="acme", by="ann"), int | None)
    assert_type(stored_policies(Cart, using="other"), list[StoredPolicy])
    assert_type(policy_changes(), list[PolicyChange])
    assert_type(preview_policy(Cart, 60).token, str)
    approve_policy(Cart, None, token="0-0", by="ann")
    set_policy(Cart, 60)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]


class Link(models.Model):  # noqa: DJ008 (it is only type-checked)
    __ttl__ = ExpireAt("expires")
    expires: models.DateTimeField[datetime, datetime] = models.DateTimeField()


def rows(row: WebSession) -> None:
    assert_type(row.last_modified, datetime)
    assert_type(row.ttl, int | None)
    row.ttl = 60
    row.ttl = timedelta(minutes=1)
    row.ttl = None
    assert_type(row.expires_at, datetime | None)
    assert_type(row.is_expired, bool)
    assert_type(row.time_left, timedelta | None)
    assert_type(row.touch(), bool)
    assert_type(row.touch(at_most_every=timedelta(minutes=1), only_if="longer"), bool)
    assert_type(type(row).objects.touch(expire_in=60), int)
    assert_type(type(row).objects.filter(pk=1).touch(at_most_every=60, only_if="longer"), int)
    assert_type(touch(type(row).objects.all(), only_if="no_ttl"), int)
    assert_type(row.expire_in(60, only_if="no_ttl"), bool)
    assert_type(row.expire_at(datetime.now().astimezone()), bool)
    row.touch(only_if="later")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    row.persist()
    row.inherit_ttl()


def querysets() -> None:
    assert_type(WebSession.objects.only_expired(), TTLQuerySet[Any])
    links = Link._default_manager.all()
    assert_type(include_expired(links), models.QuerySet[Link, Link])
    assert_type(only_expired(links).first(), Link | None)


def sweeping() -> SweepReport:
    store = DjangoStore("default", [WebSession])
    assert_type(store.models(), list[type[models.Model]])
    try:
        return Sweeper(store).run_once()
    except ExpiredError as error:
        assert_type(error.key, object)
    return Sweeper(connections["default"], WebSession).run_once()
