"""A preview, a plan and an approval count the rows that follow those of a table, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import ForeignKey, Integer, insert
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from tests.clocks import age
from ttl_odm import TTL, Follows, Stored
from ttl_odm.forecast import Forecast, sql
from ttl_odm.forecast.change import NotApprovedError, approve_policy, preview_policy
from ttl_odm.sqlalchemy import TTLMixin

if TYPE_CHECKING:
    from sqlalchemy import Engine

pytestmark = pytest.mark.every_server

HOUR = 3_600
CARTS, ITEMS, NOTES = 10, 30, 60


class Base(DeclarativeBase):
    pass


class Cart(TTLMixin, Base):
    __tablename__ = "carts"
    __ttl__ = Stored(30 * 24 * HOUR, least=1)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class Item(Base):
    __tablename__ = "items"
    __ttl__ = Follows("cart_id")

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    cart_id: Mapped[int] = mapped_column(ForeignKey("carts.id"))


class Note(Base):
    __tablename__ = "notes"
    __ttl__ = Follows(Item, on={"item": "id"})

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    item: Mapped[int] = mapped_column(Integer)


@pytest.fixture(autouse=True)
def _rows(engine: Engine) -> None:
    """Each cart has three items, each of these two notes; the last cart never expires."""
    Base.metadata.create_all(engine)
    with engine.begin() as connection:
        carts = [{"id": n, "ttl": None} for n in range(CARTS)]
        connection.execute(insert(Cart), [*carts, {"id": CARTS, "ttl": -1}])
        items = [{"id": n, "cart_id": n // 3} for n in range(ITEMS + 3)]
        connection.execute(insert(Item), items)
        notes = [{"id": n, "item": n // 2} for n in range(NOTES + 6)]
        connection.execute(insert(Note), notes)
        for key in range(CARTS):
            age(connection, "carts", key, 120)


def test_a_preview_counts_what_follows_and_is_kept_to(engine: Engine) -> None:
    with engine.connect() as connection:
        preview = preview_policy(connection, Cart, 60)
    assert preview.at_most == CARTS + ITEMS + NOTES
    assert preview.followers == ITEMS + NOTES
    assert preview.token.startswith("100-")
    assert preview.to_dict()["followers"] == ITEMS + NOTES
    text = "\n".join(map(str, preview.paragraphs(80, "")))
    assert "at most 100 rows at once, 90 of which follow rows of carts" in text
    with engine.begin() as connection:
        connection.execute(insert(Note), [{"id": 1_000, "item": 0}])
    with engine.connect() as connection, pytest.raises(NotApprovedError, match="100 rows"):
        approve_policy(connection, Cart, 60, token=preview.token, by="ann")
    with engine.connect() as connection:
        token = preview_policy(connection, Cart, 60).token
        approve_policy(connection, Cart, 60, token=token, by="ann")


def test_a_plan_counts_what_follows(engine: Engine) -> None:
    current, planned = TTL(30 * 24 * HOUR), TTL(HOUR)
    with engine.connect() as connection:
        measured = sql.measure(connection, Cart.__table__, planned)  # type: ignore[arg-type]
    forecast = Forecast("carts", "Cart", current, planned, measured)
    head, now, soon, *_ = forecast.table
    assert head == ("expired", "current", "planned", "share", "followers")
    assert (now[-1], soon[-1]) == ("0", "90")
    by_horizon = forecast.to_dict()["planned"]["followers"]
    assert [count["rows"] for count in by_horizon] == [0, 90, 90, 90, 90]
    assert forecast.to_dict()["planned"]["followers_expired_at_once"] == 0


def test_a_sample_estimates_what_follows(engine: Engine) -> None:
    policies = {"current": TTL(30 * 24 * HOUR), "planned": TTL(HOUR)}
    with engine.connect() as connection:
        measured = sql.count(
            connection,
            Cart.__table__,  # type: ignore[arg-type]
            policies,
            rows=lambda source, _: [source.c.id < CARTS],
            big=5,
        )
    assert measured.is_sample
    along = measured.followers("lost soon")
    assert abs(along.rows - 90) <= max(along.margin, 1)


def test_tables_that_nothing_follows_are_counted_as_before(engine: Engine) -> None:
    policies: Any = {"current": TTL(HOUR), "planned": TTL(60)}
    base = type("Other", (DeclarativeBase,), {})
    body = {
        "__tablename__": "alone",
        "__ttl__": HOUR,
        "id": mapped_column(Integer, primary_key=True),
    }
    alone: Any = type("Alone", (TTLMixin, base), body)
    base.metadata.create_all(engine)  # type: ignore[attr-defined]
    with engine.connect() as connection:
        measured = sql.count(connection, alone.__table__, policies, rows=lambda *_: [])
    forecast = Forecast("alone", "Alone", *policies.values(), measured)
    assert not measured.has_followers
    assert "followers" not in forecast.to_dict()["planned"]
    assert forecast.table[0] == ("expired", "current", "planned", "share")
