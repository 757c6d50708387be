"""Two and more connections at once: no revival, no displaced live row, one winner for a key."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    ForeignKey,
    create_engine,
    delete,
    func,
    insert,
    literal,
    select,
    text,
    update,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tests.clocks import age
from tests.guard import GUARD
from tests.locks import wait_until_blocked
from tests.sql.models import web_session
from ttl_odm import Follows
from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.dialects.errors import is_locked
from ttl_odm.sqlalchemy import ExpiredError, TTLMixin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine

    from tests.backends import Backend

# Locks and snapshots are each server's own.
pytestmark = [pytest.mark.databases("postgres", "mariadb", "mysql"), pytest.mark.every_server]
EVERYWHERE = pytest.mark.databases("sqlite", "postgres", "mariadb", "mysql")

WORKERS = 16
ROUNDS = 15
"""For a few threads, which seldom meet."""
ROUNDS_OF_ALL = 5
"""For all workers at one key, of whom some meet each time."""


@pytest.fixture
def crowd(backend: Backend) -> Iterator[Engine]:
    assert backend.sync_url is not None
    # SQLite's writers wait for each other, however slow the machine is.
    waiting = {"timeout": GUARD} if backend.sync_url.startswith("sqlite") else {}
    engine = create_engine(backend.sync_url, pool_size=WORKERS + 1, connect_args=waiting)
    yield engine
    engine.dispose()


@pytest.fixture
def model(crowd: Engine) -> Any:
    made = web_session(3600)
    made.metadata.create_all(crowd)
    return made


def all_at_once(count: int, work: Callable[[int], Any]) -> list[Any]:
    """Run ``work(0)``, ``work(1)``, ... in threads that start together; results or errors."""
    barrier = threading.Barrier(count)

    def one(number: int) -> Any:
        barrier.wait()
        try:
            return work(number)
        except DBAPIError as error:
            return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def put_expired(engine: Engine, model: Any, *keys: str) -> None:
    with Session(engine) as session:
        session.execute(text("DELETE FROM web_sessions"))
        session.add_all([model(id=key, email=f"{key}@example.org", views=-1) for key in keys])
        session.flush()
        for key in keys:
            age(session.connection(), "web_sessions", key, 4000)
        session.commit()


def insert_as(engine: Engine, model: Any, number: int, **values: Any) -> int:
    with Session(engine) as session:
        session.add(model(views=number, **values))
        session.commit()
    return number


@pytest.mark.slow
@EVERYWHERE
@pytest.mark.parametrize("key", ["id", "email"])
@pytest.mark.parametrize("existing", ["expired", "absent"])
def test_of_many_inserts_of_one_key_exactly_one_wins(
    crowd: Engine, model: Any, existing: str, key: str
) -> None:
    for turn in range(ROUNDS_OF_ALL):
        # A new name each time: to InnoDB, rows that were deleted just now aren't absent yet.
        name = f"k{turn}"
        put_expired(crowd, model, name if existing == "expired" else "other")
        values = {"id": name} if key == "id" else {"email": f"{name}@example.org"}
        results = all_at_once(
            WORKERS, lambda n, values=values: insert_as(crowd, model, n, **{"id": f"{n}", **values})
        )
        winners = [result for result in results if isinstance(result, int)]
        losers = [result for result in results if not isinstance(result, int)]
        assert len(winners) == 1
        # InnoDB puts the new entry of a secondary key before the old one if the primary key is
        # less, where those that wait for the old one have locked the gap.
        innodb = crowd.dialect.name in MYSQL_FAMILY
        deadlocks = innodb and (existing, key) == ("expired", "email")
        for loser in losers:
            is_victim = isinstance(loser, OperationalError) and is_locked(loser.orig)
            assert isinstance(loser, IntegrityError) or (deadlocks and is_victim), losers
        with Session(crowd) as session:
            (row,) = session.scalars(select(model)).all()
            assert row.views == winners[0]


@pytest.mark.slow
def test_inserts_of_different_keys_do_not_get_in_each_others_way(crowd: Engine, model: Any) -> None:
    for round_ in range(ROUNDS):
        put_expired(crowd, model, *(f"{round_}-{n}" for n in range(0, WORKERS, 2)))
        results = all_at_once(
            WORKERS,
            lambda n, r=round_: insert_as(
                crowd, model, n, id=f"{r}-{n}", email=f"{r}-{n}@example.org"
            ),
        )
        assert results == list(range(WORKERS))


def test_one_row_key_and_another_rows_unique_value_have_one_winner_each(
    crowd: Engine, model: Any
) -> None:
    """Crosswise: each wants the primary key of one expired row and the email of the other."""
    wanted = [{"id": "a", "email": "b@example.org"}, {"id": "b", "email": "a@example.org"}]
    for _ in range(ROUNDS):
        put_expired(crowd, model, "a", "b")
        results = all_at_once(2, lambda n: insert_as(crowd, model, n, **wanted[n]))
        # Both fit together. A deadlock may end one of them, and then says so: it is the
        # transaction's to run again, as every deadlock.
        for result in results:
            assert isinstance(result, (int, OperationalError)), result
        assert any(isinstance(result, int) for result in results)
        with Session(crowd) as session:
            rows = {row.id: row.views for row in session.scalars(select(model))}
        assert rows == {wanted[n]["id"]: n for n in results if isinstance(n, int)}


def test_an_insert_never_displaces_a_row_that_was_renewed_meanwhile(
    crowd: Engine, model: Any
) -> None:
    """A writer renews the row (its default was raised for a moment); an insert wants its key."""
    for _ in range(ROUNDS):
        put_expired(crowd, model, "k")

        def renew_or_insert(number: int) -> int:
            if number:
                return insert_as(crowd, model, number, id="k")
            with Session(crowd) as session:  # raw, as another application would
                now = {
                    "postgresql": "clock_timestamp()",
                    "mysql": "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
                }[crowd.dialect.name]
                result: Any = session.execute(
                    text(f"UPDATE web_sessions SET _ts = {now} WHERE id = 'k' AND views = -1")  # noqa: S608
                )
                session.commit()
                return -1 if result.rowcount else -2

        renewed, inserted = all_at_once(2, renew_or_insert)
        with Session(crowd) as session:
            row = session.get_one(model, "k")
        if renewed == -1:  # it was there, and is live again: nobody may displace it
            assert isinstance(inserted, IntegrityError)
            assert row.views == -1
        else:
            assert (inserted, row.views) == (1, 1)


@pytest.mark.parametrize("write", ["flush", "bulk"])
def test_a_write_that_waited_for_a_lock_does_not_revive(
    crowd: Engine, model: Any, write: str
) -> None:
    """One transaction lets the row expire and holds its lock; a writer waits behind it."""
    insert_as(crowd, model, 0, id="k")
    ready, waiting = threading.Event(), threading.Event()

    def expire_while_they_wait() -> None:
        with Session(crowd) as session:
            age(session.connection(), "web_sessions", "k", 4000)
            ready.set()
            assert waiting.wait(GUARD)
            wait_until_blocked(crowd)
            session.commit()

    def writer() -> object:
        with Session(crowd) as session:
            held = session.get_one(model, "k")
            assert ready.wait(GUARD)
            waiting.set()
            if write == "bulk":
                result: Any = session.execute(update(model).where(model.id == "k").values(views=9))
                session.commit()
                return result.rowcount
            held.views = 9
            try:
                session.commit()
            except ExpiredError as error:
                return error
            return None

    with ThreadPoolExecutor(2) as pool:
        written = pool.submit(writer)
        pool.submit(expire_while_they_wait).result()
        outcome = written.result()
    assert outcome == 0 if write == "bulk" else isinstance(outcome, ExpiredError)
    with Session(crowd) as session:
        assert session.get(model, "k") is None
        assert session.scalar(text("SELECT views FROM web_sessions WHERE id = 'k'")) == 0


@contextmanager
def snapshot_before(engine: Engine, model: Any, *, expired: bool) -> Iterator[Session]:
    """A session whose transaction has read before another wrote row ``k`` (and let it expire)."""
    with Session(engine) as session:
        assert session.scalars(select(model.id)).all() == ["other"]
        with Session(engine) as another:
            another.add(model(id="k", email="k@example.org", views=-1))
            another.flush()
            if expired:
                age(another.connection(), "web_sessions", "k", 4000)
            another.commit()
        yield session


def by_flush(session: Session, model: Any) -> None:
    session.add(model(id="k", views=1))
    session.flush()


def by_flush_of_several(session: Session, model: Any) -> None:
    session.add_all([model(id=key, views=1) for key in ("a", "k", "z")])
    session.flush()


def by_executemany(session: Session, model: Any) -> None:
    rows = [{"id": key, "views": 1} for key in ("a", "k", "z")]
    session.connection().execute(insert(model.__table__), rows)


def by_unique_value(session: Session, model: Any) -> None:
    session.add(model(id="n", email="k@example.org", views=1))
    session.flush()


def by_key_beside_a_computed_one(session: Session, model: Any) -> None:
    email = func.lower("FREE@EXAMPLE.ORG")
    session.execute(insert(model).values(id="k", email=email, views=1))


def by_update(session: Session, model: Any) -> None:
    session.get_one(model, "other").views = 1
    session.get_one(model, "other").email = "k@example.org"
    session.flush()


def by_select(session: Session, model: Any) -> None:
    columns = ["id", "views"]
    session.execute(insert(model).from_select(columns, select(literal("k"), literal(1))))


def by_upsert(session: Session, model: Any) -> None:
    statement = mysql.insert(model).values(id="k", views=1)
    session.execute(statement.on_duplicate_key_update(views=model.views + 100))


def by_upserts(session: Session, model: Any) -> None:
    statement = mysql.insert(model).on_duplicate_key_update(views=model.views + 100)
    session.execute(statement, [{"id": key, "views": 1} for key in ("a", "k", "z")])


WAYS = [
    by_flush,
    by_flush_of_several,
    by_executemany,
    by_unique_value,
    by_key_beside_a_computed_one,
    by_update,
    by_select,
]


@pytest.mark.databases("mariadb", "mysql")
@pytest.mark.parametrize("way", [*WAYS, by_upsert, by_upserts], ids=lambda way: way.__name__)
def test_an_expired_row_that_the_snapshot_does_not_show_makes_room(
    crowd: Engine, model: Any, way: Callable[[Session, Any], None]
) -> None:
    insert_as(crowd, model, 0, id="other")
    with snapshot_before(crowd, model, expired=True) as session:
        way(session, model)
        session.commit()
    with Session(crowd) as session:
        assert {row.views for row in session.scalars(select(model)) if row.id != "other"} <= {1}
        assert session.scalar(text("SELECT count(*) FROM web_sessions WHERE views = -1")) == 0
        assert session.scalar(text("SELECT count(*) FROM web_sessions WHERE views = 1")) in {1, 3}


@pytest.mark.databases("mariadb", "mysql")
def test_rows_below_such_a_row_that_the_snapshot_does_not_show_make_room_too(
    crowd: Engine,
) -> None:
    class Base(DeclarativeBase):
        pass

    class Cart(TTLMixin, Base):
        __tablename__ = "carts"
        __ttl__ = 3600
        id: Mapped[int] = mapped_column(primary_key=True)

    class Item(Base):
        __tablename__ = "items"
        id: Mapped[int] = mapped_column(primary_key=True)
        cart_id: Mapped[int] = mapped_column(ForeignKey("carts.id", ondelete="CASCADE"))

    class Hold(TTLMixin, Base):
        __tablename__ = "holds"
        __ttl__ = 3600
        id: Mapped[int] = mapped_column(primary_key=True)
        item_id: Mapped[int] = mapped_column(ForeignKey("items.id"))

    Base.metadata.create_all(crowd)
    with Session(crowd) as session:
        assert session.scalars(select(Cart.id)).all() == []
        with Session(crowd) as another:
            for row in (Cart(id=1), Item(id=1, cart_id=1), Hold(id=1, item_id=1)):
                another.add(row)
                another.flush()
            for table in ("carts", "holds"):
                age(another.connection(), table, 1, 4000)
            another.commit()
        session.add(Cart(id=1))
        session.commit()
    with Session(crowd) as session:
        assert session.scalars(select(Cart.id)).all() == [1]
        for table in ("items", "holds"):
            assert session.scalar(text(f"SELECT count(*) FROM {table}")) == 0  # noqa: S608


@pytest.mark.databases("mariadb", "mysql")
def test_an_expired_row_that_the_snapshot_does_not_show_keeps_no_other_from_being_deleted(
    crowd: Engine,
) -> None:
    class Base(DeclarativeBase):
        pass

    class Firm(Base):
        __tablename__ = "firms"
        id: Mapped[int] = mapped_column(primary_key=True)

    class Ticket(TTLMixin, Base):
        __tablename__ = "tickets"
        __ttl__ = 3600
        id: Mapped[int] = mapped_column(primary_key=True)
        firm_id: Mapped[int] = mapped_column(ForeignKey("firms.id"))

    Base.metadata.create_all(crowd)
    with Session(crowd) as session:
        assert session.scalars(select(Firm.id)).all() == []
        with Session(crowd) as another:
            another.add(Firm(id=1))
            another.flush()
            another.add(Ticket(id=1, firm_id=1))
            another.flush()
            age(another.connection(), "tickets", 1, 4000)
            another.commit()
        session.execute(delete(Firm).where(Firm.id == 1))
        session.commit()
    with Session(crowd) as session:
        for table in ("firms", "tickets"):
            assert session.scalar(text(f"SELECT count(*) FROM {table}")) == 0  # noqa: S608


@pytest.mark.databases("mariadb", "mysql")
def test_followers_of_such_a_row_that_the_snapshot_does_not_show_go_with_it(crowd: Engine) -> None:
    class Base(DeclarativeBase):
        pass

    class Cart(TTLMixin, Base):
        __tablename__ = "carts"
        __ttl__ = 3600
        id: Mapped[int] = mapped_column(primary_key=True)

    class Item(Base):
        __tablename__ = "items"
        __ttl__ = Follows("cart_id")
        id: Mapped[int] = mapped_column(primary_key=True)
        cart_id: Mapped[int] = mapped_column(ForeignKey("carts.id"))

    Base.metadata.create_all(crowd)
    with Session(crowd) as session:
        assert session.scalars(select(Cart.id)).all() == []
        with Session(crowd) as another:
            another.add(Cart(id=1))
            another.flush()
            another.add(Item(id=1, cart_id=1))
            another.flush()
            age(another.connection(), "carts", 1, 4000)
            another.commit()
        session.add(Cart(id=1))
        session.commit()
    with Session(crowd) as session:
        assert session.scalars(select(Cart.id)).all() == [1]
        assert session.scalar(text("SELECT count(*) FROM items")) == 0


@pytest.mark.databases("postgres")
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_on_postgresql_such_a_transaction_fails_and_succeeds_when_run_again(
    crowd: Engine, model: Any, way: Callable[[Session, Any], None]
) -> None:
    insert_as(crowd, model, 0, id="other")
    repeatable = crowd.execution_options(isolation_level="REPEATABLE READ")
    with snapshot_before(repeatable, model, expired=True) as session:
        with pytest.raises(IntegrityError):
            way(session, model)
        session.rollback()
        way(session, model)
        session.commit()
    with Session(crowd) as session:
        assert session.scalar(text("SELECT count(*) FROM web_sessions WHERE views = -1")) == 0
        assert session.scalar(text("SELECT count(*) FROM web_sessions WHERE views = 1")) in {1, 3}


@pytest.mark.databases("mariadb", "mysql")
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_live_row_that_the_snapshot_does_not_show_stays(
    crowd: Engine, model: Any, way: Callable[[Session, Any], None]
) -> None:
    insert_as(crowd, model, 0, id="other")
    with snapshot_before(crowd, model, expired=False) as session:
        with pytest.raises(IntegrityError):
            way(session, model)
        if session.is_active:  # not after a failed flush
            session.commit()
    with Session(crowd) as session:
        assert session.get_one(model, "k").views == -1
        assert session.scalar(text("SELECT count(*) FROM web_sessions WHERE views = 1")) == 0


@pytest.mark.slow
@pytest.mark.databases("mariadb", "mysql")
def test_a_batch_that_goes_to_the_database_in_parts_is_tried_again_as_a_whole(
    crowd: Engine, model: Any
) -> None:
    insert_as(crowd, model, 0, id="other")
    rows = [{"id": f"{n:05}", "email": "x" * 60 + f"{n:05}", "views": 1} for n in range(8_000)]
    with snapshot_before(crowd, model, expired=True) as session:
        session.connection().execute(
            insert(model.__table__), [*rows, {"id": "k", "email": None, "views": 1}]
        )
        session.commit()
    with Session(crowd) as session:
        assert session.scalar(text("SELECT count(*) FROM web_sessions WHERE views = 1")) == 8_001


@pytest.mark.databases("mariadb", "mysql")
def test_in_autocommit_a_batch_fails_as_it_ever_did(crowd: Engine, model: Any) -> None:
    insert_as(crowd, model, 0, id="k")
    autocommit = crowd.execution_options(isolation_level="AUTOCOMMIT")
    with autocommit.connect() as connection, pytest.raises(IntegrityError):
        connection.execute(insert(model.__table__), [{"id": key, "views": 1} for key in "ak"])


@pytest.mark.slow
@pytest.mark.databases("mariadb", "mysql")
def test_of_many_inserts_whose_snapshots_do_not_show_the_row_one_wins(
    crowd: Engine, model: Any
) -> None:
    ready = threading.Barrier(WORKERS, action=lambda: insert_expired(crowd, model))

    def late(number: int) -> int:
        with Session(crowd) as session:
            session.scalars(select(model.id)).all()
            ready.wait()
            session.add(model(id="k", views=number))
            session.commit()
        return number

    for _ in range(ROUNDS_OF_ALL):
        put_expired(crowd, model, "other")
        results = all_at_once(WORKERS, late)
        winners = [result for result in results if isinstance(result, int)]
        assert len(winners) == 1, results
        for result in results:
            # Those that met the row at once hold each other up; InnoDB ends them as a deadlock.
            assert isinstance(result, (int, IntegrityError, OperationalError)), result
        with Session(crowd) as session:
            assert session.get_one(model, "k").views == winners[0]


def insert_expired(engine: Engine, model: Any) -> None:
    with Session(engine) as session:
        session.add(model(id="k", views=-1))
        session.flush()
        age(session.connection(), "web_sessions", "k", 4000)
        session.commit()


def test_no_update_is_lost(crowd: Engine, model: Any) -> None:
    put_expired(crowd, model, "other")
    insert_as(crowd, model, 0, id="k")

    def count_up(_: int) -> None:
        for _ in range(ROUNDS):
            with Session(crowd) as session:
                session.execute(update(model).values(views=model.views + 1))
                session.commit()

    assert all_at_once(4, count_up) == [None] * 4
    with Session(crowd) as session:
        assert session.get_one(model, "k").views == 4 * ROUNDS
