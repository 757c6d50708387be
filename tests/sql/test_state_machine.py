"""Thousands of random steps on each database, held against a plain Python model.

One connection, one transaction, a clock that stands still until a step moves it: so every
instant is exact, and equality (a row is expired at the very moment) comes up all the time.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test
from sqlalchemy import Connection, create_engine, event
from sqlalchemy.orm import Session

from tests.sql.state_families import FamilyMachine
from tests.sql.state_steps import Machine
from tests.sql.state_world import AdminSession, Base, Key, Row, Seat, StoredSeat, WebSession
from tests.sql.state_writes import BULK, INSERTS, NEXT, UPDATES, upsert_views
from ttl_odm.sqlalchemy import ExpiredError, set_policy

if TYPE_CHECKING:
    from tests.backends import Backend

KEYS = st.sampled_from("abc")
EMAILS = st.sampled_from([None, "x@example.org", "y@example.org"])
BADGES = st.sampled_from([None, "gold", "blue"])
TTLS = st.sampled_from([None, None, -1, 5, 5, 20])
SEATS = st.tuples(st.sampled_from("mn"), st.sampled_from([1, 2]))
CHOSEN = st.sampled_from(
    [{}, {}, {}, {}, {"ns": "other"}, {"ns": "main"}, {"day": "mon"}, {"day": "tue"}]
)
"""Seldom, what else the server or SQLAlchemy makes."""
UNIQUE = st.sampled_from([{}, {"code": "A1"}, {"slot": 1}, {"guest": "Ann"}, {"guest": "ann"}])
NO_UNIQUE: dict[str, Any] = {"code": None, "slot": None, "guest": None}
CHANGES = st.sampled_from(["views", "touch", "persist", "inherit", "in", "now"])


def guest_key(values: dict[str, Any]) -> dict[str, Any]:
    """The column that the database makes of a guest, if he is among the values."""
    return {"guest_key": values["guest"] and values["guest"].lower()} if "guest" in values else {}


class SessionMachine(Machine):
    """A class and a joined subclass of it."""

    kinds: ClassVar = {WebSession: {}, AdminSession: {"kind": "admin"}}
    keys: ClassVar = (("a",), ("b",), ("c",))
    uniques: ClassVar = (("id",), ("email",), ("badge",))

    @initialize()
    def begin(self) -> None:
        """With two rows, and a session that keeps what it has loaded."""
        super().begin()
        self.reader = Session(self.connection, join_transaction_mode="rollback_only")
        self.seen: dict[str, Row] = {}
        self.insert("a", 5, None, "core")
        self.insert_admin("b", None, "x@example.org", "gold", "core")

    @rule(key=KEYS, ttl=TTLS, email=EMAILS, way=st.sampled_from(INSERTS))
    def insert(self, key: str, ttl: int | None, email: str | None, way: str) -> None:
        values = {"id": key, "email": email, "views": 0}
        self.insert_into(WebSession, ttl, values, {"kind": "user"}, way)

    @rule(key=KEYS, ttl=TTLS, email=EMAILS, badge=BADGES, way=st.sampled_from(INSERTS))
    def insert_admin(
        self, key: str, ttl: int | None, email: str | None, badge: str | None, way: str
    ) -> None:
        values = {"id": key, "email": email, "views": 0, "badge": badge, "level": 1}
        self.insert_into(AdminSession, ttl, values, {"kind": "admin"}, way)

    @rule(key=KEYS, ttl=TTLS)
    def merge(self, key: str, ttl: int | None) -> None:
        row = self.world.live().get((key,))
        model = AdminSession if row and row.values["kind"] == "admin" else WebSession
        with self.session() as session:
            session.merge(model(id=key, ttl=ttl, views=3))
            session.commit()
        if row is None:
            values = {"kind": "user", "id": key, "email": None, "views": 3}
            assert self.world.insert(ttl, values)
        elif (row.ttl, row.values["views"]) != (ttl, 3):
            row.ttl, row.values["views"], row.ts = ttl, 3, self.world.now

    @rule(key=KEYS, views=st.sampled_from([5, 6]))
    def upsert(self, key: str, views: int) -> None:
        values = {"id": key, "kind": "user", "email": None, "views": views}
        dialect = self.connection.dialect.name
        assert self.try_to(lambda session: session.execute(upsert_views(dialect, values)))
        row = self.world.live().get((key,))
        if row is None:
            assert self.world.insert(None, values)
        else:
            row.ts, row.values["views"] = self.world.now, views

    @rule(key=KEYS, change=CHANGES)
    def change_held_object(self, key: str, change: str) -> None:
        """Load with include_expired, so that the object is held even if it has expired."""
        row = self.world.rows.get((key,))
        if row is None:
            return
        with self.session() as session:
            options = {"include_expired": True}
            held = session.get_one(WebSession, key, execution_options=options)
            was_live = self.world.is_live(row)
            before = (row.values["views"], row.ttl)
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
                row.ts, row.values["views"], row.ttl = stamp, views, ttl

    @rule(key=KEYS)
    def promote_held_admin(self, key: str) -> None:
        """A flush that writes to the subclass's table only."""
        row = self.world.having(kind="admin").get((key,))
        if row is None:
            return
        with self.session() as session:
            options = {"include_expired": True}
            session.get_one(AdminSession, key, execution_options=options).level += 1
            try:
                session.commit()
            except ExpiredError:
                session.rollback()
                assert not self.world.is_live(row)
                return
        assert self.world.is_live(row)
        row.values["level"] += 1
        row.ts = self.world.now

    @rule(keep=st.booleans(), way=st.sampled_from(BULK))
    def bulk_update(self, keep: bool, way: str) -> None:  # noqa: FBT001
        self.add_one(WebSession, "views", keep, way)

    @rule(keep=st.booleans(), way=st.sampled_from(BULK))
    def bulk_update_admins(self, keep: bool, way: str) -> None:  # noqa: FBT001
        self.add_one(AdminSession, "level", keep, way)

    @rule(key=KEYS, email=EMAILS, way=st.sampled_from(UPDATES))
    def take_an_email(self, key: str, email: str | None, way: str) -> None:
        self.change(WebSession, (key,), {"email": email}, {}, way)

    @rule(key=KEYS, badge=BADGES, way=st.sampled_from(UPDATES))
    def take_a_badge(self, key: str, badge: str | None, way: str) -> None:
        self.change(AdminSession, (key,), {"badge": badge}, {}, way)

    @rule(key=KEYS)
    def look_into_memory(self, key: str) -> None:
        """A session that keeps its objects serves no row's values for those of another."""
        held, row = self.reader.get(WebSession, key), self.world.live().get((key,))
        assert (held is None) == (row is None)
        seen = self.seen.get(key)
        if held is None or row is None:
            return
        # That another session has changed a row, or replaced a live one, no memory can know.
        if seen is None or not (self.world.is_live(seen) or seen.life is row.life):
            assert (held.email, held.views) == (row.values["email"], row.values["views"])
        self.seen[key] = Row(held.last_modified, held.ttl, {}, row.life)


class SeatMachine(Machine):
    """Composite keys, and such as the server, SQLAlchemy and the database make."""

    kinds: ClassVar = {Seat: {}}
    keys: ClassVar = (("m", 1), ("m", 2), ("n", 1), ("n", 2))
    uniques: ClassVar = (("hall", "number"), ("ns", "code"), ("day", "slot"), ("guest_key",))

    @initialize()
    def begin(self) -> None:
        """With two seats that are taken."""
        super().begin()
        self.insert(("m", 1), 5, {}, {"code": "A1"}, "core")
        self.insert(("n", 1), None, {}, {"slot": 1, "guest": "Ann"}, "core")

    @rule(seat=SEATS, ttl=TTLS, chosen=CHOSEN, unique=UNIQUE, way=st.sampled_from(INSERTS))
    def insert(
        self, seat: Key, ttl: int | None, chosen: dict[str, str], unique: dict[str, Any], way: str
    ) -> None:
        values = {"hall": seat[0], "number": seat[1], **NO_UNIQUE, **unique, **chosen}
        self.insert_into(
            self.root, ttl, values, {"ns": "main", "day": "mon", **guest_key(values)}, way
        )

    @rule(seat=SEATS, values=st.one_of(UNIQUE, CHOSEN).filter(bool), way=st.sampled_from(UPDATES))
    def change_a_seat(self, seat: Key, values: dict[str, Any], way: str) -> None:
        self.change(self.root, seat, values, guest_key(values), way)

    @rule(seat=SEATS, to=st.sampled_from([1, 2]), way=st.sampled_from(("flush", *BULK)))
    def move(self, seat: Key, to: int, way: str) -> None:
        self.change(self.root, seat, {"number": to}, {}, way)

    @rule(seat=SEATS, way=st.sampled_from(BULK))
    def move_on(self, seat: Key, way: str) -> None:
        self.change(self.root, seat, {"number": NEXT}, {"number": seat[1] + 1}, way)


class StoredSeatMachine(SeatMachine):
    """The same where the database stores the default."""

    kinds: ClassVar = {StoredSeat: {}}

    def set_default(self, default: int | None) -> None:
        set_policy(self.connection, self.root, default, by="a step")


# SQLAlchemy itself looks for the objects before an UPDATE of an alias, where it has no RETURNING.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:SELECT statement has a cartesian product")
@pytest.mark.parametrize("machine", [SessionMachine, SeatMachine, StoredSeatMachine, FamilyMachine])
def test_any_sequence_of_steps_agrees_with_the_model(backend: Backend, machine: Any) -> None:
    assert backend.sync_url is not None
    engine = create_engine(backend.sync_url)
    if engine.dialect.name == "sqlite":  # the driver's own transactions know no savepoints

        @event.listens_for(engine, "connect")
        def leave_transactions_alone(dbapi: Any, _: Any) -> None:
            dbapi.isolation_level = None
            dbapi.execute("PRAGMA foreign_keys = ON")

        @event.listens_for(engine, "begin")
        def begin(connection: Connection) -> None:
            connection.exec_driver_sql("BEGIN")

    Base.metadata.create_all(engine)
    try:
        with engine.connect() as connection:
            run_state_machine_as_test(
                type("ConnectedMachine", (machine,), {"connection": connection}),
                settings=settings(
                    max_examples=20 if engine.dialect.name == "sqlite" else 8,
                    stateful_step_count=40,
                    deadline=None,
                    database=None,
                    suppress_health_check=list(HealthCheck),
                ),
            )
    finally:
        engine.dispose()
