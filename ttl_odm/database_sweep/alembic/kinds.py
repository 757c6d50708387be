"""Which kind of job each database has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ttl_odm.database_sweep.alembic.mysql_job import MySQLJob
from ttl_odm.database_sweep.alembic.postgresql_job import PostgreSQLJob

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection

    from ttl_odm.alembic.steps import Steps
    from ttl_odm.database_sweep.alembic.job import DatabaseJob

JOBS: Final[Mapping[str, type[MySQLJob | PostgreSQLJob]]] = {
    "mysql": MySQLJob,
    "postgresql": PostgreSQLJob,
}


def job_of(steps: Steps[Any]) -> DatabaseJob | None:
    """The job of a table; None where its database has none."""
    kind = JOBS.get(steps.family.family)
    return None if kind is None else kind(steps)


def scheduling(job: DatabaseJob, connection: Connection) -> str | None:
    """The statement that has a job called, from a database with pg_cron; None where this has it."""
    if not isinstance(job, PostgreSQLJob) or connection.exec_driver_sql(_HAS_CRON).scalar():
        return None
    return job.scheduled_elsewhere()


_HAS_CRON: Final = "SELECT 1 FROM pg_catalog.pg_extension WHERE extname = 'pg_cron'"
