"""The containers as SQLAlchemy models, all on one base."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import BigInteger, Computed, DateTime, ForeignKey, Numeric, String
from sqlalchemy.dialects import mysql
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from tests.contract.subject import CONTAINERS
from ttl_odm.sqlalchemy import Archive, TTLMixin

if TYPE_CHECKING:
    from collections.abc import Callable

    from ttl_odm.core import Policy
    from ttl_odm.sweeper import Purged

INSTANT = DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), "mysql")

told: list[Purged] = []
"""What the hook of `Seat` was given."""


class Named:
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    name: Mapped[str | None] = mapped_column(String(40), unique=True)
    views: Mapped[int] = mapped_column(default=0)


class Tables(NamedTuple):
    """The models of one base."""

    base: type[DeclarativeBase]
    models: dict[str, Any]
    line: Any
    gift: Any


def declared(name: str) -> Policy:
    """The policy of a container as it is."""
    return CONTAINERS[name].policy


def models_of(policy: Callable[[str], Policy]) -> Tables:
    """Declare a base of models, each with the policy that its container has by a function."""

    class Base(DeclarativeBase):
        pass

    class Cart(TTLMixin, Named, Base):
        __tablename__ = "carts"
        __ttl__: Any = policy("carts")

    class Permit(TTLMixin, Named, Base):
        __tablename__ = "permits"
        __ttl__: Any = policy("permits")

        issued: Mapped[datetime | None] = mapped_column(INSTANT)
        lifetime: Mapped[int | None] = mapped_column(BigInteger)

    class Grant(TTLMixin, Named, Base):
        __tablename__ = "grants"
        __ttl__: Any = policy("grants")

        issued: Mapped[datetime | None] = mapped_column(INSTANT)
        lifetime: Mapped[int | None] = mapped_column(BigInteger)

    class Visit(TTLMixin, Named, Base):
        __tablename__ = "visits"
        __ttl__: Any = policy("visits")

        made: Mapped[datetime | None] = mapped_column(INSTANT)

    class Voucher(TTLMixin, Named, Base):
        __tablename__ = "vouchers"
        __ttl__: Any = policy("vouchers")

        ends: Mapped[datetime | None] = mapped_column(INSTANT)

    class Coupon(TTLMixin, Named, Base):
        __tablename__ = "coupons"
        __ttl__: Any = policy("coupons")

        ends: Mapped[datetime | None] = mapped_column(INSTANT)

    class Ticket(TTLMixin, Named, Base):
        __tablename__ = "tickets"
        __ttl__: Any = policy("tickets")

        ends: Mapped[int | None] = mapped_column(BigInteger)

    class OldSeat(Base):
        __tablename__ = "old_seats"

        number: Mapped[int] = mapped_column(primary_key=True)
        id: Mapped[int]

    class Seat(TTLMixin, Named, Base):
        __tablename__ = "seats"
        __ttl__: Any = policy("seats")
        __ttl_archive__ = Archive(OldSeat)
        __ttl_on_purged__ = told.append

    class Price(TTLMixin, Named, Base):
        __tablename__ = "prices"
        __ttl__: Any = policy("prices")

        amount: Mapped[Decimal | None] = mapped_column(Numeric(10, 2), unique=True)
        code: Mapped[str | None] = mapped_column(String(20))
        hidden: Mapped[int | None]
        shown: Mapped[str | None] = mapped_column(
            String(20),
            Computed("CASE WHEN hidden IS NULL THEN code END", persisted=True),
            unique=True,
        )

    class Order(TTLMixin, Named, Base):
        __tablename__ = "orders"
        __ttl__: Any = policy("orders")
        __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "order"}

        kind: Mapped[str] = mapped_column(String(10), default="order")

    class Gift(Order):
        __tablename__ = "gifts"
        __mapper_args__ = {"polymorphic_identity": "gift"}

        id: Mapped[int] = mapped_column(ForeignKey("orders.id"), primary_key=True)
        wish: Mapped[str | None] = mapped_column(String(40))

    class Line(Base):
        __tablename__ = "lines"

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        cart_id: Mapped[int] = mapped_column(ForeignKey("carts.id"), index=True)
        cart: Mapped[Any] = relationship(Cart)

    models: dict[str, Any] = {
        "carts": Cart,
        "permits": Permit,
        "grants": Grant,
        "visits": Visit,
        "vouchers": Voucher,
        "coupons": Coupon,
        "tickets": Ticket,
        "seats": Seat,
        "prices": Price,
        "orders": Order,
    }
    return Tables(Base, models, Line, Gift)


DECLARED: Final = models_of(declared)
