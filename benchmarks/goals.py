"""The numbers to reach: the project's table, line by line, in its order.

A finding that serves a line carries the line's `Goal`; the report's first table is made of these.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from benchmarks.findings import Goal

BY_HAND: Final = Goal("SQLAlchemy: read with the gate / with a hand-written WHERE", 1.0)
UNFILTERED: Final = Goal("SQLAlchemy: read with the gate / without any filter", 1.1)
EXTRA: Final = Goal(
    "SQLAlchemy: extra statements per read, flush UPDATE and DELETE", 0, "statements"
)
EXTRA_INSERTS: Final = Goal(
    "SQLAlchemy: extra statements per flush that inserts rows whose key the database makes",
    0,
    "statements",
)
EXTRA_KEYED: Final = Goal(
    "SQLAlchemy: extra statements per table and flush that inserts rows with keys of their own",
    0,
    "statements",
)
ONE_ROW: Final = Goal(
    "SQLAlchemy: one row inserted with its own key / stamped by hand; SQLite, MariaDB, MySQL", 1.1
)
ONE_ROW_POSTGRES: Final = Goal(
    "SQLAlchemy: one row inserted with its own key / stamped by hand; PostgreSQL", 1.2
)
BATCH: Final = Goal(
    "SQLAlchemy: a batch of 100 rows inserted with their own keys / stamped by hand", 1.15
)
RENEWAL: Final = Goal(
    "SQLAlchemy: touch() or a flush UPDATE of one column, and commit / an UPDATE by hand", 1.15
)
FLUSH: Final = Goal("SQLAlchemy: a flush UPDATE of one column, and commit / stamped by hand", 1.05)
FLUSH_ALONE: Final = Goal("SQLAlchemy: a flush UPDATE of one column / stamped by hand", 1.1)
TOUCH: Final = Goal(
    "SQLAlchemy: renewing a row without loading it, and commit / an UPDATE by hand", 1.05
)
TOUCH_ALONE: Final = Goal("SQLAlchemy: renewing a row without loading it / an UPDATE by hand", 1.25)
GET_AND_TOUCH: Final = Goal(
    "SQLAlchemy: getting and renewing a row at once / get, touch() and flush; PostgreSQL", 0.6
)
BYSTANDER: Final = Goal("SQLAlchemy: a model without TTL, ttl_odm imported / not imported", 1.01)
CONDITION: Final = Goal(
    "SQLAlchemy: count of 100,000 rows, with TTL / without a condition; PostgreSQL", 1.75
)
STORED_KEY: Final = Goal("SQLAlchemy: read by key, a stored default / a bound value", 1.1)
STORED_LIST: Final = Goal("SQLAlchemy: list of 100, a stored default / a bound value", 1.05)
STORED_SCAN: Final = Goal("SQLAlchemy: scan, a stored default / a bound value", 1.05)
TENANTS_KEY: Final = Goal(
    "SQLAlchemy: read by key, stored defaults of 10,000 tenants / a bound value", 1.2
)
TENANTS_LIST: Final = Goal(
    "SQLAlchemy: list of 100, stored defaults of 10,000 tenants / a bound value", 1.3
)
TENANTS_SCAN: Final = Goal(
    "SQLAlchemy: scan, stored defaults of 10,000 tenants / a bound value", 1.3
)
ONE_TENANT_KEY: Final = Goal(
    "SQLAlchemy: one tenant's read by key, of 10,000 stored defaults / a bound value", 1.1
)
ONE_TENANT_LIST: Final = Goal(
    "SQLAlchemy: one tenant's list of 100, of 10,000 stored defaults / a bound value", 1.05
)
ONE_TENANT_SCAN: Final = Goal(
    "SQLAlchemy: one tenant's scan, of 10,000 stored defaults / a bound value", 1.05
)
FOLLOWS_KEY: Final = Goal("SQLAlchemy: read by key of a follower / an EXISTS by hand", 1.3)
DJANGO_FOLLOWS_KEY: Final = Goal("Django: get() of a follower / an Exists by hand", 1.3)
BEANIE_FOLLOWS_KEY: Final = Goal("Beanie: find_one and get of a follower / a $lookup by hand", 1.3)
DJANGO_TENANT_KEY: Final = Goal(
    "Django: get() by key, one of 10,000 tenants with stored defaults / a bound value", 1.1
)
DJANGO_TENANT_LIST: Final = Goal(
    "Django: list of 100, one of 10,000 tenants with stored defaults / a bound value", 1.05
)
DJANGO_TENANT_SCAN: Final = Goal(
    "Django: scan, one of 10,000 tenants with stored defaults / a bound value", 1.05
)
BEANIE_TENANT_KEY: Final = Goal(
    "Beanie: find_one by key, stored defaults of 1,000 tenants / a bound value", 1.1
)
BEANIE_TENANT_READ: Final = Goal(
    "Beanie: one tenant's list and scan, stored defaults of 1,000 tenants / a bound value", 1.05
)
DJANGO_CREATE: Final = Goal("Django: create() with its own key / without TTL", 1.5)
DJANGO_GET: Final = Goal("Django: get() / filter(expires_at__gt=now)", 1.1)
DJANGO_SWEEP: Final = Goal("Django: rows swept per second / by SQLAlchemy's", 0.8, at_least=True)
DOCUMENTS: Final = Goal("Beanie: find_one and find of 100 / without ttl_odm", 1.1)
COUNT: Final = Goal("Beanie: count of 100 / without ttl_odm", 1.2)
SPEED: Final = Goal("Sweep: rows per second / one DELETE, PostgreSQL", 0.5, at_least=True)
ONE_WORKER: Final = Goal(
    "Sweep by one worker: rows per second / one DELETE, PostgreSQL", 0.55, at_least=True
)
TWO_WORKERS: Final = Goal(
    "Sweep by two workers: rows per second / one DELETE, PostgreSQL", 0.9, at_least=True
)
GENTLE: Final = Goal(
    "Gentle sweep: somebody's 99th percentile meanwhile / when idle; PostgreSQL, MariaDB", 1.5
)
GENTLE_MYSQL: Final = Goal(
    "Gentle sweep: somebody's 99th percentile meanwhile / when idle; MySQL", 2.0
)
FOREGROUND: Final = Goal("Sweep: somebody's 99th percentile meanwhile / when idle, PostgreSQL", 2.0)
NEIGHBOUR: Final = Goal(
    "Sweep: somebody's 99th percentile beside the sweeper / beside one DELETE", 1.0
)
ROW_BY_ROW: Final = Goal("Sweep: rows per second / row by row", 20, at_least=True)
IDLE_TIME: Final = Goal("Sweep of a big table of which nothing has expired: time", 5, "ms")
IDLE_PAGES: Final = Goal("Sweep of a big table of which nothing has expired: pages", 20, "pages")
MEMORY: Final = Goal("Sweep of a whole big table: memory", 30, "MiB")
PARTITIONS_TIME: Final = Goal("Expiry by partition: time / batches", 0.05)
PARTITIONS_LOG: Final = Goal("Expiry by partition: the database's log / batches", 0.01)
PARTITIONS_WAIT: Final = Goal("Expiry by partition: a reader's longest wait", 100, "ms")
DATABASE_SWEEP: Final = Goal(
    "The database sweeps by itself: 99th percentile of the age of expired rows, 1,000 a second",
    5_000,
    "ms",
)
REPLICA_LAG: Final = Goal(
    'Sweep with throttle="replication": the largest lag of a replica meanwhile', 1, "s"
)
IMPORT: Final = Goal("`import ttl_odm`: time", 20, "ms")
FOREIGN: Final = Goal("`import ttl_odm`: modules from outside the standard library", 0, "modules")
CONSTANT: Final = Goal(
    "Growth: exponent of what is designed not to grow with the size", 0.1, "exponent"
)
LINEAR: Final = Goal("Growth: exponent of what is designed to grow with the size", 1.1, "exponent")
ONE_HOLDER: Final = Goal("Growth: sweepers that hold the lease at once", 1, "sweepers")

EVENTS_IN_TIME: Final = Goal(
    "Events: share delivered within a second of the expiry", 0.99, at_least=True
)
EVENTS_STATEMENTS: Final = Goal(
    "Events: extra statements of a write to a table with events", 0, "statements"
)
EVENTS_TIME: Final = Goal("Events: a write to a table with events / without", 1.05)
_DELAYED: Final = {
    goal: replace(goal, what=f"{goal.what}; with a round trip of 0.5 ms")
    for goal in (
        *(UNFILTERED, ONE_ROW, ONE_ROW_POSTGRES, BATCH, RENEWAL, FLUSH, FLUSH_ALONE),
        *(TOUCH, TOUCH_ALONE, GET_AND_TOUCH),
        *(DJANGO_CREATE, DJANGO_GET, DOCUMENTS, COUNT),
    )
}


def delayed(goal: Goal) -> Goal:
    """The same goal where each round trip costs half a millisecond more: a line of its own.

    Args:
        goal: one of those that are measured so too.
    """
    return _DELAYED[goal]


GOALS: Final = tuple(
    line
    for goal in (
        *(BY_HAND, UNFILTERED, EXTRA, EXTRA_INSERTS, EXTRA_KEYED),
        *(ONE_ROW, ONE_ROW_POSTGRES, BATCH, RENEWAL, FLUSH, FLUSH_ALONE),
        *(TOUCH, TOUCH_ALONE, GET_AND_TOUCH, BYSTANDER, CONDITION),
        *(STORED_KEY, STORED_LIST, STORED_SCAN, TENANTS_KEY, TENANTS_LIST, TENANTS_SCAN),
        *(ONE_TENANT_KEY, ONE_TENANT_LIST, ONE_TENANT_SCAN),
        *(DJANGO_TENANT_KEY, DJANGO_TENANT_LIST, DJANGO_TENANT_SCAN),
        *(FOLLOWS_KEY, DJANGO_FOLLOWS_KEY, BEANIE_FOLLOWS_KEY),
        *(BEANIE_TENANT_KEY, BEANIE_TENANT_READ),
        *(DJANGO_CREATE, DJANGO_GET, DOCUMENTS, COUNT),
        *(DJANGO_SWEEP, SPEED, FOREGROUND, NEIGHBOUR),
        *(ONE_WORKER, TWO_WORKERS, GENTLE, GENTLE_MYSQL),
        *(ROW_BY_ROW, IDLE_TIME, IDLE_PAGES, MEMORY),
        *(PARTITIONS_TIME, PARTITIONS_LOG, PARTITIONS_WAIT, REPLICA_LAG),
        *(DATABASE_SWEEP, EVENTS_IN_TIME, EVENTS_STATEMENTS, EVENTS_TIME, IMPORT, FOREIGN),
        *(CONSTANT, LINEAR, ONE_HOLDER),
    )
    for line in (goal, _DELAYED.get(goal))
    if line is not None
)
