"""An application, as `--app` names it."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from tests.sql.sweeping import HOUR, add
from ttl_odm.sqlalchemy import TTLMixin
from ttl_odm.testing import InMemoryStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from sqlalchemy import Engine


class Base(DeclarativeBase):
    pass


class WebSession(TTLMixin, Base):
    __tablename__ = "web_sessions"
    __ttl__ = HOUR

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class Cart(TTLMixin, Base):
    __tablename__ = "carts"
    __ttl__ = 24 * HOUR

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class Wish(TTLMixin, Base):
    __tablename__ = "wishes"
    __ttl__ = None

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


def fill(engine: Engine, expired: int = 10, live: int = 5) -> None:
    """Make the tables. Sessions expired an hour ago, carts two."""
    Base.metadata.create_all(engine)
    with engine.begin() as connection:
        for table, age in (("web_sessions", 2 * HOUR), ("carts", 26 * HOUR), ("wishes", HOUR)):
            rows = [(key, None, age) for key in range(expired)]
            rows += [(expired + key, None, 0) for key in range(live)]
            add(connection, table, rows)


made: list[Engine] = []
"""Engines that functions gave to a command, for a test to close."""


def made_engine(url: str | None = None) -> Engine:
    made.append(create_engine(url or os.environ["SHOP_URL"]))
    return made[-1]


def pair() -> Any:
    return made_engine(), [WebSession], {"max_rows": 4}


told: list[Any] = []


def listening() -> Any:
    return made_engine(), Base, {"on_progress": told.append}


def tabled() -> Any:
    return made_engine(), WebSession.__table__


@contextmanager
def managed() -> Iterator[Any]:
    engine = create_engine(os.environ["SHOP_URL"])
    yield engine, Base
    engine.dispose()


@asynccontextmanager
async def managed_async() -> AsyncIterator[Any]:
    engine = create_async_engine(os.environ["SHOP_URL"])
    yield engine, Base
    await engine.dispose()


def nothing() -> None:
    return None


def stored() -> Any:
    store = InMemoryStore()
    store.create("carts", 10)
    store.put("carts", 1, age=20)
    return store


def failing() -> Any:
    raise KeyError("SHOP_URL")


def wrong_option() -> Any:
    return made_engine("sqlite://"), Base, {"max_row": 4}


def modelless() -> Any:
    return made_engine("sqlite://"), DeclarativeBase
