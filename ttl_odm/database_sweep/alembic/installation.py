"""The job of `sweep="database"` without a revision, as `ttl-odm install-sweep` makes or prints it.

`op.alter_ttl` does the work; here is what it is told of a model, and the statements for whoever may
not, or does not want to, run them by this program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

from alembic.migration import MigrationContext
from alembic.operations import Operations

from ttl_odm.alembic import checks
from ttl_odm.alembic.aspects import of_table, on_table
from ttl_odm.alembic.runner import MigrationRefusedError
from ttl_odm.alembic.implementation import steps_of
from ttl_odm.alembic.operations import AlterTTLOp, written
from ttl_odm.alembic.reflection import read_schema
from ttl_odm.alembic.runner import Runner
from ttl_odm.alembic.target_schema import TargetSchema
from ttl_odm.database_sweep.alembic.kinds import job_of, scheduling
from ttl_odm.database_sweep.alembic.requirements import refuse_unsweepable
from ttl_odm.database_sweep.alembic.settings import JobSettings
from ttl_odm.database_sweep.sqlalchemy.catalogue import read_job
from ttl_odm.sqlalchemy.compat import out_of_driver_format
from ttl_odm.sqlalchemy.policy.schema import whole_policy

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from typing_extensions import Unpack

    from ttl_odm.alembic.steps import Steps
    from ttl_odm.sqlalchemy.policy.bindings import Binding


class Options(TypedDict, total=False):
    """When a job works, as for `op.alter_ttl`; what is left out stays as it is."""

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
    # The operation isn't told of partitions, so it can't refuse them.
    existing = read_schema(connection, target)
    refuse_unsweepable(runner, target, existing, is_laid_out=binding.layout is not None)
    op = _operation(binding, **options)
    Operations(runner.context).invoke(op)


def remove_job(connection: Connection, binding: Binding) -> bool:
    """Remove the job of a table and what it recorded; False if there is none. Indexes stay."""
    context = _context(connection, binding)
    table = binding.table
    read_schema(connection, _target(binding))  # refuses one that isn't there
    if read_job(connection, table.schema, table.name) is None:
        return False
    op = AlterTTLOp(table.name, whole_policy(binding), schema=table.schema, sweep="index")
    Operations(context).invoke(op)
    return True


def job_statements(
    connection: Connection, binding: Binding, **options: Unpack[Options]
) -> list[str]:
    """Return what creates or replaces the job of a table, and run nothing of it.

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
    statements = _created(steps_of(runner, target, existing), settings)
    return [out_of_driver_format(connection.dialect, sql) for sql in statements]


def _created(steps: Steps[Any], settings: JobSettings) -> list[str]:
    job = job_of(steps)
    assert job is not None  # noqa: S101 (else it was refused)
    statements = job.created(is_enabled=True)
    if settings.columns:
        statements.insert(-1, job.set(settings.columns))
    elsewhere = scheduling(job, steps.run.connection)
    return statements if elsewhere is None else [*statements[:-1], elsewhere]


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
