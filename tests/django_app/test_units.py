"""``ttl_check`` and ``ttl_plan`` find numbers in another unit than the policy reads."""

from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import call_command
from django.db import connection

from tests.django_app.shop.models import Session, Upload

if TYPE_CHECKING:
    from tests.backends import Backend


def wrong_units(capsys: pytest.CaptureFixture[str], table: str) -> list[dict[str, Any]]:
    """The findings of a check about the units of a table."""
    capsys.readouterr()
    with contextlib.suppress(SystemExit):
        call_command("ttl_check", "--json")
    found = json.loads(capsys.readouterr().out)["findings"]
    codes = {each["code"] for each in found if each["target"] == table}
    assert not {"wrong-unit", "overdue"} <= codes
    return [each for each in found if (each["code"], each["target"]) == ("wrong-unit", table)]


@pytest.mark.slow
def test_instants_in_milliseconds_are_found(
    backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    now = int(time.time())
    Upload._base_manager.bulk_create([Upload(name=str(n), created=now * 1000) for n in range(3)])
    (wrong,) = wrong_units(capsys, "shop_upload")
    assert wrong["severity"] == "error"
    assert wrong["message"].startswith("3 of 3 rows that were read hold epoch milliseconds")
    assert wrong["fix"] == "declare unit='ms' in the policy"
    call_command("ttl_plan", "shop.Upload")
    assert f"! {wrong['message']}. Declare unit='ms'." in capsys.readouterr().out
    call_command("ttl_plan", "shop.Upload", "--policy", 'ExpireAfter("created", "1h", unit="ms")')
    assert "Declare unit=" not in capsys.readouterr().out
    Upload._base_manager.update(created=now)
    assert wrong_units(capsys, "shop_upload") == []


@pytest.mark.slow
def test_ttls_in_milliseconds_are_found(
    backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    Session.objects.bulk_create([Session(pk=number, key=str(number)) for number in range(1, 4)])
    assert wrong_units(capsys, "shop_session") == []
    with connection.cursor() as cursor:
        cursor.execute("UPDATE shop_session SET ttl = 3600000")
    (wrong,) = wrong_units(capsys, "shop_session")
    assert "3 of 3 rows that were read seem to hold milliseconds in ttl" in wrong["message"]
    call_command("ttl_plan", "shop.Session")
    assert f"! {wrong['message']}." in capsys.readouterr().out
