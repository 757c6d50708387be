"""The keys of rows whose parent has expired are free; and links of two columns."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import ForeignKey, ForeignKeyConstraint, insert, select, text, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tests.locks import is_locked_by_others
from tests.sql.following import EXPIRED, HOUR, LIVE, TREES, Cart, Item, Note, expire, fill, stored
from ttl_odm import Follows
from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.sqlalchemy import ExpiredError, TTLMixin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection, Engine


@pytest.fixture
def session(engine: Engine, enforcing: None) -> Iterator[Session]:
    fill(engine)
    with Session(engine) as session:
        yield session


def test_a_new_row_takes_the_key_of_one_whose_parent_has_expired(session: Session) -> None:
    session.add(Item(id=20, cart_id=LIVE, name="new"))
    session.flush()
    session.connection().execute(insert(Item).values(id=21, cart_id=LIVE, name="new"))
    session.execute(insert(Note), [{"id": 200, "item_id": 20}, {"id": 210, "item_id": 21}])
    session.commit()
    assert session.scalars(select(Item.id).where(Item.name == "new")).all() == [20, 21]
    assert stored(session.get_bind(), *TREES) == [2, 4, 4, 4, 4]  # type: ignore[arg-type]


def test_an_update_takes_such_a_key_too(session: Session) -> None:
    moved: Any = session.execute(update(Note).where(Note.id == 100).values(id=200))
    assert moved.rowcount == 1
    assert session.scalars(select(Note.id).order_by(Note.id)).all() == [110, 200]


@pytest.mark.databases("postgres")
def test_a_new_row_leaves_the_parents_of_other_schemas_alone(engine: Engine) -> None:
    tenant = engine.execution_options(schema_translate_map={None: "tenant"})
    with engine.begin() as connection:
        connection.execute(text("CREATE SCHEMA tenant"))
    for place in (engine, tenant):
        with place.begin() as connection:
            Cart.metadata.create_all(connection)
            connection.execute(insert(Cart), [{"id": LIVE}, {"id": EXPIRED}])
            connection.execute(insert(Item), [{"id": n, "cart_id": EXPIRED} for n in (20, 21)])
            connection.execute(insert(Note), {"id": 200, "item_id": 20})
    with engine.begin() as connection:
        expire(connection, EXPIRED, "tenant.carts")
    with Session(tenant) as session:
        session.add(Item(id=20, cart_id=LIVE))
        session.commit()
        assert session.scalars(select(Item.id)).all() == [20]
    assert stored(engine, "tenant.carts", "tenant.items", "tenant.remarks") == [2, 2, 0]
    with Session(engine) as session:
        assert session.scalars(select(Cart.ttl)).all() == [None, None]
        assert session.scalars(select(Item.id).order_by(Item.id)).all() == [20, 21]


def fill_cart(connection: Connection, cart: int, items: int) -> None:
    """An expired cart with that many items, each of which has a note."""
    connection.execute(insert(Cart), {"id": cart})
    keys = range(1_000 * cart, 1_000 * cart + items)
    connection.execute(insert(Item), [{"id": key, "cart_id": cart} for key in keys])
    connection.execute(insert(Note), [{"id": 10 * key, "item_id": key} for key in keys])
    expire(connection, cart)


@pytest.mark.every_server
def test_a_key_with_many_followers_takes_as_many_statements_as_one_with_few(
    engine: Engine, session: Session, sent: list[str]
) -> None:
    """InnoDB reads by an index and deletes by keys, so that it locks nothing else."""
    statements = []
    for cart, items in ((5, 2), (6, 700)):
        fill_cart(session.connection(), cart, items)
        session.commit()
        sent.clear()
        with engine.begin() as connection:
            connection.execute(insert(Cart).values(id=cart))
        statements.append(Counter(statement[:40] for statement in sent))
        assert stored(engine, "items", "remarks") == [4, 4]
    few, many = statements
    if engine.dialect.name not in MYSQL_FAMILY:
        assert many == few
    else:  # each read walks over all that was deleted before
        assert many["SELECT items.id \nFROM items \nWHERE items"] == 1
        assert many["DELETE FROM items WHERE items.id IN (%(i"] == 2


@pytest.mark.slow
def test_many_rows_with_many_keys_take_those_of_expired_parents(engine: Engine) -> None:
    """Each key of each row is a condition of its own, which SQLite nests at most 1,000 deep."""

    class Base(DeclarativeBase):
        pass

    class Shelf(TTLMixin, Base):
        __tablename__ = "carts"
        __ttl__ = HOUR
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

    class Book(TTLMixin, Base):
        __tablename__ = "books"
        __ttl__ = Follows("shelf_id")
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        shelf_id: Mapped[int] = mapped_column(ForeignKey("carts.id", ondelete="CASCADE"))
        isbn: Mapped[int] = mapped_column(unique=True)
        ean: Mapped[int] = mapped_column(unique=True)
        place: Mapped[int] = mapped_column(unique=True)
        label: Mapped[int] = mapped_column(unique=True)

    Base.metadata.create_all(engine)
    numbers = range(200)
    books = [{"id": n, "isbn": n, "ean": n, "place": n, "label": n} for n in numbers]
    with Session(engine) as session:
        session.execute(insert(Shelf), [{"id": EXPIRED}, {"id": LIVE}])
        session.execute(insert(Book), [{"shelf_id": EXPIRED, **book} for book in books])
        expire(session.connection(), EXPIRED)
        session.commit()
        session.execute(insert(Book), [{"shelf_id": LIVE, **book} for book in books])
        session.commit()
        assert session.scalars(select(Book.id).order_by(Book.id)).all() == list(numbers)


@pytest.mark.databases("postgres", "mariadb", "mysql")
@pytest.mark.every_server
def test_the_root_of_a_row_that_makes_way_cannot_be_renewed_meanwhile(
    engine: Engine, session: Session
) -> None:
    # By a ttl of its own: a row that inherits the default is written, and so locked anyway.
    own = text("UPDATE carts SET ttl = 60 WHERE id = :id")
    session.execute(own.execution_options(include_expired=True), {"id": EXPIRED})
    session.commit()
    session.connection().execute(insert(Item).values(id=20, cart_id=LIVE))
    assert is_locked_by_others(engine, "carts", EXPIRED)
    assert not is_locked_by_others(engine, "carts", 99)


def test_a_live_row_keeps_its_key(session: Session) -> None:
    session.add(Item(id=11, cart_id=LIVE))
    with pytest.raises(IntegrityError):
        session.flush()


def test_what_the_row_followed_does_not_come_back_without_it(session: Session) -> None:
    session.add(Item(id=20, cart_id=LIVE))
    session.commit()
    try:
        Cart.__ttl__ = 24 * HOUR
        assert session.get(Cart, EXPIRED) is None
        assert session.scalars(select(Item.id).order_by(Item.id)).all() == [10, 11, 20]
    finally:
        Cart.__ttl__ = HOUR


class Base(DeclarativeBase):
    pass


class Room(TTLMixin, Base):
    __tablename__ = "rooms"
    __ttl__ = HOUR

    house: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class Chair(Base):
    __tablename__ = "chairs"
    __ttl__ = Follows(Room, on={"house": "house", "room_id": "id"})
    __table_args__ = (ForeignKeyConstraint(["house", "room_id"], ["rooms.house", "rooms.id"]),)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    house: Mapped[int]
    room_id: Mapped[int | None]


def test_a_row_moves_by_a_part_of_its_link(engine: Engine, enforcing: None) -> None:
    Base.metadata.create_all(engine)
    with engine.begin() as connection:
        rooms = [{"house": 1, "id": 1}, {"house": 1, "id": 2}, {"house": 1, "id": 3}]
        connection.execute(insert(Room), rooms)
        connection.execute(insert(Chair), [{"id": 1, "house": 1, "room_id": 1}])
        expire(connection, 2, "rooms")
    with Session(engine) as session:
        moved: Any = session.execute(update(Chair).values(room_id=2))
        assert moved.rowcount == 0
        moved = session.execute(update(Chair).values(room_id=3))
        assert moved.rowcount == 1
        session.get_one(Chair, 1).room_id = 2
        with pytest.raises(ExpiredError, match=r"rooms \(1, 2\)"):
            session.flush()
        session.rollback()
        session.get_one(Chair, 1).room_id = None
        session.flush()
        assert session.scalar(select(Chair.id)) is None
