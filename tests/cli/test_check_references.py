"""What `ttl-odm check` says of live rows that refer to expired ones."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from sqlalchemy import ForeignKey, String, insert, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tests.clocks import age
from ttl_odm.cli.commands import cli
from ttl_odm.sqlalchemy import TTLMixin

if TYPE_CHECKING:
    from sqlalchemy import Engine

HOUR = 3_600


class Base(DeclarativeBase):
    pass


class Cart(TTLMixin, Base):
    __tablename__ = "baskets"
    __ttl__ = HOUR
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "cart"}

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    kind: Mapped[str] = mapped_column(String(20))


class GiftCart(Cart):
    __tablename__ = "gift_carts"
    __mapper_args__ = {"polymorphic_identity": "gift"}

    id: Mapped[int] = mapped_column(ForeignKey("baskets.id"), primary_key=True, autoincrement=False)


class Receipt(Base):
    """Restricts, and lives for ever."""

    __tablename__ = "receipts"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    cart_id: Mapped[int] = mapped_column(ForeignKey("baskets.id"), index=True)


class Card(TTLMixin, Base):
    """Restricts what a joined subclass has of a row."""

    __tablename__ = "cards"
    __ttl__ = HOUR

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    gift_id: Mapped[int] = mapped_column(ForeignKey("gift_carts.id"), index=True)


class Coupon(TTLMixin, Base):
    """Goes along, though it has a life of its own."""

    __tablename__ = "coupons"
    __ttl__ = HOUR

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    cart_id: Mapped[int] = mapped_column(ForeignKey("baskets.id", ondelete="CASCADE"), index=True)


class Line(Base):
    """Is meant to go along."""

    __tablename__ = "lines"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    cart_id: Mapped[int] = mapped_column(ForeignKey("baskets.id", ondelete="CASCADE"), index=True)


def found(engine: Engine, *options: str) -> list[Any]:
    """The findings of this kind, of all that there is."""
    url = engine.url.render_as_string(hide_password=False)
    arguments = ["check", "--app", f"{__name__}:Base", "--url", url, *options, "--json"]
    finished = CliRunner().invoke(cli, arguments)
    assert finished.exit_code in (0, 1), finished.output
    findings = json.loads(finished.stdout)["findings"]
    assert "unreadable" not in {finding["code"] for finding in findings}, findings
    return [finding for finding in findings if finding["code"] == "refers-to-expired"]


@pytest.fixture
def carts(engine: Engine) -> None:
    """Carts of which the first three have expired, each with a row of every kind."""
    Base.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.add_all([GiftCart(id=number) for number in range(1, 6)])
        session.flush()
        connection = session.connection()
        for model in (Receipt, Coupon, Line):
            rows = [{"id": number, "cart_id": number} for number in range(1, 6)]
            connection.execute(insert(model), rows)
        connection.execute(insert(Card), [{"id": n, "gift_id": n} for n in range(1, 6)])
        for table, keys in ("baskets", (1, 2, 3)), ("coupons", (1,)), ("cards", (1, 2)):
            for key in keys:
                age(connection, table, key, 2 * HOUR)


@pytest.mark.slow
@pytest.mark.usefixtures("carts")
def test_live_rows_that_refer_to_expired_ones_are_counted_by_foreign_key(engine: Engine) -> None:
    findings = {finding["message"]: finding for finding in found(engine)}
    prefix = "public." if engine.dialect.name == "postgresql" else ""
    restrict = "a sweep can't delete the expired rows because of them"
    cascade = "a sweep also deletes them, by ON DELETE CASCADE"
    assert findings.keys() == {
        f"live rows of {prefix}receipts(cart_id) refer to expired rows: 3; {restrict}",
        f"live rows of {prefix}cards(gift_id) refer to expired rows: 1; {restrict}",
        f"live rows of {prefix}coupons(cart_id) refer to expired rows: 2; {cascade}",
    }
    for finding in findings.values():
        assert (finding["severity"], finding["target"]) == ("warning", "baskets")
        assert "touch()" in finding["fix"]


@pytest.mark.slow
@pytest.mark.usefixtures("carts")
def test_nothing_is_said_where_all_is_well(engine: Engine) -> None:
    with engine.begin() as connection:
        for table in ("receipts", "coupons", "cards"):
            connection.execute(text(f"DELETE FROM {table} WHERE id < 4"))  # noqa: S608
    assert found(engine) == []


@pytest.mark.slow
@pytest.mark.usefixtures("carts")
def test_where_tables_are_big_it_waits_to_be_asked_for(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ttl_odm.cli.checked_table.SMALL", 4)
    assert [finding["severity"] for finding in found(engine)] == ["skipped"] * 3
    assert [finding["severity"] for finding in found(engine, "--deep")] == ["warning"] * 3
