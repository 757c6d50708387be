"""Documents in memory that follow others: they expire when their parent does.

Only a fetched link has the parent in memory; otherwise the database is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from beanie.odm.utils.encoder import Encoder
from bson import DBRef

from ttl_odm.beanie.drivers import on_primary
from ttl_odm.beanie.objects.copies import key_of
from ttl_odm.beanie.policy import predicate
from ttl_odm.beanie.policy.bindings import collection_of
from ttl_odm.beanie.purge.errors import ExpiredError
from ttl_odm.errors import TTLError
from ttl_odm.follows.beanie.parents import aggregate
from ttl_odm.follows.beanie.stages import FOLLOWED, having, judged, keys_in

if TYPE_CHECKING:
    from datetime import datetime

    from beanie import Document

    from ttl_odm.beanie import drivers
    from ttl_odm.beanie.drivers import Session
    from ttl_odm.beanie.policy.rules import Copy, EndOf
    from ttl_odm.follows import Follows
    from ttl_odm.follows.beanie.follower import Following


def end_in_memory(document: Document, declared: Follows, end: EndOf) -> datetime | None:
    """Return when the parent in a fetched link expires; TTLError without one."""
    name = declared.parent
    parent: Any = getattr(document, name, None) if isinstance(name, str) else None
    if hasattr(parent, "get_settings"):
        return end(parent)
    model = type(document).__name__
    raise TTLError(
        f"{model} documents live as long as their parents, which only the database can tell: "
        "await ttl_odm.beanie.expires_at(document), or fetch the link."
    )


async def end_of(document: Document, following: Following, session: Session) -> datetime | None:
    """Return when a document expires, by its root; ExpiredError if it has expired, or is gone."""
    rows = await _judged(document, following, session)
    if not rows or not rows[0]["lives"]:
        raise ExpiredError(model=type(document).__name__, key=document.id)
    policy = following.root.policy
    ends = [predicate.end_of(parent, policy) for parent in rows[0]["parents"]]
    finite = [end for end in ends if end is not None]
    return max(finite) if finite and len(finite) == len(ends) else None


async def is_gone(
    document: Document,
    following: Following,
    session: Session,
    copy: Copy | None,
    *,
    inserts: bool = False,
) -> bool:
    """Say whether a document that was not found has expired: its parent has, or is missing.

    Before an insert, this is only true for the very document that `copy` is a copy of.
    """
    rows = await _judged(document, following, session)
    paths = following.links.own
    stored_key = keys_in(_encoded(document, copy), paths)
    if rows:
        is_doubtful = inserts and copy is not None and not copy.is_certain
        is_of_another = is_doubtful and keys_in(rows[0]["own"], paths) != stored_key
        return not (rows[0]["lives"] or is_of_another)
    # It may have been deleted with its parent: with the one in memory, or the one it had before.
    key_now = keys_in(_encoded(document, None), paths)
    parents = on_primary(collection_of(document).database[following.links.collection])
    for key in [stored_key] if key_now == stored_key else [stored_key, key_now]:
        if key is None:
            continue
        parent = having(following.links.theirs, [key])
        if await parents.find_one(parent, {"_id": 1}, session=session) is None:
            return True
    return False


def _encoded(document: Document, copy: Copy | None) -> drivers.Document:
    """Return a document as it would be stored, with the links that it had when it was read."""
    encoded: drivers.Document = {}
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
        encoded[alias] = value
    return encoded


async def _judged(
    document: Document, following: Following, session: Session
) -> list[drivers.Document]:
    """Return whether a stored document lives, its parents and its link; nothing if it is gone."""
    collection = collection_of(document)
    judgement = judged(following)
    tops = {path.partition(".")[0] for path in following.links.own}
    fields = {
        "lives": judgement.condition,
        "parents": f"${FOLLOWED}",
        "own": {top: f"${top}" for top in tops},
    }
    pipeline = [{"$match": {"_id": key_of(document)}}, *judgement.stages, {"$project": fields}]
    return await aggregate(on_primary(collection), pipeline, session=session, include_expired=True)
