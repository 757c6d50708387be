"""Warnings: documents whose end comes near are looked for, and outdated events aren't delivered.

They are looked for by the indexes of the sweeper; see `ttl_odm.events.looks`. Where no index says
which documents have come into a window, only whole windows are read.

What a look finds is recorded page by page. A call records so many pages, and the next one goes on:
the worker has documents to sweep meanwhile.

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
from ttl_odm.events.beanie.documents import DocumentEvents, model_of, readable, root_of
from ttl_odm.events.expiry import EXPIRING
from ttl_odm.events.looks import PAGES, Looks
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
"""Documents that are read, and recorded in a transaction, at once."""

_AS_STORED: Final[CodecOptions[Any]] = CodecOptions(
    tz_aware=True, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)
_KEPT_AS: Final = "__ttl_odm_warned__"

all_warned: WeakSet[Warned] = WeakSet()
"""What is known of all classes whose documents are warned of."""


class Warned(DocumentEvents):
    """A collection whose documents are warned of.

    Attributes:
        befores: How long before their end.
    """

    def __init__(self, model: type[Document]) -> None:
        super().__init__(model)
        self.befores: dict[timedelta, None] = {}
        all_warned.add(self)

    @property
    def collection(self) -> Collection:
        """The collection, past the gate."""
        gated = collection_of(self.model)
        plain = gated.database.client[gated.database.name]
        collection: Collection = plain.get_collection(
            gated.name, codec_options=_AS_STORED, read_preference=ReadPreference.PRIMARY
        )
        return collection

    async def policy(self) -> Policy:
        """How documents expire, at this moment."""
        await self.binding.source.see(collection_of(self.model), anew=True)
        return self.binding.policy

    async def layout(self) -> Layout:
        """By which indexes the documents are found."""
        is_walked = sweep_of(self.binding.model) == "scan" or not self.binding.has_ranges
        layout = await layout_of(self.collection, self.binding, is_walked=is_walked)
        # An index that scopes lead has no order of all documents.
        return replace(layout, indexes={}, walk=None) if layout.walk is not None else layout

    def warning(self, document: Filter, policy: Policy, before: timedelta) -> Expiry | None:
        """The warning of a document as the driver gives it; None if it never ends."""
        known = readable(document)
        end = end_of(known, policy)
        return None if end is None else self.event(known, end, before)


def warn(target: Any, before: timedelta, include: Sequence[str]) -> str:
    """Have the documents of a class warned of; see `ttl_odm.events.record_expiring`."""
    model = model_of(target)
    owner: Any = root_of(model)
    warned: Warned = vars(owner).get(_KEPT_AS) or Warned(owner)
    warned.include(model, include)
    warned.befores[before] = None
    setattr(owner, _KEPT_AS, warned)
    return warned.table


@dataclass(slots=True)
class _Window:
    """The documents of a collection that end in a window, and what is known of them.

    Attributes:
        warned: The collection.
        looks: When it was looked at, and how long it is.
        policy: By which the last look has judged.
        ranges: What that look hasn't begun to read.
        cursor: What it is reading.
        page: What it has read, and wasn't recorded yet.
    """

    warned: Warned
    looks: Looks
    policy: Policy | None = None
    ranges: deque[KeyRange] = field(default_factory=deque)
    cursor: Any = None
    page: list[Filter] = field(default_factory=list)
    _condition: Filter = field(default_factory=dict)

    async def record(self, outbox: EventCollections) -> int:
        """Look, and record what was found, as far as one call may; return how many are new."""
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
            if not self.page:  # what was being read is lost
                self.looks.last, self.cursor = None, None
                self.ranges.clear()
            raise
        return number

    async def _look(self) -> None:
        """Find out what to read."""
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
                reach = self.ranges.popleft()
                bounds = reach.bounds() if self.warned.binding.has_ranges else {}
                self.cursor = self.warned.collection.find(self._condition, **bounds)
            page: list[Filter] = await self.cursor.to_list(PAGE)
            if page:
                return page
            self.cursor = None
        return []

    async def _finish(self) -> None:
        """Note that all is read."""
        if self.looks.is_whole:
            server = await RawCollection(self.warned.collection).server()
            self.looks.end(as_datetime(server.now))

    async def _record_page(self, outbox: EventCollections) -> int:
        assert self.policy is not None  # noqa: S101 (by which it was found)
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
        wanted = Subscription(self.warned.table, EXPIRING, before)
        async with transaction(RawCollection(outbox.events)) as place:
            return await insert_events(outbox, documents, wanted, place.session)


def _ranges(
    policy: Policy, layout: Layout, after: datetime | None, until: datetime
) -> Iterator[KeyRange]:
    """Return where the documents are that end until an instant, and after another.

    Of several defaults no index knows the order of the ends: they are read by whole windows only.
    """
    is_followed = layout.indexes and not (isinstance(policy, TTL) and policy.by is not None)
    if layout.is_deleted_by_bucket or (after is not None and not is_followed):
        return
    for part in parts_of(policy, layout):
        stages = stages_of(policy, layout, part, DatetimeMS(until))
        lower = stages_of(policy, layout, part, DatetimeMS(after)) if after is not None else stages
        for stage, reached in zip(stages, lower, strict=True):
            reach, below = stage.range, reached.range
            if stage.kind is Action.FIX or not isinstance(reach, KeyRange):
                continue
            if after is None:
                yield reach
            elif not stage.is_undated and isinstance(below, KeyRange):
                yield replace(reach, low=below.high)


class CollectionWarnings:
    """The `ttl_odm.events.outbox.AsyncWarnings` of a database."""

    def __init__(self, database: Database, warned: Sequence[Warned]) -> None:
        """Name the collections; nothing is read yet."""
        self._outbox = collections_of(database)
        self._warned = {one.table: one for one in warned}
        self._windows: dict[tuple[str, timedelta], _Window] = {}

    async def record(self) -> int:
        """As in `AsyncWarnings`."""
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
        """As in `AsyncWarnings`.

        The id of an event says in which life, and how long before which end.
        """
        warned = self._warned.get(event.table)
        if event.kind != EXPIRING or event.before is None or warned is None:
            return True
        with store_errors():
            told = await self._outbox.events.find_one({"_id": event.id}, {"document": 1})
            if told is None:
                return False
            policy = await warned.policy()
            lives = {"_id": told["document"], "$expr": live_expr(policy)}
            document = await warned.collection.find_one(lives, hint=BY_KEY)
        warning = None if document is None else warned.warning(document, policy, event.before)
        return warning is not None and warning.id == event.id
