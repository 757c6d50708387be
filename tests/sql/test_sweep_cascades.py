"""Rows that ON DELETE CASCADE would delete although their model archives or reports them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    String,
    delete,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

from tests.sql.sweeping import HOUR, add, left, servers
from ttl_odm.sqlalchemy import Archive, TTLMixin, include_expired
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper import AsyncSweeper, Hook, HookError, Purged, Skip, Sweeper

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection, Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

pytestmark = pytest.mark.usefixtures("enforcing")


class Sink:
    """An archive that Python writes."""

    def __init__(self, heard: list[Any]) -> None:
        self._heard = heard

    def write(self, purged: Purged) -> None:
        self._heard.extend(key for (key,) in purged.keys)


def shop(mode: str, heard: list[Any] | None = None, *, ondelete: str = "CASCADE") -> Any:
    """Carts, and items that go with them by a foreign key of the database's."""
    told = [] if heard is None else heard

    def hear(purged: Purged) -> None:
        told.extend(key for (key,) in purged.keys)

    class Base(DeclarativeBase):
        pass

    class Cart(TTLMixin, Base):
        __tablename__ = "carts"
        __ttl__ = HOUR

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        name: Mapped[str | None] = mapped_column(String(40), unique=True)

    class Item(TTLMixin, Base):
        __tablename__ = "items"
        __ttl__ = HOUR
        __ttl_archive__: Any = {"archive": Archive(lambda: OldItem), "sink": Sink(told)}.get(mode)
        __ttl_on_purged__: Any = {"hook": hear, "rows": Hook(hear, rows=True)}.get(mode)

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        cart_id: Mapped[int | None] = mapped_column(
            ForeignKey(Cart.id, ondelete=ondelete), index=True
        )

    class OldItem(Base):
        __tablename__ = "old_items"

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        cart_id: Mapped[int | None]

    return Cart, Item, OldItem


modes = pytest.mark.parametrize("mode", ["archive", "hook"])


def fill(
    connection: Connection, items: dict[int, int], live: Sequence[int] = (), carts: int = 0
) -> None:
    """Write expired carts, and items by their carts, of which some are live."""
    numbers = sorted({*items.values(), *range(1, carts + 1)})
    add(connection, "carts", [(number, None, 2 * HOUR + number) for number in numbers])
    add(
        connection,
        "items",
        [(key, -1 if key in live else None, 2 * HOUR + key) for key in items],
    )
    connection.execute(
        text("UPDATE items SET cart_id = :cart WHERE id = :id"),
        [{"id": key, "cart": cart} for key, cart in items.items()],
    )


def kept(connection: Connection, mode: str, old: Any, heard: list[Any]) -> list[int]:
    """The keys of the items that were archived or reported, in order."""
    return sorted(connection.scalars(select(old.id))) if mode == "archive" else sorted(heard)


@pytest.mark.parametrize("mode", ["archive", "sink", "hook", "rows"])
def test_a_sweep_of_the_parents_alone_removes_the_rows_that_cascade_first(
    engine: Engine, made: Any, mode: str
) -> None:
    heard: list[Any] = []
    cart, item, old = shop(mode, heard)
    made(cart)
    with engine.begin() as connection:
        fill(connection, {11: 1, 12: 1, 21: 2}, carts=4)
    report = Sweeper(engine, cart).run_once()
    report.raise_for_failures()
    (target,) = report.targets
    assert (target.deleted, target.referring) == (4, {"items": 3})
    with engine.connect() as connection:
        assert kept(connection, mode, old, heard) == [11, 12, 21]
        assert left(connection, cart) == left(connection, item) == set()


@modes
def test_a_limit_between_the_tables_loses_no_row(engine: Engine, made: Any, mode: str) -> None:
    heard: list[Any] = []
    cart, item, old = shop(mode, heard)
    made(cart)
    items = {10 * number + place: number for number in range(1, 6) for place in range(4)}
    with engine.begin() as connection:
        fill(connection, items)
    sweeper = Sweeper(engine, cart.registry, max_rows=3, batch_size=2)
    for _ in range(40):
        report = sweeper.run_once()
        report.raise_for_failures()
        with engine.connect() as connection:
            gone = sorted(items.keys() - left(connection, item))
            assert kept(connection, mode, old, heard) == gone
            if not left(connection, cart):
                break
    assert gone == sorted(items)


@pytest.mark.parametrize("targets", ["both", "the parents"])
def test_a_row_that_its_archive_rejects_keeps_its_parent(
    engine: Engine, made: Any, targets: str
) -> None:
    cart, item, old = shop("archive")
    made(cart)
    with engine.begin() as connection:
        fill(connection, {11: 1, 12: 1, 21: 2, 31: 3})
        connection.execute(insert(old).values(id=12))
    for _ in range(2):
        report = Sweeper(engine, cart.registry if targets == "both" else cart).run_once()
        (target,) = (one for one in report.targets if one.table == "carts")
        assert [one.table for one in report.failed] == (
            ["items", "carts"] if targets == "both" else ["carts"]
        )
        assert isinstance(target.error, HookError)
        assert "The archive old_items didn't take rows of items" in str(target.error)
        assert dict(target.skips) == {Skip.HOOK: 1}
        assert target.left[0].startswith("(1): ")
        with engine.connect() as connection:
            assert left(connection, cart) == {1}
            assert left(connection, item) >= {12}
            gone = {11, 12, 21, 31} - left(connection, item)
            assert set(connection.scalars(select(old.id))) == gone | {12}


@modes
@pytest.mark.parametrize("column", ["id", "name"])
def test_a_write_that_takes_the_key_of_a_parent_records_its_rows(
    engine: Engine, made: Any, mode: str, column: str
) -> None:
    heard: list[Any] = []
    cart, item, old = shop(mode, heard)
    made(cart)
    with engine.begin() as connection:
        fill(connection, {11: 1, 12: 1, 21: 2})
        connection.execute(text("UPDATE carts SET name = 'a' WHERE id = 1"))
    with Session(engine) as session:
        session.add(cart(id=1) if column == "id" else cart(id=9, name="a"))
        session.commit()
    with engine.connect() as connection:
        assert kept(connection, mode, old, heard) == [11, 12]
        assert left(connection, item) == {21}


@modes
@pytest.mark.parametrize("how", ["core", "orm", "key"])
def test_deleting_a_live_parent_records_its_expired_rows(
    engine: Engine, made: Any, mode: str, how: str
) -> None:
    heard: list[Any] = []
    cart, item, old = shop(mode, heard)
    made(cart)
    with engine.begin() as connection:
        fill(connection, {11: 1, 12: 1, 13: 1, 21: 2}, live=[13])
        connection.execute(text("UPDATE carts SET ttl = -1"))
    with Session(engine) as session:
        if how == "core":
            session.execute(delete(cart.__table__).where(cart.__table__.c.id == 1))
        elif how == "orm":
            session.execute(delete(cart).where(cart.id == 1))
        else:
            session.delete(session.get_one(cart, 1))
        session.commit()
    with engine.connect() as connection:
        assert kept(connection, mode, old, heard) == [11, 12]
        assert left(connection, item) == {21}


@servers
@modes
def test_rows_that_somebody_holds_keep_their_parent(
    engine: Engine, made: Any, other: Engine, mode: str
) -> None:
    heard: list[Any] = []
    cart, item, old = shop(mode, heard)
    made(cart)
    with engine.begin() as connection:
        fill(connection, {11: 1, 12: 1, 21: 2})
    with other.connect().execution_options(isolation_level="READ COMMITTED") as holder:
        with holder.begin():
            holder.execute(text("SELECT id FROM items WHERE id = 12 FOR UPDATE"))
            report = Sweeper(engine, cart).run_once()
            report.raise_for_failures()
            (target,) = report.targets
            assert (target.deleted, dict(target.skips)) == (1, {Skip.RESTRICTED: 1})
            (note,) = target.notes
            assert "items(cart_id) refers stay until the referring rows are gone" in note
    with engine.connect() as connection:
        assert (left(connection, cart), left(connection, item)) == ({1}, {12})
    Sweeper(engine, cart).run_once().raise_for_failures()
    with engine.connect() as connection:
        assert kept(connection, mode, old, heard) == [11, 12, 21]
        assert left(connection, cart) == left(connection, item) == set()


@modes
@pytest.mark.parametrize("batch_size", [None, 2])
def test_live_rows_keep_their_parent_and_the_report_says_why(
    engine: Engine, made: Any, mode: str, batch_size: int | None
) -> None:
    heard: list[Any] = []
    cart, item, old = shop(mode, heard)
    made(cart)
    with engine.begin() as connection:
        fill(connection, {11: 1, 12: 1, 21: 2, 31: 3}, live=[12, 31])
    for deleted in (1, 0):
        report = Sweeper(engine, cart.registry, batch_size=batch_size).run_once()
        report.raise_for_failures()
        (target,) = (one for one in report.targets if one.table == "carts")
        assert (target.deleted, dict(target.skips)) == (deleted, {Skip.RESTRICTED: 2})
        assert len(target.notes) == 1
    with engine.begin() as connection:
        assert kept(connection, mode, old, heard) == [11, 21]
        assert left(connection, item) == {12, 31}
        connection.execute(text("UPDATE items SET ttl = NULL"))
    Sweeper(engine, cart.registry).run_once().raise_for_failures()
    with engine.connect() as connection:
        assert kept(connection, mode, old, heard) == [11, 12, 21, 31]
        assert left(connection, cart) == set()


def test_rows_that_nobody_records_go_by_the_cascade_at_no_cost(
    engine: Engine, made: Any, sent: list[str]
) -> None:
    cart, item, _ = shop("plain")
    made(cart)
    with engine.begin() as connection:
        fill(connection, {11: 1, 12: 1, 21: 2}, live=[12])
    sent.clear()
    Sweeper(engine, cart).run_once().raise_for_failures()
    assert not [one for one in sent if "FROM items" in one]
    with engine.connect() as connection:
        assert left(connection, item) == set()
    with engine.begin() as connection:
        connection.execute(delete(cart).where(cart.id == 5))
        sent.clear()
        connection.execute(delete(cart).where(cart.id == 5))
        assert len(sent) == 1


def test_more_rows_than_a_batch_go_in_one_sweep(engine: Engine, made: Any) -> None:
    cart, item, old = shop("archive")
    made(cart)
    with engine.begin() as connection:
        fill(connection, {number: 1 for number in range(100, 125)}, carts=3)
    report = Sweeper(engine, cart, batch_size=4).run_once()
    report.raise_for_failures()
    (target,) = report.targets
    assert (target.deleted, target.referring, dict(target.skips)) == (3, {"items": 25}, {})
    with engine.connect() as connection:
        assert kept(connection, "archive", old, []) == list(range(100, 125))
        assert left(connection, item) == set()


def test_hooks_of_the_sweeper_are_told_of_rows_that_cascade(engine: Engine, made: Any) -> None:
    heard: list[Purged] = []
    cart, item, _ = shop("plain")
    made(cart)
    with engine.begin() as connection:
        fill(connection, {11: 1, 21: 2})
    hooks = {"items": [Hook(heard.append), Hook(heard.append, when="commit")]}
    Sweeper(engine, cart, on_purged=hooks).run_once().raise_for_failures()
    assert [(one.table, sorted(one.keys), one.reason) for one in heard] == [
        ("items", [(11,), (21,)], "expired")
    ] * 2
    with engine.connect() as connection:
        assert left(connection, item) == set()


async def test_rows_that_cascade_are_archived_asynchronously(async_engine: AsyncEngine) -> None:
    cart, item, old = shop("archive")
    async with async_engine.begin() as connection:
        await connection.run_sync(cart.metadata.create_all)
        await connection.run_sync(fill, {11: 1, 21: 2})
    report = await AsyncSweeper(async_engine, cart).run_once()
    report.raise_for_failures()
    async with async_engine.connect() as connection:
        assert await connection.run_sync(left, item) == set()
        assert sorted(await connection.scalars(select(old.id))) == [11, 21]
