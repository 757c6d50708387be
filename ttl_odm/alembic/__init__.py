"""Alembic operations that add TTL to live tables, change it and remove it.

``import ttl_odm.alembic`` in env.py is the whole setup: it registers ``op.add_ttl``,
``op.alter_ttl`` and ``op.drop_ttl``, for tables whose rows follow others ``op.add_follows`` and
``op.drop_follows`` (and the same in ``batch_alter_table``), and teaches autogenerate and ``alembic
check`` what ``__ttl__`` means. It is not a plugin that Alembic loads by itself. Without the import,
autogenerate rejects models with our types, because the revision could not run.

An operation never blocks a writer for longer than a moment. If it fails midway, it can be run again
and finishes. docs/migrating.md says how, and what each option costs.

What users and revisions see:

- `operations`: the operations, their reverses, and their source in a revision
- `autogenerate`: the models' ``__ttl__`` against what the database has
- `link_comparison`: the same for the index of a table whose rows follow others

How they work:

- `implementation`: each operation, from its checks to its last step
- `checks`: what is rejected before anything is changed
- `target_schema`: what a table has once it has TTL
- `reflection`: what a table has now
- `steps`: the steps of an operation; `postgresql`, `mysql`, `sqlite`: the steps of each database
- `aspects`: the seam for extensions, which add to tables and to the operations' arguments
- `backfill`: the age of existing rows, written in batches
- `progress`: how far an operation came, for a run after a failure
- `runner`: how statements run (in short tries, or into a script), and `MigrationRefusedError`
"""

from ttl_odm.alembic import autogenerate, implementation  # noqa: F401 - importing them registers both
from ttl_odm.alembic.operations import (
    AddFollowsOp,
    AddTTLOp,
    AlterTTLOp,
    DropFollowsOp,
    DropTTLOp,
)
from ttl_odm.alembic.runner import MigrationRefusedError

__all__ = [
    "AddFollowsOp",
    "AddTTLOp",
    "AlterTTLOp",
    "DropFollowsOp",
    "DropTTLOp",
    "MigrationRefusedError",
]
