"""Carts with items that follow them, and notes that follow the items: of two carts one expired."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import ForeignKey, String, insert
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from tests.clocks import age
from ttl_odm import Follows
from ttl_odm.sqlalchemy import TTLMixin

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

HOUR = 3_600
LIVE, EXPIRED = 1, 2
TREES = ("carts", "items", "remarks", "memos", "drafts")


class Base(DeclarativeBase):
    pass


class Cart(TTLMixin, Base):
    __tablename__ = "carts"
    __ttl__ = HOUR

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    items: Mapped[list[Item]] = relationship(back_populates="cart", passive_deletes="all")


class Item(TTLMixin, Base):
    __tablename__ = "items"
    __ttl__ = Follows("cart")

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    cart_id: Mapped[int] = mapped_column(ForeignKey("carts.id"), index=True)
    name: Mapped[str] = mapped_column(String(20), default="tea")
    cart: Mapped[Cart] = relationship(back_populates="items")
    notes: Mapped[list[Note]] = relationship(back_populates="item")


class Note(Base):
    __tablename__ = "remarks"
    __ttl__ = Follows("item_id")

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    item_id: Mapped[int] = mapped_column(ForeignKey("items.id"), index=True)
    text: Mapped[str] = mapped_column(String(20), default="hot")
    item: Mapped[Item] = relationship(back_populates="notes")


class Memo(Base):
    __tablename__ = "memos"
    __ttl__ = Follows(Cart, on={"basket": "id"})

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    basket: Mapped[int | None] = mapped_column(index=True)


class Draft(Base):
    __tablename__ = "drafts"
    __ttl__ = Follows(Cart, on={"basket": "id"}, orphan="live")

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    basket: Mapped[int | None] = mapped_column(index=True)


def fill(engine: Engine) -> None:
    """Items 10, 11 of the live cart and 20, 21 of the other; notes 100, 110 and 200, 210.

    Memos and drafts 1 of the live cart, 2 of the other, 3 and 4 of none.
    """
    with engine.begin() as connection:
        fill_on(connection)


def fill_on(connection: Connection) -> None:
    """Do it by a connection."""
    Base.metadata.create_all(connection)
    items = [{"id": 10 * cart + n, "cart_id": cart} for cart in (LIVE, EXPIRED) for n in (0, 1)]
    loose = [{"id": 1, "basket": LIVE}, {"id": 2, "basket": EXPIRED}, {"id": 3, "basket": 99}]
    loose.append({"id": 4, "basket": None})  # type: ignore[dict-item]
    connection.execute(insert(Cart), [{"id": LIVE}, {"id": EXPIRED}])
    connection.execute(insert(Item), items)
    connection.execute(
        insert(Note), [{"id": 10 * item["id"], "item_id": item["id"]} for item in items]
    )
    connection.execute(insert(Memo), loose)
    connection.execute(insert(Draft), loose)
    expire(connection, EXPIRED)


def expire(connection: Connection, key: int, table: str = "carts") -> None:
    """Let a parent have been written two hours ago."""
    age(connection, table, key, 2 * HOUR)


def stored(engine: Engine, *tables: str) -> list[int]:
    """How many rows tables hold, expired ones too."""
    with engine.connect() as connection:
        counts = (f"SELECT count(*) FROM {table}" for table in tables)  # noqa: S608 (ours)
        return [connection.exec_driver_sql(count).scalar_one() for count in counts]
