"""A write to a row takes no lock on the row that it follows, and two such writes don't deadlock."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    BigInteger,
    DateTime,
    ForeignKey,
    String,
    bindparam,
    delete,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tests.sql.following import HOUR, LIVE, Cart, Item, Memo, Note, expire, fill
from ttl_odm import ExpireAt, Follows
from ttl_odm.sqlalchemy import ExpiredError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine

pytestmark = pytest.mark.databases("postgres", "mariadb", "mysql")

ITEMS: Any = Item.__table__
MEMOS: Any = Memo.__table__


@pytest.fixture(autouse=True)
def _rows(engine: Engine) -> None:
    fill(engine)


@contextmanager
def impatient(engine: Engine) -> Iterator[Session]:
    """A session that hardly waits for locks."""
    of_postgresql = ("SET lock_timeout = 1000", "SET lock_timeout = 0")
    others = tuple(f"SET innodb_lock_wait_timeout = {seconds}" for seconds in (1, 50))
    before, after = of_postgresql if engine.dialect.name == "postgresql" else others
    with Session(engine) as session:
        session.connection().exec_driver_sql(before)
        try:
            yield session
        finally:
            session.rollback()
            session.connection().exec_driver_sql(after)


def change_an_object(session: Session) -> None:
    session.get_one(Item, 10).name = "milk"
    session.flush()


def delete_an_object(session: Session) -> None:
    session.delete(session.get_one(Note, 100))
    session.flush()


def change_several(session: Session) -> None:
    session.execute(update(Item), [{"id": 10, "name": "milk"}, {"id": 11, "name": "rum"}])


def change_by_core(session: Session) -> None:
    one = update(ITEMS).where(ITEMS.c.id == bindparam("key")).values(name="milk")
    for _ in range(2):
        assert session.connection().execute(one, {"key": 10}).rowcount == 1


def delete_by_core(session: Session) -> None:
    session.execute(delete(Memo).where(Memo.id == LIVE))


def delete_objects(session: Session) -> None:
    for key in (100, 110):
        session.delete(session.get_one(Note, key))
    session.flush()


def change_objects(session: Session) -> None:
    for key in (10, 11):
        session.get_one(Item, key).name = "milk"
    session.flush()


def change_by_list(session: Session) -> None:
    changed = update(ITEMS).where(ITEMS.c.id.in_([10, 11])).values(name="milk")
    assert session.connection().execute(changed).rowcount == 2


def change_by_parent(session: Session) -> None:
    changed = update(ITEMS).where(ITEMS.c.cart_id == LIVE, ITEMS.c.name == "tea")
    assert session.connection().execute(changed.values(name="milk")).rowcount == 2


def delete_by_parent(session: Session) -> None:
    assert session.execute(delete(Memo).where(Memo.basket == LIVE)).rowcount == 1


WRITES = [
    change_an_object,
    change_objects,
    delete_an_object,
    delete_objects,
    change_several,
    change_by_core,
    change_by_list,
    change_by_parent,
    delete_by_core,
    delete_by_parent,
]


@pytest.mark.parametrize("level", ["REPEATABLE READ", "READ COMMITTED", "AUTOCOMMIT"])
@pytest.mark.parametrize("write", WRITES)
def test_a_write_by_key_leaves_the_parent_unlocked(
    engine: Engine, write: Callable[[Session], None], level: Any
) -> None:
    with Session(engine) as session, impatient(engine) as other:
        session.connection(execution_options={"isolation_level": level})
        write(session)
        other.get_one(Cart, LIVE).ttl = 2 * HOUR
        other.commit()
        session.commit()


def test_two_that_write_a_row_and_then_its_parent_wait_for_each_other(engine: Engine) -> None:
    with Session(engine) as first, Session(engine) as second:
        first.get_one(Item, 10).name = "milk"
        first.flush()
        second.get_one(Item, 11).name = "rum"
        second.flush()
        first.get_one(Cart, LIVE).ttl = 2 * HOUR
        second.get_one(Cart, LIVE).ttl = HOUR
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(second.commit)
            first.commit()
            waiting.result()
    with Session(engine) as session:
        assert session.get_one(Cart, LIVE).ttl in {HOUR, 2 * HOUR}
        assert (session.get_one(Item, 10).name, session.get_one(Item, 11).name) == ("milk", "rum")


def test_a_write_still_misses_a_row_whose_parent_has_expired(engine: Engine) -> None:
    with Session(engine) as session:
        item = session.get_one(Item, 10)
        expire(session.connection(), LIVE)
        conditions = [ITEMS.c.id == key for key in (10, 20, 999)]
        conditions += [ITEMS.c.cart_id == LIVE, ITEMS.c.cart_id == 99]
        conditions += [ITEMS.c.id.in_([10, 20]), ITEMS.c.id.in_([]), ITEMS.c.cart_id.in_([LIVE])]
        for condition in conditions:
            changed = update(ITEMS).where(condition).values(name="milk")
            assert session.connection().execute(changed).rowcount == 0
            gone = delete(ITEMS).where(condition)
            assert session.connection().execute(gone).rowcount == 0
        orphan = update(MEMOS).where(MEMOS.c.id == 4).values(basket=None)
        assert session.connection().execute(orphan).rowcount == 0
        item.name = "milk"
        with pytest.raises(ExpiredError):
            session.flush()


def test_a_write_finds_a_row_whose_parent_was_renewed_since_the_transaction_began_to_read(
    engine: Engine,
) -> None:
    with Session(engine) as session, session.begin():
        expire(session.connection(), LIVE)
    with Session(engine) as session, Session(engine) as other:
        assert session.get(Cart, LIVE) is None
        other.connection().exec_driver_sql(f"UPDATE carts SET ttl = -1 WHERE id = {LIVE}")  # noqa: S608
        other.commit()
        changed = update(ITEMS).where(ITEMS.c.id == 10).values(name="milk")
        assert session.connection().execute(changed).rowcount == 1


@pytest.mark.parametrize("kind", ["update", "delete"])
def test_a_list_of_keys_reaches_the_rows_of_live_parents_alone(engine: Engine, kind: str) -> None:
    with Session(engine) as session, session.begin():
        where = ITEMS.c.id.in_([10, 20, 11, 999])
        write: Any = update(ITEMS).where(where).values(name="milk")
        if kind == "delete":
            session.execute(text("DELETE FROM remarks"))
            write = delete(ITEMS).where(where)
        assert session.connection().execute(write).rowcount == 2
    with engine.connect() as connection:
        tea = connection.scalars(text("SELECT id FROM items WHERE name = 'tea'")).all()
    assert set(tea) == {20, 21}


def test_a_row_that_others_have_put_since_is_written(engine: Engine) -> None:
    with Session(engine) as session, Session(engine) as other:
        session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
        assert session.get(Item, 10) is not None
        other.add(Item(id=12, cart_id=LIVE))
        other.add(Item(id=13, cart_id=LIVE))
        other.commit()
        changed = update(ITEMS).where(ITEMS.c.id == bindparam("key")).values(name="milk")
        # PostgreSQL's snapshot is the UPDATE's, too.
        number = 0 if engine.dialect.name == "postgresql" else 1
        assert session.connection().execute(changed, {"key": 12}).rowcount == number


@pytest.mark.databases("mariadb", "mysql")
def test_a_flush_looks_the_parents_of_all_its_rows_up_at_once(
    engine: Engine, sent: list[str]
) -> None:
    def flushed() -> list[str]:
        before = len(sent)
        session.flush()
        words = [statement.split()[0] for statement in sent[before:]]
        return [word for word in words if "SAVEPOINT" not in word and word != "RELEASE"]

    with Session(engine) as session:
        for item in session.scalars(select(Item)):
            item.name = "milk"
        assert flushed() == ["SELECT", "UPDATE"]
        for note in session.scalars(select(Note)):
            session.delete(note)
        assert flushed() == ["SELECT", "DELETE"]


@pytest.mark.databases("mariadb", "mysql")
def test_nothing_is_looked_up_where_nothing_would_be_locked(
    engine: Engine, sent: list[str]
) -> None:
    with Session(engine) as session:
        session.connection(execution_options={"isolation_level": "READ COMMITTED"})
        session.get_one(Item, 10).name = "milk"
        before = len(sent)
        session.flush()
        assert len(sent) == before + 1


@pytest.mark.databases("mariadb", "mysql")
@pytest.mark.parametrize("column", [DateTime(), mysql.TIMESTAMP(fsp=6), BigInteger()])
def test_parents_with_an_end_of_their_own_stay_unlocked(engine: Engine, column: Any) -> None:
    class Base(DeclarativeBase):
        pass

    class Loan(Base):
        __tablename__ = "loans"
        __ttl__ = ExpireAt("due", unit="s" if isinstance(column, BigInteger) else None)
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        due: Mapped[Any] = mapped_column(column)
        note: Mapped[str | None] = mapped_column(String(9))

    class Fee(Base):
        __tablename__ = "fees"
        __ttl__ = Follows("loan_id")
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        loan_id: Mapped[int] = mapped_column(ForeignKey("loans.id"), index=True)
        paid: Mapped[int] = mapped_column(default=0)

    Base.metadata.create_all(engine)
    ends = [datetime.now(timezone.utc) + timedelta(hours=hours) for hours in (30, -30)]
    values: list[Any] = [end.replace(tzinfo=None) for end in ends]
    if isinstance(column, BigInteger):
        values = [int(end.timestamp()) for end in ends]
    with Session(engine) as session, session.begin():
        session.execute(insert(Loan), [{"id": n, "due": due} for n, due in enumerate(values)])
        rows = "INSERT INTO fees VALUES (0, 0, 0), (1, 1, 0)"
        session.execute(text(rows))
    pay = update(Fee).values(paid=1)
    with Session(engine) as session, impatient(engine) as other:
        assert session.execute(pay.where(Fee.id == 0)).rowcount == 1
        assert session.execute(pay.where(Fee.id == 1)).rowcount == 0
        other.execute(text("UPDATE loans SET note = 'paid' WHERE id = 0"))
        other.commit()
        session.commit()
