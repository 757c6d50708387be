"""Tables that a database sweeps itself, for SQLAlchemy.

- `catalogue`: the job of a table, as the database has it;
- `losses`: what such a job loses below its table.

`facts` returns the fact for counts of a table's rows, and `database_jobs` the jobs for metrics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ttl_odm.database_sweep.jobs import database_sweep
from ttl_odm.database_sweep.sqlalchemy.catalogue import read_job
from ttl_odm.sqlalchemy.sweep.store import bindings_of
from ttl_odm.sqlalchemy.sweep.transactions import name_of, reading, store_errors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection, Engine

    from ttl_odm.database_sweep.jobs import JobState
    from ttl_odm.sweeper import Fact


def facts(connection: Connection, schema: str | None, table: str) -> Mapping[str, Fact]:
    """Return the fact about a table's job by its name. The connection must be in a transaction."""
    return database_sweep(read_job(connection, schema, table))


def database_jobs(engine: Engine, targets: Any) -> dict[str, JobState]:
    """Read the jobs by which a database sweeps tables itself: two queries per table.

    Args:
        engine: The database.
        targets: A declarative base, a registry, a MetaData, a model, a Table, or a list of these.

    Returns:
        The jobs by their tables' names, only of tables that the database sweeps.

    Raises:
        StoreError: The database rejected the queries, or could not be reached.
    """
    jobs = {}
    with store_errors(), engine.connect() as connection:
        for binding in bindings_of(targets):
            with reading(connection):
                job = read_job(connection, *name_of(connection, binding.table))
            if job is not None:
                jobs[binding.table.fullname] = job
    return jobs
