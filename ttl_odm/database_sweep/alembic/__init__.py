"""`sweep="database"`: the database deletes expired rows by itself, with no process of ours.

On MariaDB and MySQL an EVENT calls a procedure, on PostgreSQL a job of pg_cron does. The procedure
deletes in batches, oldest first, rows that nobody holds. The default ttl is written into it, so
`op.alter_ttl` replaces both; one that is stored it looks up, as every statement does. What the last
run did, and when it may run, is in a table of one row, TABLE_ttl_sweeps.

A `Sweeper` has the right of way: each batch reads the row of its lease under a shared lock, and
gives up where somebody holds the lease, or has paused the sweepers. So a sweeper that acquires the
lease waits for one batch, and has the table for itself from then on.

- `requirements`: which tables can be swept so;
- `settings`: the hours and the fuse of a job;
- `job`, `mysql_job`, `postgresql_job`, `kinds`: its statements on each database;
- `installation`: the same without a revision.

`DatabaseSweep` is what Alembic's part of the base asks; see `Aspect`.
"""

from __future__ import annotations

import logging
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from ttl_odm.alembic.aspects import Aspect
from ttl_odm.alembic.runner import MigrationRefusedError
from ttl_odm.database_sweep.alembic.kinds import job_of, scheduling
from ttl_odm.database_sweep.alembic.requirements import refuse_unsweepable
from ttl_odm.database_sweep.alembic.settings import JobSettings
from ttl_odm.database_sweep.names import JOB_LOG
from ttl_odm.database_sweep.sqlalchemy.catalogue import read_job
from ttl_odm.database_sweep.sqlalchemy.losses import would_lose

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection, Table

    from ttl_odm.alembic.aspects import IsTable, Operation
    from ttl_odm.alembic.steps import Steps
    from ttl_odm.database_sweep.jobs import JobState
    from ttl_odm.sqlalchemy.policy.bindings import Binding

log = logging.getLogger("alembic.ttl_odm")


class DatabaseSweep(Aspect):
    """The job of one table, where its database has jobs."""

    @classmethod
    def tables(cls, connection: Connection, declared: Sequence[Table]) -> IsTable:  # noqa: ARG003
        """What jobs have recorded, in tables that no model has."""
        models = {table.name for table in declared}
        return lambda _, name: name.endswith(f"_{JOB_LOG}") and name not in models

    def notes(self) -> set[str]:
        """The one that the job holds."""
        job = self._existing
        return set() if job is None or job.default is None else {job.default}

    def lacking(self, binding: Binding) -> Mapping[str, object] | None:
        """No job, where one would lose rows: a downgrade can't bring it back."""
        if self._existing is None or self.connection is None:
            return None
        if not would_lose(self.connection, binding):
            return None
        is_scanned = binding.sweep == "scan" and self.target.dates is None
        return {"sweep": "scan" if is_scanned else "index"}

    def keeping(self, verb: str) -> Mapping[str, object]:
        """The job; with its hours and its fuse, where it is to be made anew."""
        job = self._existing
        if job is None:
            return {}
        kept: dict[str, object] = {"sweep": "database"}
        if verb == "add":
            window, _, zone = (job.window or "").partition(" ")
            kept |= {"window": window or None, "max_fraction": job.max_fraction}
            kept |= {"timezone": zone} if zone else {}
        return kept

    def check(self, op: Operation, steps: Steps[Any]) -> None:
        """Refuse a table that the database can't sweep by itself, where it is to."""
        is_there, settings = self._existing is not None, self._settings(op)
        sweep, label = op.argument("sweep"), self.target.label
        if op.verb == "drop":
            return
        if sweep == "database" or (sweep is None and is_there):
            is_laid_out = op.argument("partition") is not None
            refuse_unsweepable(steps.run, self.target, steps.existing, is_laid_out=is_laid_out)
            settings.refuse_unknown_zone(steps.run, label)
        elif settings.columns:
            raise MigrationRefusedError(
                f"Table {label}: window and max_fraction are settings of the job that "
                "sweep='database' creates, and there is none. Write sweep='database', or pass "
                "them to your Sweeper."
            )

    def before(self, op: Operation, steps: Steps[Any]) -> None:
        """Remove it where another way was chosen, before the indexes that it searches by."""
        # A script of a table that has its dates assumes that there is none.
        is_assumed = self.target.dates is None or not steps.run.offline
        if is_assumed and (op.verb == "drop" or self._sweep(op) in ("index", "scan")):
            self._drop(steps)

    def after(self, op: Operation, steps: Steps[Any]) -> None:
        """Create it for "database", or replace the one that is there, with another default ttl.

        Its settings stay as they are but for those that are given.
        """
        if op.verb == "drop":
            return
        sweep, job = self._sweep(op), self._existing
        if sweep == "database":
            self._put(op, steps, is_enabled=True)
        elif sweep is None and job is not None:
            self._put(op, steps, is_enabled=job.state != "disabled")

    def _sweep(self, op: Operation) -> str | None:
        """What is chosen; None where nothing changes."""
        sweep: str | None = op.argument("sweep")
        # No index is what "scan" asks for, and whose it is that is there, nobody knows.
        is_left = op.verb == "add" and sweep == "scan" and self.target.dates is not None
        return None if is_left else sweep

    def _settings(self, op: Operation) -> JobSettings:
        return JobSettings() if op.verb == "drop" else JobSettings.of(op, self.target.label)

    def _put(self, op: Operation, steps: Steps[Any], *, is_enabled: bool) -> None:
        run, job, settings = steps.run, job_of(steps), self._settings(op)
        assert job is not None  # noqa: S101 (else it was refused)
        for sql in job.created(is_enabled=is_enabled):
            run.at_length(sql)
        if settings.columns:
            run.at_length(job.set(settings.columns))
        elsewhere = scheduling(job, run.connection)
        if elsewhere is not None:
            log.warning(
                "table %s: this database does not have the extension pg_cron, so nothing calls "
                "%s yet. Schedule it in the one that has, or by another scheduler: %s",
                self.target.label,
                job.name,
                elsewhere,
            )

    def _drop(self, steps: Steps[Any]) -> None:
        job = job_of(steps)
        if job is not None and steps.is_there(self._existing is not None):
            for sql in job.dropped():
                steps.run.at_length(sql)

    @cached_property
    def _existing(self) -> JobState | None:
        """The one there is; none for a script."""
        if self.connection is None:
            return None
        table = self.target.table
        return read_job(self.connection, table.schema, table.name)


ASPECT: Final = DatabaseSweep
