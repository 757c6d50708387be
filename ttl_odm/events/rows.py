"""The outbox as tables: their names, and what their rows say.

The adapters for SQL make the same tables, so that services of both can share them. This module must
not know any database.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from ttl_odm.events.expiry import Expiry

if TYPE_CHECKING:
    from datetime import datetime

EVENTS: Final = "ttl_odm_events"
CONSUMERS: Final = "ttl_odm_consumers"
DELIVERIES: Final = "ttl_odm_deliveries"

RETENTION: Final = timedelta(days=7)
"""For how long an event is kept from its recording on, whether it was delivered or not.

A warning is kept at least until its row expires, or it would be given again.
"""


def event_of(row: Any) -> Expiry:
    """Return the event of a row of the outbox, whose attributes are the columns."""
    return Expiry(
        row.id,
        row.table_name,
        tuple(json.loads(row.row_key)),
        json.loads(row.row_values),
        row.last_modified,
        row.expires_at,
        row.kind,
        before_of(row.before_seconds),
    )


def row_of(event: Expiry, now: datetime, retention: timedelta) -> dict[str, Any]:
    """Return the columns of the row of an event that is recorded now."""
    return {
        "id": event.id,
        "table_name": event.table,
        "kind": event.kind,
        "before_seconds": seconds_of(event.before),
        "row_key": json.dumps(event.key),
        "row_values": json.dumps(event.row),
        "last_modified": event.last_modified,
        "expires_at": event.expires_at,
        "recorded_at": now,
        "kept_until": max(now + retention, event.expires_at),
    }


def seconds_of(before: timedelta | None) -> int | None:
    """What the tables have for how long before its end a row is warned of."""
    return None if before is None else int(before.total_seconds())


def before_of(seconds: int | None) -> timedelta | None:
    """How long before its end a row is warned of, as the tables have it."""
    return None if seconds is None else timedelta(seconds=seconds)
