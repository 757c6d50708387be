"""`Recorder`, a hook that records the events of rows in the transaction that deletes them.

And `RowEvents`: the event of a row, expired or about to expire.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sqlalchemy import Table, insert, inspect, or_, select
from sqlalchemy.orm import Mapper

from ttl_odm.core import expiry
from ttl_odm.errors import TTLConfigurationError, TTLError
from ttl_odm.events.expiry import Expiry
from ttl_odm.events.handlers import consumers_here
from ttl_odm.events.outbox import EVERY_TABLE, Subscription
from ttl_odm.events.rows import row_of, seconds_of
from ttl_odm.events.sqlalchemy.outbox import add_deliveries
from ttl_odm.events.sqlalchemy.tables import EventTables, event_tables
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.policy.bindings import key_columns, root_binding_of
from ttl_odm.sqlalchemy.policy.references import rule_of
from ttl_odm.sqlalchemy.purge.statements import chunks, is_one_of
from ttl_odm.sqlalchemy.rewrite.from_clauses import binding_of_source, target_name
from ttl_odm.sweeper import Hook, Hooks, Purged

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime, timedelta

    from sqlalchemy import Connection
    from sqlalchemy.engine import Dialect

    from ttl_odm.core import Policy
    from ttl_odm.sqlalchemy.policy.bindings import Binding


class RowEvents:
    """The events of one table.

    Attributes:
        binding: The policy of its rows.
        table: The table.
        tables: The tables that keep its events.
        included: The names of the columns whose values the events have.
    """

    def __init__(self, binding: Binding) -> None:
        self.table = binding.table
        self.tables: EventTables = event_tables(binding.table.metadata)
        self.included: dict[str, None] = {}
        self.binding = binding

    def include(self, names: Sequence[str]) -> None:
        """Add further columns to the events."""
        known = [str(column.name) for column in self.table.columns]
        missing = [name for name in names if name not in known]
        if missing:
            raise TTLConfigurationError(
                f"include = {list(names)!r}: table {self.table.fullname!r} has no column "
                f"{missing[0]!r}; it has {', '.join(known)}."
            )
        own = self.binding.columns_of(self.table).present()
        always = [str(column.name) for column in (*key_columns(self.table), *own)]
        self.included |= dict.fromkeys((*always, *names))

    def event(
        self,
        key: Sequence[object],
        row: Mapping[str, object],
        end: datetime,
        before: timedelta | None = None,
    ) -> Expiry:
        """Return the event of a row; with `before` it is a warning."""
        began = row[str(self.binding.last_modified.name)]
        return Expiry.of(
            self.table.fullname,
            key,
            {name: row[name] for name in self.included},
            last_modified=expiry.instant_of(self.binding.policy, began),
            expires_at=end,
            before=before,
        )

    def end_of(self, policy: Policy, row: Mapping[str, object]) -> datetime | None:
        """Return when a row expires by a policy."""
        columns = self.binding.columns_of(self.table)

        def value(column: Any) -> Any:
            return None if column is None else row[str(column.name)]

        return expiry.expires_at(
            policy,
            instant=value(columns.last_modified),
            own=value(columns.override),
            kind=value(columns.discriminator),
            created=value(columns.created),
        )

    def policy_of(self, row: Mapping[str, object]) -> Policy | None:
        """Return the policy of a row; None if only the database knows its default."""
        if not self.binding.source.is_known:
            return None
        scope = self._scope_of(row)
        variants = (variant for variant in self.binding.variants if scope in variant.identities)
        return next((variant.default for variant in variants), self.binding.default).policy

    def _scope_of(self, row: Mapping[str, object]) -> object:
        column = self.binding.discriminator
        return None if column is None else row[str(column.name)]


class Recorder(RowEvents):
    """Records the events of one table; a hook that runs in the deleting transaction."""

    def __call__(self, purged: Purged) -> object:
        """Record the events of a batch; return an awaitable if the connection is asynchronous."""
        connection = purged.transaction
        if purged.table != self.table.fullname:
            return None  # a class that inherits the hooks, but has a table of its own
        if isinstance(connection, compat.async_types("AsyncConnection")):
            return connection.run_sync(self._record, purged)
        self._record(connection, purged)
        return None

    def _record(self, connection: Connection, purged: Purged) -> None:
        self.binding.source.see(connection, connection.get_execution_options())
        events = list(self._events(connection.dialect, purged))
        consumers = consumers_of(connection, self.tables, Subscription(self.table.fullname))
        insert_events(connection, self.tables, events, consumers, purged.as_of)

    def _events(self, dialect: Dialect, purged: Purged) -> Iterator[Expiry]:
        assert purged.rows is not None  # noqa: S101 (the hook asks for them)
        for key, row in zip(purged.keys, purged.rows, strict=True):
            policy = self.policy_of(row)
            if policy is None:  # only the database knows its default: by the one read last, if any
                with suppress(TTLError):
                    policy = self.binding.source.policy_as_noted(dialect, self._scope_of(row))
            end = None if policy is None else self.end_of(policy, row)
            # Not after its deletion, whatever default is cached.
            yield self.event(key, row, purged.as_of if end is None else min(end, purged.as_of))


def consumers_of(connection: Connection, tables: EventTables, recorded: Subscription) -> list[str]:
    """Return who gets events: the consumers in the database, and this process's own handlers."""
    c, before = tables.consumers.c, seconds_of(recorded.before)
    stored = select(c.consumer).where(
        c.table_name.in_([recorded.table, EVERY_TABLE]), c.kind == recorded.kind
    )
    if before is not None:
        stored = stored.where(or_(c.before_seconds.is_(None), c.before_seconds == before))
    return sorted({*connection.scalars(stored), *consumers_here(recorded)})


def insert_events(
    connection: Connection,
    tables: EventTables,
    events: Sequence[Expiry],
    consumers: Sequence[str],
    now: datetime,
) -> int:
    """Record the events that aren't recorded yet, with their deliveries; return their number."""
    recorded = 0
    for some in chunks(events):
        chunk = {event.id: event for event in some}
        for known in recorded_ids(connection, tables, chunk):
            del chunk[known]  # such as that of a row that was restored, and has expired again
        if chunk:
            rows = [row_of(event, now, tables.retention) for event in chunk.values()]
            connection.execute(insert(tables.events), rows)
            recorded_until = {row["id"]: (now, row["kept_until"]) for row in rows}
            add_deliveries(connection, tables, recorded_until, consumers)
            recorded += len(chunk)
    return recorded


def recorded_ids(
    connection: Connection, tables: EventTables, ids: Iterable[str]
) -> Collection[str]:
    """Return the ids, among some, of events that are recorded."""
    column = tables.events.c.id
    return connection.scalars(
        select(column).where(is_one_of([column], [(event,) for event in ids]))
    ).all()


def record(target: object, include: Sequence[str]) -> str:
    """Add a recorder to a model's hooks, unless it has one; see `record_expired`."""
    binding = policy_of_target(target)
    owner = binding.default.owner
    hooks = Hooks.of(getattr(owner, "__ttl_on_purged__", None))
    recorder = recorder_among(hooks)
    if recorder is None or recorder.table is not binding.table:
        recorder = Recorder(binding)
        owner.__ttl_on_purged__ = [hook for _, hook in hooks.entries] + [Hook(recorder, rows=True)]
    recorder.include(include)
    return str(binding.table.fullname)


def recorder_among(hooks: Hooks) -> Recorder | None:
    """Return the recorder among a table's hooks; None if there is none."""
    return next((hook.call for _, hook in hooks.entries if isinstance(hook.call, Recorder)), None)


def policy_of_target(target: object) -> Binding:
    """Return the policy of a model or Table that can have events.

    Raises:
        TTLConfigurationError: The target can't have events.
    """
    mapper: Any = inspect(target, raiseerr=False) if isinstance(target, type) else None
    table = mapper.local_table if isinstance(mapper, Mapper) else target
    if not isinstance(table, Table):
        raise TTLConfigurationError(
            f"{target!r} can't have events: give a mapped class or a Table."
        )
    if rule_of(table) is not None:
        raise TTLConfigurationError(
            f"{target_name(target)} can't have events: its rows follow their parent, and are "
            "deleted with it, by a DELETE. Handle the events of the parent."
        )
    binding_of_source(table)  # it binds a second Table
    binding = root_binding_of(table)
    if binding is None:
        raise TTLConfigurationError(
            f"{target_name(target)} has no TTL, so its rows never expire: declare __ttl__ on the "
            "model, or enable() it."
        )
    return binding.first
