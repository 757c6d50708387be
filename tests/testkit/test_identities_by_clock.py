"""The tests of identities, where a `TTLClock` lets the time pass: it allows no more than reality.

Elsewhere rows are aged in the database, which the memory of a session follows in the same way.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest

from tests.sql import test_identities
from tests.sql.test_identities import m, session

if TYPE_CHECKING:
    from collections.abc import Callable

    from ttl_odm.testing import TTLClock

__all__ = ["m", "session"]

pytestmark = pytest.mark.databases("sqlite")


def _tests() -> dict[str, Callable[..., Any]]:
    """Those that let rows expire by way of a session."""
    every = inspect.getmembers(test_identities, inspect.isfunction)
    return {
        name: test
        for name, test in every
        if name.startswith("test_") and "session" in inspect.signature(test).parameters
    }


globals().update(_tests())


@pytest.fixture(params=["running", "frozen"])
def clock(request: pytest.FixtureRequest, ttl_clock: TTLClock) -> TTLClock:
    if request.param == "frozen":
        ttl_clock.freeze()
    return ttl_clock
