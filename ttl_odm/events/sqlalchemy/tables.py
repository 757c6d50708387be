"""The tables that keep events and what consumers haven't dealt with.

``ttl_odm_events`` has a row for each event: the outbox. ``ttl_odm_consumers`` has the consumers,
with the tables whose events they get. ``ttl_odm_deliveries`` has a row for each event that a
consumer hasn't dealt with yet.

Events and their deliveries expire, too, at ``kept_until``. This module must not know how they are
written or read.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final, NamedTuple

from sqlalchemy import Column, Index, Integer, MetaData, String, Table, Text
from sqlalchemy.dialects.mysql import LONGTEXT, VARCHAR

from ttl_odm import ExpireAt
from ttl_odm.core.values import whole_seconds
from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.events.handlers import LONGEST_NAME
from ttl_odm.events.rows import CONSUMERS, DELIVERIES, EVENTS, RETENTION
from ttl_odm.sqlalchemy.declare.enable import enable
from ttl_odm.sqlalchemy.time.clock import LastModified

_INFO: Final = "ttl_odm_events"
_RETENTION: Final = "ttl_odm_retention"


class EventTables(NamedTuple):
    """The tables of a MetaData."""

    events: Table
    consumers: Table
    deliveries: Table

    @property
    def retention(self) -> timedelta:
        """For how long an event is kept from its recording on."""
        retention: timedelta = self.events.info[_RETENTION]
        return retention


def event_tables(
    metadata: MetaData, *, schema: str | None = None, retention: timedelta = RETENTION
) -> EventTables:
    """Add the tables of events to a MetaData, so that ``create_all()`` and migrations create them.

    `on_expired` and `record_expired` do so for the MetaData of their model, unless it has them.

    Args:
        metadata: The MetaData of the application's models.
        schema: Their schema; None for the connection's own.
        retention: For how long an event is kept from its recording on, whether it was delivered or
            not; a warning at least until its row expires. Deliveries that have failed too often are
            kept as long.

    Returns:
        The tables, those that are there already if the MetaData has them.

    Raises:
        TTLConfigurationError: The retention isn't a number of whole seconds.
    """
    seconds = whole_seconds(retention, lowest=1)
    if seconds is None:
        raise TTLConfigurationError(
            f"retention = {retention!r}: give a timedelta of whole seconds, 1 or more."
        )
    ours = {table.info[_INFO]: table for table in metadata.tables.values() if _INFO in table.info}
    if ours:
        return EventTables(ours[EVENTS], ours[CONSUMERS], ours[DELIVERIES])
    tables = EventTables(
        Table(
            EVENTS,
            metadata,
            Column("id", _exact(32), primary_key=True),
            Column("table_name", _exact(255), nullable=False),
            Column("kind", _exact(16), nullable=False),
            Column("before_seconds", Integer),  # of a warning
            Column("row_key", _long(), nullable=False),
            Column("row_values", _long(), nullable=False),
            Column("last_modified", LastModified()),
            Column("expires_at", LastModified(), nullable=False),
            Column("recorded_at", LastModified(), nullable=False),
            Column("kept_until", LastModified(), nullable=False),
            Index(f"ix_{EVENTS}_recorded", "recorded_at"),
            schema=schema,
            info={_INFO: EVENTS, _RETENTION: timedelta(seconds=seconds)},
        ),
        Table(
            CONSUMERS,
            metadata,
            Column("consumer", _exact(LONGEST_NAME), primary_key=True),
            Column("table_name", _exact(255), primary_key=True),
            Column("kind", _exact(16), primary_key=True),
            Column("before_seconds", Integer),
            Column("unsettled_from", LastModified()),  # NULL: no event is late for it any more
            schema=schema,
            info={_INFO: CONSUMERS},
        ),
        Table(
            DELIVERIES,
            metadata,
            Column("event", _exact(32), primary_key=True),
            Column("consumer", _exact(LONGEST_NAME), primary_key=True),
            Column("deliveries", Integer, nullable=False),
            Column("next_at", LastModified()),  # NULL: it is dead, or done
            Column("error", Text),
            Column("recorded_at", LastModified(), nullable=False),
            Column("kept_until", LastModified(), nullable=False),
            Index(f"ix_{DELIVERIES}_next_at", "consumer", "next_at"),
            schema=schema,
            info={_INFO: DELIVERIES},
        ),
    )
    for table in (tables.events, tables.deliveries):
        enable(table, ExpireAt("kept_until"), sweep="index")
    return tables


def outbox_with(table: Table) -> EventTables | None:
    """Return the tables of events if a table is one of them; None for any other table."""
    return event_tables(table.metadata) if _INFO in table.info else None


def _exact(length: int) -> String:
    """A type of text; MariaDB and MySQL too distinguish its upper and lower case."""
    return String(length).with_variant(VARCHAR(length, collation="utf8mb4_bin"), *MYSQL_FAMILY)


def _long() -> Text:
    """A type for JSON as text; on MariaDB and MySQL ``TEXT`` would end at 64 KiB."""
    return Text().with_variant(LONGTEXT(), *MYSQL_FAMILY)
