"""Documents of a megabyte: how many bytes of them come to Python at once, counted."""

from __future__ import annotations

from typing import Any

import pytest

from tests.mongo.sweeping import DAY, declared, swept
from ttl_odm.beanie import Archive
from ttl_odm.sweeper import Hook, Pace
from ttl_odm.sweeper.pace import MOST_BYTES

MEGABYTE = 1024 * 1024
DOCUMENTS = 32
EAGER = Pace(start=1_000, lowest=1, highest=1_000, target=3_600)
"""Doubles each batch, so that only bytes bound it."""


class Sink:
    """Counts the bytes that it gets at once: as an archive, and as a hook."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    async def write(self, purged: Any) -> None:
        self.batches.append(purged.count * MEGABYTE)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["hook", "sink", "archive"])
async def test_bytes_at_once(mongodb_url: str, way: str) -> None:
    sink = Sink()
    archive = {"hook": None, "sink": sink, "archive": Archive("old")}[way]
    hook = None if way == "sink" else Hook(sink.write, rows=way == "hook")
    async with swept(mongodb_url, declared(archive=archive)) as place:
        for key in range(DOCUMENTS):
            place.add([key], age=DAY, text="x" * MEGABYTE)
        report = await place.sweep(on_purged=hook, pace=EAGER)
    report.raise_for_failures()
    assert (report.deleted, sum(sink.batches)) == (DOCUMENTS, DOCUMENTS * MEGABYTE)
    assert max(sink.batches) <= MOST_BYTES
