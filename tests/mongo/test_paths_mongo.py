"""How many modules a reader follows a request of Beanie's through: the numbers may only fall.

The paths are those of `tests.packaging.test_paths`, and are traced in the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from pymongo import MongoClient

from tests.packaging.test_paths import check_pins, modules_on

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

PINS = {
    "find": (14, 13),
    "insert_over_expired": (23, 23),
    "touch": (21, 21),
    "one_batch": (29, 29),
    "idle_sweep": (26, 26),
}
"""By path: modules that run at the first call, and at the second.

Lower a pin with the change that shortens its path. To raise one, write the new number here, and
beside it why the further module can't be one of the others.
"""

BEANIE = """
import asyncio

from beanie import Document, init_beanie

from tests.mongo.models import connect
from ttl_odm.beanie import TTLMixin, ensure_indexes, ttl_database
from ttl_odm.sweeper import AsyncSweeper


class Note(TTLMixin, Document):
    __ttl__ = 3600
    __ttl_purge__ = "sweeper"

    id: str

    class Settings:
        name = "notes"


url, name = sys.argv[2:]
loop = asyncio.new_event_loop()
asyncio.set_event_loop(loop)
wait = loop.run_until_complete


async def opened():
    database = connect(url)[name]
    await init_beanie(database=ttl_database(database), document_models=[Note])
    await ensure_indexes(Note)
    return database


database = wait(opened())


async def find(_):
    await Note.find().to_list()


async def insert(_=None):
    await Note(id="one").insert()


async def age():
    update = [{"$set": {"_ts": {"$subtract": ["$_ts", 7_200_000]}}}]
    await database.notes.update_many({}, update)


async def expired():
    await age()
    await insert()
    await age()


async def loaded():
    await database.notes.delete_many({})
    await insert()
    return await Note.get("one")


async def touch(note):
    await note.touch()


async def due():
    await expired()
    return await swept()


async def swept():
    return AsyncSweeper(database, Note)


async def sweep(sweeper):
    await sweeper.run_once()


def waiting(coroutine):
    return lambda *given: wait(coroutine(*given))


PATHS = {
    "find": (waiting(loaded), waiting(find)),
    "insert_over_expired": (waiting(expired), waiting(insert)),
    "touch": (waiting(loaded), waiting(touch)),
    "one_batch": (waiting(due), waiting(sweep)),
    "idle_sweep": (waiting(swept), waiting(sweep)),
}
"""


@pytest.fixture
def database(mongodb_url: str) -> Iterator[tuple[str, str]]:
    """Give the server's address, and the name of a database that is dropped at the end."""
    name = f"ttl_odm_{uuid4().hex}"
    yield mongodb_url, name
    with MongoClient[dict[str, object]](mongodb_url) as client:
        client.drop_database(name)


@pytest.mark.parametrize("path", PINS)
def test_a_path_of_beanie_does_not_get_longer(path: str, database: tuple[str, str]) -> None:
    check_pins(path, modules_on(BEANIE, path, *database), PINS[path])
