"""What `ttl-odm check` looks at where models have events.

Findings on a consumer, and on what it hasn't dealt with, are those of the table of deliveries.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from sqlalchemy import inspect, select

from ttl_odm.cli.checked_table import MIGRATE
from ttl_odm.cli.extensions import TableChecks
from ttl_odm.events.expiry import EXPIRED
from ttl_odm.events.handlers import handlers
from ttl_odm.events.outbox import EVERY_TABLE
from ttl_odm.events.sqlalchemy.outbox import Statements
from ttl_odm.events.sqlalchemy.recording import recorder_among
from ttl_odm.events.sqlalchemy.tables import outbox_with
from ttl_odm.sqlalchemy.policy.binding import binding_of, root_binding_of
from ttl_odm.sqlalchemy.policy.rules import rule_of
from ttl_odm.sqlalchemy.sweep.whereabouts import name_of
from ttl_odm.sweeper import Hooks
from ttl_odm.sweeper.findings import Finding, Severity
from ttl_odm.sweeper.text import age, counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection, Table

    from ttl_odm.cli.checked_table import CheckedTable
    from ttl_odm.events.sqlalchemy.tables import EventTables
    from ttl_odm.sqlalchemy.policy.binding import Binding

LATE: Final = 3600.0
"""Seconds for which an event may wait for a consumer without a finding."""


class _EventChecks(TableChecks):
    """The checks of events."""

    subject = "its events"

    def findings(self, checked: CheckedTable) -> Iterator[Finding]:
        """Look at the events of a table, and at the outbox when its own table comes."""
        table = checked.binding.table
        if table is _first_of(table):  # for them all
            yield from _uncalled(table)
        tables = _recorded_in(checked.binding)
        if tables is not None:
            yield from _recording(checked, tables)
        tables = outbox_with(table)
        if tables is not None and tables.deliveries is table:
            yield from _consumers(checked, tables)

    def needs_sweeper(self, connection: Connection, binding: Binding) -> bool:  # noqa: ARG002
        """Nothing here deletes rows without a sweeper."""
        return True


checks: Final = _EventChecks()


def _first_of(table: Table) -> Table:
    """The first table with a policy in the MetaData of one."""
    bound = [one for one in table.metadata.tables.values() if binding_of(one) is not None]
    return min(bound, key=lambda one: str(one.fullname), default=table)


def _uncalled(table: Table) -> Iterator[Finding]:
    """Find handlers that name a table of this MetaData which can't have events."""
    for handler in handlers:
        named = table.metadata.tables.get(handler.table)
        if named is None or root_binding_of(named) is not None:
            continue
        why, fix = "it has no policy", f"declare __ttl__ on the model of {handler.table}"
        if rule_of(named) is not None:
            why = "its rows follow their parent, and have no events of their own"
            fix = "name the table of the parent"
        message = f"the handler {handler.consumer} is never called, because {why}"
        fix = f"{fix}, or remove the handler"
        yield Finding(Severity.ERROR, "uncalled-handler", handler.table, message, fix)


def _recorded_in(binding: Binding) -> EventTables | None:
    """The tables in which events of a table are recorded; None if it has no events."""
    hooks = Hooks.of(getattr(binding.default.owner, "__ttl_on_purged__", None))
    recorder = recorder_among(hooks)
    return recorder.tables if recorder is not None and recorder.table is binding.table else None


def _recording(checked: CheckedTable, tables: EventTables) -> Iterator[Finding]:
    """See that the events of a table can be recorded, and that somebody reads them."""
    connection, inspector = checked.connection, inspect(checked.connection)
    places = [name_of(connection, table) for table in tables]
    missing = [name for schema, name in places if not inspector.has_table(name, schema)]
    if missing:
        yield checked.error(
            "missing-event-tables",
            f"no expired row of it can be deleted, because its events can't be recorded: the "
            f"database lacks {' and '.join(missing)}",
            MIGRATE,
        )
        return
    c = tables.consumers.c
    mine = (c.table_name.in_([checked.binding.table.fullname, EVERY_TABLE]), c.kind == EXPIRED)
    if connection.execute(select(c.consumer).where(*mine).limit(1)).first() is None:
        yield checked.warning(
            "unread-events",
            "its events are recorded, but no consumer gets them: no worker with a handler, and no "
            "reader, has ever connected",
            "run an EventWorker where its handlers are imported, or read events(engine, "
            "consumer=...); to record none, remove on_expired() and record_expired()",
        )


def _consumers(checked: CheckedTable, tables: EventTables) -> Iterator[Finding]:
    """Find consumers that fail, and those that have events wait for too long."""
    for state in Statements(tables).states_in(checked.connection):
        name = shlex.quote(state.consumer)
        if state.dead:
            yield checked.warning(
                "dead-events",
                f"{counted(state.dead, 'event')} of the consumer {state.consumer} will not be "
                "delivered any more, because it has failed too often",
                f"events retry --all-dead --consumer {name}  (with ttl-odm, once it is fixed; "
                "events list --dead shows the errors)",
            )
        if state.lag > LATE:
            yield checked.warning(
                "late-events",
                f"the consumer {state.consumer} has {counted(state.pending, 'event')} to deal "
                f"with, the oldest of which was recorded {age(state.lag)} ago",
                f"run its worker, or its reader; events list --consumer {name} (with ttl-odm) "
                "shows whether it fails on them; docs/events.md says how to remove a consumer",
            )
