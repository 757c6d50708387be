"""16 writers, readers and sweepers on hot keys: a policy makes no transaction of Django's fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.crowds import WRITERS, Load
from tests.django_app.crowds import Shop

if TYPE_CHECKING:
    from tests.backends import Backend

pytestmark = [pytest.mark.slow, pytest.mark.in_thirds]

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
