"""A table in use becomes one in partitions, with all its rows and all that belongs to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import inspect

from tests.sql.cutting import keys, log, partitions, run

if TYPE_CHECKING:
    from sqlalchemy import Engine

pytestmark = pytest.mark.databases("postgres")

CUT = "op.add_ttl('events', ttl_odm.ExpireAfter('created_at', 172800), partition='1 day')"


def revision(project: Any, *operations: str) -> Any:
    here = project()
    here.revision("import ttl_odm; " + "; ".join(operations or (CUT,)))
    return here


def plain(engine: Engine, *statements: str) -> None:
    """A table of events as it was before anybody thought of partitions, with rows of ten days."""
    run(
        engine,
        "CREATE TABLE events (id int PRIMARY KEY, created_at timestamptz NOT NULL DEFAULT now())",
        "INSERT INTO events SELECT i, now() - i * interval '1 hour' FROM generate_series(0, 239) i",
        *statements,
    )


def test_the_old_table_is_the_first_partition(engine: Engine, project: Any) -> None:
    plain(engine)
    here = revision(project)
    here.upgrade()
    assert {"events_past", "events_rest"} < partitions(engine, "events")
    assert keys(engine, log()) == list(range(240))
    assert inspect(engine).get_pk_constraint("events") == {
        **inspect(engine).get_pk_constraint("events"),
        "constrained_columns": ["id", "created_at"],
        "name": "events_pkey",
    }
    run(engine, "INSERT INTO events VALUES (1000)")
