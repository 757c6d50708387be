"""A sweep goes from scope to scope, each by its own default, past the rows of long-lived ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import String, Text, event, insert, text

from tests.clocks import family_of
from tests.sql.test_stored_scopes import message
from ttl_odm import Stored
from ttl_odm.dialects import index_name
from ttl_odm.sqlalchemy import set_policy
from ttl_odm.sqlalchemy.sweep.store import open_store
from ttl_odm.stored.scope_walk import AT_ONCE
from ttl_odm.sweeper import AsyncSweeper, BatchRequest, BatchResult, Part, Progress, Sweeper

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

HOUR, DAY = 3600, 86_400
INDEX = index_name("messages", "ttl_inherited")
SECOND = {"postgresql": "interval '1 second'", "sqlite": "1000", "mysql": "1000000"}


Rows = Sequence[tuple[str | None, int, int]]
"""Of which tenant, how many, and for how many seconds they are there."""


def fill(engine: Engine, model: Any, *rows: tuple[str | None, int, int], start: int = 0) -> None:
    """Add rows; `start` is another one each time."""
    with engine.begin() as connection:
        add(connection, model, rows, start=start)


def add(connection: Connection, model: Any, rows: Rows, *, start: int = 0) -> None:
    """Add them in a transaction."""
    added = [
        {"id": f"{start}.{seconds}-{place}-{number}", "tenant": tenant}
        for place, (tenant, count, seconds) in enumerate(rows)
        for number in range(count)
    ]
    connection.execute(insert(model.__table__), added)
    second = SECOND[family_of(connection.dialect)]
    for seconds in {seconds for *_, seconds in rows}:
        earlier = f"UPDATE messages SET _ts = _ts - {seconds} * {second} WHERE id LIKE :key"  # noqa: S608
        connection.execute(text(earlier), {"key": f"{start}.{seconds}-%"})


EXACT = String(40).with_variant(String(40, collation="utf8mb4_bin"), "mysql", "mariadb")


def world(engine: Engine, default: int = 30 * DAY, column: Any = EXACT) -> Any:
    """A table of messages whose tenants may have defaults of their own."""
    model = message(column, Stored(default, by="tenant"))
    model.metadata.create_all(engine)
    return model


def set_default(engine: Engine, model: Any, ttl: int | None, *tenants: str) -> None:
    with engine.connect() as connection:
        for tenant in tenants:
            set_policy(connection, model, ttl, scope=tenant, by="ann")


def left(engine: Engine) -> dict[str | None, int]:
    """How many rows of each tenant there are, expired or not."""
    with engine.connect() as connection:
        return Counter(connection.scalars(text("SELECT tenant FROM messages")))


class Reads:
    """How many rows, and entries of indexes, a database has read; steps of SQLite's machine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.steps = 0
        if engine.dialect.name == "sqlite":
            event.listen(engine, "checkout", self._watch)

    def _watch(self, raw: Any, *_: object) -> None:
        raw.set_progress_handler(self._step, 1)

    def _step(self) -> int:
        self.steps += 1
        return 0

    def number(self) -> int:
        if self.engine.dialect.name == "sqlite":
            return self.steps
        with self.engine.begin() as connection:
            if self.engine.dialect.name != "postgresql":
                rows = connection.execute(text("SHOW GLOBAL STATUS LIKE 'Handler_read%'"))
                return sum(int(number) for _, number in rows)
            connection.execute(text("SELECT pg_stat_force_next_flush()"))
        with self.engine.connect() as connection:
            scanned = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables"
            entries = "SELECT SUM(idx_tup_read) FROM pg_stat_user_indexes"
            queries = (f"{query} WHERE relname = 'messages'" for query in (scanned, entries))
            return sum(int(connection.scalar(text(query)) or 0) for query in queries)


@pytest.mark.slow
def test_no_live_row_of_those_that_live_longer_is_read(engine: Engine) -> None:
    model = world(engine)
    set_default(engine, model, DAY, "brief")
    set_default(engine, model, 7 * 365 * DAY, "keeper", "other")
    young = [("brief", 20, 2 * DAY), ("brief", 5, HOUR), ("idle", 5, 2 * DAY), (None, 5, 2 * DAY)]
    fill(engine, model, *young, ("keeper", 5, 20 * DAY), ("other", 5, 100 * DAY))
    Sweeper(engine, model).run_once()  # what is read once is read
    costs, reads = [], Reads(engine)
    for start in (10, 20):
        fill(engine, model, ("brief", 20, 2 * DAY), start=start)
        if engine.dialect.name == "postgresql":
            with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.execute(text("VACUUM ANALYZE messages"))
        before = reads.number()
        report = Sweeper(engine, model).run_once()
        assert (report.deleted, report.problems) == (20, ())
        costs.append(reads.number() - before)
        more = [("keeper", 6_000, 20 * DAY), ("other", 6_000, 100 * DAY), (None, 6_000, 2 * DAY)]
        fill(engine, model, *more, start=start + 1)
    cost_of_few, cost_of_many = costs
    assert cost_of_many < cost_of_few + 3_000
    assert left(engine) == {"brief": 5, "idle": 5, None: 12_005, "keeper": 12_005, "other": 12_005}


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 7, 5_000])
@pytest.mark.parametrize("column", [EXACT, String(40)], ids=["exact", "usual"])
def test_each_scope_ends_by_its_own_default(engine: Engine, size: int, column: Any) -> None:
    model = world(engine, 10 * DAY, column)
    set_default(engine, model, DAY, "a", "c", "Acme")
    set_default(engine, model, 2 * DAY, "b", "acme")
    set_default(engine, model, -1, "d")
    set_default(engine, model, None, "e")
    tenants = ["a", "b", "c", "d", "e", "f", None, "acme", "Acme", "ACME", "o'neill%"]
    rows = [(tenant, 3, days * DAY) for tenant in tenants for days in (0, 1, 2, 20)]
    fill(engine, model, *rows)
    expired = {"a": 9, "b": 6, "c": 9, "f": 3, None: 3, "acme": 6, "Acme": 9, "ACME": 3}
    expired["o'neill%"] = 3
    (target,) = Sweeper(engine, model, dry_run=True).run_once().targets
    named = {scope: expired[scope] for scope in ("a", "b", "c", "acme", "Acme")}
    assert target.due == sum(expired.values())
    assert target.due_by_scope == {**named, "": 12}
    assert target.oldest_before == pytest.approx(19 * DAY, abs=60)
    (target,) = Sweeper(engine, model, batch_size=size).run_once().targets
    assert target.error is None
    assert (target.deleted, target.skipped) == (sum(expired.values()), 0)
    assert target.deleted_by_scope == {**named, "": 12}
    assert left(engine) == {tenant: 12 - expired.get(tenant, 0) for tenant in tenants}
    assert Sweeper(engine, model).run_once().deleted == 0


@pytest.mark.slow
def test_scopes_with_few_rows_share_batches(engine: Engine) -> None:
    model = world(engine)
    names = [f"t{number:04}" for number in range(AT_ONCE + 200)]
    set_default(engine, model, DAY, names[3], names[-1])
    big = [("t0500", 1_800, 40 * DAY)]
    fill(engine, model, *((name, 2, 40 * DAY) for name in names), *big)
    store: Any = open_store(engine, model)
    batches: list[BatchResult] = []
    resume = None
    while not batches or resume is not None:
        batches.append(store.purge(BatchRequest("messages", Part.INHERITING, 400, resume)))
        resume = batches[-1].resume
    assert sum(batch.deleted for batch in batches) == 2 * len(names) + 1_800
    assert max(batch.deleted for batch in batches) <= 400
    assert len(batches) <= 30
    assert left(engine) == {}


@pytest.mark.slow
def test_a_table_with_the_old_index_is_swept_as_before(engine: Engine) -> None:
    model = world(engine)
    on_mysql = family_of(engine.dialect) == "mysql"
    end, where = ("_ttl_inh", "") if on_mysql else ("_ts", "WHERE ttl IS NULL")
    table = " ON messages" if on_mysql else ""
    with engine.begin() as connection:
        connection.execute(text(f"DROP INDEX {INDEX}{table}"))
        connection.execute(text(f"CREATE INDEX {INDEX} ON messages ({end}) {where}"))
    set_default(engine, model, DAY, "brief")
    fill(engine, model, ("brief", 5, 2 * DAY), ("keeper", 5, 2 * DAY), (None, 5, 31 * DAY))
    (target,) = Sweeper(engine, model, dry_run=True).run_once().targets
    assert (target.due, target.due_by_scope) == (10, {"brief": 5, "": 5})
    (target,) = Sweeper(engine, model, batch_size=3).run_once().targets
    assert (target.deleted, target.deleted_by_scope) == (10, {"brief": 5, "": 5})
    assert left(engine) == {"keeper": 5}


def test_a_default_that_is_raised_meanwhile_spares_the_rows(engine: Engine) -> None:
    model = world(engine)
    set_default(engine, model, DAY, "a", "b")
    fill(engine, model, ("a", 5, 2 * DAY), ("b", 5, 2 * DAY))

    def raise_it(_: Progress) -> None:
        set_default(engine, model, 100 * DAY, "a", "b")

    report = Sweeper(engine, model, batch_size=3, on_progress=raise_it).run_once()
    assert report.problems == ()
    assert (report.deleted, sum(left(engine).values())) == (3, 7)


def test_scopes_of_long_text_are_swept_without_them_in_front(engine: Engine) -> None:
    model = world(engine, column=Text())
    set_default(engine, model, DAY, "brief")
    fill(engine, model, ("brief", 5, 2 * DAY), ("keeper", 5, 2 * DAY), (None, 5, 31 * DAY))
    (target,) = Sweeper(engine, model, batch_size=3).run_once().targets
    assert (target.deleted, target.deleted_by_scope) == (10, {"brief": 5, "": 5})
    assert left(engine) == {"keeper": 5}


async def test_asynchronous_sweeps_go_by_scope_too(async_engine: AsyncEngine) -> None:
    model = message(EXACT, Stored(30 * DAY, by="tenant"))
    rows = [
        ("brief", 5, 2 * DAY),
        ("keeper", 5, 2 * DAY),
        (None, 5, 31 * DAY),
        ("old", 5, 31 * DAY),
    ]

    def begin(connection: Connection) -> None:
        model.metadata.create_all(connection)
        set_policy(connection, model, DAY, scope="brief", by="ann")
        set_policy(connection, model, -1, scope="keeper", by="ann")
        add(connection, model, rows)

    async with async_engine.begin() as connection:
        await connection.run_sync(begin)
    dry = await AsyncSweeper(async_engine, model, dry_run=True, lease=False).run_once()
    assert (dry.targets[0].due, dry.targets[0].due_by_scope) == (15, {"brief": 5, "": 10})
    report = await AsyncSweeper(async_engine, model, batch_size=4, lease=False).run_once()
    assert (report.deleted, report.problems) == (15, ())
    assert report.targets[0].deleted_by_scope == {"brief": 5, "": 10}
