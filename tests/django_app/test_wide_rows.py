"""Rows of a megabyte: how many bytes of them come to Python at once, counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.db import connections
from django.db.models.signals import pre_delete

from tests.django_app.data import kill
from tests.django_app.shop.models import Letter, StoredLetter
from ttl_odm.django import Archive
from ttl_odm.sweeper import Hook, Pace, Sweeper
from ttl_odm.sweeper.pace import MOST_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.backends import Backend

MEGABYTE = 1024 * 1024
ROWS = 32
EAGER = Pace(start=1_000, lowest=1, highest=1_000, target=3_600)
"""Doubles each batch, so that only bytes bound it."""


@pytest.fixture
def loaded() -> Iterator[None]:
    """Let rows be deleted as objects, since somebody listens."""

    def listen(**_: Any) -> None: ...

    pre_delete.connect(listen, sender=Letter)
    yield
    pre_delete.disconnect(listen, sender=Letter)


def sweep(*, rows: bool) -> None:
    """Sweep wide rows, and count the bytes of each batch."""
    for key in range(1, ROWS + 1):
        Letter.objects.create(pk=key, body="x" * MEGABYTE)
    kill(Letter, range(1, ROWS + 1))
    batches: list[int] = []
    hook = Hook(lambda purged: batches.append(purged.count * MEGABYTE), rows=rows)
    report = Sweeper(connections["default"], Letter, on_purged=hook, pace=EAGER).run_once()
    report.raise_for_failures()
    assert (report.deleted, sum(batches)) == (ROWS, ROWS * MEGABYTE)
    assert max(batches) <= MOST_BYTES


@pytest.mark.slow
def test_for_a_hook(backend: Backend) -> None:
    sweep(rows=True)


@pytest.mark.slow
@pytest.mark.usefixtures("loaded")
def test_as_objects(backend: Backend) -> None:
    sweep(rows=False)


@pytest.mark.slow
def test_for_an_archive(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Letter, "__ttl_archive__", Archive(into="shop.StoredLetter"))
    sweep(rows=False)
    assert StoredLetter.objects.count() == ROWS
