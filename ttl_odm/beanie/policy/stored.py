"""A default that the database stores: where it is, and how it is read.

It is a document of ``ttl_odm_policies``, in the collection's own database. MongoDB lets no filter
look into another collection, so whoever builds one reads that document before (`see`): what is
noted then is never older than the operation that goes by it, unless the class allows so
(`Stored.max_staleness`).

What deletes must not go by what may have changed meanwhile. It holds the document while it does
(`hold`): in its transaction it changes the document, and so does who changes the default, of whom
the server lets one through. So there is no instant at which a document is deleted by a default that
holds no more.

This module must not know how a default is changed.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from bson.codec_options import CodecOptions
from pymongo import ReadPreference
from pymongo.read_concern import ReadConcern

from ttl_odm.beanie.policy.notes import Noted
from ttl_odm.core.policy import TTL
from ttl_odm.core.values import lenient_ttl

if TYPE_CHECKING:
    from ttl_odm.beanie.drivers import Collection, Document
    from ttl_odm.beanie.policy.binding import Binding
    from ttl_odm.beanie.policy.commands import RawCollection
    from ttl_odm.core.policy import Policy

POLICIES: Final = "ttl_odm_policies"
CHANGES: Final = "ttl_odm_policy_changes"
WHOLE_COLLECTION: Final = ""
"""The scope of the default of all documents."""

KNOWN_FOR: Final = 10.0
"""Seconds for which what was noted decides about results in memory."""

AWARE: Final[CodecOptions[Any]] = CodecOptions(tz_aware=True)
# Not under its own name: freezegun replaces `time.monotonic` wherever it finds it.
monotonic: Final = partial(time.monotonic)


def key_of(collection: Collection) -> Document:
    """Return the ``_id`` of a collection's policy."""
    return {"name": collection.name, "scope": WHOLE_COLLECTION}


def beside(collection: Collection, name: str) -> Collection:
    """Return a collection of that name in the same database, ungated."""
    database = collection.database.client[collection.database.name]
    return database.get_collection(
        name,
        codec_options=AWARE,
        # A secondary's documents are as old as its policies.
        read_preference=ReadPreference.PRIMARY_PREFERRED,
        read_concern=ReadConcern("local"),
    )


async def see(binding: Binding, collection: Collection, *, anew: bool = False) -> None:
    """Note the default that is stored, if there is one and what was noted may not be used again.

    Not in a session: a transaction would see the default as it was when it began.
    """
    stored = binding.stored
    if stored is None or (not anew and binding.notes.may_be_used(monotonic())):
        return
    asked = monotonic()
    fields = {"ttl": 1, "max_staleness": 1}
    row = await beside(collection, POLICIES).find_one({"_id": key_of(collection)}, fields)
    # As long as nobody who changes it knows of a longer one.
    allowed = min(stored.max_staleness or 0, seconds_of((row or {}).get("max_staleness")))
    binding.notes.take(Noted(lenient_ttl((row or {}).get("ttl")), asked, asked + allowed))


async def is_begun(collection: Collection) -> bool:
    """Say whether anything is stored for a collection."""
    own = {"_id": key_of(collection), "ttl": {"$exists": True}}
    return await beside(collection, POLICIES).find_one(own, {"_id": 1}) is not None


def changed_to(default: int | None) -> Noted:
    """Return what is to be noted of a default that has just been written."""
    now = monotonic()
    return Noted(default, now, now)


def is_known(binding: Binding) -> bool:
    """Say whether what is known of a default decides about results in memory."""
    return not binding.is_stored or binding.notes.is_asked_since(monotonic() - KNOWN_FOR)


async def hold(place: RawCollection, binding: Binding) -> Policy:
    """Return the policy by which documents may be deleted now; nobody changes it before the commit.

    The place is in a transaction, if the default is stored. Raises an OperationFailure (a write
    conflict) where somebody is changing it, or deletes by it.
    """
    declared = binding.declared
    if not isinstance(declared, TTL) or binding.stored is None:
        return binding.policy
    reply = await place.run(
        {
            "findAndModify": POLICIES,
            "query": {"_id": key_of(place.collection)},
            "update": {"$inc": {"purges": 1}},  # the server takes what changes nothing for no write
            "fields": {"ttl": 1},
        }
    )
    row = reply["value"]
    return declared.with_default(lenient_ttl(None if row is None else row.get("ttl")))


def seconds_of(value: object) -> int:
    """Return a number of seconds that is stored; 0 for anything else."""
    seconds = lenient_ttl(value)
    return 0 if seconds is None else max(seconds, 0)
