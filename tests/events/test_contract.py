"""Every case of events on every backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.events.cases import CASES
from tests.events.on_beanie import OnBeanie
from tests.events.on_sqlalchemy import OnAsyncSQLAlchemy, OnSQLAlchemy

if TYPE_CHECKING:
    from tests.backends import Backend
    from tests.events.subject import EventSubject
    from ttl_odm.testing import TTLClock


def check(subject: EventSubject, case: str) -> None:
    try:
        CASES[case](subject)
    finally:
        subject.close()


@pytest.mark.parametrize("case", CASES)
def test_sqlalchemy(backend: Backend, ttl_clock: TTLClock, case: str) -> None:
    check(OnSQLAlchemy(backend, ttl_clock), case)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_sqlalchemy_asynchronously(async_backend: Backend, ttl_clock: TTLClock, case: str) -> None:
    check(OnAsyncSQLAlchemy(async_backend, ttl_clock), case)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_beanie(mongodb_url: str, ttl_clock: TTLClock, case: str) -> None:
    check(OnBeanie(mongodb_url, ttl_clock), case)
