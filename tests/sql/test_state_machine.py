"""Thousands of random steps on each database, held against a plain Python model.

One connection, one transaction, a clock that stands still until a step moves it: so every
instant is exact, and equality (a row is expired at the very moment) comes up all the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import Connection, create_engine, delete, event, func, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, aliased

from tests.clocks import stop_clock
from tests.sql.models import web_session
from ttl_odm.core import effective_ttl
from ttl_odm.sqlalchemy import ExpiredError
from ttl_odm.sqlalchemy.policy.binding import binding_of
from ttl_odm.sqlalchemy.policy.predicate import Predicate
from ttl_odm.sqlalchemy.purge.statements import SweepDelete
from ttl_odm.sqlalchemy.time import clock as database_clock
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from tests.backends import Backend

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
KEYS = st.sampled_from("abcd")
EMAILS = st.sampled_from([None, "x@example.org", "y@example.org"])
TTLS = st.sampled_from([None, -1, 5, 10, 20])
DEFAULTS = st.sampled_from([None, -1, 5, 10])


@dataclass
class Row:
    ts: datetime
    ttl: int | None
    email: str | None
    views: int


class World:
    """The Python model: what is stored, when it is, and the default."""

    def __init__(self) -> None:
        self.now = START
        self.default: int | None = 10
        self.rows: dict[str, Row] = {}

    def is_live(self, row: Row) -> bool:
        seconds = effective_ttl(self.default, row.ttl)
        return seconds is None or row.ts + timedelta(seconds=seconds) > self.now

    def live(self) -> dict[str, Row]:
        return {key: row for key, row in self.rows.items() if self.is_live(row)}

    def make_room(self, *, key: str | None, email: str | None) -> bool:
        """Remove expired holders; False where a live row is in the way."""
        holders = {
            held
            for held, row in self.rows.items()
            if held == key or (email is not None and row.email == email)
        }
        live = holders & self.live().keys()
        if not live:
            for held in holders:
                del self.rows[held]
        return not live


def machine(connection: Connection) -> type[RuleBasedStateMachine]:  # noqa: C901 - a list of rules
    class Machine(RuleBasedStateMachine):
        @initialize()
        def begin(self) -> None:
            self.transaction = connection.begin()
            self.model = web_session(10)
            self.world = World()
            self.model.metadata.create_all(connection)
            self.set_clock()

        def set_clock(self) -> None:
            stop_clock(connection, self.world.now)
            database_clock.forget(connection.dialect)

        def teardown(self) -> None:
            self.transaction.rollback()

        def session(self) -> Session:
            return Session(connection, join_transaction_mode="create_savepoint")

        @rule(seconds=st.sampled_from([1, 5, 10]))
        def time_passes(self, seconds: int) -> None:
            self.world.now += timedelta(seconds=seconds)
            self.set_clock()

        @rule(default=DEFAULTS)
        def the_default_changes(self, default: int | None) -> None:
            self.world.default = default
            self.model.__ttl__ = default

        @rule(key=KEYS, ttl=TTLS, email=EMAILS, way=st.sampled_from(["flush", "orm", "core"]))
        def insert(self, key: str, ttl: int | None, email: str | None, way: str) -> None:
            values = {"id": key, "ttl": ttl, "email": email}
            with self.session() as session:
                try:
                    if way == "flush":
                        session.add(self.model(**values))
                    elif way == "orm":
                        session.execute(insert(self.model), [values])
                    else:
                        table = self.model.__table__
                        session.execute(table.insert().values(views=0, **values))
                    session.commit()
                except IntegrityError:
                    session.rollback()
                    assert not self.can_insert(key, email)
                    return
            assert self.can_insert(key, email)
            self.world.make_room(key=key, email=email)
            self.world.rows[key] = Row(self.world.now, ttl, email, 0)

        def can_insert(self, key: str, email: str | None) -> bool:
            return not any(
                held == key or (email is not None and row.email == email)
                for held, row in self.world.live().items()
            )

        @rule(key=KEYS, ttl=TTLS)
        def merge(self, key: str, ttl: int | None) -> None:
            with self.session() as session:
                session.merge(self.model(id=key, ttl=ttl, views=3))
                session.commit()
            row = self.world.live().get(key)
            if row is None:
                self.world.rows[key] = Row(self.world.now, ttl, None, 3)
            elif (row.ttl, row.views) != (ttl, 3):
                row.ttl, row.views, row.ts = ttl, 3, self.world.now

        @rule(
            key=KEYS, change=st.sampled_from(["views", "touch", "persist", "inherit", "in", "now"])
        )
        def change_held_object(self, key: str, change: str) -> None:
            """Load with include_expired, so that the object is held even if it has expired."""
            row = self.world.rows.get(key)
            if row is None:
                return
            with self.session() as session:
                options = {"include_expired": True}
                held = session.get_one(self.model, key, execution_options=options)
                was_live = self.world.is_live(row)
                before = (row.views, row.ttl)
                stamp, views, ttl = self.world.now, *before
                if change == "views":
                    held.views = views = views + 1
                elif change == "touch":
                    held.touch()
                elif change == "persist":
                    held.persist()
                    ttl = -1
                elif change == "inherit":
                    held.inherit_ttl()
                    ttl = None
                elif change == "in":
                    held.expire_in(20)
                    ttl = 20
                else:
                    held.expire_in(0)
                    ttl, stamp = 1, self.world.now - timedelta(seconds=1)
                no_change = change in ("persist", "inherit") and (views, ttl) == before
                try:
                    session.commit()
                except ExpiredError:
                    session.rollback()
                    assert not was_live
                    return
                assert was_live or no_change
                if not no_change:
                    row.ts, row.views, row.ttl = stamp, views, ttl

        @rule(keep=st.booleans(), way=st.sampled_from(["orm", "core"]))
        def bulk_update(self, keep: bool, way: str) -> None:  # noqa: FBT001
            target = self.model if way == "orm" else self.model.__table__
            views = self.model.__table__.c.views
            with self.session() as session:
                result: Any = session.execute(
                    update(target).values(views=views + 1),
                    execution_options={"keep_last_modified": keep},
                )
                assert result.rowcount == len(self.world.live())
                session.commit()
            for row in self.world.live().values():
                row.views += 1
                if not keep:
                    row.ts = self.world.now

        @rule(key=KEYS, email=EMAILS)
        def take_a_unique_value(self, key: str, email: str | None) -> None:
            row = self.world.live().get(key)
            with self.session() as session:
                held = session.get(self.model, key)
                assert (held is None) == (row is None)
                if row is None or row.email == email:
                    return
                others = {k: r for k, r in self.world.rows.items() if k != key}
                free = email is None or all(
                    r.email != email or not self.world.is_live(r) for r in others.values()
                )
                held.email = email
                try:
                    session.commit()
                except IntegrityError:
                    session.rollback()
                    assert not free
                    return
                assert free
                for other, r in others.items():
                    if email is not None and r.email == email:
                        del self.world.rows[other]
                row.email, row.ts = email, self.world.now

        @rule(key=KEYS, way=st.sampled_from(["flush", "bulk"]))
        def delete(self, key: str, way: str) -> None:
            live = key in self.world.live()
            with self.session() as session:
                if way == "bulk":
                    result: Any = session.execute(delete(self.model).where(self.model.id == key))
                    assert result.rowcount == int(live)
                else:
                    held = session.get(self.model, key)
                    assert (held is not None) == live
                    if held is not None:
                        session.delete(held)
                session.commit()
            if live:
                del self.world.rows[key]

        @rule()
        def sweep(self) -> None:
            table = self.model.__table__
            binding = binding_of(table)
            assert binding is not None
            predicate = Predicate(clock_of(connection.dialect), writing=True)
            doomed = predicate.expired(binding, binding.columns_of(table))
            result = connection.execute(SweepDelete(table).where(doomed))
            live = self.world.live()
            assert result.rowcount == len(self.world.rows) - len(live)
            self.world.rows = live

        @invariant()
        def every_read_agrees(self) -> None:
            if not hasattr(self, "world"):
                return
            live, model = self.world.live(), self.model
            with self.session() as session:
                rows = session.scalars(select(model)).all()
                found = {r.id: Row(r.last_modified, r.ttl, r.email, r.views) for r in rows}
                assert found == live
                assert session.scalar(select(func.count()).select_from(model)) == len(live)
                other = aliased(model)
                pairs = select(model.id).outerjoin(other, model.id == other.id)
                assert set(session.scalars(pairs)) == live.keys()
                assert session.execute(select(model.__table__.c.id)).all().__len__() == len(live)
                for key in "abcd":
                    assert (session.get(model, key) is not None) == (key in live)
                everything = select(model.id).execution_options(include_expired=True)
                assert set(session.scalars(everything)) == self.world.rows.keys()

    return Machine


@pytest.mark.parametrize("steps", [40])
def test_any_sequence_of_steps_agrees_with_the_model(backend: Backend, steps: int) -> None:
    assert backend.sync_url is not None
    engine = create_engine(backend.sync_url)
    if engine.dialect.name == "sqlite":  # the driver's own transactions know no savepoints

        @event.listens_for(engine, "connect")
        def leave_transactions_alone(dbapi: Any, _: Any) -> None:
            dbapi.isolation_level = None

        @event.listens_for(engine, "begin")
        def begin(connection: Connection) -> None:
            connection.exec_driver_sql("BEGIN")

    try:
        with engine.connect() as connection:
            run_state_machine_as_test(
                machine(connection),
                settings=settings(
                    max_examples=30,
                    stateful_step_count=steps,
                    deadline=None,
                    database=None,
                    suppress_health_check=list(HealthCheck),
                ),
            )
    finally:
        engine.dispose()
