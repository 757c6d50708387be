"""Unique constraints and indexes by which NULL is a value like others."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    Computed,
    ForeignKey,
    Index,
    MetaData,
    Numeric,
    String,
    Table,
    UniqueConstraint,
    bindparam,
    create_engine,
    func,
    insert,
    literal,
    literal_column,
    null,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tests.clocks import age
from tests.sql.statements import explained, is_delete
from ttl_odm import Follows
from ttl_odm.sqlalchemy import TTLMixin, enable

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

# Only PostgreSQL has them.
pytestmark = [pytest.mark.databases("postgres"), pytest.mark.slow]

EQUAL: dict[str, Any] = {"postgresql_nulls_not_distinct": True}
LOWER = "lower(email)"


def declared(kind: str, options: dict[str, Any] = EQUAL) -> Any:
    """A class of addresses at places, of which one at each place may be unknown."""

    class Base(DeclarativeBase):
        pass

    class Contact(TTLMixin, Base):
        __tablename__ = "contacts"
        __ttl__ = 3600

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        email: Mapped[Any] = mapped_column(
            Numeric(10, 2) if kind == "converted" else String(40), nullable=True
        )
        place: Mapped[int | None]
        if kind == "generated":
            lower: Mapped[str | None] = mapped_column(String(40), Computed(LOWER, persisted=True))
        if kind in {"constraint", "converted"}:
            __table_args__ = (UniqueConstraint("email", "place", **options),)

    keys: dict[str, list[Any]] = {
        "index": [Contact.email, Contact.place],
        "partial": [Contact.place, Contact.email],
        "expression": [func.lower(Contact.email), Contact.place],
    }
    if kind == "generated":
        keys[kind] = [Contact.lower, Contact.place]
    if kind == "partial":
        options = {**options, "postgresql_where": text("place > 0 OR place IS NULL")}
    if kind in keys:
        Index("uq_contacts", *keys[kind], unique=True, **options)
    return Contact


KINDS = ["constraint", "index", "partial", "expression", "generated", "converted"]


def address(model: Any) -> Any:
    """The address of the row that has one."""
    return Decimal(7) if isinstance(model.__table__.c.email.type, Numeric) else "Ann"


@pytest.fixture(params=KINDS)
def contacts(engine: Engine, request: pytest.FixtureRequest) -> Any:
    """Unknown addresses at 1, 2 and no place, all expired, and one at 3; a known one at 1."""
    model = declared(request.param)
    model.metadata.create_all(engine)
    fill(engine, model)
    return model


def fill(engine: Engine, model: Any) -> None:
    with Session(engine) as session:
        session.add_all([model(id=n, place=n) for n in (1, 2, 3)])
        session.add_all([model(id=4, email=address(model), place=1), model(id=5, place=None)])
        session.flush()
        for key in (1, 2, 5):
            age(session.connection(), "contacts", key, 4000)
        session.commit()


def stored(session: Session) -> list[Any]:
    return list(session.scalars(text("SELECT id FROM contacts ORDER BY id")))


def by_flush(s: Session, m: Any) -> None:
    s.add(m(id=6, place=1))


def by_flush_of_many(s: Session, m: Any) -> None:
    s.add_all([m(id=6, place=1), m(id=7, place=9, email=address(m)), m(id=8, place=9)])


def by_insert(s: Session, m: Any) -> None:
    s.execute(insert(m.__table__).values(id=6, place=1))


def by_insert_of_many(s: Session, m: Any) -> None:
    s.execute(insert(m.__table__), [{"id": n, "email": None, "place": n - 5} for n in (6, 10)])


def by_insert_of_values(s: Session, m: Any) -> None:
    s.execute(insert(m.__table__).values([{"id": n, "email": None, "place": n} for n in (7, 8)]))
    s.execute(insert(m.__table__).values([{"id": n, "email": None, "place": n - 5} for n in (6,)]))


def by_insert_of_sql(s: Session, m: Any) -> None:
    nothing = func.nullif(literal(address(m)), literal(address(m)))
    s.execute(insert(m.__table__).values(id=6, email=nothing, place=literal(3) - 2))


def by_insert_of_null(s: Session, m: Any) -> None:
    s.execute(insert(m.__table__).values(id=6, email=null(), place=literal(3) - 2))


def by_selected_rows(s: Session, m: Any) -> None:
    rows = select(m.id + 5, m.place - 2).where(m.id == 3)
    with_address = select(literal(6), literal(address(m), m.__table__.c.email.type), literal(8))
    s.execute(insert(m).from_select(["id", "email", "place"], with_address))
    s.execute(insert(m).from_select(["id", "place"], rows))


def by_insert_in_a_cte(s: Session, m: Any) -> None:
    written = insert(m.__table__).values(id=6, place=1).returning(m.__table__.c.id).cte()
    s.execute(select(written.c.id))


def by_insert_or_nothing(s: Session, m: Any) -> None:
    s.execute(upsert(m).values(id=6, place=1).on_conflict_do_nothing())


def by_changed_object(s: Session, m: Any) -> None:
    s.get_one(m, 4).email = None


def by_update(s: Session, m: Any) -> None:
    s.execute(update(m).where(m.id == 4).values(email=None))


def by_update_of_both(s: Session, m: Any) -> None:
    s.execute(update(m).where(m.id == 4).values(email=None, place=1))


def by_update_of_sql(s: Session, m: Any) -> None:
    s.execute(update(m).where(m.id == 4).values(email=func.nullif(m.email, address(m))))


def by_update_of_keys(s: Session, m: Any) -> None:
    s.execute(update(m), [{"id": 4, "email": None}])


def by_many_updates(s: Session, m: Any) -> None:
    table = m.__table__
    statement = update(table).where(table.c.id == bindparam("key")).values(email=bindparam("new"))
    s.connection().execute(statement, [{"key": 3, "new": address(m)}, {"key": 4, "new": None}])


def by_another_column(s: Session, m: Any) -> None:
    """The NULL is that of the row."""
    s.execute(update(m).where(m.id == 3).values(place=1))


def by_upsert_of_another_key(s: Session, m: Any) -> None:
    row = upsert(m).values(id=4, email=address(m), place=1)
    s.execute(row.on_conflict_do_update(index_elements=["id"], set_={"email": None}))


WRITES = [
    *(by_flush, by_flush_of_many, by_insert, by_insert_of_many, by_insert_of_values),
    *(by_insert_of_sql, by_insert_of_null, by_selected_rows, by_insert_in_a_cte),
    *(by_insert_or_nothing, by_changed_object, by_update, by_update_of_both, by_update_of_sql),
    *(by_update_of_keys, by_many_updates, by_another_column, by_upsert_of_another_key),
]


@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
def test_an_expired_row_with_null_frees_its_key(
    engine: Engine, contacts: Any, write: Callable[[Session, Any], None]
) -> None:
    for attempt in ("with no statement compiled", "with all of them"):
        with Session(engine) as session:
            write(session, contacts)
            session.flush()
            kept = stored(session)
            assert 1 not in kept, attempt
            assert {2, 5} <= set(kept), attempt
            same = select(func.count()).where(contacts.place == 1, contacts.email.is_(None))
            assert session.scalar(same) == 1, attempt
            session.rollback()


@pytest.mark.every_driver
@pytest.mark.parametrize("count", [1, 2, 300])
def test_rows_without_any_value_free_their_key(engine: Engine, contacts: Any, count: int) -> None:
    with Session(engine) as session:
        session.add_all([contacts(id=100 + n, place=n + 10) for n in range(count)])
        session.flush()
        for n in range(count):
            age(session.connection(), "contacts", 100 + n, 4000)
        session.commit()
        rows = [contacts(id=1000 + n, place=n + 10) for n in range(count)]
        session.add_all([*rows, contacts(id=6, place=None), contacts(id=7, place=1)])
        session.commit()
        assert stored(session) == [2, 3, 4, 6, 7, *(1000 + n for n in range(count))]


@pytest.mark.every_driver
async def test_async_sessions_free_keys_with_null(async_engine: AsyncEngine) -> None:
    for kind in KINDS:
        model = declared(kind)
        async with async_engine.begin() as connection:
            await connection.run_sync(model.metadata.create_all)
        async with AsyncSession(async_engine) as session:
            session.add_all([model(id=1, place=1), model(id=2, place=None), model(id=3, place=3)])
            await session.flush()
            for key in (1, 2):
                await (await session.connection()).run_sync(age, "contacts", key, 4000)
            await session.commit()
            session.add_all([model(id=4, place=1), model(id=5, place=None), model(id=6, place=6)])
            await session.commit()
            assert await session.run_sync(stored) == [3, 4, 5, 6]
            await session.execute(update(model).where(model.id == 6).values(place=7))
        async with async_engine.begin() as connection:
            await connection.run_sync(model.metadata.drop_all)


def test_a_live_row_with_null_keeps_its_key(engine: Engine, contacts: Any) -> None:
    for write in (
        insert(contacts).values(id=6, place=3),
        update(contacts).where(contacts.id == 4).values(email=None, place=3),
        update(contacts).where(contacts.id == 4).values(email=null(), place=contacts.place + 2),
    ):
        with Session(engine) as session:
            with pytest.raises(DBAPIError, match="duplicate key"):
                session.execute(write)
            session.rollback()
            assert stored(session) == [1, 2, 3, 4, 5]


def test_a_row_without_null_frees_its_key_only(engine: Engine, contacts: Any) -> None:
    with Session(engine) as session:
        age(session.connection(), "contacts", 4, 4000)
        session.commit()
        session.add(contacts(id=6, email=address(contacts), place=1))
        session.commit()
        assert stored(session) == [1, 2, 3, 5, 6]


@pytest.mark.parametrize("contacts", ["constraint", "index"], indirect=True)
def test_an_upsert_replaces_an_expired_row_and_updates_a_live_one(
    engine: Engine, contacts: Any
) -> None:
    row = upsert(contacts).values(id=bindparam("key"), email=None, place=bindparam("at"))
    row = row.on_conflict_do_update(index_elements=["email", "place"], set_={"email": "Bob"})
    with Session(engine) as session:
        session.connection().execute(row, [{"key": 6, "at": 1}, {"key": 7, "at": 3}])
        session.commit()
        rows = session.execute(select(contacts.id, contacts.email).order_by(contacts.id)).all()
        assert [tuple(row) for row in rows] == [(3, "Bob"), (4, "Ann"), (6, None)]
        assert stored(session) == [2, 3, 4, 5, 6]


def test_keys_in_which_nulls_differ_stay(engine: Engine) -> None:
    """A row with NULL is in nobody's way there."""
    for kind in KINDS:
        model = declared(kind, {})
        model.metadata.create_all(engine)
        fill(engine, model)
        with Session(engine) as session:
            session.add_all([model(id=6, place=1), model(id=7, place=1)])
            session.execute(update(model).where(model.id == 3).values(place=2))
            session.commit()
            assert stored(session) == [1, 2, 3, 4, 5, 6, 7]
        model.metadata.drop_all(engine)


def test_the_option_is_read_from_the_database(engine: Engine) -> None:
    for kind in ("constraint", "index"):
        model = declared(kind)
        model.metadata.create_all(engine)
        fill(engine, model)
        table = Table("contacts", MetaData(), autoload_with=engine)
        enable(table, 3600)
        with engine.begin() as connection:
            connection.execute(insert(table).values(id=6, place=1))
            ids = connection.scalars(text("SELECT id FROM contacts ORDER BY id"))
            assert ids.all() == [2, 3, 4, 5, 6]
        model.metadata.drop_all(engine)


def carts(engine: Engine, *, renews: bool = False) -> Any:
    """Make carts, and items in them with a key of a shelf, which may be NULL, and a place."""

    class Base(DeclarativeBase):
        pass

    class Cart(TTLMixin, Base):
        __tablename__ = "carts"
        __ttl__ = 3600
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

    class Item(Base):
        __tablename__ = "items"
        __ttl__ = Follows("cart_id", renews=renews)
        __table_args__ = (UniqueConstraint("shelf", "place", **EQUAL),)
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        cart_id: Mapped[int] = mapped_column(ForeignKey("carts.id"), index=True)
        shelf: Mapped[int | None]
        place: Mapped[int] = mapped_column(default=0)

    Base.metadata.create_all(engine)
    return Cart, Item


def test_rows_that_follow_another_free_their_keys(engine: Engine) -> None:
    cart, item = carts(engine)
    with Session(engine) as session:
        session.add_all([cart(id=1), cart(id=2)])
        session.flush()
        session.add_all([item(id=n, cart_id=1, place=n) for n in (1, 2, 3)])
        session.add(item(id=4, cart_id=2, place=4))
        session.flush()
        age(session.connection(), "carts", 1, 4000)
        session.commit()
        session.add(item(id=5, cart_id=2, place=1))
        session.flush()
        session.execute(update(item).where(item.id == 4).values(place=2))
        ignored = upsert(item).values(id=6, cart_id=2, place=1).on_conflict_do_nothing()
        session.execute(ignored)
        session.commit()
        assert session.scalars(text("SELECT id FROM items ORDER BY id")).all() == [3, 4, 5]


def test_an_ignored_row_renews_no_parent(engine: Engine) -> None:
    """A row with NULL that meets a live one isn't written."""
    cart, item = carts(engine, renews=True)
    ages = select(literal_column("id")).select_from(text("carts"))
    old = ages.where(text("_ts < now() - interval '20 minutes'")).order_by(text("id"))
    with Session(engine) as session:
        session.add_all([cart(id=n) for n in (1, 2)])
        session.flush()
        session.add(item(id=1, cart_id=1))
        session.flush()
        for key in (1, 2):
            age(session.connection(), "carts", key, 1800)
        session.commit()
        rows = [{"id": 2, "cart_id": 2, "shelf": None, "place": 0}]
        session.execute(upsert(item).values(rows).on_conflict_do_nothing())
        assert session.scalars(old).all() == [1, 2]
        rows = [{"id": 2 + n, "cart_id": 1 + n, "shelf": None, "place": 1} for n in (0, 1)]
        session.execute(upsert(item).values(rows).on_conflict_do_nothing())
        assert session.scalars(old).all() == [2]


@pytest.mark.slow
def test_the_index_answers_the_lookup(engine: Engine) -> None:
    for kind in ("constraint", "index", "expression", "generated"):
        model = declared(kind)
        model.metadata.create_all(engine)
        fill(engine, model)

        with Session(engine) as session:
            numbers = select(func.generate_series(100, 4000).label("n")).subquery()
            session.execute(
                insert(model).from_select(["id", "place"], select(numbers.c.n, numbers.c.n))
            )
            session.execute(text("ANALYZE contacts"))
            session.commit()
            for write in (
                by_flush,
                by_flush_of_many,
                by_update,
                by_another_column,
                by_selected_rows,
            ):
                with explained(engine, is_delete) as plans:
                    write(session, model)
                    session.flush()
                assert plans, write.__name__
                assert not [line for line in plans if "Seq Scan" in line], write.__name__
                session.rollback()
        model.metadata.drop_all(engine)


def test_nulls_differ_on_databases_without_the_option() -> None:
    model = declared("constraint")
    engine = create_engine("sqlite://")
    model.metadata.create_all(engine)
    fill(engine, model)
    with Session(engine) as session:
        session.add_all([model(id=6, place=1), model(id=7, place=3)])
        session.commit()
        assert stored(session) == [1, 2, 3, 4, 5, 6, 7]
    engine.dispose()
