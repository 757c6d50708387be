"""Warnings: events of documents that are about to expire, and whether such an event still holds.

Documents are looked for by the indexes of the sweeper; see `ttl_odm.events.intervals`. If no index
tells which documents have come into a window, only whole windows are read.

The documents that a look finds are recorded page by page. A call records some pages, and the next
call goes on, because the worker has documents to sweep meanwhile.

This module must not know workers.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from bson import DatetimeMS
from bson.codec_options import CodecOptions, DatetimeConversion
from pymongo import ReadPreference
from pymongo.errors import PyMongoError

from ttl_odm.beanie.policy.bindings import collection_of
from ttl_odm.beanie.policy.commands import BY_KEY, KeyRange, RawCollection, as_datetime
from ttl_odm.beanie.policy.predicate import end_of, expired_expr, live_expr
from ttl_odm.beanie.purge.errors import is_away, store_errors
from ttl_odm.beanie.purge.removal import transaction
from ttl_odm.beanie.sweep.due import Action, layout_of, parts_of, stages_of
from ttl_odm.core.policy import TTL
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.events.beanie.collections import (
    collections_of,
    document_of,
    insert_events,
    prepare,
)
from ttl_odm.events.beanie.recorder import DocumentEvents, model_of, readable, root_of
from ttl_odm.events.expiry import EXPIRING
from ttl_odm.events.intervals import PAGES, Looks
from ttl_odm.events.outbox import Subscription
from ttl_odm.sweeper.hooks import sweep_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime, timedelta

    from beanie import Document

    from ttl_odm.beanie.drivers import Collection, Database, Filter
    from ttl_odm.beanie.sweep.due import Layout
    from ttl_odm.core import Policy
    from ttl_odm.events.beanie.collections import EventCollections
    from ttl_odm.events.expiry import Expiry

PAGE: Final = 500
"""Documents that are read at once, and recorded in one transaction."""

_AS_STORED: Final[CodecOptions[Filter]] = CodecOptions(
    tz_aware=True, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)
_KEPT_AS: Final = "__ttl_odm_warned__"

all_warned: WeakSet[Warned] = WeakSet()
"""The warnings of all classes that have some."""


class Warned(DocumentEvents):
    """The warnings of one collection.

    Attributes:
        befores: How long before the end of a document each warning is given.
    """

    def __init__(self, model: type[Document]) -> None:
        super().__init__(model)
        self.befores: dict[timedelta, None] = {}
        all_warned.add(self)

    @property
    def collection(self) -> Collection:
        """The collection without the gate."""
        gated = collection_of(self.model)
        plain = gated.database.client[gated.database.name]
        collection: Collection = plain.get_collection(
            gated.name, codec_options=_AS_STORED, read_preference=ReadPreference.PRIMARY
        )
        return collection

    async def policy(self) -> Policy:
        """Read how documents expire at this moment."""
        await self.binding.source.see(collection_of(self.model), anew=True)
        return self.binding.policy

    async def layout(self) -> Layout:
        """Return the indexes that lead to the documents."""
        is_walked = sweep_of(self.binding.model) == "scan" or not self.binding.has_ranges
        layout = await layout_of(self.collection, self.binding, is_walked=is_walked)
        # An index that scopes lead doesn't order all documents by their end.
        return replace(layout, indexes={}, walk=None) if layout.walk is not None else layout

    def warning(self, document: Filter, policy: Policy, before: timedelta) -> Expiry | None:
        """Return the warning of a document of the driver's; None if it never expires."""
        known = readable(document)
        end = end_of(known, policy)
        return None if end is None else self.event(known, end, before)


def warn(target: object, before: timedelta, include: Sequence[str]) -> str:
    """Record warnings of the documents of a class; see `ttl_odm.events.record_expiring`."""
    model = model_of(target)
    owner: Any = root_of(model)
    warned: Warned = vars(owner).get(_KEPT_AS) or Warned(owner)
    warned.include(model, include)
    warned.befores[before] = None
    setattr(owner, _KEPT_AS, warned)
    return warned.table


@dataclass(slots=True)
class _Window:
    """The documents of a collection that end in a window, and the progress of reading them.

    Attributes:
        warned: The warnings of the collection.
        looks: The looks at the window.
        policy: The policy by which the last look judges documents.
        ranges: The ranges that the look hasn't begun to read.
        cursor: The cursor of the range that it is reading.
        page: The documents that it has read, and that aren't recorded yet.
    """

    warned: Warned
    looks: Looks
    policy: Policy | None = None
    ranges: deque[KeyRange] = field(default_factory=deque)
    cursor: Any = None
    page: list[Filter] = field(default_factory=list)
    _condition: Filter = field(default_factory=dict)

    async def record(self, outbox: EventCollections) -> int:
        """Look, and record as many pages as one call may; return how many events are new."""
        try:
            if not (self.page or self.ranges) and self.cursor is None:
                await self._look()
            number = 0
            for _ in range(PAGES):
                self.page = self.page or await self._next_page()
                if not self.page:
                    await self._finish()
                    break
                number += await self._record_page(outbox)
                self.page = []
        except PyMongoError:
            if not self.page:  # the page that was being read is lost
                self.looks.last, self.cursor = None, None
                self.ranges.clear()
            raise
        return number

    async def _look(self) -> None:
        """Choose the ranges to read."""
        place = RawCollection(self.warned.collection)
        now = as_datetime((await place.server()).now)
        policy, layout = await self.warned.policy(), await self.warned.layout()
        after, until = self.looks.after(now, policy), now + self.looks.before
        self.looks.note(now, policy, is_whole=after is None)
        self.policy = policy
        self.ranges.extend(_ranges(policy, layout, after, until))
        ends = [expired_expr(policy, until), live_expr(policy, now)]
        self._condition = {"$expr": {"$and": ends}}

    async def _next_page(self) -> list[Filter]:
        while self.cursor is not None or self.ranges:
            if self.cursor is None:
                key_range = self.ranges.popleft()
                bounds = key_range.bounds() if self.warned.binding.has_ranges else {}
                self.cursor = self.warned.collection.find(self._condition, **bounds)
            page: list[Filter] = await self.cursor.to_list(PAGE)
            if page:
                return page
            self.cursor = None
        return []

    async def _finish(self) -> None:
        """Note that the look is read to its end."""
        if self.looks.is_whole:
            server = await RawCollection(self.warned.collection).server()
            self.looks.end(as_datetime(server.now))

    async def _record_page(self, outbox: EventCollections) -> int:
        assert self.policy is not None  # noqa: S101 (`_look` has set it)
        server = await RawCollection(outbox.events).server()
        if not server.has_transactions:
            raise TTLConfigurationError(
                f"{self.warned.table!r} has warnings, which require a transaction, and a server "
                "that is not a replica set has none."
            )
        before = self.looks.before
        events = [self.warned.warning(row, self.policy, before) for row in self.page]
        now = as_datetime(server.now)
        documents = [
            {**document_of(event, now), "document": row["_id"]}
            for event, row in zip(events, self.page, strict=True)
            if event is not None
        ]
        subscription = Subscription(self.warned.table, EXPIRING, before)
        async with transaction(RawCollection(outbox.events)) as place:
            return await insert_events(outbox, documents, subscription, place.session)


def _ranges(
    policy: Policy, layout: Layout, after: datetime | None, until: datetime
) -> Iterator[KeyRange]:
    """Yield the ranges of the documents that end until an instant, and after another.

    Of a collection with several defaults no index knows the order of the ends: its windows are
    always read whole.
    """
    is_followed = layout.indexes and not (isinstance(policy, TTL) and policy.by is not None)
    if layout.is_deleted_by_bucket or (after is not None and not is_followed):
        return
    for part in parts_of(policy, layout):
        stages = stages_of(policy, layout, part, DatetimeMS(until))
        lower = stages_of(policy, layout, part, DatetimeMS(after)) if after is not None else stages
        for stage, lower_stage in zip(stages, lower, strict=True):
            key_range, below = stage.range, lower_stage.range
            if stage.kind is Action.FIX or not isinstance(key_range, KeyRange):
                continue
            if after is None:
                yield key_range
            elif not stage.is_undated and isinstance(below, KeyRange):
                yield replace(key_range, low=below.high)


class CollectionWarnings:
    """The `ttl_odm.events.outbox.AsyncWarnings` of a database."""

    def __init__(self, database: Database, warned: Sequence[Warned]) -> None:
        """Choose the collections; nothing is read yet."""
        self._outbox = collections_of(database)
        self._warned = {known.table: known for known in warned}
        self._windows: dict[tuple[str, timedelta], _Window] = {}

    async def record(self) -> int:
        """See `ttl_odm.events.outbox.Warnings.record`."""
        number, failures = 0, []
        with store_errors():
            await prepare(self._outbox)
            for name, warned in self._warned.items():
                for before in warned.befores:
                    new = _Window(warned, Looks(before))
                    window = self._windows.setdefault((name, before), new)
                    try:
                        number += await window.record(self._outbox)
                    except PyMongoError as error:
                        if is_away(error):
                            raise
                        failures.append(error)  # the others go on
            if failures:
                raise failures[0]
        return number

    async def hold(self, event: Expiry) -> bool:
        """See `ttl_odm.events.outbox.Warnings.hold`.

        The id of an event stands for the life of a document, its end, and the time before it.
        """
        warned = self._warned.get(event.table)
        if event.kind != EXPIRING or event.before is None or warned is None:
            return True
        with store_errors():
            recorded = await self._outbox.events.find_one({"_id": event.id}, {"document": 1})
            if recorded is None:
                return False
            policy = await warned.policy()
            is_live = {"_id": recorded["document"], "$expr": live_expr(policy)}
            document = await warned.collection.find_one(is_live, hint=BY_KEY)
        warning = None if document is None else warned.warning(document, policy, event.before)
        return warning is not None and warning.id == event.id
