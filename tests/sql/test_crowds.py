"""16 writers, readers and sweepers on hot keys: a policy makes no transaction fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine

from tests.crowds import CONNECTIONS, HOUR, Load
from tests.sql.crowds import Log, Plain, Shop
from ttl_odm import Stored
from ttl_odm.sqlalchemy.objects import ends

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from tests.backends import Backend

pytestmark = [pytest.mark.slow, pytest.mark.in_turns]

TRANSACTIONS = 12
"""Of each writer."""


@pytest.fixture
def crowd(backend: Backend) -> Iterator[Engine]:
    assert backend.sync_url is not None
    engine = create_engine(backend.sync_url, pool_size=CONNECTIONS)
    yield engine
    engine.dispose()


@pytest.fixture(params=[False, True], ids=["plain", "policy"])
def policy(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.mark.databases("postgres", "mariadb", "mysql")
@pytest.mark.parametrize("margin", [5, HOUR])
def test_no_transaction_fails_on_hot_families(
    crowd: Engine, policy: Any, margin: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With the longer one, each object is near its end.
    monkeypatch.setattr(ends, "MARGIN", margin)
    load = Load(Shop(crowd, policy=policy), TRANSACTIONS).run()
    assert load.errors == {}


@pytest.mark.databases("postgres")
@pytest.mark.usefixtures("noon")
def test_no_transaction_fails_beside_drops_of_partitions(crowd: Engine, policy: Any) -> None:
    load = Load(Log(crowd, policy=policy), TRANSACTIONS).run()
    assert load.errors == {}


@pytest.mark.databases("mariadb", "mysql")
@pytest.mark.parametrize("declared", [None, HOUR, Stored(HOUR)], ids=["plain", "policy", "stored"])
def test_no_serializable_transaction_fails_on_hot_rows_without_followers(
    crowd: Engine, declared: Any
) -> None:
    serializable = crowd.execution_options(isolation_level="SERIALIZABLE")
    load = Load(Plain(serializable, policy=declared), TRANSACTIONS).run()
    assert load.errors == {}
