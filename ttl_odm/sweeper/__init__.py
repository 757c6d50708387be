"""The sweeper: deletes expired rows for good, in small batches, on any database with a store.

Rows that have expired are invisible from that instant; the sweeper only gives their space back.
It is a pure plan (`plan`), two drivers (`drive`) and the databases behind Protocols (`store`).
Importing this brings in no database.
"""

from ttl_odm.sweeper.fuse import FuseError
from ttl_odm.sweeper.hooks import (
    ArchiveSink,
    Hook,
    HookError,
    Hooks,
    Purged,
    archive,
    archive_async,
)
from ttl_odm.sweeper.leases import AsyncLeases, Lease, Leases, LeaseState
from ttl_odm.sweeper.options import SweepOptions
from ttl_odm.sweeper.pace import Pace, Pacing
from ttl_odm.sweeper.report import Ending, Progress, SweepError, SweepReport, TargetReport
from ttl_odm.sweeper.stopping import stop_on_signals
from ttl_odm.sweeper.store import (
    AsyncClocked,
    AsyncCounting,
    AsyncStore,
    BatchRequest,
    BatchResult,
    Clocked,
    Counted,
    Counting,
    Due,
    Hooking,
    Leasing,
    Named,
    Part,
    Skip,
    Store,
    StoreError,
    TransientStoreError,
    UnreachableStoreError,
)
from ttl_odm.sweeper.sweeper import AsyncSweeper, Sweeper

__all__ = [
    "ArchiveSink",
    "AsyncClocked",
    "AsyncCounting",
    "AsyncLeases",
    "AsyncStore",
    "AsyncSweeper",
    "BatchRequest",
    "BatchResult",
    "Clocked",
    "Counted",
    "Counting",
    "Due",
    "Ending",
    "FuseError",
    "Hook",
    "HookError",
    "Hooking",
    "Hooks",
    "Lease",
    "LeaseState",
    "Leases",
    "Leasing",
    "Named",
    "Pace",
    "Pacing",
    "Part",
    "Progress",
    "Purged",
    "Skip",
    "Store",
    "StoreError",
    "SweepError",
    "SweepOptions",
    "SweepReport",
    "Sweeper",
    "TargetReport",
    "TransientStoreError",
    "UnreachableStoreError",
    "archive",
    "archive_async",
    "stop_on_signals",
]
