"""Readers, writers and sweepers at once: nobody sees a row without its parent, or half a family."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine, delete, event, func, insert, select
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError
from sqlalchemy.orm import Session

from tests.clocks import age
from tests.guard import GUARD
from tests.interleavings import STATEMENTS, Interleavings
from tests.sql.following import HOUR, Base, Cart, Item, Memo, Note
from ttl_odm.dialects.errors import is_passing
from ttl_odm.sqlalchemy import ExpiredError
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from tests.backends import Backend

CARTS = 4
SIZE = 3
"""Items that a cart is put with; as many notes and memos as well."""

WORKERS = 6
SEEDS = 2


@pytest.fixture
def crowd(backend: Backend) -> Iterator[Engine]:
    assert backend.sync_url is not None
    waiting = {"timeout": GUARD} if backend.sync_url.startswith("sqlite") else {}
    engine = create_engine(backend.sync_url, pool_size=WORKERS, connect_args=waiting)
    if waiting:
        event.listen(engine, "connect", lambda raw, _: raw.execute("PRAGMA foreign_keys = ON"))
    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


@dataclass
class Worker:
    """One that does at random what readers, writers and sweepers do."""

    engine: Engine
    random: Random

    def run(self, sent: Interleavings) -> int:
        """Return how many steps went through; the others met a lock, or what is in their way."""
        actions = (self.read, self.read, self.put, self.put, self.end, self.add, self.sweep)
        done = 0
        while not sent.are_enough:
            try:
                self.random.choice(actions)()
                done += 1
            except (IntegrityError, ExpiredError):
                continue
            except DBAPIError as error:
                if not is_passing(error.orig, operational=isinstance(error, OperationalError)):
                    raise
        return done

    def read(self) -> None:
        """Each statement sees whole families alone."""
        items: Any = func.count(Item.id).filter(Item.name == "first")
        if self.engine.dialect.name in {"mysql", "mariadb"}:
            items = func.count(func.nullif(Item.name, "later"))
        families = select(Cart.id, items).outerjoin(Cart.items).group_by(Cart.id)
        alone = select(Item.id).outerjoin(Item.cart).where(Cart.id.is_(None))
        of_items = select(Item.cart_id, items).group_by(Item.cart_id)
        of_notes = (
            select(Item.cart_id, func.count())
            .select_from(Note)
            .join(Note.item)
            .group_by(Item.cart_id)
        )
        of_memos = select(Memo.basket, func.count()).group_by(Memo.basket)
        with Session(self.engine) as session:
            for counts in (families, of_items, of_notes, of_memos):
                rows = session.execute(counts).all()
                assert all(count == SIZE for _, count in rows), (str(counts), rows)
                session.rollback()
            assert session.scalars(alone).all() == []

    def put(self) -> None:
        """A cart with all that belongs to it, where there is none or an expired one."""
        key = self.random.randrange(CARTS)
        numbers = range(key * 100, key * 100 + SIZE)
        with Session(self.engine) as session, session.begin():
            items = [Item(id=n, name="first", notes=[Note(id=n)]) for n in numbers]
            session.add(Cart(id=key, items=items))
            session.flush()
            session.add_all([Memo(id=n, basket=key) for n in numbers])

    def end(self) -> None:
        with self.engine.begin() as connection:
            age(connection, "carts", self.random.randrange(CARTS), 2 * HOUR)

    def add(self) -> None:
        """An item more, by a flush or by Core; and one goes."""
        key, number = self.random.randrange(CARTS), 1_000 + self.random.randrange(10)
        values = {"id": number, "cart_id": key, "name": "later"}
        with Session(self.engine) as session, session.begin():
            session.execute(delete(Item).where(Item.id == number))
            if self.random.random() < 0.5:
                session.add(Item(**values))
            else:
                session.execute(insert(Item).values(**values))

    def sweep(self) -> None:
        size = self.random.choice([1, 2, 5, 100])
        Sweeper(self.engine, Base, lease=False, batch_size=size, max_rows=50).run_once()


def interleave(engine: Engine, seed: int, statements: int) -> int:
    """Let workers run at once, and see that the last sweep leaves no orphan.

    Returns how many steps went through.
    """
    randoms = (Random(f"{seed}-{number}") for number in range(WORKERS))  # noqa: S311
    workers = [Worker(engine, random) for random in randoms]
    sent = Interleavings(statements)
    event.listen(engine, "before_cursor_execute", sent.note)
    with ThreadPoolExecutor(WORKERS) as pool:
        done = sum(pool.map(lambda worker: worker.run(sent), workers))
    with engine.begin() as connection:
        for key in range(CARTS):
            age(connection, "carts", key, 2 * HOUR)
    report = Sweeper(engine, Base, lease=False).run_once()
    assert report.outcome == "finished", report.problems
    tables: Any = (Cart, Item, Note, Memo)
    with engine.connect() as connection:
        counts = [f"SELECT count(*) FROM {table.__tablename__}" for table in tables]  # noqa: S608
        left = [connection.exec_driver_sql(count).scalar_one() for count in counts]
    assert left == [0, 0, 0, 0]
    return done


@pytest.mark.slow
@pytest.mark.databases("sqlite", "postgres", "mariadb", "mysql")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_family_is_seen_in_part(crowd: Engine, seed: int) -> None:
    assert interleave(crowd, seed, STATEMENTS // SEEDS) > 0
