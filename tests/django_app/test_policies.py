"""Policies on models of others (sessions, django-oauth-toolkit's tokens); declarations; checks."""

# ruff: noqa: DJ008

from __future__ import annotations

import ast
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.models import Session
from django.core import checks
from django.core.management import call_command, execute_from_command_line
from django.db import connections, models, transaction
from django.test import Client
from django.test.utils import isolate_apps, override_settings
from django.utils import timezone
from oauth2_provider.models import AccessToken, Application, RefreshToken
from oauth2_provider.oauth2_validators import OAuth2Validator

from tests.django_app import project
from tests.django_app.data import forget, raw, tables_of
from tests.django_app.shop.models import Link
from ttl_odm import (
    TTL,
    ExpireAfter,
    ExpireAt,
    ExpiredError,
    Follows,
    InvalidTTL,
    Stored,
    TTLConfigurationError,
)
from ttl_odm.core import MAX_TTL
from ttl_odm.core.declaration import DeclaredTTL
from ttl_odm.django import TTLModel, include_expired
from ttl_odm.django.checks import check_databases, check_policies
from ttl_odm.django.declare.declaration import declare
from ttl_odm.django.policy import bindings
from ttl_odm.django.policy.bindings import policies_of, unbind
from ttl_odm.django.policy.rules import rules_below
from ttl_odm.django.policy.sources import Fixed
from ttl_odm.django.sweep.store import DjangoStore
from ttl_odm.django.time.fields import LastModifiedField
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.backends import Backend


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    """Forget the policies of models that a test declares."""
    before = dict(bindings._policies)
    yield
    bindings._policies.clear()
    bindings._policies.update(before)


def test_sessions_expire_by_the_database_and_are_swept(backend: Backend) -> None:
    store = SessionStore()
    store["cart"] = 1
    store.create()
    assert SessionStore(store.session_key)["cart"] == 1
    past = timezone.now() - timedelta(seconds=5)
    row = Session.objects.get()
    Session.objects.update(expire_date=past)
    assert not Session.objects.exists()
    assert not SessionStore().exists(store.session_key)
    assert SessionStore(store.session_key).load() == {}
    with pytest.raises(ExpiredError), transaction.atomic():
        row.save()
    again = Session(session_key=store.session_key, session_data="", expire_date=past)
    again.expire_date = timezone.now() + timedelta(hours=1)
    again.save(force_insert=True)
    Session.objects.update(expire_date=past)
    report = Sweeper(connections["default"], [Session]).run_once()
    assert (report.deleted, report.problems) == (1, ())
    assert not include_expired(Session.objects.all()).exists()


@pytest.mark.slow
def test_an_access_token_stays_as_long_as_its_refresh_token(backend: Backend) -> None:
    """Where the row went with the token's own end, every refresh ended with invalid_grant."""
    user = User.objects.create(username="ann")
    application = Application.objects.create(
        user=user, client_type="public", authorization_grant_type="password"
    )
    refreshing = {"grant_type": "refresh_token", "client_id": application.client_id}

    def token(name: str, ended_before: int) -> None:
        expires = timezone.now() - timedelta(seconds=ended_before)
        who = {"user": user, "application": application}
        access = AccessToken.objects.create(token=name, expires=expires, scope="read", **who)
        RefreshToken.objects.create(token=f"refresh {name}", access_token=access, **who)

    def refreshed(name: str) -> tuple[int, str | None]:
        answer = Client().post("/o/token/", refreshing | {"refresh_token": f"refresh {name}"})
        return answer.status_code, answer.json().get("error")

    token("ended", 300)
    token("over", project.REFRESH_TOKENS + 300)
    request: Any = type("Request", (), {})()
    assert not OAuth2Validator().validate_bearer_token("ended", ["read"], request)
    assert not AccessToken.objects.filter(token="over").exists()
    assert Sweeper(connections["default"], AccessToken).run_once().deleted == 1
    call_command("cleartokens")
    assert RefreshToken.objects.get().token == "refresh ended"
    assert refreshed("over") == (400, "invalid_grant")
    assert refreshed("ended") == (200, None)


def test_rows_without_a_date_are_live_unless_they_are_declared_otherwise(backend: Backend) -> None:
    Link.objects.create(token="never", expires=None)
    assert Link.objects.count() == 1
    found = bindings.binding_of(Link)
    assert found is not None
    before = found.default, found.source, Link.__ttl__
    try:
        Link.__ttl__ = ExpireAt("expires", null="expired")
        found.default = DeclaredTTL(Link)
        found.source = Fixed(found.default)
        assert Link.objects.count() == 0
        assert Sweeper(connections["default"], Link).run_once().deleted == 1
    finally:
        found.default, found.source, Link.__ttl__ = before


def test_a_model_with_the_contract_says_how_long_its_rows_live() -> None:
    meta = type("Meta", (), {"app_label": "shop"})
    with pytest.raises(TTLConfigurationError, match=r"^Vase has TTLModel, but no __ttl__: "):
        type("Vase", (TTLModel,), {"__module__": __name__, "Meta": meta})
    assert "vase" not in apps.all_models["shop"]


@isolate_apps("tests.django_app.shop")
def test_wrong_declarations_are_refused_when_the_model_is_declared() -> None:
    numbers = count()

    def declared(policy: Any, **members: Any) -> Any:
        meta = type("Meta", (), {"app_label": "shop"})
        name = f"Wrong{next(numbers)}"
        model = type(name, (models.Model,), {"__module__": __name__, "Meta": meta, **members})
        declare(model, policy, where="Wrong.__ttl__")

    with pytest.raises(InvalidTTL, match=r"Wrong.__ttl__ = 0"):
        declared(0)
    with pytest.raises(TTLConfigurationError, match="names the field '_ts'"):
        declared(3600)
    with pytest.raises(TTLConfigurationError, match="names the field 'gone'"):
        declared(ExpireAt("gone"))
    with pytest.raises(TTLConfigurationError, match="needs a DateTimeField"):
        declared(ExpireAfter("day", 60), day=models.DateField())
    with pytest.raises(TTLConfigurationError, match="field for epoch numbers"):
        declared(ExpireAfter("at", 60, unit="s"), at=models.DateTimeField())
    at = models.DateTimeField()
    with pytest.raises(TTLConfigurationError, match=r"Wrong.__ttl__: timezone='Europe/Paris'"):
        declared(ExpireAt("at", timezone="Europe/Paris"), at=at)
    with pytest.raises(TTLConfigurationError, match="names the field 'tenant'"):
        declared(TTL(Stored(60, by="tenant"), last_modified="at", override=None), at=at)
    with pytest.raises(TTLConfigurationError, match=r"Wrong.__ttl__: by='kind'"):
        declared(TTL({"a": 60}, by="kind", last_modified="at", override=None), at=at)
    limited = TTL(9, last_modified="at", override=None, max_lifetime=60, created="born")
    with pytest.raises(TTLConfigurationError, match=r"Wrong.__ttl__: max_lifetime=60"):
        declared(limited, at=at)
    strict = TTL(60, last_modified="at", override="own", values="strict")
    with pytest.raises(TTLConfigurationError, match=r"Wrong.__ttl__: values='strict'"):
        declared(strict, at=at, own=models.IntegerField(null=True))
    with pytest.raises(TTLConfigurationError, match="__ttl_sweep__"):
        declared(ExpireAt("at"), at=models.DateTimeField(), __ttl_sweep__="index?")
    with pytest.raises(TTLConfigurationError, match="__ttl_purge__"):
        declared(ExpireAt("at"), at=models.DateTimeField(), __ttl_purge__="orm?")


def test_a_setting_that_names_nothing_is_refused() -> None:
    for setting, message in (
        (["sessions.Session"], "give a dict"),
        ({"sessions.Gone": ExpireAt("at")}, "sessions.Gone"),
        ({"Session": ExpireAt("at")}, r"\['Session'\]: name a model by its app and its class"),
        ({models.Model: ExpireAt("at")}, "name a model by its app and its class"),
        ({"shop.Proxied": 60}, "is a proxy of shop.Session: name that model"),
        ({"shop.Session": 60}, "declares a __ttl__ of its own"),
    ):
        with pytest.raises(TTLConfigurationError, match=message):
            list(policies_of(setting))


def test_epoch_numbers_may_have_fractions(backend: Backend) -> None:
    """To the microsecond; NaN and infinity are not instants."""

    class Reading(models.Model):
        __ttl__ = ExpireAt("ends", unit="s")
        ends = models.FloatField()

        class Meta:
            app_label = "shop"

    class Gauge(models.Model):
        __ttl__ = TTL(60, last_modified="at", override="life", unit="ms")
        at = models.DecimalField(max_digits=20, decimal_places=3, null=True)
        life = models.IntegerField(null=True)

        class Meta:
            app_label = "shop"

    connection = connections["default"]
    odd = {
        "postgresql": ("'NaN'", "'Infinity'", "'-Infinity'"),
        "sqlite": ("9e999", "-9e999", "'x'"),
    }.get(connection.vendor, ())
    with tables_of(Reading, Gauge):
        for number, value in enumerate(odd, start=10):
            raw(f"INSERT INTO shop_reading (id, ends) VALUES ({number}, {value})")  # noqa: S608
        now = timezone.now().timestamp()
        Reading.objects.create(pk=1, ends=now + 3600.5)
        Reading.objects.create(pk=2, ends=now - 3600.5)
        assert set(Reading.objects.values_list("pk", flat=True)) == {1, *range(10, 10 + len(odd))}
        assert Sweeper(connection, [Reading], lease=False).run_once().deleted == 1
        for key in range(6):
            Gauge.objects.create(pk=key + 1, life=MAX_TTL if key == 5 else None)
        stamps = Gauge.objects.values_list("at", flat=True)
        assert any(at % 1000 for at in stamps if at is not None)
        raw("UPDATE shop_gauge SET at = at - 60000 WHERE id = 2")
        raw("UPDATE shop_gauge SET at = NULL WHERE id = 3")
        raw("UPDATE shop_gauge SET life = 1, at = at - 2000 WHERE id = 4")
        assert set(Gauge.objects.values_list("pk", flat=True)) == {1, 3, 5, 6}
        assert Sweeper(connection, [Gauge], lease=False).run_once().deleted == 2


@isolate_apps("tests.django_app.shop")
def test_a_decimal_that_would_round_the_stamp_is_refused() -> None:
    class Meter(models.Model):
        at = models.DecimalField(max_digits=12, decimal_places=0)

        class Meta:
            app_label = "shop"

    with pytest.raises(TTLConfigurationError, match=r"shop\.Meter\.at has decimal_places=0.*6"):
        declare(Meter, TTL(60, last_modified="at", override=None, unit="s"), where="Meter.__ttl__")


def test_existing_columns_may_have_the_whole_contract(backend: Backend) -> None:
    """A policy over columns with other names, of other kinds, and another "never"."""

    class Grant(models.Model):
        __ttl__ = TTL(3600, last_modified="issued", override="lifetime", never=(0,))
        issued = models.DateTimeField(null=True)
        lifetime = models.BigIntegerField(null=True)

        class Meta:
            app_label = "shop"

    class Ticket(models.Model):
        __ttl__ = TTL(60, last_modified="stamp", override=None, unit="ms")
        stamp = models.BigIntegerField(null=True)

        class Meta:
            app_label = "shop"

    connection = connections["default"]
    with tables_of(Grant, Ticket):
        too_long = 2_147_483_648, 10**18
        for number, lifetime in enumerate((None, 0, -1, 60, 10_000, -7, *too_long), start=1):
            Grant.objects.create(pk=number, lifetime=lifetime)
        assert Grant.objects.filter(issued__isnull=False).count() == 8
        ago = timezone.now() - timedelta(hours=2)
        raw(
            "UPDATE shop_grant SET issued = %s",
            [ago if connection.vendor == "postgresql" else (str(ago.replace(tzinfo=None)))],
        )
        assert sorted(Grant.objects.values_list("lifetime", flat=True)) == [-1, 0, 10_000]
        assert Sweeper(connection, [Grant], lease=False).run_once().deleted == 5
        Ticket.objects.create(pk=1)
        Ticket.objects.create(pk=2)
        raw("UPDATE shop_ticket SET stamp = stamp - 60000 WHERE id = 2")
        raw("INSERT INTO shop_ticket (id, stamp) VALUES (3, NULL)")
        assert sorted(Ticket.objects.values_list("pk", flat=True)) == [1, 3]
        assert Sweeper(connection, [Ticket], lease=False).run_once().deleted == 1


def test_checks_find_what_works_badly() -> None:

    class Bare(models.Model):
        __ttl__ = ExpireAt("at")
        at = models.DateTimeField()

        class Meta:
            app_label = "shop"

    class Referring(models.Model):
        bare = models.ForeignKey(Bare, models.CASCADE, db_index=False)

        class Meta:
            app_label = "shop"

    class Leading(models.Model):
        bare = models.ForeignKey(Bare, models.CASCADE, db_index=False)
        name = models.CharField(max_length=20)

        class Meta:
            app_label = "shop"
            unique_together = [("bare_id", "name")]

    class Twin(models.Model):
        class Meta:
            app_label = "shop"
            db_table = "shop_bare"
            managed = False

    try:
        messages = check_policies()
        assert {"ttl_odm.W002", "ttl_odm.E002"} <= {message.id for message in messages}
        unindexed = [message.msg for message in messages if message.id == "ttl_odm.W002"]
        assert any("Referring" in text for text in unindexed)
        assert not any("Leading" in text for text in unindexed)
    finally:
        for name in ("bare", "referring", "leading", "twin"):
            forget(name)


def test_only_large_tables_need_an_index(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ttl_odm.django.checks.SMALL", 3)

    class Bare(models.Model):
        __ttl__ = ExpireAt("ends")
        ends = models.DateTimeField(null=True)

        class Meta:
            app_label = "shop"

    assert check_databases(["default"]) == []  # without a table
    with tables_of(Bare):
        for rows, found in ((3, []), (1, ["ttl_odm.W001"])):
            Bare.objects.bulk_create([Bare() for _ in range(rows)])
            messages = check_databases(["default"])
            assert [message.id for message in messages] == found
        assert messages[0].obj is Bare
        raw("UPDATE shop_bare SET ends = %s", ["2000-01-01 00:00:00"])
        assert [message.id for message in check_databases(["default"])] == ["ttl_odm.W001"]


@pytest.mark.slow
@pytest.mark.databases("sqlite")
def test_commands_run_no_system_checks(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[str] = []

    def check(**_: Any) -> list[Any]:
        ran.append("check")
        return []

    monkeypatch.setattr(checks.registry.registry, "registered_checks", {check})
    check.tags = ()  # type: ignore[attr-defined]
    for name in ("sweep", "status", "check", "plan", "pause", "resume", "policy"):
        words = {"plan": ["shop.Session"], "policy": ["show"]}.get(name, [])
        execute_from_command_line(["manage.py", f"ttl_{name}", *words])
    assert capsys.readouterr().out.count("\n") > 6
    assert ran == []
    execute_from_command_line(["manage.py", "check"])
    assert ran == ["check"]


def test_an_index_for_a_model_of_others_is_asked_of_the_database(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hint is a statement for a migration of one's own, and silences the check."""
    assert check_databases(["default"]) == []
    monkeypatch.setattr("ttl_odm.django.checks.SMALL", 0)
    AccessToken.objects.create(token="t", expires=timezone.now(), scope="")
    models_found = {getattr(message.obj, "model", message.obj) for message in check_policies()}
    assert "oauth2_provider" not in {model._meta.app_label for model in models_found}
    (missing,) = check_databases(["default"])
    assert (missing.id, missing.obj) == ("ttl_odm.W001", AccessToken)
    there, back = ast.literal_eval(str(missing.hint).partition("RunSQL")[2])
    raw(there)
    try:
        call_command("check", databases=["default"])
        assert check_databases(["default"]) == []
    finally:
        raw(back)


@pytest.mark.databases("sqlite", "mariadb", "mysql")
def test_dates_that_are_not_kept_in_utc_are_refused(backend: Backend) -> None:
    connection = connections["default"]
    before = connection.settings_dict["TIME_ZONE"]
    connection.settings_dict["TIME_ZONE"] = "Europe/Berlin"
    vars(connection).pop("timezone", None)
    try:
        assert "ttl_odm.E001" in {message.id for message in check_databases(["default"])}
        with pytest.raises(TTLConfigurationError, match="Europe/Berlin"):
            Link.objects.count()
    finally:
        connection.settings_dict["TIME_ZONE"] = before
        vars(connection).pop("timezone", None)


def test_subclasses_with_a_policy_of_their_own_are_refused() -> None:
    from tests.django_app.shop.models import Event, User

    def declared(base: Any, **meta: Any) -> None:
        options = type("Meta", (), {"app_label": "shop", **meta})
        members = {"__module__": __name__, "__ttl__": 5, "Meta": options}
        try:
            type("Sub", base, members)
        finally:
            forget("sub")

    with pytest.raises(TTLConfigurationError, match="tells them apart"):
        declared((Event,))
    with pytest.raises(TTLConfigurationError, match="tells them apart"):
        declared((Event,), proxy=True)
    with pytest.raises(TTLConfigurationError, match="part of each row"):
        declared((User, TTLModel))


def test_the_stamp_is_nobodys_to_edit() -> None:
    assert LastModifiedField().editable is False


def test_a_model_that_was_swapped_for_another_has_no_table(backend: Backend) -> None:
    class Voucher(TTLModel):
        __ttl__ = 3600

        class Meta:
            app_label = "shop"
            swappable = "SHOP_VOUCHER_MODEL"

    class Stub(models.Model):
        __ttl__ = Follows(Link, on={"link": "token"})
        link = models.CharField(max_length=20)

        class Meta:
            app_label = "shop"
            swappable = "SHOP_STUB_MODEL"

    try:
        assert "shop_voucher" in DjangoStore("default").targets()
        assert Stub in [rule.model for rule in rules_below(Link)]
        with override_settings(SHOP_VOUCHER_MODEL="shop.Link", SHOP_STUB_MODEL="shop.Note"):
            assert "shop_voucher" not in DjangoStore("default").targets()
            Link.objects.create(token="t", expires=timezone.now() - timedelta(minutes=5))
            report = Sweeper(connections["default"]).run_once()
            assert not [target.table for target in report.targets if target.error]
            assert report.deleted == 1
            call_command("ttl_status")
            setting = {"shop.Voucher": ExpireAt("at")}
            with pytest.raises(TTLConfigurationError, match=r"for shop\.Link"):
                list(policies_of(setting))
    finally:
        for name in ("voucher", "stub"):
            unbind(f"shop_{name}")
            forget(name)
