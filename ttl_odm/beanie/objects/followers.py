"""Documents in memory that follow others: their end is that of the parent.

Only a link that was fetched has the parent in memory; otherwise the database is asked.
"""

from __future__ import annotations

from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from beanie.odm.utils.encoder import Encoder
from bson import DBRef

from ttl_odm.beanie.policy.binding import (
    binding_of,
    collection_of,
    declared_follows,
    following_of,
)
from ttl_odm.beanie.policy.errors import ExpiredError
from ttl_odm.beanie.policy.predicate import deciding_fields, end_of
from ttl_odm.beanie.policy.stored import see
from ttl_odm.beanie.rewrite import followed
from ttl_odm.errors import TTLConfigurationError, TTLError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from beanie import Document

    from ttl_odm.beanie import drivers
    from ttl_odm.beanie.drivers import Session
    from ttl_odm.beanie.policy.following import Following


def refuse(document: Document) -> None:
    """Refuse to change the lifetime of a document that has none of its own."""
    declared = declared_follows(type(document))
    if declared is not None:
        raise TTLConfigurationError(
            f"{type(document).__name__} documents have no lifetime of their own: {declared!r}. "
            "Change that of the parent."
        )


def end_in_memory(document: Any, end: Callable[[Document], datetime | None]) -> datetime | None:
    """Return the end of the parent, where a fetched link has it; TTLError elsewhere."""
    declared = declared_follows(type(document))
    name = declared.parent if declared is not None else None
    parent: Any = getattr(document, name, None) if isinstance(name, str) else None
    if hasattr(parent, "get_settings"):
        return end(parent)
    model = type(document).__name__
    raise TTLError(
        f"{model} documents live as long as their parents do, which only the database knows: await "
        f"ttl_odm.beanie.expires_at(document), or fetch the link."
    )


async def expires_at(document: Document, *, session: Session = None) -> datetime | None:
    """Return the instant at which a document expires, as the database has it at this moment.

    For documents that follow others it is the end of the parent at the end of the row; for those
    that have a lifetime of their own, what the stored document says.

    Args:
        document: A document that is stored.
        session: The session of a transaction.

    Returns:
        The instant (aware, UTC), None for never.

    Raises:
        ExpiredError: The document has expired, or isn't there.
    """
    collection, model = collection_of(document), type(document)
    following = following_of(model)
    if following is None:
        binding = binding_of(model)
        if binding is None:
            raise TTLConfigurationError(f"{model.__name__} has no TTL: declare __ttl__ on it.")
        await see(binding, collection)
        row = await collection.find_one(
            {"_id": document.id}, dict.fromkeys(deciding_fields(binding.policy), 1), session=session
        )
        if row is None:
            raise ExpiredError(model=model.__name__, key=document.id)
        return end_of(row, binding.policy)
    rows = await _judged(document, following, session)
    if not rows or not rows[0]["lives"]:
        raise ExpiredError(model=model.__name__, key=document.id)
    ends = [end_of(parent, following.root.policy) for parent in rows[0]["parents"]]
    known = [end for end in ends if end is not None]
    return max(known) if known and len(known) == len(ends) else None


async def is_gone(document: Document, session: Session) -> bool:
    """Say whether a document that was not found has expired, as its parent has or isn't there."""
    following = following_of(type(document))
    assert following is not None  # noqa: S101 (asked before)
    rows = await _judged(document, following, session)
    if rows:
        return not rows[0]["lives"]
    # It may have been deleted with its parent: what memory has, counts.
    key = followed.keys_in(_encoded(document), following.links.own)
    if key is None:
        return False
    database = collection_of(document).database
    parents = database[following.links.collection]
    having = followed.having(following.links.theirs, [key])
    return await parents.find_one(having, {"_id": 1}, session=session) is None


def _encoded(document: Document) -> drivers.Document:
    made: drivers.Document = {}
    for name, info in type(document).model_fields.items():
        value: Any = getattr(document, name, None)
        ref = getattr(value, "ref", None)
        if isinstance(ref, DBRef):
            value = ref
        elif hasattr(value, "get_settings"):
            value = {"$id": value.id}
        else:
            value = Encoder(to_db=True).encode(value)
        made[info.alias or name] = value
    return made


async def _judged(document: Document, following: Following, session: Session) -> list[Any]:
    """Return the stored document, with its parents and whether it lives; nothing if not there."""
    collection = collection_of(document)
    made = followed.judged(following)
    pipeline = [
        {"$match": {"_id": document.id}},
        *made.stages,
        {"$project": {"lives": made.condition, "parents": f"${followed.FOLLOWED}"}},
    ]
    cursor: Any = collection.aggregate(pipeline, session=session, include_expired=True)
    if isawaitable(cursor):  # PyMongo's; Motor's asks when it is read
        cursor = await cursor
    rows: list[Any] = await cursor.to_list(None)
    return rows
