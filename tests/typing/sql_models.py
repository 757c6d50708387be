"""SQLAlchemy models: what a type checker knows of a row, a query and a policy."""

# pyright: reportUnnecessaryTypeIgnoreComment=error

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Integer, String, Table, Update, select, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    MappedAsDataclass,
    Session,
    aliased,
    mapped_column,
)
from sqlalchemy.orm.exc import StaleDataError
from sqlalchemy.sql.elements import ColumnElement
from typing_extensions import assert_type

from ttl_odm import NEVER, TTL, ExpireAfter, ExpireAt, Follows, InvalidTTL, Stored, TTLError
from ttl_odm.sqlalchemy import (
    Archive,
    ExpiredError,
    TTLMixin,
    enable,
    expired,
    expires_at,
    include_expired,
    live,
    touch,
)


class Base(DeclarativeBase):
    pass


class WebSession(TTLMixin, Base):
    __tablename__ = "web_sessions"
    __ttl__ = 3600
    id: Mapped[str] = mapped_column(primary_key=True)
    user_id: Mapped[int]


class Cart(TTLMixin, Base):
    __tablename__ = "carts"
    __ttl__ = timedelta(days=30)
    __ttl_sweep__ = "scan"
    __ttl_archive__ = Archive(into="old_carts")
    id: Mapped[int] = mapped_column(primary_key=True)


class Item(TTLMixin, Base):
    __tablename__ = "items"
    __ttl__ = Follows(Cart, on={"cart_id": "id"}, orphan="live")
    id: Mapped[int] = mapped_column(primary_key=True)
    cart_id: Mapped[int]


class Wish(TTLMixin, Base):
    __tablename__ = "wishes"
    __ttl__ = Stored(3600, by="tenant", least=60)
    id: Mapped[int] = mapped_column(primary_key=True)
    tenant: Mapped[int]


class Token(TTLMixin, Base):
    __tablename__ = "tokens"
    __ttl__ = ExpireAt("expires", null="expired")
    id: Mapped[int] = mapped_column(primary_key=True)
    expires: Mapped[datetime]


class AsDataclass(MappedAsDataclass, DeclarativeBase):
    pass


class Note(TTLMixin, AsDataclass):
    __tablename__ = "notes"
    __ttl__ = TTL({"draft": 60, "sent": None}, by="kind", other=NEVER, override=None)
    id: Mapped[int] = mapped_column(primary_key=True, init=False)
    kind: Mapped[str] = mapped_column(String(10))
    size: Mapped[int] = mapped_column(Integer, default=0)


def a_row(row: WebSession) -> None:
    assert_type(row.last_modified, datetime)
    assert_type(row.ttl, int | None)
    assert_type(row.expires_at, datetime | None)
    assert_type(row.is_expired, bool)
    assert_type(row.time_left, timedelta | None)
    assert_type(row.touch(at_most_every=60), bool)
    assert_type(row.expire_in(timedelta(hours=1), only_if="longer"), bool)
    assert_type(row.user_id, int)
    row.ttl = 60
    row.ttl = None
    row.persist()
    row.inherit_ttl()


def a_query(session: Session) -> None:
    assert_type(
        session.scalars(select(WebSession).where(live(WebSession))).all(), Sequence[WebSession]
    )
    assert_type(live(WebSession), ColumnElement[bool])
    assert_type(expired(aliased(WebSession)), ColumnElement[bool])
    assert_type(expires_at(WebSession), ColumnElement[datetime | None])
    ends = session.scalars(select(WebSession.expires_at).order_by(WebSession.expires_at)).all()
    assert_type(ends, Sequence[datetime | None])
    session.scalars(select(WebSession).where(WebSession.is_expired))
    all_of_them = select(WebSession).options(include_expired())
    assert_type(session.scalars(all_of_them).one(), WebSession)
    found = session.get(WebSession, "a", execution_options={"include_expired": True})
    assert_type(found, WebSession | None)
    session.execute(update(WebSession).values(user_id=1))
    assert_type(touch(found), bool)


def renewals(session: Session, table: Table) -> None:
    mine = touch(WebSession, at_most_every=60, only_if="longer").where(WebSession.id == "a")
    assert_type(mine, Update)
    session.execute(mine)
    assert_type(session.scalars(mine.returning(WebSession)).one_or_none(), WebSession | None)
    assert_type(touch(aliased(WebSession), expire_in=timedelta(hours=1)), Update)
    renewed: Update = touch(table, expire_in=60)
    session.execute(renewed)


async def an_asynchronous_query(session: AsyncSession) -> None:
    found = await session.scalar(select(WebSession).where(WebSession.user_id == 1))
    assert_type(found, WebSession | None)


def a_table_of_others(table: Table, model: type[Any]) -> None:
    enable(table, ExpireAfter("created_at", timedelta(days=1)))
    enable(model, 3600)
    enable(model, Stored(3600))
    enable(model, TTL(lambda: 60, last_modified="issued_at", never=(0,)))


def an_error(session: Session) -> None:
    try:
        session.flush()
    except ExpiredError as error:
        assert_type(error.model, str | None)
        stale: StaleDataError = error
        own: TTLError = error
        print(stale, own)
    except InvalidTTL as error:
        wrong: ValueError = error
        print(wrong)


def mistakes(row: WebSession, table: Table) -> None:
    """Each line is one."""
    row.ttl = "3600"  # type: ignore[assignment]
    row.time_left = timedelta(0)  # type: ignore[misc]
    row.expire_in("1 h")  # type: ignore[arg-type]
    row.expire_at(60)  # type: ignore[arg-type]
    row.touch(60)  # type: ignore[call-arg]
    touch(row, expire_in=60)  # type: ignore[call-overload]
    touch(WebSession, only_if="later")  # type: ignore[call-overload]
    row.expire_in(60, only_if="later")  # type: ignore[arg-type]
    row.expires_at.isoformat()  # type: ignore[union-attr]
    TTL("3600")  # type: ignore[arg-type]
    TTL(60, unit="h")  # type: ignore[arg-type]
    TTL(60, "kind")  # type: ignore[call-arg]
    ExpireAfter("created_at")  # type: ignore[call-arg]
    ExpireAt("expires_at", null="none")  # type: ignore[arg-type]
    TTL(60).declared_default = 5  # type: ignore[misc]


class Wrong(TTLMixin, Base):
    __tablename__ = "wrong"
    __ttl__ = "an hour"  # type: ignore[assignment]
    id: Mapped[int] = mapped_column(primary_key=True)
