"""Beanie's iterative migrations, past the gate, by plain classes that keep what they don't know."""

# ruff: noqa: D106 - Beanie's Settings are plain class attributes

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING

from beanie import Document, init_beanie, iterative_migration
from pydantic import ConfigDict

from tests.mongo.scratch import scratch

if TYPE_CHECKING:
    from typing import Any


class OldMemo(Document):
    model_config = ConfigDict(extra="allow")
    name: str

    class Settings:
        name = "documents"


class NewMemo(Document):
    model_config = ConfigDict(extra="allow")
    title: str

    class Settings:
        name = "documents"


async def renamed(input_document: OldMemo, output_document: NewMemo) -> None:
    output_document.title = input_document.name


renamed.__annotations__ |= {"input_document": OldMemo, "output_document": NewMemo}


async def test_classes_that_allow_extra_fields_keep_lifetimes(mongodb_url: str) -> None:
    then = datetime(2026, 1, 1, tzinfo=timezone.utc)
    lifetime: dict[str, Any] = {"_ts": then, "ttl": 60, "_exp": then}
    async with scratch(mongodb_url) as place:
        key = place.theirs.insert_one({"name": "a", **lifetime}).inserted_id
        await init_beanie(database=place.ours.database, document_models=[OldMemo, NewMemo])

        await iterative_migration()(renamed).run(session=None)

        (stored,) = place.theirs.find()
        assert stored == {"_id": key, "name": "a", "title": "a", **lifetime}
