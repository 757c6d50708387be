"""A write to a row takes no lock on the row that it follows, and two such writes don't deadlock."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import bindparam, delete, update
from sqlalchemy.orm import Session

from tests.sql.following import HOUR, LIVE, Cart, Item, Memo, Note, expire, fill
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


WRITES = [change_an_object, delete_an_object, change_several, change_by_core, delete_by_core]


@pytest.mark.parametrize("write", WRITES)
def test_a_write_by_key_leaves_the_parent_unlocked(
    engine: Engine, write: Callable[[Session], None]
) -> None:
    with Session(engine) as session, impatient(engine) as other:
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
        for key in (10, 20, 999):
            changed = update(ITEMS).where(ITEMS.c.id == key).values(name="milk")
            assert session.connection().execute(changed).rowcount == 0
            gone = delete(ITEMS).where(ITEMS.c.id == key)
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
