"""What a sweep says of the scopes of a stored default: how many rows of whom have expired."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Column, Integer, String, Table
from sqlalchemy.orm import DeclarativeBase, Session, mapped_column

from tests.clocks import age
from tests.sql.test_stored_scopes import TENANTS, message
from ttl_odm import Stored
from ttl_odm.sqlalchemy import TTLMixin, set_policy, stored_policies
from ttl_odm.sweeper import FuseError, Hook, Progress, Purged, Sweeper
from ttl_odm.sweeper.hooks import Archive

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Engine

HOUR, DAY = 3600, 86_400


def fill(engine: Engine, model: Any, rows: Sequence[tuple[Any, int | None, int]]) -> None:
    """Add rows, in order: their tenant, their own ttl, and for how many seconds they are there."""
    model.metadata.create_all(engine)
    with Session(engine) as session:
        for number, (tenant, ttl, _) in enumerate(rows):
            session.add(model(id=str(number), tenant=tenant, ttl=ttl))
        session.flush()
        for number, (*_, seconds) in enumerate(rows):
            age(session.connection(), model.__tablename__, str(number), seconds)
        session.commit()


def tenants_of(engine: Engine, model: Any, first: Any, second: Any) -> None:
    """The first has a minute, the second a day; the table an hour.

    Expired are two rows of the first, one of them by its own ttl, one of the second's, and one of
    nobody's.
    """
    fill(
        engine,
        model,
        [
            (first, None, 100),
            (first, 30, 100),
            (first, -1, 100),
            (first, None, 10),
            (second, None, HOUR),
            (second, 30, 100),
            (None, None, HOUR),
            (None, None, 100),
        ],
    )
    with engine.connect() as connection:
        set_policy(connection, model, 60, scope=first, by="ann")
        set_policy(connection, model, DAY, scope=second, by="ann")


@pytest.mark.slow
@pytest.mark.parametrize("sweep", ["index", "scan"])
@pytest.mark.parametrize("kind", TENANTS)
def test_a_dry_run_and_a_sweep_name_the_scopes(engine: Engine, kind: str, sweep: str) -> None:
    column, (first, second, _) = TENANTS[kind]
    model = message(column, Stored(HOUR, by="tenant"), __ttl_sweep__=sweep)
    tenants_of(engine, model, first, second)
    with engine.connect() as connection:
        policies = stored_policies(connection, model)
    names = [str(policy.scope) for ttl in (60, DAY) for policy in policies if policy.ttl == ttl]
    expected = {names[0]: 2, names[1]: 1, "": 1}
    (target,) = Sweeper(engine, model, dry_run=True).run_once().targets
    assert (target.due, target.due_by_scope, target.deleted_by_scope) == (4, expected, {})
    batches: list[Progress] = []
    report = Sweeper(engine, model, on_progress=batches.append, batch_size=2).run_once()
    (target,) = report.targets
    assert (target.deleted, target.deleted_by_scope) == (4, expected)
    of_batches = [batch.by_scope.get(names[0], 0) for batch in batches]
    assert sum(of_batches) == 2
    assert json.loads(json.dumps(report.to_dict()))["targets"][0]["deleted_by_scope"] == expected
    listed = f"messages: deleted by scope: {names[0]} 2, {names[1]} 1, all others 1"
    assert listed in str(report).splitlines()
    (target,) = Sweeper(engine, model).run_once().targets
    assert "deleted_by_scope" not in target.to_dict()


@pytest.mark.parametrize("way", ["hook", "archive", "orm"])
def test_each_way_to_delete_counts_them(engine: Engine, way: str) -> None:
    model = message(String(40), Stored(HOUR, by="tenant"))
    if way == "archive":
        columns = [Column("id", String(40), primary_key=True), Column("tenant", String(40))]
        old = Table("old_messages", model.metadata, *columns)
        model.__ttl_archive__ = Archive(old)
    elif way == "orm":
        model.__ttl_purge__ = "orm"
    tenants_of(engine, model, "acme", "globex")
    told: list[Purged] = []
    hook = Hook(told.append, rows=True) if way == "hook" else None
    (target,) = Sweeper(engine, model, on_purged=hook).run_once().targets
    assert target.error is None
    assert target.deleted_by_scope == {"acme": 2, "globex": 1, "": 1}
    rows = [row for purged in told for row in purged.rows or ()]
    assert all(set(row) == {"id", "tenant", "_ts", "ttl"} for row in rows)
    assert len(rows) == (4 if way == "hook" else 0)


@pytest.mark.slow
def test_the_fuse_says_whose_rows_they_are(engine: Engine) -> None:
    model = message(Integer(), Stored(HOUR, by="tenant"))
    rows = [(1, None, 100)] * 1_001
    fill(engine, model, rows)
    with engine.connect() as connection:
        set_policy(connection, model, 60, scope=1, by="ann")
    (target,) = Sweeper(engine, model, max_fraction=0.5).run_once().targets
    assert isinstance(target.error, FuseError)
    assert target.error.by_scope == {"1": 1_001}
    assert str(target.error).startswith("1,001 rows have expired (by scope: 1 1,001), more than")


def test_a_scope_may_have_the_name_of_a_policys_column(engine: Engine) -> None:
    class Base(DeclarativeBase):
        pass

    class Message(TTLMixin, Base):
        __tablename__ = "messages"
        __ttl__ = Stored(HOUR, by="scope")
        id = mapped_column(String(40), primary_key=True)
        scope = mapped_column(String(40))
        name = mapped_column(String(40))

    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(Message(id="1", scope="acme"))
        session.flush()
        age(session.connection(), "messages", "1", 100)
        session.commit()
    with engine.connect() as connection:
        set_policy(connection, Message, 60, scope="acme", by="ann")
        set_policy(connection, Message, 60, scope="globex", by="ann")
    (target,) = Sweeper(engine, Message).run_once().targets
    assert target.deleted_by_scope == {"acme": 1}
