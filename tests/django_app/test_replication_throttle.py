"""``throttle="replication"`` with Django, on a database that has no replicas."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connections

from tests.django_app.data import kill
from tests.django_app.shop.models import Session
from ttl_odm import TTLConfigurationError
from ttl_odm.django import DjangoStore
from ttl_odm.replication import ReplicationLag
from ttl_odm.sweeper import Sweeper

pytestmark = [pytest.mark.usefixtures("backend"), pytest.mark.every_server]


@pytest.mark.parametrize("form", ["name", "connection", "store"])
def test_a_sweep_waits_for_nobody_where_nobody_follows(form: str) -> None:
    session = Session.objects.create(key="a")
    kill(Session, [session.pk])
    store = DjangoStore("default", Session)
    throttle = {
        "name": "replication",
        "connection": ReplicationLag(connections["default"], at_most=0.5),
        "store": ReplicationLag(store),
    }[form]
    report = Sweeper(store, throttle=throttle).run_once()
    assert (report.problems, report.deleted) == ((), 1)
    assert "throttle" not in report.waited


def test_replicas_are_connections() -> None:
    with pytest.raises(TTLConfigurationError, match="give a connection for each"):
        ReplicationLag(connections["default"], replicas=["replica"])
    throttle: Any = ReplicationLag(connections["default"], replicas=[connections["default"]])
    assert throttle() is None
