"""Beanie documents: what a type checker knows of a document, a finder and a policy."""

# pyright: reportUnnecessaryTypeIgnoreComment=error

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from beanie import Document, init_beanie
from beanie.exceptions import DocumentNotFound
from pydantic import BaseModel
from pymongo.asynchronous.database import AsyncDatabase
from typing_extensions import assert_type

from ttl_odm import ExpireAt, Stored, TTLError
from ttl_odm.beanie import (
    ExpiredError,
    PolicyChange,
    StoredPolicy,
    TTLMixin,
    enable,
    ensure_indexes,
    expire_in,
    policy_changes,
    set_policy,
    stored_policies,
    touch,
    ttl_database,
)


class Event(TTLMixin, Document):
    __ttl__ = 3600
    name: str


class Cart(TTLMixin, Document):
    __ttl__ = Stored(3600, max_staleness=timedelta(seconds=5))


class Plain(Document):
    until: datetime


async def a_start(database: AsyncDatabase[dict[str, Any]]) -> None:
    enable(Plain, ExpireAt("until"))
    await init_beanie(database=ttl_database(database), document_models=[Event, Plain])
    await ensure_indexes(Event)


async def a_document(event: Event) -> None:
    assert_type(event.last_modified, datetime | None)
    assert_type(event.expires_at, datetime | None)
    assert_type(event.is_expired, bool)
    assert_type(event.time_left, timedelta | None)
    assert_type(event.name, str)
    event.ttl = 60
    event.ttl = timedelta(minutes=1)
    assert_type(await event.expire_in(timedelta(hours=1), only_if="longer"), bool)
    assert_type(await event.expire_at(datetime.now(timezone.utc), only_if="no_ttl"), bool)
    await event.persist()
    await event.inherit_ttl()
    assert_type(await event.touch(at_most_every=60, only_if="shorter"), bool)
    assert_type(await touch(event), bool)
    assert_type(await expire_in(event, 60), bool)


async def a_stored_default() -> None:
    enable(Plain, Stored(60))
    assert_type(await set_policy(Cart, timedelta(hours=2), by="ann", reason="audit"), int | None)
    assert_type(await stored_policies(Cart, Plain), list[StoredPolicy])
    assert_type(await policy_changes(Cart), list[PolicyChange])


async def a_finder() -> None:
    assert_type(await Event.find(Event.name == "a").to_list(), list[Event])
    assert_type(await Event.find(Event.name == "a", include_expired=True).to_list(), list[Event])
    assert_type(await Event.find_one(Event.name == "a"), Event | None)
    assert_type(await Event.get("a", include_expired=True), Event | None)


class Name(BaseModel):
    name: str


async def renewals() -> None:
    assert_type(await Event.find(Event.name == "a").touch(at_most_every=60), int)
    assert_type(await Event.find_one(Event.name == "a").touch(expire_in=60), Event | None)
    assert_type(await Event.find_one(projection_model=Name).touch(only_if="longer"), Name | None)
    assert_type(await Event.find(projection_model=Name).to_list(), list[Name])
    assert_type(await Event.find_one(projection_model=Name), Name | None)


async def an_error(event: Event) -> None:
    try:
        await event.save()
    except ExpiredError as error:
        gone: DocumentNotFound = error
        own: TTLError = error
        print(gone, own)


async def mistakes(event: Event) -> None:
    """Each line is one."""
    event.expires_at = datetime.fromtimestamp(0, timezone.utc)  # type: ignore[misc]
    event.time_left.days  # type: ignore[union-attr]
    await event.expire_in("1 h")  # type: ignore[arg-type]
    await event.expire_at(60)  # type: ignore[arg-type]
    await event.expire_in(60, only_if="later")  # type: ignore[arg-type]
    ttl_database(None, backend="azure")  # type: ignore[arg-type]


class Wrong(TTLMixin, Document):
    __ttl__ = "an hour"  # type: ignore[assignment]
