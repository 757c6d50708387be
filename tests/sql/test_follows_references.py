"""Live rows that only expired followers refer to: they can be deleted, and their keys changed.

The paths of `tests.leaks.paths_references` run over followers too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import ForeignKey, bindparam, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

from tests.clocks import age
from tests.sql.following import HOUR, stored
from ttl_odm import Follows
from ttl_odm.sqlalchemy import TTLMixin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection, Engine
    from sqlalchemy.exc import DBAPIError
    from sqlalchemy.ext.asyncio import AsyncEngine

LIVE, EXPIRED = 1, 2


class Base(DeclarativeBase):
    pass


class Label(Base):
    """Has no lifetime."""

    __tablename__ = "labels"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    items: Mapped[list[Item]] = relationship(passive_deletes="all")


class Cart(TTLMixin, Base):
    __tablename__ = "carts"
    __ttl__ = HOUR

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class Item(Base):
    __tablename__ = "items"
    __ttl__ = Follows("cart_id")

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    cart_id: Mapped[int | None] = mapped_column(ForeignKey("carts.id"), index=True)
    label_id: Mapped[int] = mapped_column(ForeignKey("labels.id"), index=True)


class Note(Base):
    __tablename__ = "remarks"
    __ttl__ = Follows("item_id")

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    item_id: Mapped[int] = mapped_column(ForeignKey("items.id"), index=True)


class Claim(TTLMixin, Base):
    """Has a lifetime of its own, and keeps an item."""

    __tablename__ = "claims"
    __ttl__ = HOUR

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    item_id: Mapped[int] = mapped_column(ForeignKey("items.id"), index=True)


TABLES = ("labels", "carts", "items", "remarks", "claims")
LABELS: Any = Label.__table__


def fill(connection: Connection) -> None:
    """Labels 1 (on the live item 10), 2 (on the expired 20 with note and claim), 3 (an orphan)."""
    Base.metadata.create_all(connection)
    connection.execute(insert(Label), [{"id": n} for n in (1, 2, 3)])
    connection.execute(insert(Cart), [{"id": LIVE}, {"id": EXPIRED}])
    items = [(10, LIVE, 1), (20, EXPIRED, 2), (30, None, 3)]
    rows = [{"id": n, "cart_id": cart, "label_id": label} for n, cart, label in items]
    connection.execute(insert(Item), rows)
    connection.execute(insert(Note), [{"id": 1, "item_id": 10}, {"id": 2, "item_id": 20}])
    connection.execute(insert(Claim), [{"id": 2, "item_id": 20}])
    age(connection, "carts", EXPIRED, 2 * HOUR)
    age(connection, "claims", 2, 2 * HOUR)


@pytest.fixture
def session(engine: Engine, enforcing: None) -> Iterator[Session]:
    with engine.begin() as connection:
        fill(connection)
    with Session(engine) as session:
        yield session


def left(session: Session) -> list[int]:
    engine: Any = session.get_bind()
    session.commit()
    return stored(engine, *TABLES)


def test_a_row_that_only_expired_followers_refer_to_can_be_deleted(session: Session) -> None:
    session.delete(session.get_one(Label, 2))
    session.flush()
    assert left(session) == [2, 2, 2, 1, 0]
    session.execute(delete(Label).where(Label.id == 3))
    assert left(session) == [1, 2, 1, 1, 0]


def test_many_such_rows_can_be_deleted_by_one_statement(session: Session) -> None:
    gone: Any = session.execute(delete(Label).where(Label.id > 1))
    assert gone.rowcount == 2
    assert left(session) == [1, 2, 1, 1, 0]


def test_such_rows_can_be_deleted_by_many_sets_of_parameters(session: Session) -> None:
    one = delete(LABELS).where(LABELS.c.id == bindparam("key"))
    session.connection().execute(one, [{"key": 2}, {"key": 3}])
    assert left(session) == [1, 2, 1, 1, 0]


def test_the_key_of_such_a_row_can_be_changed(session: Session) -> None:
    session.get_one(Label, 2).id = 5
    session.flush()
    session.execute(update(Label).where(Label.id == 3).values(id=6))
    assert session.scalars(select(Label.id).order_by(Label.id)).all() == [1, 5, 6]
    assert left(session) == [3, 2, 1, 1, 0]


def test_a_live_follower_keeps_what_it_refers_to(
    session: Session, violation: type[DBAPIError]
) -> None:
    session.delete(session.get_one(Label, 1))
    with pytest.raises(violation):
        session.flush()
    session.rollback()
    with pytest.raises(violation):
        session.execute(update(Label).values(id=Label.id + 10))
    session.rollback()
    assert left(session) == [3, 2, 3, 2, 1]


def test_a_live_row_that_refers_to_an_expired_follower_keeps_it_and_the_error_says_so(
    session: Session, violation: type[DBAPIError]
) -> None:
    session.connection().exec_driver_sql("INSERT INTO claims (id, item_id) VALUES (9, 20)")
    session.commit()
    session.delete(session.get_one(Label, 2))
    with pytest.raises(violation, match="An expired row of 'items' blocks this statement"):
        session.flush()
    session.rollback()
    assert left(session) == [3, 2, 3, 2, 2]


def test_what_such_followers_followed_does_not_come_back_without_them(session: Session) -> None:
    session.execute(delete(Label).where(Label.id == 2))
    session.commit()
    try:
        Cart.__ttl__ = 24 * HOUR
        assert session.get(Cart, EXPIRED) is None
    finally:
        Cart.__ttl__ = HOUR


async def test_an_asynchronous_session_deletes_it_too(async_engine: AsyncEngine) -> None:
    async with async_engine.begin() as connection:
        await connection.run_sync(fill)
    async with AsyncSession(async_engine) as session, session.begin():
        await session.delete(await session.get_one(Label, 2))
    async with async_engine.connect() as connection:
        count = "SELECT (SELECT count(*) FROM items), (SELECT count(*) FROM labels)"
        assert (await connection.exec_driver_sql(count)).one() == (2, 2)
