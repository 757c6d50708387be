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
    from ttl_odm.beanie.objects.copies import Copy
    from ttl_odm.beanie.policy.following import Following


def refuse(model: type[Document]) -> None:
    """Refuse to change the lifetime of documents that have none of their own."""
    declared = declared_follows(model)
    if declared is not None:
        raise TTLConfigurationError(
            f"{model.__name__} documents have no lifetime of their own: {declared!r}. "
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


async def is_gone(
    document: Document, session: Session, copy: Copy | None, *, inserts: bool = False
) -> bool:
    """Say whether a document that was not found has expired, as its parent has or isn't there.

    Before an insert that is only said of the document that the copy is of.
    """
    following = following_of(type(document))
    assert following is not None  # noqa: S101 (asked before)
    rows = await _judged(document, following, session)
    paths = following.links.own
    known = followed.keys_in(_encoded(document, copy), paths)
    if rows:
        is_doubtful = inserts and copy is not None and not copy.is_certain
        is_of_another = is_doubtful and followed.keys_in(rows[0]["own"], paths) != known
        return not (rows[0]["lives"] or is_of_another)
    # It may have been deleted with its parent: what memory has, and had, counts.
    now = followed.keys_in(_encoded(document, None), paths)
    parents = collection_of(document).database[following.links.collection]
    for key in [known] if now == known else [known, now]:
        if key is None:
            continue
        having = followed.having(following.links.theirs, [key])
        if await parents.find_one(having, {"_id": 1}, session=session) is None:
            return True
    return False


def _encoded(document: Document, copy: Copy | None) -> drivers.Document:
    """Return a document as it is stored, with the links that the stored one had."""
    made: drivers.Document = {}
    links = {} if copy is None else copy.row(type(document))
    for name, info in type(document).model_fields.items():
        alias = info.alias or name
        value: Any = links[alias] if alias in links else getattr(document, name, None)
        ref = getattr(value, "ref", None)
        if isinstance(ref, DBRef):
            value = ref
        elif hasattr(value, "get_settings"):
            value = {"$id": value.id}
        else:
            value = Encoder(to_db=True).encode(value)
        made[alias] = value
    return made


async def _judged(document: Document, following: Following, session: Session) -> list[Any]:
    """Return the stored document, with its parents and whether it lives; nothing if not there."""
    collection = collection_of(document)
    made = followed.judged(following)
    tops = {path.partition(".")[0] for path in following.links.own}
    shown = {
        "lives": made.condition,
        "parents": f"${followed.FOLLOWED}",
        "own": {top: f"${top}" for top in tops},
    }
    pipeline = [{"$match": {"_id": document.id}}, *made.stages, {"$project": shown}]
    cursor: Any = collection.aggregate(pipeline, session=session, include_expired=True)
    if isawaitable(cursor):  # PyMongo's; Motor's asks when it is read
        cursor = await cursor
    rows: list[Any] = await cursor.to_list(None)
    return rows
