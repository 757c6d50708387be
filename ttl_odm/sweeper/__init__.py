"""The sweeper: deletes expired rows for good, in small batches, on any database with a store.

Expired rows are invisible at once; the sweeper only frees their space. It is a pure plan, two
drivers, and Protocols for the databases. Importing it imports no database.

For users:

- `sweeper`: `Sweeper` and `AsyncSweeper`: a store, the plan and a driver.
- `options`: the keyword arguments of a sweeper: `SweepOptions`; the `Settings` made of them.
- `hooks`: what happens to purged rows: `Purged`, `Hook`, `ArchiveSink`, `Archive`; how a model
  declares it; a stopwatch for the phases of a batch.
- `report`: what a sweep reports: `Progress`, `SweepReport`.
- `stop`: stopping a sweeper, also by signals.

How a sweep goes, from the outside in. One batch takes this route: `Sweeper.run_once`, `plan.Run`,
`TargetSweep._attempt`, which yields a `PurgeBatch`; `drive.Ports.remote`, which calls the store's
`purge`; with SQLAlchemy that is `ttl_odm.sqlalchemy.sweep.batch.purge`.

- `plan`: sweeps as generators of commands, and the order of the targets.
- `target`: the sweep of one target, batch after batch, in one or several ranges at once.
- `batch_gate`: whether the next batch may begin: limits, waits, and the lease with its history.
- `pace`: batch sizes, workers and limits, also for rows that fail. Arithmetic only.
- `fuse`: far too much at once.
- `commands`: the orders of a plan to its driver.
- `drive`: the two drivers that carry out a plan, and their log.

For databases:

- `store`: the Protocols of a store, and what passes between it and the sweeper.
- `leases`: the Protocols of a keeper of leases.
- `facts`: what an extension reports; the sweeper passes it on without knowing it.
- `known_facts`: facts that are public attributes of reports.

For the commands of all adapters:

- `command_line`: options and exit statuses, for any parser; errors without passwords.
- `findings`, `snapshot`: what the check and status commands print.
- `units`: values that are read in another unit than they were written in.
- `text`: numbers, ages and tables for people.
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
from ttl_odm.sweeper.leases import AsyncLeases, Finishing, Lease, Leases, LeaseState
from ttl_odm.sweeper.options import SweepOptions
from ttl_odm.sweeper.pace import Pace
from ttl_odm.sweeper.report import Ending, Progress, SweepError, SweepReport, TargetReport
from ttl_odm.sweeper.stop import stop_on_signals
from ttl_odm.sweeper.store import (
    AsyncClocked,
    AsyncCounting,
    AsyncDividing,
    AsyncServing,
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
    Pacing,
    Part,
    RefusedError,
    Replicating,
    Server,
    Serving,
    Skip,
    StandbyStoreError,
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
    "AsyncServing",
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
    "Finishing",
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
    "Server",
    "Serving",
    "Skip",
    "StandbyStoreError",
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
    value: object = getattr(import_module(f"ttl_odm.{module}"), attribute)
    return value
