"""An application of Flask's with stored defaults in the database ``SHOP_URL``."""

from __future__ import annotations

import os

from flask import Flask
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from ttl_odm import Stored
from ttl_odm.integrations.flask import TTL
from ttl_odm.sqlalchemy import TTLMixin

HOUR, DAY = 3600, 86_400


class Base(DeclarativeBase):
    pass


class Basket(TTLMixin, Base):
    __tablename__ = "baskets"
    __ttl__ = Stored(DAY, least=60)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class Note(TTLMixin, Base):
    __tablename__ = "notes"
    __ttl__ = Stored(30 * DAY, by="tenant_id")

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    tenant_id: Mapped[int]


class Visit(TTLMixin, Base):
    __tablename__ = "visits"
    __ttl__ = HOUR

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


def create_app(url: str | None = None) -> Flask:
    """Set it up, on tables that exist."""
    app = Flask("shop")
    app.secret_key = "a secret"
    TTL(app, create_engine(url or os.environ["SHOP_URL"]), Base)
    return app
