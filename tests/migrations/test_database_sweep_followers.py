"""`sweep="database"` is not for tables whose followers the database would leave behind."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
from alembic.util.exc import CommandError
from sqlalchemy import Column, DateTime, ForeignKey, MetaData, Table, inspect, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tests.clocks import age
from tests.migrations.projects import lines
from tests.migrations.swept import alone, bound, left, said_of_job
from ttl_odm import ExpireAt, Follows
from ttl_odm.alembic import MigrationRefusedError
from ttl_odm.database_sweep.alembic.installation import install_job, job_statements
from ttl_odm.database_sweep.sqlalchemy.catalogue import read_job
from ttl_odm.sqlalchemy import TTLMixin, include_expired

if TYPE_CHECKING:
    from sqlalchemy import Engine


pytestmark = [
    pytest.mark.databases("mariadb", "mysql", "postgres"),
    pytest.mark.usefixtures("scheduler"),
]

HOUR = 3600
TIES: dict[str, tuple[str | None, Any]] = {
    # What its foreign key does to an item whose cart goes, and how it follows that.
    "set null": ("SET NULL", {"orphan": "live"}),
    "no key": (None, {"on": {"cart_id": "id"}}),
    "no key, and live without": (None, {"on": {"cart_id": "id"}, "orphan": "live"}),
}


def family(tie: str | None, *, follows: bool = True, dates: bool = False) -> tuple[Any, Any]:
    """Carts, and entries that follow them; by a key that cascades if nothing is said."""

    class Base(DeclarativeBase):
        pass

    class Cart(TTLMixin, Base):
        __tablename__ = "carts"
        __ttl__ = ExpireAt("ends") if dates else HOUR
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        if dates:
            ends: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))

    deletes, options = ("CASCADE", {}) if tie is None else TIES[tie]
    key = [ForeignKey("carts.id", ondelete=deletes)] if deletes else []
    of_cart = mapped_column(*key, index=True, nullable=True)
    source = Cart if "on" in options else "cart_id"
    members = {"__ttl__": Follows(source, **options)} if follows else {}

    Item = type(  # noqa: N806
        "Item",
        (Base,),
        {
            "__tablename__": "entries",
            "__annotations__": {"id": Mapped[int], "cart_id": Mapped[int | None]},
            "id": mapped_column(primary_key=True, autoincrement=False),
            "cart_id": of_cart,
            **members,
        },
    )
    return Cart, Item


@pytest.mark.parametrize("tie", TIES)
@pytest.mark.parametrize("dates", [False, True])
def test_followers_that_would_be_left_behind_are_rejected(
    engine: Engine, project: Any, tie: str, *, dates: bool
) -> None:
    cart, _ = family(tie, dates=dates)
    cart.metadata.create_all(engine)
    policy = "ttl_odm.ExpireAt('ends')" if dates else "3600"
    here = project(cart)
    here.revision(f"import ttl_odm; op.alter_ttl('carts', {policy}, sweep='database')")
    said = r"would leave behind rows of entries, which follow these.*Write sweep='index'"
    with pytest.raises(MigrationRefusedError, match=said):
        here.upgrade()
    with engine.connect() as connection:
        for function in (install_job, job_statements):
            with pytest.raises(MigrationRefusedError, match=said):
                function(connection, bound(cart))
            connection.rollback()
    assert left(engine) == []


def test_a_table_that_gets_its_ttl_is_rejected_as_well(engine: Engine, project: Any) -> None:
    cart, _ = family("no key")
    plain = MetaData()
    for table in cart.metadata.tables.values():
        columns = [column for column in table.c if column.name in ("id", "cart_id")]
        Table(
            table.name, plain, *(Column(c.name, c.type, primary_key=c.primary_key) for c in columns)
        )
    plain.create_all(engine)
    here = project(cart)
    here.revision("op.add_ttl('carts', 3600, sweep='database')")
    with pytest.raises(MigrationRefusedError, match="would leave behind rows of entries"):
        here.upgrade()
    assert {column["name"] for column in inspect(engine).get_columns("carts")} == {"id"}


def test_followers_that_a_key_takes_along_go_with_the_job(engine: Engine, project: Any) -> None:
    cart, item = family(None)
    cart.metadata.create_all(engine)
    here = project(cart)
    here.revision("op.alter_ttl('carts', 3600, sweep='database')")
    here.upgrade()
    here.check()
    with alone(engine, "carts") as let_run:
        with Session(engine) as session:
            session.add_all([cart(id=1), cart(id=2)])
            session.flush()
            session.add_all([item(id=1, cart_id=1), item(id=2, cart_id=2)])
            session.flush()
            age(session.connection(), "carts", 1, 2 * HOUR)
            session.commit()
        assert let_run()[::2] == (1, "swept")
    with Session(engine) as session:
        assert session.scalars(select(item.id).options(include_expired())).all() == [2]
    assert said_of_job(engine, cart, "followers") == []


@pytest.mark.parametrize("tie", TIES)
@pytest.mark.parametrize("dates", [False, True])
def test_a_job_that_was_there_before_the_followers_is_found_and_removed(
    engine: Engine, project: Any, tie: str, *, dates: bool
) -> None:
    before, _ = family(tie, follows=False, dates=dates)
    before.metadata.create_all(engine)
    here = project(before)
    policy = "ttl_odm.ExpireAt('ends')" if dates else "3600"
    here.revision(f"import ttl_odm; op.alter_ttl('carts', {policy}, sweep='database')")
    here.upgrade()
    here.check()
    assert said_of_job(engine, before, "followers") == []
    cart, _ = family(tie, dates=dates)
    here.metadata = cart.metadata
    (message,) = said_of_job(engine, cart, "followers")
    assert "leaves behind rows of entries, which follow its rows" in message
    with pytest.raises(CommandError, match="alter_ttl"):
        here.check()
    up, _ = lines(here.autogenerate())
    assert up == [f"op.alter_ttl('carts', {policy}, sweep='index')"]
    here.upgrade()
    here.check()
    with engine.connect() as connection:
        assert read_job(connection, None, "carts") is None
    assert left(engine) == []
    here.downgrade()


def test_followers_of_a_table_to_come_are_seen_by_the_revision_that_creates_it(
    engine: Engine, project: Any
) -> None:
    before, _ = family("no key", follows=False)
    carts: Table = before.__table__
    carts.create(engine)
    here = project(before)
    here.metadata = carts.to_metadata(type(before.metadata)()).metadata
    here.revision("op.alter_ttl('carts', 3600, sweep='database')")
    here.upgrade()
    here.metadata = family("no key")[0].metadata
    up, _ = lines(here.autogenerate())
    assert up[-1] == "op.alter_ttl('carts', 3600, sweep='index')"
    here.upgrade()
    here.check()
    assert "entries" in inspect(engine).get_table_names()
    assert left(engine) == []


def test_a_key_over_a_part_of_the_link_takes_followers_along(engine: Engine) -> None:
    class Base(DeclarativeBase):
        pass

    class Cart(TTLMixin, Base):
        __tablename__ = "carts"
        __ttl__ = HOUR
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        shop: Mapped[int]

    class Item(Base):
        __tablename__ = "entries"
        __ttl__ = Follows(Cart, on={"cart_id": "id", "shop": "shop"})
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        cart_id: Mapped[int] = mapped_column(ForeignKey(Cart.id, ondelete="CASCADE"), index=True)
        shop: Mapped[int]

    Base.metadata.create_all(engine)
    with engine.connect() as connection:
        install_job(connection, bound(Cart))
        connection.commit()
    assert said_of_job(engine, Cart, "followers") == []
