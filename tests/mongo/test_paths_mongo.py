"""How many modules a reader follows one request of Beanie's through: the numbers may fall, not rise.

The paths are those of `tests.packaging.test_paths`, and are traced in the same way.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import ttl_odm
from tests.mongo.scratch import scratch
from tests.packaging.test_paths import REPORT, TRACE

pytestmark = pytest.mark.slow

PINS = {
    "find": (99, 99),
    "insert_over_expired": (99, 99),
    "touch": (99, 99),
    "one_batch": (99, 99),
    "idle_sweep": (99, 99),
}
"""By path: modules that run at the first call, and at the second.

Lower a pin with the change that shortens its path. To raise one, write the new number here, and
beside it why the further module can't be one of the others.
"""

BEANIE = """
import asyncio

from beanie import Document, init_beanie
from pymongo import AsyncMongoClient

from ttl_odm.beanie import TTLMixin, ensure_indexes, ttl_database
from ttl_odm.sweeper import AsyncSweeper


class Note(TTLMixin, Document):
    __ttl__ = 3600
    __ttl_purge__ = "sweeper"

    id: str

    class Settings:
        name = "notes"


loop = asyncio.new_event_loop()
wait = loop.run_until_complete
plain = AsyncMongoClient(sys.argv[2])[sys.argv[3]]


async def begin():
    await init_beanie(database=ttl_database(plain), document_models=[Note])
    await ensure_indexes(Note)


wait(begin())


def find(_):
    wait(Note.find().to_list())


def insert(_=None):
    wait(Note(id="one").insert())


def age():
    update = [{"$set": {"_ts": {"$subtract": ["$_ts", 7_200_000]}}}]
    wait(plain.notes.update_many({}, update))


def expired():
    age()
    insert()
    age()


def loaded():
    wait(plain.notes.delete_many({}))
    insert()
    return wait(Note.get("one"))


def touch(note):
    wait(note.touch())


def due():
    expired()
    return swept()


def swept():
    return AsyncSweeper(plain, Note)


def sweep(sweeper):
    wait(sweeper.run_once())


PATHS = {
    "find": (loaded, find),
    "insert_over_expired": (expired, insert),
    "touch": (loaded, touch),
    "one_batch": (due, sweep),
    "idle_sweep": (swept, sweep),
}
"""


def modules_on(path: str, url: str, database: str) -> tuple[list[str], list[str]]:
    """Return the modules that run at the first call, and at the second."""
    run = subprocess.run(
        [sys.executable, "-c", TRACE + BEANIE + REPORT, path, url, database],
        env={**os.environ, "PYTHONPATH": str(Path(ttl_odm.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    first, second = json.loads(run.stdout)
    return first, second
