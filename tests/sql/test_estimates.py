"""How many rows PostgreSQL's planner expects to be live, by which it chooses joins."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Column, DateTime, Integer, MetaData, Table, func, select, text
from sqlalchemy.dialects import postgresql

from tests.sql.models import web_session
from ttl_odm import ExpireAt
from ttl_odm.sqlalchemy import disable, enable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection, Engine, Select

pytestmark = pytest.mark.databases("postgres")

DEFAULT, ROWS = 86_400, 5_000  # rows that ANALYZE reads one and all
FILL = (
    "INSERT INTO web_sessions (id, views, _ts, ttl) SELECT i::text, 0, now() "  # noqa: S608 (no input)
    "- CASE WHEN i % 50 = 0 THEN interval '2 days' ELSE i % 3600 * interval '1 second' END, {ttl} "
    f"FROM generate_series(1, {ROWS}) i"
)

ttls = pytest.mark.parametrize(
    "ttl",
    [
        "NULL",
        "43200",
        "CASE i % 2 WHEN 0 THEN 43200 END",
        "CASE i % 4 WHEN 0 THEN 43200 END",
        "CASE i % 3 WHEN 0 THEN 43200 WHEN 1 THEN -1 END",
    ],
    ids=["inherited", "own", "half", "quarter", "three kinds"],
)
plans = pytest.mark.parametrize("plan", ["literal", "custom", "generic"])


@contextmanager
def analyzed(engine: Engine, table: str, fill: str) -> Iterator[Connection]:
    """A connection that has filled a table, and told the planner about it."""
    with engine.connect() as connection:
        connection.execute(text(fill))
        connection.execute(text(f"ANALYZE {table}"))
        yield connection


def estimate(connection: Connection, statement: Select[Any], plan: str) -> int:
    """The rows that the planner expects of a statement."""
    dialect = postgresql.dialect(paramstyle="named")  # type: ignore[no-untyped-call]
    literally = {"literal_binds": plan == "literal"}
    compiled = statement.compile(dialect=dialect, compile_kwargs=literally)
    if plan == "literal":
        explained = str(compiled)
    else:
        ((name, value),) = compiled.params.items()
        prepared = str(compiled).replace(f":{name}", "$1")
        connection.exec_driver_sql(f"SET LOCAL plan_cache_mode = force_{plan}_plan")
        connection.exec_driver_sql(f"PREPARE estimated (bigint) AS {prepared}")
        explained = f"EXECUTE estimated({value})"
    (line,) = connection.exec_driver_sql(f"EXPLAIN {explained}").first() or [""]
    if plan != "literal":
        connection.exec_driver_sql("DEALLOCATE estimated")
    rows = re.search(r"rows=(\d+)", line)
    assert rows is not None, line
    return int(rows[1])


@ttls
@plans
def test_nearly_as_many_rows_are_expected_as_are_live(
    engine: Engine, made: Any, ttl: str, plan: str
) -> None:
    model = made(web_session(DEFAULT))
    with analyzed(engine, "web_sessions", FILL.format(ttl=ttl)) as connection:
        live = connection.scalar(select(func.count()).select_from(model))
        assert estimate(connection, select(model.id), plan) == pytest.approx(live, rel=0.05)


@pytest.mark.parametrize("plan", ["literal", "custom"])
def test_few_rows_are_expected_of_a_table_of_which_most_have_expired(
    engine: Engine, made: Any, plan: str
) -> None:
    model = made(web_session(DEFAULT))
    fill = FILL.format(ttl="NULL").replace("i % 50 = 0", "i % 50 > 0")
    with analyzed(engine, "web_sessions", fill) as connection:
        assert connection.scalar(select(func.count()).select_from(model)) == ROWS // 50
        assert estimate(connection, select(model.id), plan) == pytest.approx(ROWS // 50, rel=0.2)


@plans
def test_the_same_goes_for_a_date_of_the_applications(engine: Engine, plan: str) -> None:
    at = Column("at", DateTime(timezone=True))
    table = Table("cards", MetaData(), Column("id", Integer, primary_key=True), at)
    table.metadata.create_all(engine)
    enable(table, ExpireAt("at"))
    fill = (
        "INSERT INTO cards SELECT i, now() + interval '1 hour' "  # noqa: S608 (no input)
        "- CASE WHEN i % 50 = 0 THEN interval '2 days' ELSE i * interval '1 ms' END "
        f"FROM generate_series(1, {ROWS}) i"
    )
    try:
        with analyzed(engine, "cards", fill) as connection:
            live = connection.scalar(select(func.count()).select_from(table))
            expected = estimate(connection, select(table.c.id), plan)
            assert expected == pytest.approx(live, rel=0.05)
    finally:
        disable(table)
