"""Events of rows that have expired: recorded with the deletion, delivered at least once.

An event is recorded in the transaction that deletes its row, so there is one for each life of a
row, whatever crashes. It is delivered to each consumer until that has dealt with it.

- `expiry`: `Expiry`, what happened.
- `handlers`: `on_expired` and `on_expiring`, which register the functions of an application.
- `worker`: what records and delivers events.
- `reader`: `events`, for those who read them in a loop.
- `outbox`: what these need of a database.
- `looks`: when rows that are about to expire are looked for.
- `newcomers`: which events a consumer that is new gets late.
- `rows`: what tables keep of events.
- `sqlalchemy`, `django`, `beanie`: the tables or collections, and how events are recorded.
- `findings`: what checks report, whatever the adapter.
- `cli`, `metrics`, `tail`, `text`: what operators see of an outbox.
- `testing`: the events of a test, whose clock moves.
"""

from ttl_odm.events.expiry import Expiry
from ttl_odm.events.handlers import on_expired, on_expiring, record_expired, record_expiring
from ttl_odm.events.reader import Events, async_consumer_states, consumer_states, events
from ttl_odm.events.worker import AsyncEventWorker, Delivered, EventWorker

__all__ = [
    "AsyncEventWorker",
    "Delivered",
    "EventWorker",
    "Events",
    "Expiry",
    "async_consumer_states",
    "consumer_states",
    "events",
    "on_expired",
    "on_expiring",
    "record_expired",
    "record_expiring",
]
