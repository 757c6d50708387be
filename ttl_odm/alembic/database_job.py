"""What a job that sweeps a table has on each database: its names and its statements.

`MySQLJob` and `PostgreSQLJob` are the two kinds; `database_sweep` says which tables can have one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final

from ttl_odm.dialects.jobs import JOB, JOB_LOG
from ttl_odm.sqlalchemy.sweep.leases import NAME as LEASE_TABLE
from ttl_odm.sqlalchemy.sweep.leases import declared_lease_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import MetaData

    from ttl_odm.alembic.runner import Runner
    from ttl_odm.alembic.steps import Steps

BATCH: Final = 1_000
"""Rows of a transaction; others wait for no longer than it takes."""

BUDGET: Final = 10
"""Seconds after which a run begins no further batch; the next run continues."""

NEWS: Final = 30
"""Seconds after which a run is recorded although its outcome is that of the one before."""


class DatabaseJob(ABC):
    """The job of one table.

    Args:
        steps: The steps of its database, which know its names.
        schema: The schema that unqualified names get; none where a job has that of its table.
    """

    def __init__(self, steps: Steps[Any], schema: str = "") -> None:
        """Quote the names."""
        self.steps = steps
        target, prefix = steps.target, steps.schema or schema
        self.name = prefix + steps.quote(target.name_of("", JOB))
        self.log = prefix + steps.quote(target.name_of("", JOB_LOG))
        declared = declared_lease_table(metadata_of(steps.run))
        preparer = steps.dialect.identifier_preparer
        self.lease = schema + steps.quote(LEASE_TABLE)
        if declared is not None:
            self.lease = ("" if declared.schema else schema) + preparer.format_table(declared)

    @abstractmethod
    def created(self, *, is_enabled: bool) -> list[str]:
        """The statements that create it, or replace the one that is there."""

    @abstractmethod
    def dropped(self) -> list[str]:
        """The statements that remove it, if it is there."""


def metadata_of(runner: Runner) -> Sequence[MetaData]:
    """What env.py compares with: the models, if it says which they are."""
    declared: Any = runner.context.opts.get("target_metadata")
    if declared is None:
        return ()
    return tuple(declared) if isinstance(declared, (list, tuple)) else (declared,)
