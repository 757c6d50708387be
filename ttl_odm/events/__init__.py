"""Events of rows that have expired: recorded with the deletion, delivered at least once.

An event is recorded in the transaction that deletes its row, so there is exactly one for each life
of a row, whatever crashes. It is delivered to each consumer until the consumer has dealt with it.

- `expiry`: `Expiry`, an event.
- `handlers`: `on_expired` and `on_expiring`, which register the functions of an application.
- `worker`: the workers, which record and deliver events.
- `reader`: `events`, for programs that read events in a loop.
- `outbox`: the interfaces of a database for workers and readers.
- `intervals`: when workers and readers repeat reads that may take long.
- `rows`: events and consumers as tables keep them.
- `sqlalchemy`, `django`, `beanie`: the tables or collections, and how events are recorded.
- `findings`: what checks report, for all adapters.
- `cli`, `metrics`, `tail`, `text`: the outbox for operators.
- `testkit`: the events of a test, whose clock moves.
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
