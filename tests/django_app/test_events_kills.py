"""Processes of Django's that are killed at any moment lose no event, and record none twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.db import connections

from tests.django_app import project
from tests.django_app.killed import ID, run
from tests.django_app.shop.models import Seat, Tag, User
from tests.django_app.with_events import all_of, handled, no_handlers, worker
from tests.events.kills import assert_each_once, kill_at_random
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from tests.backends import Backend


@pytest.mark.slow
def test_no_event_is_lost_or_recorded_twice(backend: Backend) -> None:
    settings = project.database_settings(backend)
    with no_handlers():
        seen = handled(include=["label"])
        kill_at_random(run, lambda _: (settings,))
        # One that was killed may have the workers' lease.
        assert not Sweeper(connections["default"], Seat, lease=False).run_once().failed
        assert not Seat.all_objects.exists()
        last = worker()
        while last.run_once().total:
            pass
        recorded = [event.row["label"] for event in all_of()]
    lives = set(Tag.objects.values_list("name", flat=True))
    ids = {event.id[:ID] for event in seen}
    assert_each_once(recorded, lives, ids.union(User.objects.values_list("name", flat=True)))
