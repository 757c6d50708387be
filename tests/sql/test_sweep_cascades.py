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
    event,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

from tests.sql.sweeping import HOUR, add, left, servers
from ttl_odm import TTL, Follows
from ttl_odm.sqlalchemy import Archive, TTLMixin, include_expired
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper import AsyncSweeper, Hook, HookError, Purged, Skip, Sweeper

if TYPE_CHECKING:
    from collections.abc import Sequence

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


@pytest.mark.slow
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
        assert "The archive old_items did not accept rows of items" in str(target.error)
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
@pytest.mark.parametrize("how", ["flush", "insert", "batch", "update"])
def test_live_rows_keep_their_parent_from_a_write_that_takes_its_key(
    engine: Engine, made: Any, mode: str, how: str
) -> None:
    heard: list[Any] = []
    cart, item, old = shop(mode, heard)
    made(cart)
    with engine.begin() as connection:
        fill(connection, {11: 1, 12: 1, 21: 2}, live=[12])
        connection.execute(insert(cart).values(id=5))

    def write(session: Session) -> None:
        if how == "flush":
            session.add(cart(id=1))
            session.flush()
        elif how == "insert":
            session.execute(insert(cart).values(id=1))
        elif how == "batch":
            session.execute(insert(cart), [{"id": 1}, {"id": 3}])
        else:
            session.execute(update(cart).where(cart.id == 5).values(id=1))

    message = (
        "live rows of 'items' refer to it, and a cascade would delete the live rows without their "
        r"archive or hooks\. Delete these first\."
    )
    with Session(engine) as session, pytest.raises(IntegrityError, match=message):
        write(session)
    with Session(engine) as session:
        assert left(session.connection(), item) == {11, 12, 21}
        assert kept(session.connection(), mode, old, heard if mode == "archive" else []) == []
        session.execute(delete(item).where(item.id == 12))
        heard.clear()
        write(session)
        session.commit()
    with engine.connect() as connection:
        assert kept(connection, mode, old, heard) == [11]
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
    holding = other.execution_options(isolation_level="READ COMMITTED")
    with holding.begin() as holder:
        holder.execute(text("SELECT id FROM items WHERE id = 12 FOR UPDATE"))
        report = Sweeper(engine, cart).run_once()
    report.raise_for_failures()
    (target,) = report.targets
    assert (target.deleted, dict(target.skips)) == (1, {Skip.RESTRICTED: 1})
    (note,) = target.notes
    assert "items(cart_id) refers to are kept until the referring rows are gone" in note
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
        fill(connection, dict.fromkeys(range(100, 125), 1), carts=3)
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


def levels(*actions: str, traced: Sequence[int], keeps: Sequence[int]) -> Any:
    """A chain of tables, each of which refers to the one before it.

    Those of `keeps` have a policy, those of `traced` an archive too; the first has a policy.
    """

    class Base(DeclarativeBase):
        pass

    models: list[Any] = []
    for number in range(len(actions) + 1):
        fields: dict[str, Any] = {
            "__tablename__": f"level_{number}",
            "id": mapped_column("id", primary_key=True, autoincrement=False),
            "__annotations__": {"id": Mapped[int]},
        }
        bases: tuple[Any, ...] = (Base,)
        if number:
            fields["above"] = mapped_column(
                ForeignKey(f"level_{number - 1}.id", ondelete=actions[number - 1] or None),
                index=True,
            )
            fields["__annotations__"]["above"] = Mapped[int]
        if number in (0, *keeps):
            bases, fields["__ttl__"] = (TTLMixin, Base), HOUR
        if number in traced:
            fields["__ttl_archive__"] = Archive(lambda: Old)
        models.append(type(f"Level{number}", bases, fields))

    class Old(Base):
        __tablename__ = "old"

        number: Mapped[int] = mapped_column(primary_key=True)
        id: Mapped[int]

    return models, Old


def chain(connection: Connection, models: Any, live: Sequence[int] = ()) -> None:
    """Write two rows of each table, of which the second refers to the second one above."""
    for number, model in enumerate(models):
        columns = model.__table__.c
        for key in (1, 2):
            values = {"id": 10 * number + key}
            if number:
                values["above"] = 10 * (number - 1) + key
            connection.execute(insert(model.__table__).values(values))
        if "_ts" in columns:
            second = clock_of(connection.dialect).second
            some = f"id <> {number * 10 + 2}" if number in live else "id > 0"
            connection.execute(
                text(f"UPDATE level_{number} SET _ts = _ts - {2 * HOUR} * {second} WHERE {some}")  # noqa: S608
            )


CHAINS = {
    "by way of a table without a policy": (["CASCADE", "CASCADE"], [2], [2]),
    "by way of a table with a policy": (["CASCADE", "CASCADE"], [2], [1, 2]),
    "two that are recorded": (["CASCADE", "CASCADE"], [1, 2], [1, 2]),
    "by way of one that restricts": (["", "CASCADE"], [2], [1, 2]),
    "behind one that restricts": (["CASCADE", ""], [2], [1, 2]),
    "far below": (["CASCADE", "CASCADE", "CASCADE", "CASCADE"], [2, 4], [2, 3, 4]),
}


@pytest.mark.parametrize("how", ["sweep", "write", "delete"])
@pytest.mark.parametrize("shape", CHAINS)
def test_rows_far_below_are_recorded(engine: Engine, made: Any, shape: str, how: str) -> None:
    actions, traced, keeps = CHAINS[shape]
    models, old = levels(*actions, traced=traced, keeps=keeps)
    made(models[0])
    with engine.begin() as connection:
        chain(connection, models)
        if how == "delete":
            connection.execute(text("UPDATE level_0 SET ttl = -1"))
    if how == "sweep":
        report = Sweeper(engine, models[0]).run_once()
        report.raise_for_failures()
        assert report.targets[0].deleted == 2
    with engine.begin() as connection:
        if how == "write":
            connection.execute(insert(models[0]), [{"id": 1}, {"id": 2}])
        elif how == "delete":
            connection.execute(delete(models[0]).where(models[0].id < 10))
    with engine.connect() as connection:
        assert sorted(connection.scalars(select(old.id))) == sorted(
            10 * number + key for number in traced for key in (1, 2)
        )
        for model in models[1:]:
            assert left(connection, model) == set()


@pytest.mark.parametrize("shape", ["by way of a table without a policy", "far below"])
def test_a_live_row_far_below_keeps_what_it_hangs_on(engine: Engine, made: Any, shape: str) -> None:
    actions, traced, keeps = CHAINS[shape]
    models, old = levels(*actions, traced=traced, keeps=keeps)
    made(models[0])
    last = len(actions)
    with engine.begin() as connection:
        chain(connection, models, live=[last])
    report = Sweeper(engine, models[0].registry).run_once()
    report.raise_for_failures()
    (target,) = (one for one in report.targets if one.table == "level_0")
    assert (target.deleted, dict(target.skips)) == (1, {Skip.RESTRICTED: 1})
    with engine.connect() as connection:
        assert left(connection, models[0]) == {2}
        assert left(connection, models[last]) == {10 * last + 2}
        assert 10 * last + 1 in set(connection.scalars(select(old.id)))


@pytest.mark.parametrize("shape", ["by way of a table without a policy", "far below"])
def test_a_live_row_far_below_keeps_it_from_a_write(engine: Engine, made: Any, shape: str) -> None:
    actions, traced, keeps = CHAINS[shape]
    models, _ = levels(*actions, traced=traced, keeps=keeps)
    made(models[0])
    last = len(actions)
    with engine.begin() as connection:
        chain(connection, models, live=[last])
    message = f"live rows of 'level_{last}' refer to it"
    with engine.begin() as connection, pytest.raises(IntegrityError, match=message):
        connection.execute(insert(models[0]).values(id=2))
    with engine.begin() as connection:
        connection.execute(insert(models[0]).values(id=1))
        assert left(connection, models[last]) == {10 * last + 2}


def test_composite_keys_are_told_apart(engine: Engine, made: Any) -> None:
    class Base(DeclarativeBase):
        pass

    class Order(TTLMixin, Base):
        __tablename__ = "orders"
        __ttl__ = HOUR

        tenant: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

    class Line(TTLMixin, Base):
        __tablename__ = "order_lines"
        __ttl__ = HOUR
        __ttl_archive__ = Archive(lambda: OldLine)

        tenant: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        order_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        __table_args__ = (
            ForeignKeyConstraint(
                ["tenant", "order_id"], ["orders.tenant", "orders.id"], ondelete="CASCADE"
            ),
            Index("of_order", "tenant", "order_id"),
        )

    class OldLine(Base):
        __tablename__ = "old_lines"

        tenant: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        order_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

    made(Order)
    pairs = [(tenant, order) for tenant in (1, 2) for order in (1, 2)]
    second = clock_of(engine.dialect).second
    with engine.begin() as connection:
        connection.execute(insert(Order), [{"tenant": a, "id": b} for a, b in pairs])
        connection.execute(
            insert(Line), [{"tenant": a, "order_id": b, "id": n} for a, b in pairs for n in (1, 2)]
        )
        connection.execute(text(f"UPDATE orders SET _ts = _ts - {2 * HOUR} * {second}"))  # noqa: S608
        connection.execute(
            text(
                f"UPDATE order_lines SET _ts = _ts - {2 * HOUR} * {second} "  # noqa: S608
                "WHERE tenant <> 2 OR order_id <> 1 OR id <> 1"
            )
        )
    report = Sweeper(engine, Order).run_once()
    report.raise_for_failures()
    assert (report.targets[0].deleted, dict(report.targets[0].skips)) == (3, {Skip.RESTRICTED: 1})
    with engine.connect() as connection:
        assert len(connection.execute(select(OldLine)).all()) == 7
        rows = select(Line.tenant, Line.order_id, Line.id).options(include_expired())
        assert connection.execute(rows).all() == [(2, 1, 1)]


@pytest.mark.parametrize("ondelete", ["SET NULL", "RESTRICT", "NO ACTION"])
def test_other_foreign_keys_do_as_they_did(engine: Engine, made: Any, ondelete: str) -> None:
    cart, item, old = shop("archive", ondelete=ondelete)
    made(cart)
    with engine.begin() as connection:
        fill(connection, {11: 1, 12: 1, 21: 2}, live=[12])
    report = Sweeper(engine, cart).run_once()
    report.raise_for_failures()
    unlinked = ondelete == "SET NULL"
    with engine.connect() as connection:
        assert left(connection, cart) == (set() if unlinked else {1})
        assert left(connection, item) == ({11, 12, 21} if unlinked else {12})
    Sweeper(engine, cart.registry).run_once().raise_for_failures()
    with engine.connect() as connection:
        assert set(connection.scalars(select(old.id))) == {11, 21}


def tenants(onupdate: str | None = None) -> Any:
    class Base(DeclarativeBase):
        pass

    class Tenant(TTLMixin, Base):
        __tablename__ = "tenants"
        __ttl__ = HOUR

        name: Mapped[str] = mapped_column(String(10), primary_key=True)

    class Message(TTLMixin, Base):
        __tablename__ = "messages"
        __ttl__ = TTL({"a": HOUR}, by="tenant", other=None)

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        tenant: Mapped[str | None] = mapped_column(
            ForeignKey(Tenant.name, ondelete="SET NULL", onupdate=onupdate), index=True
        )

    return Tenant, Message


@pytest.mark.parametrize("how", ["sweep", "write", "delete", "update"])
def test_a_foreign_key_that_changes_the_policy_of_rows_brings_none_back(
    engine: Engine, made: Any, how: str
) -> None:
    tenant, message = tenants("CASCADE")
    made(tenant)
    second = clock_of(engine.dialect).second
    with engine.begin() as connection:
        connection.execute(insert(tenant), [{"name": "a"}])
        connection.execute(insert(message), [{"id": n, "tenant": "a"} for n in (1, 2)])
        past = f"_ts = _ts - {2 * HOUR} * {second}"
        connection.execute(text(f"UPDATE messages SET {past} WHERE id = 1"))  # noqa: S608
        if how in ("sweep", "write"):
            connection.execute(text(f"UPDATE tenants SET {past}"))  # noqa: S608
    if how == "sweep":
        Sweeper(engine, tenant).run_once().raise_for_failures()
    with engine.begin() as connection:
        if how == "write":
            connection.execute(insert(tenant).values(name="a"))
        elif how == "delete":
            connection.execute(delete(tenant).where(tenant.name == "a"))
        elif how == "update":
            connection.execute(update(tenant).where(tenant.name == "a").values(name="b"))
    with engine.connect() as connection:
        rows = connection.execute(select(message.id, message.tenant)).all()
        assert rows == [(2, "b" if how == "update" else None)]


@pytest.mark.parametrize("link", ["foreign key", "columns"])
@pytest.mark.parametrize("how", ["sweep", "write", "follower"])
def test_rows_that_cascade_from_followers_are_recorded(
    engine: Engine, made: Any, how: str, link: str
) -> None:
    class Base(DeclarativeBase):
        pass

    class Cart(TTLMixin, Base):
        __tablename__ = "carts"
        __ttl__ = HOUR

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

    class Part(TTLMixin, Base):
        __tablename__ = "parts"
        __ttl__ = Follows(Cart, on={"cart_id": "id"})

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        cart_id: Mapped[int] = mapped_column(
            *([ForeignKey(Cart.id, ondelete="CASCADE")] if link == "foreign key" else []),
            index=True,
        )

    class Event(TTLMixin, Base):
        __tablename__ = "events"
        __ttl__ = HOUR
        __ttl_archive__ = Archive(lambda: OldEvent)

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        part_id: Mapped[int] = mapped_column(ForeignKey(Part.id, ondelete="CASCADE"), index=True)

    class OldEvent(Base):
        __tablename__ = "old_events"

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

    made(Cart)
    with engine.begin() as connection:
        connection.execute(insert(Cart), [{"id": 1}, {"id": 2}])
        connection.execute(insert(Part), [{"id": 10 * n, "cart_id": n} for n in (1, 2)])
        connection.execute(insert(Event), [{"id": 100 * n, "part_id": 10 * n} for n in (1, 2)])
        second = clock_of(engine.dialect).second
        past = f"_ts = _ts - {2 * HOUR} * {second}"
        connection.execute(text(f"UPDATE carts SET {past}"))  # noqa: S608
        connection.execute(text(f"UPDATE events SET {past} WHERE id = 100"))  # noqa: S608
    if how == "sweep":
        report = Sweeper(engine, Cart).run_once()
        report.raise_for_failures()
        assert dict(report.targets[0].skips) == {Skip.RESTRICTED: 1}
    with engine.begin() as connection:
        if how == "write":
            connection.execute(insert(Cart), [{"id": 1}])
        elif how == "follower":
            connection.execute(insert(Cart), [{"id": 3}])
            connection.execute(insert(Part), [{"id": 10, "cart_id": 3}])
    with engine.connect() as connection:
        assert left(connection, Event) == {200}
        assert set(connection.scalars(select(OldEvent.id))) == {100}
        stored = set(connection.scalars(text("SELECT id FROM parts")))
        assert stored == ({10, 20} if how == "follower" else {20})


def test_orphans_stay_until_rows_that_cascade_from_them_are_recorded(
    engine: Engine, made: Any
) -> None:
    class Base(DeclarativeBase):
        pass

    class Cart(TTLMixin, Base):
        __tablename__ = "carts"
        __ttl__ = HOUR

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

    class Part(TTLMixin, Base):
        __tablename__ = "parts"
        __ttl__ = Follows(Cart, on={"cart_id": "id"})

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        cart_id: Mapped[int] = mapped_column(index=True)

    class Event(TTLMixin, Base):
        __tablename__ = "events"
        __ttl__ = HOUR
        __ttl_archive__ = Archive(lambda: OldEvent)

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        part_id: Mapped[int] = mapped_column(ForeignKey(Part.id, ondelete="CASCADE"), index=True)

    class OldEvent(Base):
        __tablename__ = "old_events"

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

    made(Cart)
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO parts (id, cart_id) VALUES (10, 1), (20, 2)"))
        add_events = "INSERT INTO events (id, part_id, _ts) VALUES (100, 10, {past})"
        clock = clock_of(engine.dialect)
        past = f"{clock.now} - {2 * HOUR} * {clock.second}"
        connection.execute(text(add_events.format(past=past)))
    Sweeper(engine, Cart).run_once().raise_for_failures()
    with engine.connect() as connection:
        assert set(connection.scalars(text("SELECT id FROM parts"))) == {10}
        assert left(connection, Event) == {100}
    Sweeper(engine, Cart.registry).run_once().raise_for_failures()
    Sweeper(engine, Cart.registry).run_once().raise_for_failures()
    with engine.connect() as connection:
        assert set(connection.scalars(text("SELECT id FROM parts"))) == set()
        assert set(connection.scalars(select(OldEvent.id))) == {100}


@pytest.mark.parametrize("how", ["sweep", "write"])
@pytest.mark.parametrize("cascade", ["the database's", "the ORM's"])
def test_rows_deleted_through_the_orm_take_none_along_that_are_recorded(
    engine: Engine, made: Any, cascade: str, how: str
) -> None:
    class Base(DeclarativeBase):
        pass

    class Cart(TTLMixin, Base):
        __tablename__ = "carts"
        __ttl__ = HOUR
        __ttl_purge__ = "orm"

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        items: Mapped[list[Item]] = relationship(
            cascade="all, delete-orphan", passive_deletes=cascade == "the database's"
        )

    class Item(TTLMixin, Base):
        __tablename__ = "items"
        __ttl__ = HOUR
        __ttl_archive__ = Archive(lambda: OldItem)

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        cart_id: Mapped[int] = mapped_column(
            ForeignKey(Cart.id, ondelete="CASCADE" if cascade == "the database's" else None),
            index=True,
        )

    class OldItem(Base):
        __tablename__ = "old_items"

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

    made(Cart)
    with engine.begin() as connection:
        add(connection, "carts", [(n, None, 2 * HOUR + n) for n in (1, 2, 3)])
        connection.execute(
            insert(Item), [{"id": n, "cart_id": cart} for n, cart in ((11, 1), (12, 1), (21, 2))]
        )
        second = clock_of(engine.dialect).second
        connection.execute(
            text(f"UPDATE items SET _ts = _ts - {2 * HOUR} * {second} WHERE id <> 12")  # noqa: S608
        )
    if how == "write":
        message = "live rows of 'items' refer to it"
        with Session(engine) as session, pytest.raises(IntegrityError, match=message):
            session.execute(insert(Cart).values(id=1))
        with engine.connect() as connection:
            assert left(connection, Item) == {11, 12, 21}
        return
    report = Sweeper(engine, Cart).run_once()
    (target,) = report.targets
    assert target.deleted == 2
    assert sum(target.skips.values()) == 1
    with engine.connect() as connection:
        assert left(connection, Cart) == {1}
        stay = left(connection, Item)
        assert 12 in stay
        assert set(connection.scalars(select(OldItem.id))) == {11, 12, 21} - stay
    if cascade == "the ORM's":
        assert "a cascade of the ORM would delete them unarchived" in target.left[0]


def test_a_model_that_the_orm_deletes_is_not_deleted_by_a_cascade(
    engine: Engine, made: Any
) -> None:
    cart, item, _ = shop("plain")
    item.__ttl_purge__ = "orm"
    made(cart)
    gone: list[int] = []

    @event.listens_for(item, "before_delete")
    def note(_mapper: Any, _connection: Any, row: Any) -> None:
        gone.append(row.id)

    with engine.begin() as connection:
        fill(connection, {11: 1, 12: 1, 21: 2})
    Sweeper(engine, cart).run_once().raise_for_failures()
    with engine.connect() as connection:
        assert left(connection, cart) == left(connection, item) == set()
    assert sorted(gone) == [11, 12, 21]


@pytest.mark.parametrize("where", ["the base", "the subclass"])
def test_rows_of_joined_subclasses_are_reported(engine: Engine, made: Any, where: str) -> None:
    heard: list[Any] = []

    class Base(DeclarativeBase):
        pass

    class Cart(TTLMixin, Base):
        __tablename__ = "carts"
        __ttl__ = HOUR

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

    def to_cart() -> Any:
        return mapped_column(ForeignKey(Cart.id, ondelete="CASCADE"), index=True)

    class Item(TTLMixin, Base):
        __tablename__ = "items"
        __ttl__ = HOUR
        __ttl_on_purged__ = heard.append
        __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "item"}

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        kind: Mapped[str] = mapped_column(String(10), server_default="item")
        if where == "the base":
            cart_id: Mapped[int | None] = to_cart()

    class Book(Item):
        __tablename__ = "books"
        __mapper_args__ = {"polymorphic_identity": "book"}

        id: Mapped[int] = mapped_column(
            ForeignKey(Item.id, ondelete="CASCADE"), primary_key=True, autoincrement=False
        )
        if where == "the subclass":
            cart_id: Mapped[int | None] = to_cart()

    made(Cart)
    second = clock_of(engine.dialect).second
    with Session(engine) as session:
        session.add_all([Cart(id=1), Cart(id=2)])
        session.flush()
        session.add_all([Book(id=10, cart_id=1), Book(id=20, cart_id=2)])
        session.commit()
        past = f"_ts = _ts - {2 * HOUR} * {second}"
        session.execute(text(f"UPDATE carts SET {past}"))  # noqa: S608
        session.execute(text(f"UPDATE items SET {past} WHERE id = 10"))  # noqa: S608
        session.commit()
    report = Sweeper(engine, Cart).run_once()
    report.raise_for_failures()
    assert dict(report.targets[0].skips) == {Skip.RESTRICTED: 1}
    assert [one.keys for one in heard] == [[(10,)]]
    with engine.connect() as connection:
        assert left(connection, Cart) == {2}
        assert left(connection, Item) == {20}
        assert set(connection.scalars(text("SELECT id FROM books"))) == {20}


@pytest.mark.parametrize("declared", ["without ON DELETE", "not at all"])
def test_what_only_the_database_cascades_is_noticed(
    engine: Engine, made: Any, declared: str
) -> None:
    cart, item, old = shop("archive")
    made(cart)
    constraint = next(iter(item.__table__.c.cart_id.foreign_keys)).constraint
    if declared == "not at all":
        item.__table__.constraints.discard(constraint)
        for key in list(item.__table__.c.cart_id.foreign_keys):
            item.__table__.foreign_keys.discard(key)
            item.__table__.c.cart_id.foreign_keys.discard(key)
    else:
        constraint.ondelete = None
    with engine.begin() as connection:
        fill(connection, {11: 1, 12: 1, 21: 2}, carts=3)
    Sweeper(engine, cart).run_once().raise_for_failures()
    with engine.connect() as connection:
        kept_back = declared == "not at all"
        assert left(connection, cart) == ({1, 2} if kept_back else set())
    Sweeper(engine, cart.registry).run_once().raise_for_failures()
    Sweeper(engine, cart.registry).run_once().raise_for_failures()
    with engine.connect() as connection:
        assert left(connection, cart) == set()
        assert kept(connection, "archive", old, []) == [11, 12, 21]
