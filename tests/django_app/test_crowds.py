"""16 writers, readers and sweepers on hot keys: a policy makes no transaction of Django's fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.db import models

from tests.crowds import HOUR, WRITERS, Load
from tests.django_app.crowds import Plain, Shop
from tests.django_app.data import tables_of
from ttl_odm import Stored
from ttl_odm.django import TTLModel
from ttl_odm.stored.django.changes import begin_policies

if TYPE_CHECKING:
    from tests.backends import Backend

pytestmark = [pytest.mark.slow, pytest.mark.in_turns]

TRANSACTIONS = 12
"""Of each writer."""


@pytest.mark.databases("postgres", "mariadb", "mysql")
@pytest.mark.parametrize("policy", [False, True], ids=["plain", "policy"])
@pytest.mark.usefixtures("_at_level")
@pytest.mark.parametrize("level", ["", "repeatable read"])
def test_no_transaction_fails_on_hot_families(backend: Backend, level: str, policy: Any) -> None:
    if level and backend.database == "postgres":
        pytest.skip("where hot rows cause serialization failures in any case")
    load = Load(Shop(policy=policy, stock=WRITERS * TRANSACTIONS), TRANSACTIONS).run()
    assert load.errors == {}


@pytest.mark.databases("mariadb", "mysql")
@pytest.mark.usefixtures("_at_level")
@pytest.mark.parametrize("declared", [None, HOUR, Stored(HOUR)], ids=["plain", "policy", "stored"])
@pytest.mark.parametrize("level", ["serializable"])
def test_no_serializable_transaction_fails_on_hot_rows_without_followers(
    level: str, declared: Any
) -> None:
    base: Any = TTLModel if declared else models.Model

    class Code(base):  # type: ignore[misc]
        if declared:
            __ttl__ = declared
        id = models.BigIntegerField(primary_key=True)
        writes = models.IntegerField(default=0)

        class Meta:
            app_label = "shop"

    with tables_of(Code):
        begin_policies()
        load = Load(Plain(Code), TRANSACTIONS).run()
    assert load.errors == {}
