"""A parent gets the key of an expired one, and the database hands that on to its followers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import ForeignKey, bindparam, insert, select, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

from tests.clocks import age
from tests.sql.following import HOUR, stored
from ttl_odm import Follows
from ttl_odm.sqlalchemy import TTLMixin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

LIVE, EXPIRED, OTHER = 1, 2, 3


class Base(DeclarativeBase):
    pass


class Cart(TTLMixin, Base):
    __tablename__ = "carts"
    __ttl__ = HOUR

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    items: Mapped[list[Item]] = relationship(passive_updates=True)


class Item(Base):
    __tablename__ = "items"
    __ttl__ = Follows("cart_id")

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    cart_id: Mapped[int] = mapped_column(ForeignKey("carts.id", onupdate="CASCADE"), index=True)


class Line(Base):
    """Has the key of its parent in its own."""

    __tablename__ = "cart_lines"
    __ttl__ = Follows("cart_id")

    cart_id: Mapped[int] = mapped_column(
        ForeignKey("carts.id", onupdate="CASCADE"), primary_key=True, autoincrement=False
    )
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class Bill(TTLMixin, Base):
    """Has a lifetime of its own."""

    __tablename__ = "bills"
    __ttl__ = HOUR

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    cart_id: Mapped[int] = mapped_column(
        ForeignKey("carts.id", onupdate="CASCADE", ondelete="CASCADE"), index=True
    )


CARTS: Any = Cart.__table__
TABLES = ("carts", "items", "cart_lines", "bills")


@pytest.fixture
def session(engine: Engine, enforcing: None) -> Iterator[Session]:
    """Carts 1, 3 and the expired 2, each with an item and a bill."""
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.execute(insert(Cart), [{"id": n} for n in (LIVE, EXPIRED, OTHER)])
        session.execute(insert(Item), [{"id": 10 * n, "cart_id": n} for n in (1, 2, 3)])
        lines = [{"cart_id": n, "number": line} for n in (1, 2, 3) for line in (1, 2)]
        session.execute(insert(Line), lines)
        session.execute(insert(Bill), [{"id": 10 * n, "cart_id": n} for n in (1, 2, 3)])
        age(session.connection(), "carts", EXPIRED, 2 * HOUR)
        session.commit()
        yield session


def items(session: Session) -> list[tuple[int, int]]:
    rows = session.execute(select(Item.id, Item.cart_id).order_by(Item.id)).all()
    return [tuple(row) for row in rows]


MOVED = [(10, EXPIRED), (30, OTHER)]


def test_a_flush_gives_a_parent_the_key_of_an_expired_one(session: Session) -> None:
    session.get_one(Cart, LIVE).id = EXPIRED
    session.commit()
    assert items(session) == MOVED
    assert session.get_one(Cart, EXPIRED).items[0].id == 10
    assert stored(session.get_bind(), *TABLES) == [2, 2, 4, 2]  # type: ignore[arg-type]


def test_bulk_updates_and_core_do_so_too(session: Session) -> None:
    session.execute(update(Cart).where(Cart.id == LIVE).values(id=EXPIRED))
    assert items(session) == MOVED
    session.rollback()
    session.connection().execute(update(CARTS).where(CARTS.c.id == LIVE).values(id=CARTS.c.id + 1))
    assert items(session) == MOVED
    session.rollback()
    one = update(CARTS).where(CARTS.c.id == bindparam("old")).values(id=bindparam("new"))
    pairs = [{"old": OTHER, "new": 4}, {"old": LIVE, "new": EXPIRED}]
    session.connection().execute(one, pairs)
    assert items(session) == [(10, EXPIRED), (30, 4)]
    assert stored(session.get_bind(), "carts") == [3]  # type: ignore[arg-type]


def test_a_live_parent_keeps_its_key(session: Session) -> None:
    session.get_one(Cart, LIVE).id = OTHER
    with pytest.raises(DBAPIError):  # MariaDB and MySQL raise an OperationalError
        session.flush()
    session.rollback()
    with pytest.raises(DBAPIError):
        session.execute(update(Cart).where(Cart.id == LIVE).values(id=OTHER))
    session.rollback()
    assert stored(session.get_bind(), *TABLES) == [3, 3, 6, 3]  # type: ignore[arg-type]
