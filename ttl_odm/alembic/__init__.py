"""Alembic operations that put TTL on live tables, change it and take it off again.

``import ttl_odm.alembic`` in env.py is the whole setup: it registers ``op.add_ttl``,
``op.alter_ttl`` and ``op.drop_ttl``, for tables whose rows follow others ``op.add_follows`` and
``op.drop_follows`` (and the same in ``batch_alter_table``), and teaches autogenerate and ``alembic
check`` what ``__ttl__`` means. It is not a plugin that loads by itself. Without it autogenerate
refuses to write a revision that names our types, which could not run.

An operation never stalls a writer for longer than a moment, and finishes when it is run again
after it failed in the middle. docs/migrating.md says how, and what each option costs.

What users and revisions see:

- `operations`: the operations, their reverses, and their texts in a revision
- `autogenerate`: the models' ``__ttl__`` against what the database has
- `link_comparison`: the same for the index of a table whose rows follow others
- `renderings`: the import of a revision that names a type of ours
- `errors`: the one error of a migration that is refused

What they do:

- `implementation`: each operation from its checks to its last step
- `checks`: what is refused before anything is changed
- `target_schema`: what a table has once it has TTL
- `reflection`: what of that it has at this moment
- `steps`: what there is to do; `postgresql`, `mysql`, `sqlite`: how, without stalling writers
- `aspects`: the seam for what extensions add: to a table, and as arguments of the operations
- `backfill`: the life that old rows have behind them, in batches
- `progress`: how far an operation is, for a run after a failure
- `runner`: short tries, no transactions, or a script
- `cluster`: what a member of a cluster has to have before its schema is read
"""

from ttl_odm.alembic import autogenerate, implementation  # noqa: F401 - importing them registers both
from ttl_odm.alembic.errors import MigrationRefusedError
from ttl_odm.alembic.operations import (
    AddFollowsOp,
    AddTTLOp,
    AlterTTLOp,
    DropFollowsOp,
    DropTTLOp,
)

__all__ = [
    "AddFollowsOp",
    "AddTTLOp",
    "AlterTTLOp",
    "DropFollowsOp",
    "DropTTLOp",
    "MigrationRefusedError",
]
