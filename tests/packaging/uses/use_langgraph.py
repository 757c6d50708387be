"""Keep a checkpoint in a database; the extra brings langgraph itself, which draws the graphs."""

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph import END, START, StateGraph
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

builder = StateGraph(dict)
builder.add_node("answer", lambda _: {"said": "hello"})
builder.add_edge(START, "answer")
builder.add_edge("answer", END)
graph = builder.compile(checkpointer=saver)
assert graph.invoke({}, {"configurable": {"thread_id": "2"}}) == {"said": "hello"}
