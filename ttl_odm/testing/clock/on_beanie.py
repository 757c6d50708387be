"""The test clock on MongoDB: moves the time that the gate and the sweeper send or estimate.

Expressions for the server's time get the offset added to ``$$NOW``, or an instant in its place.
``$currentDate`` takes neither, so updates are stamped by the estimate of the server's clock, as
inserts always are. Both drivers pass the same gate, so this module needn't know the driver.

A view's definition stays on the server, so a view that is read under a moved clock keeps the moved
time until it is read again through the gate.

MongoDB's own monitor deletes by the server's clock, which can't be moved. While the test clock is
ahead, the monitor deletes too late, which isn't visible. While it is behind, the monitor would
delete live documents once a minute, and tests would fail occasionally. The first read raises an
error instead.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from beanie import Document
from bson import DatetimeMS

from ttl_odm.beanie.declare.declaration import is_enforced
from ttl_odm.beanie.gate.cursors import Lifetime
from ttl_odm.beanie.gate.handle import Handle
from ttl_odm.beanie.indexes.ensure import SECONDS
from ttl_odm.beanie.objects.copies import lifetime_of
from ttl_odm.beanie.policy import bindings
from ttl_odm.beanie.policy.bindings import policy_of
from ttl_odm.beanie.policy.commands import (
    RawCollection,
    as_datetime,
    details_of,
    first_batch,
    indexes_of,
)
from ttl_odm.beanie.policy.predicate import expired_expr, live_expr
from ttl_odm.beanie.rewrite import filters
from ttl_odm.beanie.rewrite.stamps import Stamping
from ttl_odm.beanie.sweep import due, store
from ttl_odm.beanie.time import formats
from ttl_odm.beanie.time.clock import ServerClock
from ttl_odm.core import expiry
from ttl_odm.core.policy import TTL
from ttl_odm.errors import TTLError
from ttl_odm.testing.clock import life, not_counted_from_writing

if TYPE_CHECKING:
    from collections.abc import Callable

    from ttl_odm.beanie.policy.commands import Server
    from ttl_odm.beanie.time.formats import Instant
    from ttl_odm.testing.clock import TTLClock

_SERVER_NOW: Final = formats.server_now
_REACHED: Final = ServerClock.reached
_AT_MOST: Final = ServerClock.at_most
_SERVER: Final = RawCollection.server
_STORE_NOW: Final = due.now
_READY: Final = Handle.ready
_LISTED: Final = Lifetime.listed
_UNCACHED_LIVE: Final = filters.live.__wrapped__

_MILLISECOND: Final = timedelta(milliseconds=1)


def install(clock: TTLClock) -> Callable[[], None]:
    """Let the clock move the adapter's time; return the undo. See `ttl_odm.testing.clock`."""

    def server_now() -> Instant:
        if clock.frozen_at is not None:
            return _whole(clock.frozen_at)
        milliseconds = clock.offset // _MILLISECOND
        real = _SERVER_NOW()
        return {"$add": [real, milliseconds]} if milliseconds else real

    def reached(self: ServerClock) -> datetime:
        return _whole(clock.moved(_REACHED(self)))

    def at_most(self: ServerClock) -> datetime:
        moved = clock.moved(_AT_MOST(self))
        return moved if clock.frozen_at is None else _whole(moved)

    async def server(self: RawCollection) -> Server:
        real = await _SERVER(self)
        return replace(real, now=DatetimeMS(_whole(clock.moved(as_datetime(real.now)))))

    async def store_now(database: Any) -> datetime:
        return _whole(clock.moved(await _STORE_NOW(database)))

    async def ready(self: Handle) -> None:
        await _READY(self)
        await _check_monitor(self, clock)

    with ExitStack() as undoing:
        for owner, name, value in (
            (formats, "server_now", server_now),
            (filters, "live", _UNCACHED_LIVE),
            (Stamping, "needs_now", True),
            (ServerClock, "reached", reached),
            (ServerClock, "at_most", at_most),
            (RawCollection, "server", server),
            (store, "now", store_now),
            (Handle, "ready", ready),
            # A cursor may have been made, and got the time, before the clock was moved.
            (Lifetime, "listed", _listed),
        ):
            undoing.enter_context(patch.object(owner, name, value))
        return undoing.pop_all().close


def real_now() -> datetime | None:
    """Return an upper limit of the unmoved time of the server that was asked last."""
    registries = bindings._registries.values()
    clocks = [registry.clock for registry in registries if registry.clock.is_known]
    if not clocks:
        return None
    return _AT_MOST(max(clocks, key=lambda server: server._known().received))


def lifetime(target: Any) -> timedelta | None:
    """Return the lifetime of a document written now."""
    model = target if isinstance(target, type) else type(target)
    if not (issubclass(model, Document) and is_enforced(model)):
        return None
    policy = policy_of(model)
    if not isinstance(policy, TTL):
        raise not_counted_from_writing(model.__name__, policy.field)
    default, own = policy.default, None
    if isinstance(target, model):
        values: dict[Any, Any] = lifetime_of(target, policy)
        default = policy.default_of(values.get(policy.by))
        own = expiry.own_ttl(policy, values.get(policy.override))
    return life(model.__name__, default, own)


def _whole(instant: datetime) -> datetime:
    """Return an instant in whole milliseconds, as MongoDB stores it."""
    return instant.replace(microsecond=instant.microsecond // 1000 * 1000)


def _listed(self: Lifetime, documents: Any, *, is_judged: bool) -> list[Any]:
    del is_judged
    return _LISTED(self, documents, is_judged=False)


async def _check_monitor(handle: Handle, clock: TTLClock) -> None:
    """Raise if MongoDB is about to delete a document that is live by the test clock."""
    binding = handle.binding
    if binding is None or binding.backend != "mongodb" or binding.purge != "native":
        return
    real = _AT_MOST(handle.registry.clock)
    behind = real - clock.moved(real)
    if behind <= timedelta():
        return
    # A time series has the option instead of an index.
    options = (await details_of(handle.plain)).get("options", {})
    if not any(SECONDS in index for index in (options, *await indexes_of(handle.plain))):
        return
    policy = binding.policy
    is_live, is_doomed = live_expr(policy), expired_expr(policy, _SERVER_NOW())
    find = {
        "find": handle.plain.name,
        "filter": {"$expr": {"$and": [is_live, is_doomed]}},
        "projection": {"_id": 1},
        "limit": 1,
    }
    for document in await first_batch(handle.plain, find):
        raise TTLError(
            f"{binding.model.__name__} {document['_id']!r} is live by the TTLClock, which is "
            f"{behind} behind MongoDB's own clock, but expired by MongoDB's: its TTL index lets "
            "MongoDB delete it within a minute, perhaps in the middle of the test. Set the clock "
            "to an instant in the future; or use a test database without TTL indexes: don't call "
            "ensure_indexes() there, or declare __ttl_purge__ = 'sweeper'."
        )
