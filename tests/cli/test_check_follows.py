"""What `ttl-odm check` says of rows that follow others, and of those that might."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from sqlalchemy import ForeignKey, inspect
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from ttl_odm import Follows
from ttl_odm.cli.commands import cli
from ttl_odm.sqlalchemy import TTLMixin

if TYPE_CHECKING:
    from sqlalchemy import Engine


class Base(DeclarativeBase):
    pass


class Cart(TTLMixin, Base):
    __tablename__ = "wagons"
    __ttl__ = 3_600

    id: Mapped[int] = mapped_column(primary_key=True)


class Item(Base):
    __tablename__ = "loads"
    __ttl__ = Follows("cart_id")

    id: Mapped[int] = mapped_column(primary_key=True)
    cart_id: Mapped[int] = mapped_column(ForeignKey("wagons.id"), index=True)


class Note(Base):
    __tablename__ = "labels"
    __ttl__ = Follows(Item, on={"load": "id"})

    id: Mapped[int] = mapped_column(primary_key=True)
    load: Mapped[int]


class Receipt(Base):
    __tablename__ = "tickets"

    id: Mapped[int] = mapped_column(primary_key=True)
    cart_id: Mapped[int] = mapped_column(ForeignKey("wagons.id"), index=True)


def findings(engine: Engine) -> dict[str, dict[str, str]]:
    return {finding["code"]: finding for finding in all_findings(engine, "Base")}


def all_findings(engine: Engine, base: str) -> list[dict[str, str]]:
    url = engine.url.render_as_string(hide_password=False)
    arguments = ["check", "--app", f"{__name__}:{base}", "--url", url, "--json"]
    finished = CliRunner().invoke(cli, arguments)
    found = json.loads(finished.stdout)["findings"]
    return [finding for finding in found if finding["target"] is not None]


def drop_index(engine: Engine, name: str, table: str) -> None:
    on = f" ON {table}" if engine.dialect.name in ("mysql", "mariadb") else ""
    with engine.begin() as connection:
        connection.exec_driver_sql(f"DROP INDEX {name}{on}")


@pytest.mark.slow
def test_what_gets_in_the_way_is_told_with_what_to_write(engine: Engine) -> None:
    Base.metadata.create_all(engine)
    drop_index(engine, "ix_labels_ttl_follows", "labels")
    found = findings(engine)
    unindexed = found.pop("missing-follows-index")
    assert "labels(load) follows it and has no index" in unindexed["message"]
    restricting = found.pop("restricting-key")
    assert "tickets(cart_id) refers to it without ON DELETE" in restricting["message"]
    assert "__ttl__ = Follows('cart_id') on the model of tickets" in restricting["fix"]
    assert not found
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(unindexed["fix"])
    assert "missing-follows-index" not in findings(engine)
    assert "ix_labels_ttl_follows" in {
        index["name"] for index in inspect(engine).get_indexes("labels")
    }


class Shop(DeclarativeBase):
    pass


class Basket(TTLMixin, Shop):
    __tablename__ = "baskets"
    __ttl__ = 3_600

    id: Mapped[int] = mapped_column(primary_key=True)


class Fruit(Shop):
    __tablename__ = "fruits"
    __ttl__ = Follows("basket_id")

    id: Mapped[int] = mapped_column(primary_key=True)
    basket_id: Mapped[int] = mapped_column(ForeignKey("baskets.id", ondelete="CASCADE"))


class Seed(Shop):
    """Refers to rows that follow others, and doesn't follow them."""

    __tablename__ = "seeds"

    id: Mapped[int] = mapped_column(primary_key=True)
    fruit_id: Mapped[int] = mapped_column(ForeignKey("fruits.id", ondelete="CASCADE"))


class Bill(Shop):
    __tablename__ = "bills"

    id: Mapped[int] = mapped_column(primary_key=True)
    basket_id: Mapped[int] = mapped_column(ForeignKey("baskets.id", ondelete="CASCADE"))


@pytest.mark.slow
@pytest.mark.databases("postgres")  # InnoDB has an index for each key, and SQLite enforces none
def test_each_missing_index_is_one_finding_whose_fix_lasts(engine: Engine) -> None:
    Shop.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE TABLE visits (id INT, basket_id INT REFERENCES baskets ON DELETE CASCADE)"
        )
    drop_index(engine, "ix_fruits_ttl_follows", "fruits")
    found = {one["message"].partition(" ")[0]: one for one in all_findings(engine, "Shop")}
    assert {name: (one["severity"], one["code"]) for name, one in found.items()} == {
        "public.fruits(basket_id)": ("error", "missing-fk-index"),
        "public.bills(basket_id)": ("error", "missing-fk-index"),
        "public.visits(basket_id)": ("error", "missing-fk-index"),
        "public.seeds(fruit_id)": ("warning", "missing-fk-index"),
    }
    fixes = {name.partition("(")[0][7:]: one["fix"] for name, one in found.items()}
    assert fixes["fruits"].startswith("CREATE INDEX CONCURRENTLY ix_fruits_ttl_follows ON fruits")
    assert fixes["bills"].startswith("write index=True on basket_id in the model of bills, then")
    assert fixes["seeds"].startswith("write index=True on fruit_id in the model of seeds, then")
    assert fixes["visits"].startswith("CREATE INDEX CONCURRENTLY ix_visits_basket_id ON public.")
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for name in ("fruits", "visits"):
            connection.exec_driver_sql(fixes[name])
    left = {one["message"].partition("(")[0] for one in all_findings(engine, "Shop")}
    assert left == {"public.bills", "public.seeds"}


def test_a_table_that_is_missing_is_found(engine: Engine) -> None:
    Base.metadata.create_all(engine, tables=[Cart.__table__])  # type: ignore[list-item]
    message = findings(engine)["missing-table"]["message"]
    assert message in {
        f"table {name}, which follows it, doesn't exist" for name in ("loads", "labels")
    }


class Families(DeclarativeBase):
    pass


class Chat(TTLMixin, Families):
    __tablename__ = "chats"
    __ttl__ = 3_600

    id: Mapped[int] = mapped_column(primary_key=True)


class Line(Families):
    """Refers to others, which can be NULL, and to one more, which can't."""

    __tablename__ = "lines"
    __ttl__ = Follows("chat_id")

    id: Mapped[int] = mapped_column(primary_key=True)
    chat_id: Mapped[int] = mapped_column(ForeignKey("chats.id"), index=True)
    reply_id: Mapped[int | None] = mapped_column(ForeignKey("lines.id"), index=True)
    first_id: Mapped[int] = mapped_column(ForeignKey("lines.id"), index=True)


class Quote(Families):
    __tablename__ = "quotes"

    id: Mapped[int] = mapped_column(primary_key=True)
    line_id: Mapped[int] = mapped_column(ForeignKey("lines.id"), index=True)


@pytest.mark.slow
@pytest.mark.databases("postgres", "mariadb", "mysql")
def test_what_would_keep_rows_that_follow_is_told(engine: Engine) -> None:
    Families.metadata.create_all(engine)
    url = engine.url.render_as_string(hide_password=False)
    arguments = ["check", "--app", f"{__name__}:Families", "--url", url, "--json"]
    found = json.loads(CliRunner().invoke(cli, arguments).stdout)["findings"]
    told = {
        one["message"].partition(" ")[0].removeprefix("public."): one
        for one in found
        if one["target"]
    }
    assert set(told) == {"lines(first_id)", "quotes(line_id)"}
    assert "make it nullable, or" in told["lines(first_id)"]["fix"]
    assert "let its model follow too" in told["quotes(line_id)"]["fix"]
