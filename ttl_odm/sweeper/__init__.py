"""The sweeper: deletes expired rows for good, in small batches, on any database with a store.

Rows that have expired are invisible from that instant; the sweeper only gives their space back.
It is a pure plan (`plan`), two drivers (`drive`) and the databases behind two Protocols (`store`).
Importing this brings in no database.
"""

from ttl_odm.sweeper.pace import Pace
from ttl_odm.sweeper.report import Progress, SweepError, SweepReport, TargetReport
from ttl_odm.sweeper.store import (
    AsyncStore,
    BatchResult,
    Due,
    Part,
    Store,
    StoreError,
    TransientStoreError,
)
from ttl_odm.sweeper.sweeper import AsyncSweeper, Sweeper

__all__ = [
    "AsyncStore",
    "AsyncSweeper",
    "BatchResult",
    "Due",
    "Pace",
    "Part",
    "Progress",
    "Store",
    "StoreError",
    "SweepError",
    "SweepReport",
    "Sweeper",
    "TargetReport",
    "TransientStoreError",
]
