"""The job of `sweep="database"` without a revision, as `ttl-odm install-sweep` makes or prints it.

`op.alter_ttl` does the work; here is what it is told of a model, and the statements for whoever may
not, or does not want to, run them by this program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from alembic.migration import MigrationContext
from alembic.operations import Operations

from ttl_odm.alembic import checks
from ttl_odm.alembic.database_sweep import created_statements, refuse_unsweepable
from ttl_odm.alembic.errors import MigrationRefusedError
from ttl_odm.alembic.implementation import steps_of
from ttl_odm.alembic.job_settings import JobSettings
from ttl_odm.alembic.operations import AlterTTLOp, written
from ttl_odm.alembic.reflection import read_schema
from ttl_odm.alembic.runner import Runner
from ttl_odm.alembic.target_schema import TargetSchema
from ttl_odm.sqlalchemy.compat import out_of_driver_format
from ttl_odm.sqlalchemy.policy.whole import whole_policy

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from typing_extensions import Unpack

    from ttl_odm.sqlalchemy.policy.binding import Binding


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
    refuse_unsweepable(runner, target, existing, is_cut=binding.layout is not None)
    op = _operation(binding, **options)
    Operations(runner.context).invoke(op)


def remove_job(connection: Connection, binding: Binding) -> bool:
    """Remove the job of a table and what it recorded; False if there is none. Indexes stay."""
    context = _context(connection, binding)
    if not read_schema(connection, _target(binding)).job:
        return False
    table = binding.table
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
    refuse_unsweepable(runner, target, existing, is_cut=binding.layout is not None)
    missing = [name for name in target.index_names if not existing.has_index(name)]
    if missing:
        name, default = binding.table.name, written(whole_policy(binding))
        raise MigrationRefusedError(
            f"Table {target.label} lacks the index {' and '.join(missing)}. Add it with "
            f"op.alter_ttl({name!r}, {default}, sweep='database'), or without --print."
        )
    settings = JobSettings.of(_operation(binding, **options), target.label)
    settings.refuse_unknown_zone(runner, target.label)
    statements = created_statements(steps_of(runner, target, existing), settings)
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
    return TargetSchema.of(table.name, whole_policy(binding), table.schema, table.metadata)
