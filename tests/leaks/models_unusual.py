"""What models may have besides columns and relationships, and classes that share a table.

The hotel has keys of a type of its own, composite attributes and keys, hybrids that write, defaults
that read, and relationships that write more than the rows of their own class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    ForeignKey,
    Index,
    Integer,
    PickleType,
    String,
    TypeDecorator,
    UniqueConstraint,
    func,
    join,
    select,
    text,
)
from sqlalchemy.ext.hybrid import hybrid_property
from sqlalchemy.ext.orderinglist import ordering_list
from sqlalchemy.orm import (
    Mapped,
    WriteOnlyMapped,
    attribute_keyed_dict,
    column_property,
    composite,
    mapped_column,
    relationship,
)

from tests.leaks.data import DAY

if TYPE_CHECKING:
    from tests.leaks.models import Models


@dataclass(frozen=True)
class Point:
    """Two columns as one attribute."""

    x: int
    y: int


class GuestKey(TypeDecorator[str]):
    """Keys that Python writes as text, g1, and the database as numbers."""

    impl = Integer
    cache_ok = True

    def process_bind_param(self, value: str | int | None, _: Any) -> int | None:
        """The number."""
        return None if value is None else int(str(value).removeprefix("g"))

    def process_result_value(self, value: int | None, _: Any) -> str | None:
        """The text."""
        return None if value is None else f"g{value}"


def hotel(mixin: type, base: Any) -> dict[str, Any]:
    """Declare classes that have unusual attributes and keys."""

    class Guest(mixin, base, ttl=DAY):
        __tablename__ = "guests"

        id: Mapped[str] = mapped_column(GuestKey, primary_key=True, autoincrement=False)
        first: Mapped[str] = mapped_column(String(40), default="")
        last: Mapped[str] = mapped_column(String(40), default="")
        x: Mapped[int] = mapped_column(default=0)
        y: Mapped[int] = mapped_column(default=0)
        luggage: Mapped[Any] = mapped_column(PickleType, nullable=True)
        position: Mapped[Point] = composite("x", "y")
        stays: WriteOnlyMapped[Any] = relationship("Stay", back_populates="guest")
        stays_dynamic = relationship("Stay", lazy="dynamic", overlaps="stays,guest")
        rooms = relationship("Room", secondary="stays", overlaps="stays,guest,room,stays_dynamic")
        wishes = relationship(
            "Wish",
            collection_class=ordering_list("place"),
            order_by="Wish.place",
            cascade="all, delete-orphan",
        )

        @hybrid_property
        def name(self) -> str:
            return f"{self.first} {self.last}"

        @name.inplace.expression
        @classmethod
        def _name_in_sql(cls) -> Any:
            return cls.first + " " + cls.last

        @name.inplace.update_expression
        @classmethod
        def _write_name(cls, value: str) -> Any:
            first, last = value.split()
            return [(cls.first, first), (cls.last, last)]

    class Wish(mixin, base, ttl=DAY):
        __tablename__ = "guest_wishes"

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        guest_id: Mapped[str | None] = mapped_column(ForeignKey("guests.id"))
        place: Mapped[int | None]
        what: Mapped[str] = mapped_column(String(40))

    class Room(mixin, base, ttl=DAY):
        __tablename__ = "rooms"

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        floor: Mapped[int]
        number: Mapped[int]
        free: Mapped[bool] = mapped_column(default=False)
        guest_count: Mapped[int | None] = mapped_column(
            default=select(func.count(Guest.id)).scalar_subquery(),
            onupdate=select(func.count(Guest.id)).scalar_subquery(),
        )
        head_id: Mapped[str | None] = mapped_column(ForeignKey("guests.id"))
        head = relationship("Guest", post_update=True)
        stays = relationship("Stay", back_populates="room", overlaps="rooms")
        stays_by_nights = relationship(
            "Stay", collection_class=attribute_keyed_dict("nights"), viewonly=True
        )
        one_free_room = Index(
            "one_free_room",
            "floor",
            unique=True,
            sqlite_where=text("free"),
            postgresql_where=text("free"),
        ).ddl_if(callable_=lambda *_, dialect, **__: dialect.name != "mysql")
        __table_args__ = (UniqueConstraint("floor", "number"), one_free_room)

    class Stay(mixin, base, ttl=DAY):
        __tablename__ = "stays"

        id: Mapped[int | None]
        guest_id: Mapped[str] = mapped_column(ForeignKey("guests.id"), primary_key=True)
        room_id: Mapped[int] = mapped_column(
            ForeignKey("rooms.id"), primary_key=True, autoincrement=False
        )
        nights: Mapped[int] = mapped_column(default=1)
        guest = relationship("Guest", back_populates="stays", overlaps="rooms,stays_dynamic")
        room = relationship("Room", back_populates="stays", overlaps="rooms")

    return {"Guest": Guest, "Wish": Wish, "Room": Room, "Stay": Stay}


def share_tables(models: Models) -> None:
    """Map classes to a part of a table that has a class, to a join, and to a subquery."""
    base, customers, orders = models.Base, models.Customer.__table__, models.Order.__table__

    class OrderNumber(base):
        __table__ = orders
        __mapper_args__ = {"include_properties": ["id", "number"]}

    class CustomerOrder(base):
        __table__ = join(customers, orders, customers.c.id == orders.c.customer_id)
        __mapper_args__ = {
            "include_properties": [
                customers.c.id,
                customers.c.name,
                orders.c.id,
                orders.c.number,
                orders.c.customer_id,
            ]
        }
        id = column_property(customers.c.id, orders.c.customer_id)
        order_id = column_property(orders.c.id)

    class BigOrder(base):
        __table__ = select(orders).where(orders.c.total >= 20).subquery("big_orders")

    models.OrderNumber = OrderNumber
    models.CustomerOrder = CustomerOrder
    models.BigOrder = BigOrder
