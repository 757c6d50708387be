"""``beanie migrate``, as one runs it, over documents of a class with a ttl."""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from beanie import Document
from pymongo import MongoClient

from ttl_odm import Follows, TTLConfigurationError
from ttl_odm.beanie import TTLMixin, keep_lifetimes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pymongo.collection import Collection
    from pymongo.database import Database

    Memos = list[dict[str, Any]]

APP = """
from beanie import Document
from ttl_odm.beanie import TTLMixin

class Memo(TTLMixin, Document):
    __ttl__ = 3600
    id: str
    title: str

    class Settings:
        name = "memos"
"""

RENAMING = """
from app import Memo
from beanie import Document, iterative_migration
from ttl_odm.beanie import TTLMixin, keep_lifetimes

keep_lifetimes(Memo)

class OldMemo({bases}):
    __ttl__ = 3600
    id: str
    name: str

    class Settings:
        name = "memos"

class NewMemo({bases}):
    __ttl__ = 3600
    id: str
    title: str

    class Settings:
        name = "memos"

class Forward:
    @iterative_migration()
    async def renamed(self, input_document: OldMemo, output_document: NewMemo):
        output_document.title = input_document.name

class Backward:
    @iterative_migration()
    async def renamed(self, input_document: NewMemo, output_document: OldMemo):
        output_document.name = input_document.title
"""

FREE = """
from app import Memo
from beanie import Document, free_fall_migration
from ttl_odm.beanie import keep_lifetimes

keep_lifetimes(Memo)
keep_lifetimes(Memo)  # as each of several migrations does

class AnyMemo(Document):
    id: str
    name: str

    class Settings:
        name = "memos"

class Forward:
    @free_fall_migration(document_models=[AnyMemo])
    async def free(self, session):
        await AnyMemo(id="inserted", name="new").insert(session=session)
        await AnyMemo(id="upserted", name="new").save(session=session)
        await AnyMemo(id="inherits", name="saved").save(session=session)
        own = await AnyMemo.get("own", session=session)
        await own.set({"ttl": 120}, session=session)
        undated = await AnyMemo.get("undated", session=session)
        await undated.set({"name": "updated"}, session=session)
"""

FOLLOWING = """
from app import Memo
from beanie import Document, iterative_migration
from ttl_odm import Follows
from ttl_odm.beanie import TTLMixin, keep_lifetimes

keep_lifetimes(Memo)

class OldLine(TTLMixin, Document):
    __ttl__ = Follows(Memo, on={"memo": "id"})
    id: str
    memo: str
    name: str

    class Settings:
        name = "lines"

class NewLine(TTLMixin, Document):
    __ttl__ = Follows(Memo, on={"memo": "id"})
    id: str
    memo: str
    title: str

    class Settings:
        name = "lines"

class Forward:
    @iterative_migration()
    async def renamed(self, input_document: OldLine, output_document: NewLine):
        output_document.title = input_document.name
"""

THEN = datetime(2026, 1, 1, tzinfo=timezone.utc)
SOON = datetime.now(timezone.utc).replace(microsecond=0) - timedelta(seconds=60)
MEMOS: Memos = [
    {"_id": "inherits", "_ts": SOON},
    {"_id": "own", "_ts": SOON, "ttl": 600, "_exp": SOON + timedelta(seconds=600)},
    {"_id": "for ever", "_ts": THEN, "ttl": -1},
    {"_id": "undated"},
    {"_id": "expired", "_ts": THEN, "ttl": 600, "_exp": THEN + timedelta(seconds=600)},
]


@pytest.fixture
def database(mongodb_url: str) -> Iterator[Database[dict[str, Any]]]:
    """Give a database of the test's own, with memos whose `name` was not renamed yet."""
    name = f"migrations_{uuid4().hex}"
    with MongoClient(mongodb_url, tz_aware=True) as client:
        place: Database[dict[str, Any]] = client[name]
        place["memos"].insert_many([{**memo, "name": memo["_id"]} for memo in MEMOS])
        for index in ("__ttl_default", "theirs"):
            place["memos"].create_index("_ts" if index != "theirs" else "x", name=index)
        yield place
        client.drop_database(name)


async def migrate(folder: Path, url: str, database: str, *options: str) -> None:
    """Run the command, to its end."""
    words = ["-m", "beanie.executors.migrate", "migrate", "-uri", url, "-db", database]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *words,
        *("-p", str(folder / "migrations"), *options),
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])},
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()


def written(folder: Path, migration: str) -> Path:
    """Write an application and a migration."""
    (folder / "app.py").write_text(APP)
    (folder / "migrations").mkdir()
    (folder / "migrations" / "20260101000000_first.py").write_text(migration)
    return folder


def stored(memos: Collection[Any]) -> Memos:
    """All of the memos; a ttl of null is like none."""
    return [
        {key: value for key, value in memo.items() if (key, value) != ("ttl", None)}
        for memo in memos.find()
    ]


@pytest.mark.slow
@pytest.mark.parametrize("transaction", ["--use-transaction", "--no-use-transaction"])
@pytest.mark.parametrize("bases", ["Document", "TTLMixin, Document"])
async def test_lifetimes_stay_as_they_are_forward_and_back(
    tmp_path: Path, mongodb_url: str, database: Database[Any], bases: str, transaction: str
) -> None:
    folder = written(tmp_path, RENAMING.format(bases=bases))
    memos = database["memos"]

    await migrate(folder, mongodb_url, database.name, transaction)
    assert stored(memos) == [{**memo, "title": memo["_id"]} for memo in MEMOS]

    await migrate(folder, mongodb_url, database.name, transaction, "--backward")
    assert stored(memos) == [{**memo, "name": memo["_id"]} for memo in MEMOS]


@pytest.mark.slow
async def test_documents_that_follow_others_are_migrated(
    tmp_path: Path, mongodb_url: str, database: Database[Any]
) -> None:
    keys = [memo["_id"] for memo in MEMOS]
    database["lines"].insert_many([{"_id": key, "memo": key, "name": key} for key in keys])

    await migrate(written(tmp_path, FOLLOWING), mongodb_url, database.name)

    assert stored(database["lines"]) == [{"_id": key, "memo": key, "title": key} for key in keys]


@pytest.mark.slow
async def test_the_indexes_for_lifetimes_are_not_dropped(
    tmp_path: Path, mongodb_url: str, database: Database[Any]
) -> None:
    folder = written(tmp_path, RENAMING.format(bases="Document"))

    await migrate(folder, mongodb_url, database.name, "--allow-index-dropping")

    assert database["memos"].index_information().keys() == {"_id_", "__ttl_default"}


@pytest.mark.slow
async def test_what_a_migration_writes_freely(
    tmp_path: Path, mongodb_url: str, database: Database[Any]
) -> None:
    before = database.command("hello")["localTime"].replace(tzinfo=timezone.utc)

    await migrate(written(tmp_path, FREE), mongodb_url, database.name)

    found = {memo["_id"]: memo for memo in database["memos"].find()}
    assert found["inserted"]["_ts"] >= before - timedelta(seconds=1)
    assert found["upserted"]["_ts"] >= before - timedelta(seconds=1)
    assert (found["inherits"]["_ts"], found["inherits"]["name"]) == (SOON, "saved")
    own = found["own"]
    assert (own["_ts"], own["ttl"]) == (SOON, 120)
    assert own.get("_exp") in (None, SOON + timedelta(seconds=120))
    assert found["undated"] == {**found["undated"], "name": "updated"}
    assert "_ts" not in found["undated"]


def test_a_class_without_a_lifetime_is_refused() -> None:
    class Plain(Document):
        pass

    with pytest.raises(TTLConfigurationError, match="Plain"):
        keep_lifetimes(Plain)


def test_a_class_that_follows_another_is_refused() -> None:
    class Memo(TTLMixin, Document):
        __ttl__ = 3600

    class Line(TTLMixin, Document):
        __ttl__ = Follows(Memo, on={"memo": "id"})
        memo: str

    with pytest.raises(TTLConfigurationError, match=r"\(Line\): its documents have no life"):
        keep_lifetimes(Memo, Line)
