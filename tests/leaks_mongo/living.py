"""The world with ttl_odm."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from beanie import Document, UnionDoc
from beanie.migrations.database import DBHandler
from beanie.odm.documents import DocumentWithSoftDelete

from tests.leaks.data import LONG, SHORT
from tests.leaks_mongo.data import DOUBLE_SHORT, HOUR, INT64_LONG, NULL, SHORT_BUT_OFF, UNSTAMPED
from tests.leaks_mongo.worlds import Bases, Raw, TimelessWorld
from ttl_odm import TTL, ExpireAfter, ExpireAt
from ttl_odm.beanie import TTLMixin, keep_lifetimes, ttl_database

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from tests.leaks.data import Row

AN_HOUR = timedelta(seconds=HOUR)
SLACK = timedelta(seconds=1)
OWN_DATES = {"Visit", "Offer", "Voucher", "Adopted", "Reading"}
"""What has no `_ts`."""
VALID = (SHORT, LONG, DOUBLE_SHORT, INT64_LONG, SHORT_BUT_OFF)
"""The lives with a valid ttl of their own."""


class LivingWorld(TimelessWorld):
    """All documents, with their lifetimes, read through ttl_odm."""

    bases = Bases(
        timed=(TTLMixin, Document),
        soft=(TTLMixin, DocumentWithSoftDelete),
        union=(UnionDoc,),
        ttl=TTL,
        expire_after=ExpireAfter,
        expire_at=ExpireAt,
    )
    everything = {"include_expired": True}

    def after(self, model: Any) -> list[Raw]:
        """What a collection holds now; whatever was written must have been stamped, too."""
        self.changed(model)
        return super().after(model)

    def changed(self, model: Any) -> list[Any]:
        """The keys of what was written; it must have been stamped, too."""
        keys = super().changed(model)
        if issubclass(model, TTLMixin) and model.get_collection_name() not in OWN_DATES:
            for key in keys:
                stamp = (self.stored(model, key) or {}).get("_ts")
                written = stamp and self.started - SLACK <= stamp <= self.now() + SLACK
                assert written, f"document {key} was written, and has the _ts {stamp}"
        return keys

    def give_lifetime(self, document: Raw, row: Row, now: datetime) -> None:
        """Set `_ts`, the document's own ttl, and `_exp`, which follows from the two."""
        if not issubclass(getattr(self, row.model), TTLMixin) or row.model in OWN_DATES:
            return
        if row.life is not UNSTAMPED:
            document["_ts"] = now - timedelta(seconds=row.life.age)
        if row.life.ttl is not None:
            document["ttl"] = None if row.life.ttl is NULL else row.life.ttl
        if row.life in VALID:
            document["_exp"] = document["_ts"] + timedelta(seconds=int(row.life.ttl))

    def end(self, model: Any, key: Any) -> None:
        """Age the document."""
        self.set_end(model, key, self.now() - AN_HOUR)

    def set_end(self, model: Any, key: Any, moment: datetime) -> bool:
        """Give the document the age that its default ttl ends at this moment."""
        collection = self.other[model.get_collection_name()]
        collection.update_one({"_id": key}, {"$set": {"_ts": moment - AN_HOUR}})
        return True

    def _database(self, database: Any) -> Any:
        return ttl_database(database)

    def _to_migrate(self, database: Any, models: Sequence[Any]) -> Any:
        handler: Any = DBHandler
        handler.database = database  # as `beanie migrate` has it when it imports migrations
        try:
            keep_lifetimes(*models)
            return handler.database
        finally:
            handler.database = None
