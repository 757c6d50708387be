"""The test kit for applications that use ttl_odm, and for stores.

- `clock`: `TTLClock`, which moves the time, with a module for each adapter
- `plugin`: pytest's fixtures ``ttl_clock`` and ``expired_events``
- `contract`: `StoreContract`, the tests that every store has to pass; `rig`: `StoreRig`, their
  access to a store
- `sqlalchemy_rig`: `SQLAlchemyRig`, the rig of SQLAlchemy's store on any database
- `contract.families`: `FamilyContract`, the tests of a family of databases, on SQLAlchemy
- `memory`, `memory_leases`: a store in memory, and its leases
- `cleanup`: `empty` and `async_empty`, with a module for each adapter
- `ExpiredEvents`, the events of a test, from `ttl_odm.events`
- `assert_no_leaks`, which finds SQL that bypasses the gate, from `ttl_odm.guard` (needs sqlglot,
  from the extra ``guard``)

Importing this package imports neither pytest nor a database library: each name is loaded on first
use, and only `StoreContract` and `FamilyContract` need pytest. (``ttl_odm.testing.plugin``, which
pytest loads by itself, does import it.)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ttl_odm.events.testkit import ExpiredEvents
    from ttl_odm.guard.sqlalchemy.watcher import assert_no_leaks
    from ttl_odm.testing.cleanup import async_empty, empty
    from ttl_odm.testing.clock import TTLClock
    from ttl_odm.testing.contract import StoreContract
    from ttl_odm.testing.contract.families import FamilyContract
    from ttl_odm.testing.memory import AsyncInMemoryStore, InMemoryStore
    from ttl_odm.testing.memory_leases import AsyncInMemoryLeases, InMemoryLeases
    from ttl_odm.testing.rig import StoreRig
    from ttl_odm.testing.sqlalchemy_rig import SQLAlchemyRig

__all__ = [
    "AsyncInMemoryLeases",
    "AsyncInMemoryStore",
    "ExpiredEvents",
    "FamilyContract",
    "InMemoryLeases",
    "InMemoryStore",
    "SQLAlchemyRig",
    "StoreContract",
    "StoreRig",
    "TTLClock",
    "assert_no_leaks",
    "async_empty",
    "empty",
]

_HOMES = {
    "AsyncInMemoryLeases": "ttl_odm.testing.memory_leases",
    "AsyncInMemoryStore": "ttl_odm.testing.memory",
    "ExpiredEvents": "ttl_odm.events.testkit",
    "FamilyContract": "ttl_odm.testing.contract.families",
    "InMemoryLeases": "ttl_odm.testing.memory_leases",
    "InMemoryStore": "ttl_odm.testing.memory",
    "SQLAlchemyRig": "ttl_odm.testing.sqlalchemy_rig",
    "StoreContract": "ttl_odm.testing.contract",
    "StoreRig": "ttl_odm.testing.rig",
    "TTLClock": "ttl_odm.testing.clock",
    "assert_no_leaks": "ttl_odm.guard.sqlalchemy.watcher",
    "async_empty": "ttl_odm.testing.cleanup",
    "empty": "ttl_odm.testing.cleanup",
}


def __getattr__(name: str) -> Any:
    """Load a public name from its module."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
