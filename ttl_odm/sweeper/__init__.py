"""The sweeper: deletes expired rows for good, in small batches, on any database with a store.

Rows that have expired are invisible from that instant; the sweeper only gives their space back.
It is a pure plan, two drivers and the databases behind Protocols. Importing this brings in no
database.

What users hold:

- `sweeper`: `Sweeper` and `AsyncSweeper`: a store, the plan and the driver that fits.
- `options`: the keyword arguments of a sweeper: `SweepOptions`; what the plan gets of them.
- `hooks`: who hears of purged rows, and what: `Purged`, `Hook`, `ArchiveSink`.
- `declarations`: what a model declares besides its policy: purge, `Archive`, hooks, sweep.
- `report`: what a sweep reports: `Progress`, `SweepReport`.
- `stop`: asking a sweeper to stop, also by signals.

How a sweep goes:

- `plan`: sweeps as generators of commands, from taking the lease to the report; the order of the
  targets, and what each gets of a sweep that is limited.
- `target`: the sweep of one target, batch after batch: the ranges that are left to purge, and the
  search for rows that make their batch fail.
- `commands`: what a plan can ask for.
- `drive`: the two drivers that carry a plan out, how they answer it, and what they log.
- `batch_gate`: whether the next batch may begin.
- `tenure`: holding the lease, and the history beside it.
- `fuse`, `pace`: far too much at once, batch sizes and workers; arithmetic only.

What a database brings:

- `store`: the Protocols of a store, and what passes between it and the sweeper.
- `facts`: what an extension reports, which the sweeper passes on without knowing it.
- `known_facts`: those that have been promised to users as attributes and keys of reports.
- `leases`: the Protocols of what keeps leases.
- `phases`: a stopwatch for what a batch spends its time on.

What comes out:

- `command_line`: the options and exit statuses of commands that sweep, whatever parses them.
- `text`: numbers, ages and tables as people read them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from ttl_odm.sweeper.facts import Fact, Number, Reading, RowsFact
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
from ttl_odm.sweeper.stop import stop_on_signals
from ttl_odm.sweeper.store import (
    AsyncClocked,
    AsyncCounting,
    AsyncDividing,
    AsyncStore,
    BatchRequest,
    BatchResult,
    Clocked,
    Counted,
    Counting,
    Dividing,
    Due,
    FactCounting,
    Hooking,
    Leasing,
    MissingTargetError,
    Named,
    Part,
    RefusedError,
    Replicating,
    Skip,
    Store,
    StoreError,
    TransientStoreError,
    UnreachableStoreError,
    weight,
)
from ttl_odm.sweeper.sweeper import AsyncSweeper, Sweeper

if TYPE_CHECKING:
    from ttl_odm.database_sweep.jobs import JobState
    from ttl_odm.partitions.facts import PartitionsCounted
    from ttl_odm.sweeper.store import FactCounting as FollowersCounting

__all__ = [
    "ArchiveSink",
    "AsyncClocked",
    "AsyncCounting",
    "AsyncDividing",
    "AsyncLeases",
    "AsyncStore",
    "AsyncSweeper",
    "BatchRequest",
    "BatchResult",
    "Clocked",
    "Counted",
    "Counting",
    "Dividing",
    "Due",
    "Ending",
    "Fact",
    "FactCounting",
    "FollowersCounting",
    "FuseError",
    "Hook",
    "HookError",
    "Hooking",
    "Hooks",
    "JobState",
    "Lease",
    "LeaseState",
    "Leases",
    "Leasing",
    "MissingTargetError",
    "Named",
    "Number",
    "Pace",
    "Pacing",
    "Part",
    "PartitionsCounted",
    "Progress",
    "Purged",
    "Reading",
    "RefusedError",
    "Replicating",
    "RowsFact",
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
    "weight",
]

_ELSEWHERE: Final = {
    "FollowersCounting": ("sweeper.store", "FactCounting"),
    "JobState": ("database_sweep.jobs", "JobState"),
    "PartitionsCounted": ("partitions.facts", "PartitionsCounted"),
}
"""Public names whose classes are an extension's, or have another name now; see `known_facts`."""


def __getattr__(name: str) -> object:
    if name not in _ELSEWHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _ELSEWHERE[name]
    found: object = getattr(import_module(f"ttl_odm.{module}"), attribute)
    return found
