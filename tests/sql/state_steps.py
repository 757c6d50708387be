"""The steps of both state machines, and what they read after each."""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from sqlalchemy import Connection, and_, func, inspect, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, aliased

from tests.clocks import stop_clock
from tests.sql.state_world import DEFAULT, Key, Row, World
from tests.sql.state_writes import DELETES, change_by, column_of, delete_by, insert_by, written_by
from ttl_odm.sqlalchemy import ExpiredError
from ttl_odm.sqlalchemy.policy.bindings import binding_of
from ttl_odm.sqlalchemy.policy.predicate import Predicate
from ttl_odm.sqlalchemy.purge.statements import PurgeDelete
from ttl_odm.sqlalchemy.time import clock as database_clock
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from collections.abc import Callable

# Rows that never expire, and expired ones that are swept, are seldom in anybody's way.
DEFAULTS = st.sampled_from([None, -1, 5, 5, 5, 10, 10, 10])
SELDOM = st.sampled_from([False, False, False, False, True])
LIFETIME = ("last_modified", "_ts", "ttl")


class Reads(NamedTuple):
    """The statements that read a model, and the columns that it has besides its lifetime's."""

    columns: list[str]
    entities: Any
    count: Any
    table: Any
    pairs: Any
    everything: Any

    @classmethod
    @cache
    def of(cls, model: Any) -> Reads:
        """Made once: what they read changes with every step, and they don't."""
        mapper, other = inspect(model), aliased(model)
        keys = [getattr(model, key.key) for key in model.__table__.primary_key]
        same = [key == getattr(other, key.key) for key in keys]
        return cls(
            [column.key for column in mapper.columns if column.key not in LIFETIME],
            select(model),
            select(func.count()).select_from(model),
            select(model.__table__),
            select(*keys).outerjoin(other, and_(*same)),
            select(*keys).execution_options(include_expired=True),
        )


class Machine(RuleBasedStateMachine):
    """What both machines have; the test sets the connection.

    Attributes:
        kinds: the models, that at the root first, with what tells their rows from others'.
        keys: the primary keys that may come up.
        uniques: what no two rows may have in common, the primary key first.
    """

    connection: Connection
    kinds: ClassVar[dict[Any, dict[str, Any]]]
    keys: ClassVar[tuple[Any, ...]]
    uniques: ClassVar[tuple[tuple[str, ...], ...]]
    is_to_be_read = False

    @initialize()
    def begin(self) -> None:
        """Start with nothing, at the same moment."""
        self.transaction = self.connection.begin()
        self.world = World(*self.uniques)
        self.root = next(iter(self.kinds))
        self.set_default(DEFAULT)
        self.set_clock()

    def set_default(self, default: int | None) -> None:
        self.root.__ttl__ = default

    def set_clock(self) -> None:
        self.is_to_be_read = True
        stop_clock(self.connection, self.world.now)
        database_clock.forget(self.connection.dialect)

    def teardown(self) -> None:
        """Leave nothing."""
        self.transaction.rollback()

    def session(self) -> Session:
        self.is_to_be_read = True
        return Session(self.connection, join_transaction_mode="create_savepoint")

    def try_to(self, write: Callable[[Session], object]) -> bool:
        """Whether a write succeeds; if not, a live row is in its way."""
        with self.session() as session:
            try:
                write(session)
                session.commit()
            except IntegrityError:
                session.rollback()
                return False
        return True

    def insert_into(
        self, model: Any, ttl: int | None, values: dict[str, Any], made: dict[str, Any], way: str
    ) -> None:
        """Insert a row; what the server, SQLAlchemy or the ORM makes of it is `made`."""
        new = {**values, "ttl": ttl}
        done = self.try_to(lambda session: insert_by(way, session, model, new))
        assert done == self.world.insert(ttl, {**made, **values})

    def change(
        self, model: Any, key: Key, values: dict[str, Any], made: dict[str, Any], way: str
    ) -> None:
        """Set a row's columns; what becomes of them in the database is `made`."""
        row, matched = self.world.live(**self.kinds[model]).get(key), 0
        names = dict(zip(self.uniques[0], key, strict=True))

        def write(session: Session) -> None:
            nonlocal matched
            matched = change_by(way, session, model, names, values)

        done, new = self.try_to(write), {**values, **made}
        if row is None:
            assert done
            assert matched == 0
            self.world.displaced |= self.world.holders(new) - self.world.live().keys()
        elif way == "flush" and new.items() <= row.values.items():
            assert done
        else:
            assert done == self.world.change(key, new)
            assert not done or matched == 1

    def add_one(self, model: Any, name: str, keep: bool, way: str) -> None:  # noqa: FBT001
        """Count a column of all rows up, by one statement."""
        target, live = written_by(way, model), self.world.live(**self.kinds[model])
        with self.session() as session:
            result: Any = session.execute(
                update(target).values({name: column_of(target, name) + 1}),
                execution_options={"keep_last_modified": keep},
            )
            assert result.rowcount == len(live)
            session.commit()
        for row in live.values():
            row.values[name] += 1
            if not keep:
                row.ts = self.world.now

    @rule(seconds=st.sampled_from([1, 5, 10]))
    def time_passes(self, seconds: int) -> None:
        self.world.now += timedelta(seconds=seconds)
        self.set_clock()

    @rule(default=DEFAULTS)
    def the_default_changes(self, default: int | None) -> None:
        self.set_default(default)
        self.world.default = default
        self.is_to_be_read = True

    @rule(is_due=SELDOM)
    def sweep(self, is_due: bool) -> None:  # noqa: FBT001
        if not is_due:
            return
        table = self.root.__table__
        binding = binding_of(table)
        assert binding is not None
        predicate = Predicate(clock_of(self.connection.dialect), writing=True)
        doomed = predicate.expired(binding, binding.columns_of(table))
        result = self.connection.execute(PurgeDelete(table).where(doomed))
        live = self.world.live()
        assert result.rowcount == len(self.world.rows) - len(live)
        self.world.rows = live
        self.is_to_be_read = True

    @rule(data=st.data(), way=st.sampled_from(DELETES))
    def delete(self, data: st.DataObject, way: str) -> None:
        key = data.draw(st.sampled_from(self.keys))
        live = key in self.world.live()
        if way.endswith("alias") and self.connection.dialect.name == "mysql":
            return  # MariaDB has no alias in a DELETE before 11.6
        with self.session() as session:
            try:
                names = dict(zip(self.uniques[0], key, strict=True))
                matched = delete_by(way, session, self.root, names)
                session.commit()
            except ExpiredError:
                session.rollback()
                assert way == "held"
                assert not live
                return
        assert matched == int(live)
        if live:
            del self.world.rows[key]

    @invariant()
    def every_read_agrees(self) -> None:
        if not self.is_to_be_read:  # most steps find nothing to do
            return
        with self.session() as session:
            for model, kind in self.kinds.items():
                self.check_reads(session, model, kind)
        self.world.displaced.clear()
        self.is_to_be_read = False

    def check_reads(self, session: Session, model: Any, kind: dict[str, Any]) -> None:
        reads, live = Reads.of(model), self.world.live(**kind)
        stored = {
            key: Row(row.ts, row.ttl, {name: row.values[name] for name in reads.columns})
            for key, row in live.items()
        }
        read = {}
        for obj in session.scalars(reads.entities):
            values = {name: getattr(obj, name) for name in reads.columns}
            read[self.world.key_of(values)] = Row(obj.last_modified, obj.ttl, values)
        assert read == stored
        assert session.scalar(reads.count) == len(live)
        assert len(session.execute(reads.table).all()) == len(live)
        assert {tuple(pair) for pair in session.execute(reads.pairs)} == live.keys()
        for key in self.keys if model is self.root else ():
            assert (session.get(model, key) is not None) == (key in live)
        there = {tuple(key) for key in session.execute(reads.everything)}
        gone = self.world.having(**kind).keys() - there
        assert gone <= self.world.displaced
        for key in gone:
            del self.world.rows[key]
