"""The pytest plugin: the fixtures ``ttl_clock`` and ``expired_events``.

pytest loads it in every run in an environment that has ttl_odm, so it imports nothing else before
a test uses a fixture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ttl_odm.testing import ExpiredEvents, TTLClock


@pytest.fixture
def ttl_clock() -> Iterator[TTLClock]:
    """The clock by which rows expire: see `ttl_odm.testing.TTLClock`."""
    from ttl_odm.testing.clock import TTLClock  # noqa: PLC0415 (see above)

    with TTLClock() as clock:
        yield clock


@pytest.fixture
def expired_events(ttl_clock: TTLClock) -> Iterator[ExpiredEvents]:
    """The events of expired rows: see `ttl_odm.testing.ExpiredEvents`."""
    from ttl_odm.testing import ExpiredEvents  # noqa: PLC0415 (see above)

    with ExpiredEvents(ttl_clock) as events:
        yield events
