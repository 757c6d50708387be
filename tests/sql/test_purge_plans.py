"""How the databases carry the sweeper's statements out: by the indexes, never by reading a table.

Each statement of a sweep is explained with its own values just before it runs, on a table of
which a small part has expired.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from tests.sql.adopted import KINDS
from tests.sql.statements import plan_of
from ttl_odm import TTL
from ttl_odm.sqlalchemy import TTLMixin
from ttl_odm.sqlalchemy.time.clock import LastModified, clock_of
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

# Each server plans its own queries.
pytestmark = pytest.mark.every_server

HOUR = 3_600
LIVE, EXPIRED = 20_000, 300

NUMBERS = {
    "postgresql": "SELECT i FROM generate_series(1, {rows}) AS n(i)",
    # MySQL ends a recursion at 1,000.
    "mysql": "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 199) "
    "SELECT a.i * 200 + b.i + 1 AS i FROM n AS a, n AS b WHERE a.i * 200 + b.i < {rows}",
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows}) "
    "SELECT i FROM n",
}


WALL_TIMES = {
    "postgresql": "_ts AT TIME ZONE 'UTC'",
    "mysql": "'1970-01-01' + INTERVAL _ts MICROSECOND",
    "sqlite": "strftime('%Y-%m-%d %H:%M:%f', _ts / 1000.0, 'unixepoch') || '000'",
}


def cart(sweep: str, policy: Any = HOUR, born_type: Any = None) -> Any:
    class Base(DeclarativeBase):
        pass

    class Cart(TTLMixin, Base):
        __tablename__ = "carts"
        __ttl__ = policy
        __ttl_sweep__ = sweep

        site: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

        if born_type is not None:
            born: Mapped[Any] = mapped_column(born_type, nullable=True)

    return Cart


def fill(engine: Engine, ttl: int | None) -> None:
    """Write many live rows and a few that have expired, the oldest first."""
    clock = clock_of(engine.dialect)
    dialect = engine.dialect.name
    numbers = NUMBERS[dialect].format(rows=LIVE + EXPIRED)
    age = f"CASE WHEN i <= {EXPIRED} THEN 9000 - i ELSE 60 END * {clock.second}"
    rows = f"SELECT i & 7, i, :ttl, {clock.now} - {age} FROM ({numbers}) AS n"  # noqa: S608
    with engine.begin() as connection:
        connection.execute(text(f"INSERT INTO carts (site, id, ttl, _ts) {rows}"), {"ttl": ttl})
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        analyze = {"postgresql": "VACUUM ANALYZE carts", "mysql": "ANALYZE TABLE carts"}
        connection.execute(text(analyze.get(dialect, "ANALYZE")))


def explained(engine: Engine, model: Any, **config: Any) -> dict[str, list[str]]:
    """Sweep, and return the plans of the statements on the table by their first word."""
    plans: dict[str, list[str]] = {}

    def explain(
        connection: Connection, _cursor: Any, statement: str, parameters: Any, *_: Any
    ) -> None:
        kind = statement.partition(" ")[0]
        # The DELETE of nothing only takes SQLite's lock for writing; catalogues say which indexes
        # there are.
        is_of_catalogue = re.search("pg_catalog|information_schema|pragma_", statement)
        is_other = kind in ("INSERT", "SHOW") or "0 = 1" in statement or is_of_catalogue
        if "carts" not in statement or is_other:
            return
        cursor = connection.connection.cursor()
        rows = plan_of(cursor, statement, parameters, engine.dialect)
        lines = [" ".join(map(str, row)) for row in rows]
        plans.setdefault(kind, []).append("\n".join(lines))
        cursor.close()

    event.listen(engine, "before_cursor_execute", explain)
    Sweeper(engine, model, **config).run_once().raise_for_failures()
    event.remove(engine, "before_cursor_execute", explain)
    assert plans
    return plans


# MySQL's DELETE finds its rows in a derived table, which reads the table as `carts_1`.
WHOLE_TABLE = {
    "postgresql": "Seq Scan",
    "mysql": r" carts(_1)? (ALL|index) ",
    "sqlite": "SCAN carts",
}


def reads_whole_table(engine: Engine, plan: str) -> bool:
    return re.search(WHOLE_TABLE[engine.dialect.name], plan) is not None


INDEXES = {None: "ix_carts_ttl_inherited", HOUR: "ix_carts_ttl_own"}


@pytest.mark.parametrize("ttl", [None, HOUR])
def test_a_sweep_uses_the_indexes_only(engine: Engine, ttl: int | None) -> None:
    model = cart("index")
    model.metadata.create_all(engine)
    fill(engine, ttl)
    plans = explained(engine, model, batch_size=100)
    assert len(plans["DELETE"]) >= 2
    for plan in [*plans["SELECT"], *plans["DELETE"]]:
        assert not reads_whole_table(engine, plan), plan
        assert INDEXES[ttl] in plan, plan


def test_asking_what_is_due_reads_the_first_entry_of_both_indexes(engine: Engine) -> None:
    model = cart("index")
    model.metadata.create_all(engine)
    fill(engine, -1)
    plans = explained(engine, model)
    assert plans.keys() == {"SELECT"}
    (plan,) = plans["SELECT"]
    assert not reads_whole_table(engine, plan), plan
    for index in INDEXES.values():
        assert index in plan, plan


@pytest.mark.parametrize("ttl", [None, HOUR])
def test_rows_of_one_instant_are_found_by_the_index_too(engine: Engine, ttl: int | None) -> None:
    model = cart("index")
    model.metadata.create_all(engine)
    fill(engine, ttl)
    clock = clock_of(engine.dialect)
    with engine.begin() as connection:
        connection.execute(
            text(f"UPDATE carts SET _ts = {clock.now} - 9000 * {clock.second} WHERE id <= 300")  # noqa: S608
        )
    plans = explained(engine, model, batch_size=100)
    first, *_ = deletes = plans["DELETE"]
    assert len(deletes) >= 2
    for plan in deletes:
        assert not reads_whole_table(engine, plan), plan
        assert INDEXES[ttl] in plan, plan
    if engine.dialect.name == "postgresql":
        assert "Tid Scan on carts" in first, first


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["native", "naive"])
def test_what_is_past_its_limit_is_found_by_the_index_on_the_creation(
    engine: Engine, kind: str
) -> None:
    type_ = LastModified() if kind == "native" else KINDS["variant"].type
    model = cart("index", TTL(-1, max_lifetime=HOUR, created="born"), type_)
    model.metadata.create_all(engine)
    fill(engine, None)
    with engine.begin() as connection:
        born = "_ts" if kind == "native" else WALL_TIMES[engine.dialect.name]
        connection.execute(text(f"UPDATE carts SET born = {born}"))  # noqa: S608
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        analyze = {"postgresql": "VACUUM ANALYZE carts", "mysql": "ANALYZE TABLE carts"}
        connection.execute(text(analyze.get(engine.dialect.name, "ANALYZE")))
    plans = explained(engine, model, batch_size=100)
    assert len(plans["DELETE"]) >= 2
    for plan in plans["DELETE"]:
        assert not reads_whole_table(engine, plan), plan
        assert "ix_carts_born_ttl" in plan, plan
    for plan in plans["SELECT"]:
        assert not reads_whole_table(engine, plan), plan
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM carts")) == LIVE


PRIMARY = {"mysql": r" carts(_1)? range PRIMARY ", "sqlite": r"sqlite_autoindex_carts_1 \("}


def test_walking_a_table_reads_a_stretch_at_a_time(engine: Engine) -> None:
    model = cart("scan")
    model.metadata.create_all(engine)
    fill(engine, None)
    plans = explained(engine, model, batch_size=100)
    if engine.dialect.name == "postgresql":
        for plan in plans["SELECT"]:
            is_there = re.search(r"Limit .* rows=1 .*\n *->  Seq Scan on carts", plan)  # LIMIT 0
            is_short = "pg_partition_tree" in plan or "Tid Range Scan on carts" in plan
            assert is_there or is_short, plan
        deletes = plans["DELETE"]
    else:
        # All but the last: what is left of the table is a stretch as well.
        deletes = plans["DELETE"][:-1]
        primary = PRIMARY[engine.dialect.name]
        assert all(re.search(primary, plan) for plan in deletes), deletes
    assert deletes
    for plan in deletes:
        assert not reads_whole_table(engine, plan), plan


@pytest.mark.databases("postgres")
@pytest.mark.parametrize("ttl", [None, HOUR])
def test_an_idle_sweep_reads_a_few_pages(engine: Engine, ttl: int | None) -> None:
    model = cart("index")
    model.metadata.create_all(engine)
    fill(engine, ttl)
    Sweeper(engine, model).run_once()
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM carts"))
    asked: list[tuple[str, Any]] = []

    def note(_c: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if "carts" in statement:
            asked.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", note)
    Sweeper(engine, model).run_once()
    event.remove(engine, "before_cursor_execute", note)
    ((statement, parameters),) = asked
    with engine.connect() as connection:
        cursor = connection.connection.cursor()
        cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", parameters)
        [[[plan]]] = cursor.fetchall()
        cursor.close()
    assert plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"] <= 20
