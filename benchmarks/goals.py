"""The numbers to reach: the project's table, line by line, in its order.

A finding that serves a line carries the line's `Goal`; the report's first table is made of these.
"""

from __future__ import annotations

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
    1,
    "statements",
)
BYSTANDER: Final = Goal("SQLAlchemy: a model without TTL, ttl_odm imported / not imported", 1.01)
DOCUMENTS: Final = Goal("Beanie: find_one and find of 100 / without ttl_odm", 1.15)
SPEED: Final = Goal("Sweep: rows per second / one DELETE, PostgreSQL", 0.5, at_least=True)
FOREGROUND: Final = Goal("Sweep: somebody's 99th percentile meanwhile / when idle, PostgreSQL", 2.0)
ROW_BY_ROW: Final = Goal("Sweep: rows per second / row by row", 20, at_least=True)
IDLE_TIME: Final = Goal("Sweep of a big table of which nothing has expired: time", 5, "ms")
IDLE_PAGES: Final = Goal("Sweep of a big table of which nothing has expired: pages", 20, "pages")
MEMORY: Final = Goal("Sweep of a whole big table: memory", 30, "MiB")
IMPORT: Final = Goal("`import ttl_odm`: time", 20, "ms")
FOREIGN: Final = Goal("`import ttl_odm`: modules from outside the standard library", 0, "modules")

GOALS: Final = (
    *(BY_HAND, UNFILTERED, EXTRA, EXTRA_INSERTS, EXTRA_KEYED, BYSTANDER, DOCUMENTS),
    *(SPEED, FOREGROUND, ROW_BY_ROW, IDLE_TIME, IDLE_PAGES, MEMORY, IMPORT, FOREIGN),
)
