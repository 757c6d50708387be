"""LangGraph: a checkpointer whose threads expire with all their checkpoints.

- `tables`: `CheckpointTables`, which declares threads, their checkpoints and their writes;
- `transactions`: the work of one transaction with these tables;
- `saver`: `SQLAlchemySaver`, the checkpointer.

This package must not know any other integration.
"""

from ttl_odm.integrations.langgraph.saver import SQLAlchemySaver
from ttl_odm.integrations.langgraph.tables import CheckpointTables

__all__ = ["CheckpointTables", "SQLAlchemySaver"]
