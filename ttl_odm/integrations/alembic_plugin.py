"""What Alembic itself loads of ttl_odm: who has forgotten ``import ttl_odm.alembic`` is told.

Without it autogenerate writes columns of types that a revision doesn't import, and a policy that is
no Python: an upgrade would end in a NameError or a SyntaxError. Nothing else is done here, since an
environment without that import is left alone. From Alembic 1.18 on, by its ``alembic.plugins``.

Everybody who runs Alembic loads this module: it must not import `ttl_odm.alembic`, nor SQLAlchemy.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import alembic.util
from alembic.operations import ops

if TYPE_CHECKING:
    from alembic.autogenerate.api import AutogenContext
    from alembic.runtime.plugins import Plugin


def setup(plugin: Plugin) -> None:
    """Look at what autogenerate has found, when it has found all; Alembic calls this."""
    plugin.add_autogenerate_comparator(
        _refuse, "schema", priority=alembic.util.DispatchPriority.LAST
    )


def _refuse(
    _context: AutogenContext, upgrade_ops: ops.UpgradeOps, _schemas: set[str | None]
) -> alembic.util.PriorityDispatchResult:
    is_imported = "ttl_odm.alembic" in sys.modules
    for operation in upgrade_ops.ops:
        if not is_imported and (table := _table_of_ours(operation)) is not None:
            raise alembic.util.CommandError(
                f"{table} has a TTL, of which autogenerate knows nothing: put "
                "'import ttl_odm.alembic' into env.py, and call this again."
            )
    return alembic.util.PriorityDispatchResult.CONTINUE


def _table_of_ours(operation: ops.MigrateOperation) -> str | None:
    """Name the table that gets a policy, or columns of ours; None for any other."""
    if isinstance(operation, ops.CreateTableOp):
        return operation.table_name if "ttl_odm" in (operation.info or {}) else None
    if not isinstance(operation, ops.ModifyTableOps):
        return None
    added = (line.column.type for line in operation.ops if isinstance(line, ops.AddColumnOp))
    is_ours = any(type(kind).__module__.startswith("ttl_odm.") for kind in added)
    return operation.table_name if is_ours else None
