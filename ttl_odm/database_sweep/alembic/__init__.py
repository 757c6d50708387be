"""`sweep="database"`: the database deletes expired rows itself, without a process of ours.

On MariaDB and MySQL an EVENT calls a procedure, on PostgreSQL a job of pg_cron does. The procedure
deletes in batches, oldest rows first, and skips locked rows. It contains the default ttl, so
`op.alter_ttl` replaces both; a stored default it looks up, as every statement does. A table of one
row, TABLE_ttl_sweeps, has the result of the last run and the job's settings.

A `Sweeper` has priority: each batch reads the row of the sweepers' lease under a shared lock, and
gives up if a sweeper holds the lease, or sweeping is paused. So a sweeper that acquires the lease
waits for one batch, and has the table for itself from then on.

- `requirements`: which tables can be swept this way, and the job of each;
- `job`, `mysql_job`, `postgresql_job`: a job's settings, and its statements on each database;
- `installation`: the job without a revision.

`DatabaseSweep` is the extension's `Aspect`.
"""

from __future__ import annotations

import logging
from functools import cached_property
from typing import TYPE_CHECKING, Final

from ttl_odm.alembic.aspects import Aspect
from ttl_odm.alembic.runner import MigrationRefusedError
from ttl_odm.database_sweep.alembic.job import JobSettings
from ttl_odm.database_sweep.alembic.requirements import job_of, refuse_unsweepable
from ttl_odm.database_sweep.jobs import JOB_LOG, JobState
from ttl_odm.database_sweep.sqlalchemy.catalogue import read_job
from ttl_odm.database_sweep.sqlalchemy.losses import would_lose

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection, Table

    from ttl_odm.alembic.aspects import IsTable, Operation
    from ttl_odm.alembic.steps import Steps
    from ttl_odm.dialects import Family
    from ttl_odm.sqlalchemy.policy.bindings import Binding

log = logging.getLogger("alembic.ttl_odm")


class DatabaseSweep(Aspect):
    """The job of one table, if its database has jobs."""

    @classmethod
    def tables(cls, connection: Connection, declared: Sequence[Table]) -> IsTable:  # noqa: ARG003
        """Return what recognizes the tables with the results of jobs."""
        models = {table.name for table in declared}
        return lambda _, name: name.endswith(f"_{JOB_LOG}") and name not in models

    def notes(self) -> set[str]:
        """Return the fingerprint of the job's policy."""
        job = self._existing
        return set() if job is None or job.default is None else {job.default}

    def lacking(self, binding: Binding) -> Mapping[str, object] | None:
        """Return the arguments that remove a job that would lose rows; no downgrade restores it."""
        if self._existing is None or self.connection is None:
            return None
        if not would_lose(self.connection, binding):
            return None
        is_scanned = binding.sweep == "scan" and self.target.dates is None
        return {"sweep": "scan" if is_scanned else "index"}

    def keeping(self, verb: str) -> Mapping[str, object]:
        """Return the arguments that keep the job, to create it again with its window and fuse."""
        job = self._existing
        if job is None:
            return {}
        kept: dict[str, object] = {"sweep": "database"}
        if verb == "add":
            window, _, zone = (job.window or "").partition(" ")
            kept |= {"window": window or None, "max_fraction": job.max_fraction}
            kept |= {"timezone": zone} if zone else {}
        return kept

    def check(self, op: Operation, steps: Steps[Family]) -> None:
        """Reject a job for a table that the database can't sweep, and settings without a job."""
        if op.verb == "drop":
            return
        sweep, label, has_job = op.argument("sweep"), self.target.label, self._existing is not None
        settings = JobSettings.of(op, label)
        if sweep == "database" or (sweep is None and has_job):
            is_laid_out = op.argument("partition") is not None
            refuse_unsweepable(steps.run, self.target, steps.existing, is_laid_out=is_laid_out)
            settings.refuse_unknown_zone(steps.run, label)
        elif settings.columns:
            raise MigrationRefusedError(
                f"Table {label}: window and max_fraction are settings of the job that "
                "sweep='database' creates, and there is none. Write sweep='database', or pass "
                "them to your Sweeper."
            )

    def before(self, op: Operation, steps: Steps[Family]) -> None:
        """Remove the job for another ``sweep=``, before the indexes that it uses."""
        # A script for a table with its own dates assumes that there is no job.
        is_assumed = self.target.dates is None or not steps.run.offline
        if is_assumed and (op.verb == "drop" or self._sweep(op) in ("index", "scan")):
            self._drop(steps)

    def after(self, op: Operation, steps: Steps[Family]) -> None:
        """Create the job for "database", or replace an existing one, with the new default ttl.

        Settings that are not among the arguments stay as they are.
        """
        if op.verb == "drop":
            return
        sweep, job = self._sweep(op), self._existing
        if sweep == "database":
            self._create(op, steps, is_enabled=True)
        elif sweep is None and job is not None:
            self._create(op, steps, is_enabled=job.state != "disabled")

    def _sweep(self, op: Operation) -> str | None:
        """Return the operation's ``sweep=``; None if it changes nothing."""
        sweep: str | None = op.argument("sweep")
        # "scan" needs no index, and an existing one may be the application's.
        keeps_indexes = op.verb == "add" and sweep == "scan" and self.target.dates is not None
        return None if keeps_indexes else sweep

    def _create(self, op: Operation, steps: Steps[Family], *, is_enabled: bool) -> None:
        run, job, settings = steps.run, job_of(steps), JobSettings.of(op, self.target.label)
        assert job is not None  # noqa: S101 (or `check` rejected it)
        for sql in job.created(is_enabled=is_enabled):
            run.at_length(sql)
        if settings.columns:
            run.at_length(job.set(settings.columns))
        elsewhere = job.scheduled_elsewhere()
        if elsewhere is not None:
            log.warning(
                "table %s: this database does not have the extension pg_cron, so nothing calls "
                "%s yet. Schedule it in the one that has, or by another scheduler: %s",
                self.target.label,
                job.name,
                elsewhere,
            )

    def _drop(self, steps: Steps[Family]) -> None:
        job = job_of(steps)
        if job is not None and steps.is_there(self._existing is not None):
            for sql in job.dropped():
                steps.run.at_length(sql)

    @cached_property
    def _existing(self) -> JobState | None:
        """The job that the database has; None for a script."""
        if self.connection is None:
            return None
        table = self.target.table
        return read_job(self.connection, table.schema, table.name)


ASPECT: Final = DatabaseSweep
