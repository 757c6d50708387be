"""The findings of `ttl-odm check` about the events of SQLAlchemy models.

Findings on consumers and their deliveries belong to the table of deliveries.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from sqlalchemy import inspect, select

from ttl_odm.cli.checked_table import MIGRATE
from ttl_odm.cli.extensions import TableChecks
from ttl_odm.events.expiry import EXPIRING
from ttl_odm.events.findings import NoEvents, Tools, of_consumers, uncalled, unread, unrecorded
from ttl_odm.events.handlers import handlers
from ttl_odm.events.outbox import Subscription
from ttl_odm.events.rows import before_of
from ttl_odm.events.sqlalchemy.outbox import Statements
from ttl_odm.events.sqlalchemy.recorder import recorder_among
from ttl_odm.events.sqlalchemy.tables import event_tables, outbox_with
from ttl_odm.events.sqlalchemy.warnings import warned_of
from ttl_odm.sqlalchemy.policy.bindings import binding_of, root_binding_of
from ttl_odm.sqlalchemy.policy.references import rule_of
from ttl_odm.sqlalchemy.sweep.transactions import name_of
from ttl_odm.sweeper import Hooks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import Connection, Table

    from ttl_odm.cli.checked_table import CheckedTable
    from ttl_odm.events.handlers import Handler
    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sweeper.findings import Finding

_TOOLS: Final = Tools()


class _EventChecks(TableChecks):
    """The checks of events."""

    subject = "its events"

    def findings(self, checked: CheckedTable) -> Iterator[Finding]:
        """Check the events of a table; for the table of deliveries also the outbox."""
        table = checked.binding.table
        if table is _first_of(table):  # once for all tables
            yield from uncalled(handlers, partial(_no_events, table))
        recorded = _recorded(checked.binding)
        if recorded:
            yield from _recording(checked, recorded)
        tables = outbox_with(table)
        if tables is not None and tables.deliveries is table:
            states = Statements(tables).states_in(checked.connection)
            yield from of_consumers(checked.name, states, _TOOLS)

    def needs_sweeper(self, connection: Connection, binding: Binding) -> bool:  # noqa: ARG002
        """Return True: events don't delete rows."""
        return True


checks: Final = _EventChecks()


def _first_of(table: Table) -> Table:
    """The first table with a policy in the MetaData of a table."""
    bound = [other for other in table.metadata.tables.values() if binding_of(other) is not None]
    return min(bound, key=lambda other: str(other.fullname), default=table)


def _no_events(table: Table, handler: Handler) -> NoEvents | None:
    """Why a handler's table, if it is in the MetaData of a table, can't have events."""
    handled = table.metadata.tables.get(handler.table)
    if handled is None or root_binding_of(handled) is not None:
        return None
    return NoEvents.NO_POLICY if rule_of(handled) is None else NoEvents.FOLLOWS


def _recorded(binding: Binding) -> list[Subscription]:
    """The events of a table that are recorded."""
    table = binding.table
    recorder = recorder_among(Hooks.of(getattr(binding.default.owner, "__ttl_on_purged__", None)))
    warned, name = warned_of(table), str(table.fullname)
    recorded = [Subscription(name)] if recorder is not None and recorder.table is table else []
    befores = () if warned is None else warned.befores
    return [*recorded, *(Subscription(name, EXPIRING, before) for before in befores)]


def _recording(checked: CheckedTable, recorded: Sequence[Subscription]) -> Iterator[Finding]:
    """Check that a table's events can be recorded, and that a consumer gets them."""
    tables = event_tables(checked.binding.table.metadata)
    connection, inspector = checked.connection, inspect(checked.connection)
    places = [name_of(connection, table) for table in tables]
    missing = [name for schema, name in places if not inspector.has_table(name, schema)]
    if missing:
        yield from unrecorded(checked.name, recorded, missing, MIGRATE)
        return
    c = tables.consumers.c
    rows = connection.execute(select(c.table_name, c.kind, c.before_seconds).distinct())
    known = [Subscription(name, kind, before_of(seconds)) for name, kind, seconds in rows]
    yield from unread(checked.name, recorded, known, _TOOLS)
