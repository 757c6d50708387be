"""The job of `sweep="database"` without a revision: `ttl-odm install-sweep` creates or prints it.

`op.alter_ttl` creates the job. This module derives its arguments from a model, and returns the
statements for users who run them with another program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from alembic.migration import MigrationContext
from alembic.operations import Operations

from ttl_odm.alembic import checks
from ttl_odm.alembic.aspects import of_table, on_table
from ttl_odm.alembic.implementation import steps_of
from ttl_odm.alembic.operations import AlterTTLOp, written
from ttl_odm.alembic.reflection import read_schema
from ttl_odm.alembic.runner import MigrationRefusedError, Runner
from ttl_odm.alembic.target_schema import TargetSchema
from ttl_odm.database_sweep.alembic.job import JobSettings
from ttl_odm.database_sweep.alembic.requirements import job_of, refuse_unsweepable
from ttl_odm.database_sweep.sqlalchemy.catalogue import read_job
from ttl_odm.sqlalchemy.compat import out_of_driver_format
from ttl_odm.sqlalchemy.policy.schema import whole_policy

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from typing_extensions import Unpack

    from ttl_odm.sqlalchemy.policy.bindings import Binding


class Options(TypedDict, total=False):
    """The job's settings, as for `op.alter_ttl`; missing ones stay as they are."""

    window: str
    timezone: str
    max_fraction: float


def install_job(connection: Connection, binding: Binding, **options: Unpack[Options]) -> None:
    """Create or replace the job of a table, with the indexes that it needs.

    Raises:
        MigrationRefusedError: The database can't sweep this table as its model says.
    """
    target = _target(binding)
    runner = Runner(_context(connection, binding))
    # The operation gets no argument about partitions, so it can't reject them.
    existing = read_schema(connection, target)
    refuse_unsweepable(runner, target, existing, is_laid_out=binding.layout is not None)
    op = _operation(binding, **options)
    Operations(runner.context).invoke(op)


def remove_job(connection: Connection, binding: Binding) -> bool:
    """Remove a table's job and its results, but not the indexes; False if there is no job."""
    context = _context(connection, binding)
    table = binding.table
    read_schema(connection, _target(binding))  # rejects a table that doesn't exist
    if read_job(connection, table.schema, table.name) is None:
        return False
    op = AlterTTLOp(table.name, whole_policy(binding), schema=table.schema, sweep="index")
    Operations(context).invoke(op)
    return True


def job_statements(
    connection: Connection, binding: Binding, **options: Unpack[Options]
) -> list[str]:
    """Return the statements that create or replace a table's job, without running them.

    Raises:
        MigrationRefusedError: The database can't sweep this table as its model says, or the table
            lacks an index that a sweep searches by.
    """
    target = _target(binding)
    runner = Runner(_context(connection, binding))
    existing = read_schema(connection, target)
    if target.dates is None:
        checks.refuse_missing(target, existing)
    refuse_unsweepable(runner, target, existing, is_laid_out=binding.layout is not None)
    missing = [name for name in target.index_names if not existing.has_index(name)]
    if missing:
        name, default = binding.table.name, written(whole_policy(binding))
        raise MigrationRefusedError(
            f"Table {target.label} lacks the index {' and '.join(missing)}. Add it with "
            f"op.alter_ttl({name!r}, {default}, sweep='database'), or without --print."
        )
    settings = JobSettings.of(_operation(binding, **options), target.label)
    settings.refuse_unknown_zone(runner, target.label)
    job = job_of(steps_of(runner, target, existing))
    assert job is not None  # noqa: S101 (or it was rejected)
    *statements, schedule = job.created(is_enabled=True)
    if settings.columns:
        statements.append(job.set(settings.columns))
    statements.append(job.scheduled_elsewhere() or schedule)
    return [out_of_driver_format(connection.dialect, sql) for sql in statements]


def _operation(binding: Binding, **options: Unpack[Options]) -> AlterTTLOp:
    table = binding.table
    policy = whole_policy(binding)
    return AlterTTLOp(table.name, policy, schema=table.schema, sweep="database", **options)


def _context(connection: Connection, binding: Binding) -> MigrationContext:
    options = {"target_metadata": binding.table.metadata}
    return MigrationContext.configure(connection, opts=options)


def _target(binding: Binding) -> TargetSchema:
    table = binding.table
    target = TargetSchema.of(table.name, whole_policy(binding), table.schema)
    on_table(of_table(binding), None, target, [table.metadata])
    return target
