"""The containers as Beanie documents."""

# ruff: noqa: D106 - Beanie's Settings are plain class attributes
from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from beanie import Document, Indexed, Link
from pymongo import IndexModel

from tests.contract.subject import CONTAINERS
from ttl_odm.beanie import Archive, TTLMixin

if TYPE_CHECKING:
    from ttl_odm.sweeper import Purged

told: list[Purged] = []
"""What the hook of `Seat` was given."""


class Cart(TTLMixin, Document):
    __ttl__: ClassVar[Any] = CONTAINERS["carts"].policy
    __ttl_purge__ = "sweeper"
    id: int
    name: Annotated[str | None, Indexed(unique=True)] = None
    views: int = 0

    class Settings:
        name = "carts"


class Cached(TTLMixin, Document):
    __ttl__: ClassVar[Any] = CONTAINERS["cached"].policy
    __ttl_purge__ = "sweeper"
    id: int
    name: str | None = None
    views: int = 0

    class Settings:
        name = "cached"
        use_cache = True


class Native(TTLMixin, Document):
    __ttl__: ClassVar[Any] = CONTAINERS["natives"].policy
    id: int

    class Settings:
        name = "natives"


class Checked(TTLMixin, Document):
    __ttl__: ClassVar[Any] = CONTAINERS["checked"].policy
    __ttl_purge__ = "sweeper"
    id: int
    name: str | None = None
    views: int = 0

    class Settings:
        name = "checked"


class Grant(TTLMixin, Document):
    __ttl__: ClassVar[Any] = CONTAINERS["grants"].policy
    __ttl_purge__ = "sweeper"
    id: int
    name: str | None = None
    views: int = 0
    issued: datetime | None = None
    lifetime: Any = None

    class Settings:
        name = "grants"


class Visit(TTLMixin, Document):
    __ttl__: ClassVar[Any] = CONTAINERS["visits"].policy
    __ttl_purge__ = "sweeper"
    id: int
    name: str | None = None
    views: int = 0
    made: Any = None

    class Settings:
        name = "visits"


class Voucher(TTLMixin, Document):
    __ttl__: ClassVar[Any] = CONTAINERS["vouchers"].policy
    __ttl_purge__ = "sweeper"
    id: int
    name: str | None = None
    views: int = 0
    ends: datetime | None = None

    class Settings:
        name = "vouchers"


class Coupon(TTLMixin, Document):
    __ttl__: ClassVar[Any] = CONTAINERS["coupons"].policy
    __ttl_purge__ = "sweeper"
    id: int
    name: str | None = None
    views: int = 0
    ends: datetime | None = None

    class Settings:
        name = "coupons"


class Ticket(TTLMixin, Document):
    __ttl__: ClassVar[Any] = CONTAINERS["tickets"].policy
    __ttl_purge__ = "sweeper"
    id: int
    name: str | None = None
    views: int = 0
    ends: int | None = None

    class Settings:
        name = "tickets"


class Seat(TTLMixin, Document):
    __ttl__: ClassVar[Any] = CONTAINERS["seats"].policy
    __ttl_purge__ = "sweeper"
    __ttl_archive__ = Archive("old_seats")
    __ttl_on_purged__ = told.append
    id: int
    name: Annotated[str | None, Indexed(unique=True)] = None
    views: int = 0

    class Settings:
        name = "seats"


class Price(TTLMixin, Document):
    __ttl__: ClassVar[Any] = CONTAINERS["prices"].policy
    __ttl_purge__ = "sweeper"
    id: int
    name: Annotated[str | None, Indexed(unique=True)] = None
    views: int = 0
    amount: float | None = None
    code: str | None = None
    hidden: int | None = None

    class Settings:
        name = "prices"
        indexes: ClassVar[list[Any]] = [
            IndexModel(
                ["amount"], unique=True, partialFilterExpression={"amount": {"$type": "number"}}
            ),
            IndexModel(
                ["code"],
                unique=True,
                partialFilterExpression={"code": {"$type": "string"}, "hidden": None},
            ),
        ]


class Line(Document):
    id: int
    cart: Link[Cart] | None = None

    class Settings:
        name = "lines"


MODELS: dict[str, Any] = {
    "carts": Cart,
    "cached": Cached,
    "natives": Native,
    "checked": Checked,
    "grants": Grant,
    "visits": Visit,
    "vouchers": Voucher,
    "coupons": Coupon,
    "tickets": Ticket,
    "seats": Seat,
    "prices": Price,
}
