"""The findings of `ttl-odm check` about the events of document classes.

The collections for events are never missing: workers, readers and deletions create them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from beanie import Document
from beanie.exceptions import CollectionWasNotInitialized

from ttl_odm.beanie.policy.bindings import collection_of, registry_of, subclasses_of
from ttl_odm.cli.errors import in_one_line
from ttl_odm.events.beanie import recorded_in
from ttl_odm.events.beanie.outbox import CollectionOutbox
from ttl_odm.events.expiry import EXPIRED
from ttl_odm.events.findings import NoEvents, Tools, of_consumers, uncalled, unread
from ttl_odm.events.handlers import handlers
from ttl_odm.events.rows import DELIVERIES
from ttl_odm.sweeper import StoreError, UnreachableStoreError
from ttl_odm.sweeper.findings import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ttl_odm.beanie.drivers import Database
    from ttl_odm.cli.application import Target
    from ttl_odm.events.handlers import Handler

_TOOLS: Final = Tools(worker="an AsyncEventWorker", engine="database")


async def check(database: Database, targets: Sequence[Target]) -> list[Finding]:
    """Check the events of all targets, and the outbox if any target has events."""
    findings = [*uncalled(handlers, partial(_no_events, database))]
    names = dict.fromkeys(target.name for target in targets)
    recorded = [events for events in recorded_in(database) if events.table in names]
    if not recorded:
        return findings
    try:
        states = await CollectionOutbox(database).states()
    except UnreachableStoreError:
        raise
    except StoreError as error:
        why = f"its events can't be checked: {in_one_line(error)}"
        fix = "let the user who asked read this collection, and ttl_odm_consumers"
        return [*findings, Finding(Severity.SKIPPED, "unreadable", DELIVERIES, why, fix)]
    known = [subscription for state in states for subscription in state.subscriptions]
    for name in names:
        own = [events for events in recorded if events.table == name]
        findings += unread(name, own, known, _TOOLS)
    return [*findings, *of_consumers(DELIVERIES, states, _TOOLS)]


def _no_events(database: Database, handler: Handler) -> NoEvents | None:
    """Why a handler's collection, if a class of this process has it, can't have events."""
    registry = registry_of(database.client)
    entry = registry.entry(database.name, handler.table)
    if entry is None:
        has_class = handler.table in _collections_of_classes(database)
        return NoEvents.NO_POLICY if has_class else None
    binding = registry.find(database.name, handler.table)
    if binding is None:
        return NoEvents.FOLLOWS
    is_native = binding.purge == "native" and handler.subscription.kind == EXPIRED
    return NoEvents.NATIVE if is_native else None


def _collections_of_classes(database: Database) -> Iterator[str]:
    """The names of the collections in a database whose classes Beanie has initialized."""
    for model in subclasses_of(Document):
        try:
            collection = collection_of(model)
        except (CollectionWasNotInitialized, AttributeError):
            continue
        if collection.database.name == database.name:
            yield collection.name
