"""BRIN indexes on PostgreSQL: they lead to no row, but end a walk where nothing has expired."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Column, DateTime, Integer, MetaData, Table, event, text

from tests.sql.sweeping import HOUR
from ttl_odm import TTL, ExpireAfter
from ttl_odm.cli.application import Target
from ttl_odm.cli.checks_sql import check
from ttl_odm.sqlalchemy import disable, enable
from ttl_odm.sqlalchemy.sweep.table_walk import _PAGES
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from ttl_odm.sweeper.findings import Finding

pytestmark = pytest.mark.databases("postgres")

ROWS, EXPIRED = 120_000, 500
FILL = (
    "INSERT INTO events SELECT i, now() + i * interval '1 ms' "  # noqa: S608
    f"- CASE WHEN i <= {EXPIRED} THEN 2 ELSE 0 END * interval '1 hour' "
    f"FROM generate_series(1, {ROWS}) i"
)
INDEX = "CREATE INDEX ON events USING brin (created_at)"


@pytest.fixture
def events(engine: Engine) -> Iterator[Table]:
    """A table that is written in the order of time, of which the oldest rows have expired."""
    created = Column("created_at", DateTime(timezone=True))
    table = Table("events", MetaData(), Column("id", Integer, primary_key=True), created)
    table.metadata.create_all(engine)
    enable(table, ExpireAfter("created_at", 3600))
    run(engine, FILL)
    yield table
    disable(table)


def run(engine: Engine, *statements: str) -> None:
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for statement in statements:
            connection.execute(text(statement))


def walked(engine: Engine, table: Table) -> tuple[int, int]:
    """How many rows a sweep deletes, and at how many stretches of pages it looks."""
    looks = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("SELECT count") and "ctid >=" in statement:
            looks.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    report = Sweeper(engine, table, lease=False).run_once()
    event.remove(engine, "before_cursor_execute", note)
    report.raise_for_failures()
    return report.deleted, len(looks)


def findings(engine: Engine, table: Table) -> dict[str, Finding]:
    with engine.connect() as connection:
        found = check(connection, [Target("events", "events", table)], 86_400.0, deep=False)
    return {each.code: each for each in found}


@pytest.mark.slow
def test_a_walk_ends_at_the_last_page_with_an_expired_row(engine: Engine, events: Table) -> None:
    run(engine, "UPDATE events SET created_at = now() WHERE id = 1")  # to the end of the table
    assert walked(engine, events)[1] > 1
    run(engine, "TRUNCATE events", FILL, INDEX)
    assert walked(engine, events) == (EXPIRED, 1)
    late = ROWS + 1
    run(engine, f"INSERT INTO events VALUES ({late}, now() - interval '2 hours')")  # noqa: S608
    assert walked(engine, events)[0] == 1
    assert walked(engine, events) == (0, 1)


def test_an_index_that_is_not_valid_ends_no_walk(engine: Engine, events: Table) -> None:
    run(engine, INDEX, "UPDATE pg_index SET indisvalid = false WHERE NOT indisprimary")
    deleted, looks = walked(engine, events)
    assert deleted == EXPIRED
    assert looks > 1


@pytest.mark.slow
def test_rows_with_a_ttl_of_their_own_may_expire_anywhere(engine: Engine, events: Table) -> None:
    run(engine, "ALTER TABLE events ADD ttl integer", INDEX)
    run(engine, f"UPDATE events SET ttl = 1, created_at = created_at WHERE id = {ROWS}")  # noqa: S608
    disable(events)
    events.append_column(Column("ttl", Integer))
    enable(events, TTL(HOUR, last_modified="created_at"))
    run(engine, f"UPDATE events SET created_at = now() - interval '1 min' WHERE id = {ROWS}")  # noqa: S608
    assert walked(engine, events)[0] == EXPIRED + 1


@pytest.mark.slow
def test_check_proposes_one_where_rows_lie_in_the_order_of_time(
    engine: Engine, events: Table
) -> None:
    run(engine, "ANALYZE events")
    found = findings(engine, events)["missing-index"]
    assert "although the rows are stored in its order" in found.message
    assert "USING brin" in found.fix
    run(engine, found.fix)
    assert "missing-index" not in findings(engine, events)


@pytest.mark.slow
def test_check_proposes_another_where_they_do_not(engine: Engine, events: Table) -> None:
    run(engine, "UPDATE events SET created_at = now() - random() * interval '1 h'", "ANALYZE")
    assert "brin" not in findings(engine, events)["missing-index"].fix


def test_the_table_is_larger_than_a_stretch(engine: Engine, events: Table) -> None:
    with engine.connect() as connection:
        size = connection.scalar(text("SELECT pg_relation_size('events')"))
    assert size is not None
    assert size / 8192 > 2 * _PAGES


@pytest.mark.slow
def test_check_says_where_indexes_end_hot_updates(engine: Engine, events: Table) -> None:
    disable(events)
    enable(events, TTL(HOUR, last_modified="created_at", override=None))
    run(engine, "CREATE INDEX ON events (created_at)")
    assert "updates-move-rows" not in findings(engine, events)
    run(engine, "UPDATE events SET created_at = now()", "SELECT pg_stat_force_next_flush()")
    assert f"{ROWS:,} updates" in findings(engine, events)["updates-move-rows"].message
    run(engine, "DELETE FROM events WHERE id <= 20000", "SELECT pg_stat_force_next_flush()")
    assert "updates-move-rows" not in findings(engine, events)
