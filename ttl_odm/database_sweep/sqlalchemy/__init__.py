"""Tables that a database sweeps by itself, on SQLAlchemy.

- `catalogue`: the job of a table, as the database has it;
- `losses`: what goes wrong below such a table.

Here is what is asked of it: the fact for what counts a table's rows, and `database_jobs` for
metrics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ttl_odm.database_sweep.jobs import database_sweep
from ttl_odm.database_sweep.sqlalchemy.catalogue import read_job
from ttl_odm.sqlalchemy.sweep.store import bindings_of
from ttl_odm.sqlalchemy.sweep.transactions import reading, store_errors
from ttl_odm.sqlalchemy.sweep.whereabouts import name_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection, Engine

    from ttl_odm.database_sweep.jobs import JobState
    from ttl_odm.sweeper import Fact


def facts(connection: Connection, schema: str | None, table: str) -> Mapping[str, Fact]:
    """Return the fact about the job of a table by its name; in a transaction."""
    return database_sweep(read_job(connection, schema, table))


def database_jobs(engine: Engine, targets: Any) -> dict[str, JobState]:
    """Read the jobs with which a database sweeps tables itself: two queries for each table.

    Args:
        engine: The database.
        targets: A declarative base, a registry, a MetaData, a model, a Table, or a list of these.

    Returns:
        The jobs by their tables' names; tables that the database doesn't sweep are left out.

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
