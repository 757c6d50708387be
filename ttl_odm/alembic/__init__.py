"""Alembic operations that put TTL on live tables, change it and take it off again.

``import ttl_odm.alembic`` in env.py is all the installation there is: it registers
``op.add_ttl``, ``op.alter_ttl`` and ``op.drop_ttl`` (and the same in ``batch_alter_table``), and
teaches autogenerate and ``alembic check`` what ``__ttl__`` means. It is no plugin that loads by
itself: an environment that doesn't import it is left alone.

An operation never stalls a writer for longer than a moment, and finishes when it is run again
after it failed in the middle. docs/migrating.md says how, and what each option costs.
"""

from ttl_odm.alembic import autogenerate, implementation  # noqa: F401 - importing them registers both
from ttl_odm.alembic.errors import MigrationRefusedError
from ttl_odm.alembic.operations import AddTTLOp, AlterTTLOp, DropTTLOp

__all__ = ["AddTTLOp", "AlterTTLOp", "DropTTLOp", "MigrationRefusedError"]
