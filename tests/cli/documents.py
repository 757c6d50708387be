"""Document classes, as `--app` names them."""

# ruff: noqa: D106 - Beanie's Settings are plain class attributes

from __future__ import annotations

from datetime import datetime

from beanie import Document, UnionDoc, View

from ttl_odm import Follows, Stored
from ttl_odm.beanie import Archive, TTLMixin


class Event(TTLMixin, Document):
    __ttl__ = 3600
    id: int

    class Settings:
        name = "events"


class Plain(Document):
    id: int


class Passing(Document):
    """Has an end, and no policy."""

    expires_at: datetime

    class Settings:
        name = "sessions"


class Left(TTLMixin, Document):
    """Is not among the `MODELS`."""

    __ttl__ = 3600

    class Settings:
        name = "left_out_events"


MODELS = [Event, Plain]


class Basket(TTLMixin, Document):
    """Its default is stored."""

    __ttl__ = Stored(86_400, least=60)
    id: int

    class Settings:
        name = "baskets"


class Letter(TTLMixin, Document):
    """Its default is stored, for each tenant."""

    __ttl__ = Stored(86_400, by="tenant_id")
    __ttl_purge__ = "sweeper"
    id: int
    tenant_id: int

    class Settings:
        name = "letters"


STORED = [Event, Basket, Letter]


class Crate(TTLMixin, Document):
    """Has an archive, and something follows it."""

    __ttl__ = 604_800
    __ttl_purge__ = "sweeper"
    __ttl_archive__ = Archive("old_crates")
    id: int

    class Settings:
        name = "crates"


class Lid(TTLMixin, Document):
    """Lives as long as its crate."""

    __ttl__ = Follows(Crate, on={"crate_id": "id"})
    id: int
    crate_id: int

    class Settings:
        name = "lids"


FAMILY = [Crate, Lid]


class Paper(UnionDoc):
    """The collection of receipts."""

    class Settings:
        name = "papers"


class Receipt(TTLMixin, Document):
    """Is kept in a collection of several classes."""

    __ttl__ = 3600
    __ttl_purge__ = "sweeper"
    id: int

    class Settings:
        union_doc = Paper


class Number(View):
    """The numbers of receipts."""

    id: int

    class Settings:
        source = Receipt
        pipeline = ()


PAPERS = [Number, Receipt, Paper]


class Bundle(UnionDoc):
    """Is never given to Beanie."""


class Slip(TTLMixin, Document):
    """Belongs to a class that no list has."""

    __ttl__ = 3600
    id: int

    class Settings:
        union_doc = Bundle
