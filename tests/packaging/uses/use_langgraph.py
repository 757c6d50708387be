"""Keep a checkpoint in a database; without langgraph itself, which draws the graphs."""

from langgraph.checkpoint.base import empty_checkpoint
from sqlalchemy import create_engine

from ttl_odm.integrations.langgraph import CheckpointTables, SQLAlchemySaver

tables = CheckpointTables(3600)
engine = create_engine("sqlite:///checkpoints.db")
tables.metadata.create_all(engine)
saver = SQLAlchemySaver(engine, tables)
config = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}
named = saver.put(config, empty_checkpoint(), {}, {})
saver.put_writes(named, [("said", "hello")], "task")
stored = saver.get_tuple(config)
assert stored.config == named
assert stored.pending_writes == [("task", "said", "hello")]
