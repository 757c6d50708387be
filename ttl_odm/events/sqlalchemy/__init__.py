"""Events of SQLAlchemy models and Tables; imported when the first one has events.

- `tables`: the tables that keep events and deliveries.
- `recorder`: the event of a row, and a hook that records it in the deleting transaction.
- `warnings`: rows that are about to expire.
- `outbox`: the outbox in these tables, for workers and readers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import MetaData

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.events.sqlalchemy.outbox import AsyncTableOutbox, TableOutbox, open_outbox
from ttl_odm.events.sqlalchemy.recorder import record, recorder_among
from ttl_odm.events.sqlalchemy.tables import EventTables, event_tables
from ttl_odm.events.sqlalchemy.warnings import open_warnings, warn, warned_of
from ttl_odm.sqlalchemy.policy.bindings import binding_of, bound_tables
from ttl_odm.sqlalchemy.sweep.store import bindings_of
from ttl_odm.sweeper import Hooks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Engine, Table
    from sqlalchemy.ext.asyncio import AsyncEngine

    from ttl_odm.events.sqlalchemy.warnings import AsyncTableWarnings, TableWarnings

__all__ = ["EventSource", "event_tables", "read_from", "record", "source_of", "warn"]


class EventSource:
    """The events of a worker, or of a reader.

    Attributes:
        engine: The engine.
        targets: The tables that a worker sweeps: those whose events are recorded, and the outbox.
        tables: The names of the tables whose events, or warnings, are recorded.
        is_async: Whether the engine is asynchronous.
    """

    def __init__(
        self, engine: Engine | AsyncEngine, with_events: Sequence[Table], tables: EventTables
    ) -> None:
        recorded = [table for table in with_events if _is_recorded(table)]
        self._warned = [warned for warned in map(warned_of, with_events) if warned is not None]
        self._tables = tables
        self.engine = engine
        self.targets: list[Table] = [*recorded, tables.deliveries, tables.events]
        self.tables = [str(table.fullname) for table in with_events]
        self.is_async = not isinstance(self.outbox(), TableOutbox)

    def outbox(self) -> TableOutbox | AsyncTableOutbox:
        """Open the outbox."""
        return open_outbox(self.engine, self._tables)

    def warnings(self) -> TableWarnings | AsyncTableWarnings | None:
        """Open the warnings; None if no table has any."""
        return open_warnings(self.engine, self._warned) if self._warned else None

    def leave_thread(self) -> None:
        """Do nothing: the engine's pool keeps all connections."""


def source_of(engine: Engine | AsyncEngine, targets: object) -> EventSource:
    """Return the source of a worker's events; see `ttl_odm.events.EventWorker`.

    Raises:
        TTLConfigurationError: None of the targets has events, or they are kept in several schemas.
    """
    with_events = _with_events(targets)
    if not with_events:
        raise TTLConfigurationError(
            "No model here has events: register a handler with on_expired(Model) or "
            "on_expiring(Model, before=...), or call record_expired(Model) or "
            "record_expiring(Model, before=...), before the worker is created."
        )
    return EventSource(engine, with_events, _outbox_of(with_events))


def read_from(engine: Engine | AsyncEngine, targets: object) -> EventSource:
    """Return the source of a reader's events; see `ttl_odm.events.events`.

    Raises:
        TTLConfigurationError: There are targets, and `source_of` rejects them; or the events of the
            models are kept in several schemas.
    """
    if targets is not None:
        return source_of(engine, targets)
    with_events = _with_events(None)
    tables = _outbox_of(with_events) if with_events else event_tables(MetaData())
    return EventSource(engine, with_events, tables)


def _outbox_of(with_events: Sequence[Table]) -> EventTables:
    """The tables that keep the events of some tables."""
    outboxes = [event_tables(metadata) for metadata in {table.metadata for table in with_events}]
    schemas = {tables.events.schema for tables in outboxes}
    if len(schemas) > 1:
        raise TTLConfigurationError(
            "The events of these models are kept in several schemas "
            f"({', '.join(sorted(map(str, schemas)))}): give the models of one of them."
        )
    return outboxes[0]


def _with_events(targets: object) -> list[Table]:
    """The tables whose events, or warnings, are recorded."""
    if targets is None:
        # A second Table object, bound to the policy of another, has an origin.
        bindings = [(table, binding_of(table)) for table in bound_tables]
        tables = [table for table, bound in bindings if bound is not None and bound.origin is None]
    else:
        tables = [binding.table for binding in bindings_of(targets)]
    return [table for table in tables if _is_recorded(table) or warned_of(table) is not None]


def _is_recorded(table: Table) -> bool:
    binding = binding_of(table)
    if binding is None:
        return False
    hooks = Hooks.of(getattr(binding.default.owner, "__ttl_on_purged__", None))
    recorder = recorder_among(hooks)
    return recorder is not None and recorder.table is table
