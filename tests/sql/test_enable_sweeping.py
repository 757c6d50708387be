"""How tables of others are swept: by an index that is there, or by a walk that says how late it is.

Every kind of policy meets indexes of every kind on a table whose model knows nothing of them.
"""

from __future__ import annotations

import warnings
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Column, DateTime, Integer, MetaData, Table, insert, select, text

from tests.sql.adopted import DAY
from tests.sql.statements import is_mysql
from tests.sql.sweeping import HOUR, add, cart
from ttl_odm import TTL, ExpireAfter, ExpireAt
from ttl_odm.sqlalchemy import disable, enable, include_expired
from ttl_odm.sqlalchemy.policy.bindings import binding_of
from ttl_odm.sqlalchemy.sweep.due import find_due
from ttl_odm.sqlalchemy.sweep.store import whereabouts_of
from ttl_odm.sweeper import Due, Ending, Part, Sweeper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

EXPIRED, LIVE = 30, 3
ENDS = ExpireAt("ends")
POLICIES: dict[str, Any] = {
    "at": ENDS,
    "after": ExpireAfter("ends", 60),
    "stamp": TTL(60, last_modified="ends", override=None),
}


@pytest.fixture
def logins(engine: Engine) -> Iterator[Table]:
    """A table as its application has made it, of which most rows expired a day ago and more."""
    metadata = MetaData()
    table = Table(
        "enabled_logins",
        metadata,
        Column("id", Integer, primary_key=True, autoincrement=False),
        Column("ends", DateTime),
        Column("life", Integer),
    )
    metadata.create_all(engine)
    now = datetime.now(timezone.utc).replace(tzinfo=None, microsecond=0)
    ends = [now - 2 * DAY + timedelta(seconds=number) for number in range(EXPIRED)]
    ends += [now + 2 * DAY] * LIVE
    with engine.begin() as connection:
        rows = [{"id": number, "ends": end} for number, end in enumerate(ends)]
        connection.execute(insert(table), rows)
    yield table
    disable(table)


def due_of(engine: Engine, table: Table) -> Due:
    binding = binding_of(table)
    assert binding is not None
    with engine.connect() as connection:
        due = find_due(connection, binding, whereabouts_of(binding))
    assert due is not None
    return due


def make(engine: Engine, *statements: str) -> None:
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))


def left(engine: Engine, table: Table) -> int:
    with engine.connect() as connection:
        return len(connection.execute(select(table.c.id).options(include_expired())).all())


@pytest.mark.parametrize("name", POLICIES)
def test_an_index_that_is_there_is_used(engine: Engine, logins: Table, name: str) -> None:
    enable(logins, POLICIES[name])
    assert due_of(engine, logins).parts == (Part.ALL,)
    make(engine, "CREATE INDEX theirs ON enabled_logins (ends, id)")
    due = due_of(engine, logins)
    assert due.parts == (Part.INHERITING,)
    assert due.oldest is not None
    assert DAY.total_seconds() < due.oldest < 3 * DAY.total_seconds()
    report = Sweeper(engine, logins, max_rows=1).run_once()
    (target,) = report.targets
    assert (target.deleted, target.batches, report.ended) == (1, 1, Ending.MAX_ROWS)
    assert target.oldest_after is not None
    assert target.oldest_after > DAY.total_seconds()
    assert Sweeper(engine, logins).run_once().deleted == EXPIRED - 1
    assert left(engine, logins) == LIVE
    assert not logins.indexes  # what its owner declares is as it was


def test_a_table_that_is_declared_to_be_walked_is_walked(engine: Engine, logins: Table) -> None:
    make(engine, "CREATE INDEX theirs ON enabled_logins (ends)")
    enable(logins, ENDS, sweep="scan")
    assert due_of(engine, logins).parts == (Part.ALL,)


@pytest.mark.parametrize(
    ("index", "serves"), [("(ends)", True), ("(ends DESC, id)", True), ("(id, ends)", False)]
)
def test_an_index_serves_if_it_leads_with_the_column(
    engine: Engine, logins: Table, index: str, *, serves: bool
) -> None:
    judge(engine, logins, index, serves=serves)


@pytest.mark.databases("sqlite", "postgres")
@pytest.mark.parametrize(
    ("index", "serves"),
    [("(ends) WHERE ends IS NOT NULL", True), ("(ends) WHERE life = 1", False)],
)
def test_a_partial_index_serves_if_it_lacks_no_row(
    engine: Engine, logins: Table, index: str, *, serves: bool
) -> None:
    judge(engine, logins, index, serves=serves)


@pytest.mark.databases("postgres")
@pytest.mark.parametrize(
    "index", ["(ends DESC NULLS LAST)", "USING brin (ends)", "USING hash (ends)"]
)
def test_an_index_that_is_not_in_order_is_none(engine: Engine, logins: Table, index: str) -> None:
    judge(engine, logins, index, serves=False)


def judge(engine: Engine, logins: Table, index: str, *, serves: bool) -> None:
    enable(logins, ENDS)
    make(engine, f"CREATE INDEX theirs ON enabled_logins {index}")
    assert due_of(engine, logins).parts == (Part.INHERITING if serves else Part.ALL,)
    assert Sweeper(engine, logins).run_once().deleted == EXPIRED


@pytest.mark.databases("postgres", "mariadb", "mysql")
def test_an_index_that_planners_do_not_see_is_none(engine: Engine, logins: Table) -> None:
    enable(logins, ENDS)
    make(engine, "CREATE INDEX theirs ON enabled_logins (ends)")
    if engine.dialect.name == "postgresql":
        hidden = "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'theirs'::regclass"
    else:
        word = "INVISIBLE" if is_mysql(engine.dialect) else "IGNORED"
        hidden = f"ALTER TABLE enabled_logins ALTER INDEX theirs {word}"
    make(engine, hidden)
    assert due_of(engine, logins).parts == (Part.ALL,)


def test_the_indexes_of_the_contract_are_used_by_who_reflects_them(engine: Engine) -> None:
    model = cart()
    model.metadata.create_all(engine)
    with engine.begin() as connection:
        add(connection, "carts", [(n, None if n % 2 else 60, 9_000) for n in range(10)])
    table = reflected(engine)
    enable(table, HOUR)
    assert due_of(engine, table).parts == (Part.INHERITING, Part.OWN)
    assert Sweeper(engine, table).run_once().deleted == 10
    own = "ix_carts_ttl_own"
    make(engine, f"DROP INDEX {own}" + " ON carts" * (engine.dialect.name == "mysql"))
    again = reflected(engine)
    enable(again, HOUR)
    assert due_of(engine, again).parts == (Part.ALL,)
    for enabled in (table, again):
        disable(enabled)
    model.metadata.drop_all(engine)


def test_a_walk_says_how_late_it_is(engine: Engine, logins: Table) -> None:
    enable(logins, ENDS)
    day = DAY.total_seconds()
    dry = Sweeper(engine, logins, dry_run=True).run_once()
    assert day < (dry.targets[0].oldest_before or 0) < 3 * day
    (first,) = Sweeper(engine, logins, max_rows=10).run_once().targets
    assert day < (first.oldest_before or 0) < 3 * day
    assert day < (first.oldest_after or 0) < 3 * day
    (rest,) = Sweeper(engine, logins).run_once().targets
    assert day < (rest.oldest_before or 0) < 3 * day
    assert (rest.deleted, rest.oldest_after) == (EXPIRED - 10, 0.0)
    (idle,) = Sweeper(engine, logins).run_once().targets
    assert (idle.oldest_before, idle.oldest_after) == (0.0, 0.0)


def reflected(engine: Engine) -> Table:
    with warnings.catch_warnings():  # SQLAlchemy warns of indexes over expressions
        warnings.simplefilter("ignore")
        return Table("carts", MetaData(), autoload_with=engine)
