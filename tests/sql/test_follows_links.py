"""The parent that a row gets, where SQL, another table or the database says which it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    Computed,
    ForeignKey,
    Integer,
    String,
    bindparam,
    delete,
    func,
    insert,
    literal,
    select,
    update,
)
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    aliased,
    configure_mappers,
    mapped_column,
)

from tests.sql.following import EXPIRED, HOUR, LIVE, Base, Cart, Item, Note, expire, fill
from ttl_odm import Follows, TTLConfigurationError
from ttl_odm.sqlalchemy import ExpiredError, TTLMixin, include_expired
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

ITEMS: Any = Item.__table__
NO_SYNC = {"synchronize_session": False}
OTHER = 3
"""Another live cart."""


class Label(Base):
    """Names the cart before the one that its item is to have."""

    __tablename__ = "labels"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    item_id: Mapped[int]
    before: Mapped[int]


LABELS: Any = Label.__table__


@pytest.fixture
def session(engine: Engine, enforcing: None) -> Iterator[Session]:
    """Item 10 is to have another live cart, and item 11 the expired one."""
    fill(engine)
    with Session(engine) as session:
        session.add(Cart(id=OTHER))
        labels = [(1, 10, OTHER - 1), (2, 11, EXPIRED - 1)]
        session.add_all(Label(id=n, item_id=item, before=cart) for n, item, cart in labels)
        session.commit()
        yield session


def carts(session: Session) -> list[tuple[int, int]]:
    """The items that are seen, with their carts."""
    rows = select(ITEMS.c.id, ITEMS.c.cart_id).order_by(ITEMS.c.id)
    return [tuple(row) for row in session.connection().execute(rows)]


def assert_one_moves(session: Session, statement: Any) -> None:
    """Check that a statement moves the first item and leaves the second one where it is."""
    session.execute(statement, execution_options=NO_SYNC)
    assert carts(session) == [(10, OTHER), (11, LIVE)]
    session.rollback()


def test_a_joined_table_that_names_an_expired_parent_moves_no_row(session: Session) -> None:
    joined = update(Item).where(Item.id == Label.item_id)
    assert_one_moves(session, joined.values(cart_id=Label.before + 1))
    core = update(ITEMS).where(ITEMS.c.id == LABELS.c.item_id)
    assert_one_moves(session, core.values(cart_id=LABELS.c.before + 1))
    other = aliased(Label)
    named = update(Item).where(Item.id == other.item_id, other.id > 0)
    assert_one_moves(session, named.values(cart_id=other.before + 1, name="milk"))
    alias = ITEMS.alias("i")
    same = update(alias).where(alias.c.id == LABELS.c.item_id)
    assert_one_moves(session, same.values(cart_id=LABELS.c.before + 1))


def test_a_subquery_that_names_an_expired_parent_moves_no_row(session: Session) -> None:
    named = select(Label.before + 1).where(Label.item_id == Item.id)
    assert_one_moves(session, update(Item).values(cart_id=named.scalar_subquery()))
    core = select(LABELS.c.before + 1).where(LABELS.c.item_id == ITEMS.c.id)
    assert_one_moves(session, update(ITEMS).values(cart_id=core.scalar_subquery()))
    whole = select(Label.item_id, (Label.before + 1).label("above")).subquery()
    joined = update(Item).where(Item.id == whole.c.item_id)
    assert_one_moves(session, joined.values(cart_id=whole.c.above))


@pytest.mark.databases("sqlite", "postgres", "mysql")
def test_a_cte_that_names_an_expired_parent_moves_no_row(session: Session) -> None:
    named = select(Label.item_id, (Label.before + 1).label("above")).cte("named")
    joined = update(Item).where(Item.id == named.c.item_id)
    assert_one_moves(session, joined.values(cart_id=named.c.above))


def test_a_subquery_over_parents_reads_the_same_for_the_condition_as_for_the_row(
    session: Session,
) -> None:
    first = select(func.min(Cart.id)).where(Cart.id > LIVE)
    session.execute(update(Item).values(cart_id=first.scalar_subquery()))
    assert carts(session) == [(10, OTHER), (11, OTHER)]
    of_all = first.options(include_expired()).scalar_subquery()
    unmoved: Any = session.execute(update(Item).values(cart_id=of_all))
    assert unmoved.rowcount == 0
    assert carts(session) == [(10, OTHER), (11, OTHER)]


@pytest.mark.databases("mariadb", "mysql")
def test_an_update_of_several_tables_moves_no_row_to_an_expired_parent(session: Session) -> None:
    both = {Item.cart_id: Label.before + 1, Label.before: Label.before}
    assert_one_moves(session, update(Label).where(Item.id == Label.item_id).values(both))
    joined: Any = LABELS.join(ITEMS, ITEMS.c.id == LABELS.c.item_id)
    assert_one_moves(session, update(joined).values({ITEMS.c.cart_id: LABELS.c.before + 1}))


@pytest.mark.databases("postgres")
def test_an_update_in_a_cte_moves_no_row_to_an_expired_parent(session: Session) -> None:
    joined = update(ITEMS).where(ITEMS.c.id == LABELS.c.item_id)
    inner = joined.values(cart_id=LABELS.c.before + 1).returning(ITEMS.c.id).cte()
    assert session.connection().execute(select(inner.c.id)).scalars().all() == [10]
    assert carts(session) == [(10, OTHER), (11, LIVE)]


class Stock(DeclarativeBase):
    pass


class Shelf(TTLMixin, Stock):
    __tablename__ = "shelves"
    __ttl__ = HOUR

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class Ware(TTLMixin, Stock):
    """Is on the shelf after the one that it names."""

    __tablename__ = "wares"
    __ttl__ = Follows("shelf_id")

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    spot: Mapped[int] = mapped_column(default=EXPIRED - 1)
    size: Mapped[int] = mapped_column(default=0)
    shelf_id: Mapped[int] = mapped_column(
        Integer, Computed("spot + 1", persisted=True), ForeignKey("shelves.id"), index=True
    )


class Parcel(Stock):
    """The same without a foreign key, by text that is no more than text."""

    __tablename__ = "parcels"
    __ttl__ = Follows(Shelf, on={"shelf": "id"})

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    code: Mapped[str] = mapped_column(String(20), default="code")
    spot: Mapped[int]
    shelf: Mapped[int | None] = mapped_column(
        Computed("CASE WHEN code = 'code' THEN (spot + 1) % 100 END", persisted=True), index=True
    )


WARES: Any = Ware.__table__
PARCELS: Any = Parcel.__table__


@pytest.fixture
def stock(engine: Engine, enforcing: None) -> Iterator[Session]:
    """Wares and parcels 1 and 2 on live shelves, of which the shelf after the first has expired."""
    Stock.metadata.create_all(engine)
    with Session(engine) as session:
        session.execute(insert(Shelf), [{"id": n} for n in (LIVE, EXPIRED, OTHER, OTHER + 1)])
        for table in (WARES, PARCELS):
            rows = [{"id": 1, "spot": LIVE - 1}, {"id": 2, "spot": OTHER - 1}]
            session.execute(insert(table), rows)
        expire(session.connection(), EXPIRED, "shelves")
        session.commit()
        yield session


def spots(session: Session, table: Any) -> dict[int, int]:
    """Where the wares or parcels are that are stored, seen or not."""
    rows = select(table.c.id, table.c.spot).options(include_expired())
    found: dict[int, int] = dict(session.connection().execute(rows).all())  # type: ignore[arg-type]
    return found


BEFORE = {"first": LIVE - 1, "second": OTHER - 1}
BOTH = pytest.mark.parametrize("model", [Ware, Parcel])


@BOTH
def test_a_link_that_the_database_computes_puts_no_object_under_an_expired_parent(
    stock: Session, model: Any
) -> None:
    stock.add(model(id=9, spot=EXPIRED - 1))
    with pytest.raises(ExpiredError, match="can't be put under shelves 2, which has expired"):
        stock.flush()
    stock.rollback()
    with pytest.raises(ExpiredError, match="shelves 2"):
        stock.execute(insert(model), [{"id": 8, "spot": 0}, {"id": 9, "spot": EXPIRED - 1}])
    stock.rollback()
    stock.get_one(model, 1).spot = EXPIRED - 1
    with pytest.raises(ExpiredError, match="shelves 2"):
        stock.flush()
    stock.rollback()
    with pytest.raises(ExpiredError, match="shelves 2"):
        stock.execute(update(model), [{"id": 1, "spot": EXPIRED - 1}])
    stock.rollback()
    stock.add(model(id=9, spot=OTHER - 1))
    stock.get_one(model, 1).spot = OTHER - 1
    stock.commit()
    assert spots(stock, model.__table__) == {1: OTHER - 1, 2: OTHER - 1, 9: OTHER - 1}


@pytest.mark.slow
@BOTH
def test_core_puts_no_row_under_an_expired_parent_by_a_link_that_the_database_computes(
    stock: Session, model: Any
) -> None:
    table: Any = model.__table__
    connection = stock.connection()
    dead, alive = {"id": 8, "spot": EXPIRED - 1}, {"id": 9, "spot": LIVE - 1}
    connection.execute(insert(table).values(**dead))
    connection.execute(insert(table), [dead, alive, {**dead, "id": 7}])
    connection.execute(insert(table), [dead, {**dead, "id": 7}])
    computed = {"id": 7, "spot": literal(EXPIRED) - 1}
    connection.execute(insert(table).values(**computed))
    shelves: Any = Shelf.__table__
    found = select(shelves.c.id + 20, shelves.c.id - 1).options(include_expired())
    connection.execute(insert(table).from_select(["id", "spot"], found))
    assert spots(stock, table) == {1: 0, 2: 2, 9: 0, 21: 0, 23: 2, 24: 3}
    with pytest.raises(ExpiredError, match="shelves 2"):
        connection.execute(insert(table).values([{**alive, "id": 6}, dead]))
    connection.execute(insert(table).values([{**alive, "id": 6}, {**alive, "id": 5}]))
    assert spots(stock, table).keys() == {1, 2, 5, 6, 9, 21, 23, 24}


@BOTH
def test_an_update_of_what_a_link_is_computed_from_moves_no_row_to_an_expired_parent(
    stock: Session, model: Any
) -> None:
    table: Any = model.__table__
    connection = stock.connection()
    assert connection.execute(update(table).values(spot=EXPIRED - 1)).rowcount == 0
    one = update(table).where(table.c.id == bindparam("key")).values(spot=bindparam("new"))
    connection.execute(one, [{"key": 1, "new": EXPIRED - 1}, {"key": 2, "new": LIVE - 1}])
    assert spots(stock, table) == {1: LIVE - 1, 2: LIVE - 1}
    stock.rollback()
    # The first one would come to the expired shelf.
    further = update(model).values(spot=model.spot + 1)
    assert stock.execute(further, execution_options=NO_SYNC).rowcount == 1  # type: ignore[attr-defined]
    assert spots(stock, table) == {1: LIVE - 1, 2: OTHER}
    stock.rollback()
    other = aliased(model)
    after = update(model).where(other.id == model.id).values(spot=other.spot + model.id / model.id)
    stock.execute(after, execution_options=NO_SYNC)
    assert spots(stock, table) == {1: LIVE - 1, 2: OTHER}


@BOTH
def test_a_sweep_takes_rows_whose_link_the_database_computes(stock: Session, model: Any) -> None:
    expire(stock.connection(), LIVE, "shelves")
    stock.commit()
    assert stock.scalars(select(model.id)).all() == [2]
    engine: Any = stock.get_bind()
    stock.close()
    report = Sweeper(engine, Stock, lease=False).run_once()
    assert report.outcome == "finished", report.problems
    assert spots(stock, model.__table__) == {2: OTHER - 1}


class Defaults(DeclarativeBase):
    pass


class Box(TTLMixin, Defaults):
    __tablename__ = "boxes"
    __ttl__ = HOUR

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class Thing(Defaults):
    """Goes by itself into a box."""

    __tablename__ = "things"
    __ttl__ = Follows("box_id")

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    box_id: Mapped[int] = mapped_column(ForeignKey("boxes.id"), default=EXPIRED, index=True)


class Toy(Defaults):
    """The same by the database."""

    __tablename__ = "toys"
    __ttl__ = Follows("box_id")

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    box_id: Mapped[int] = mapped_column(ForeignKey("boxes.id"), server_default="2", index=True)


@pytest.mark.parametrize("model", [Thing, Toy])
def test_a_default_puts_no_row_under_an_expired_parent(
    engine: Engine, enforcing: None, model: Any
) -> None:
    Defaults.metadata.create_all(engine)
    boxes: Any = Box.__table__
    with Session(engine) as session:
        session.execute(insert(Box), [{"id": LIVE}, {"id": EXPIRED}])
        expire(session.connection(), EXPIRED, "boxes")
        session.commit()
        session.add(model(id=1))
        with pytest.raises(ExpiredError, match=r"boxes '?2"):
            session.flush()
        session.rollback()
        session.connection().execute(insert(model.__table__).values(id=1))
        chosen = insert(model.__table__).from_select(["id"], select(boxes.c.id))
        session.connection().execute(chosen)
        every = select(func.count()).select_from(model.__table__).options(include_expired())
        assert session.scalar(every) == 0
        session.execute(insert(Box), [{"id": EXPIRED}])
        session.connection().execute(chosen)
        assert session.scalar(every) == 2


@pytest.mark.databases("mariadb", "mysql")
def test_a_link_may_be_set_to_what_the_update_has_set_before(session: Session) -> None:
    session.execute(delete(Note))
    in_turn = {"id": ITEMS.c.id + 0, "cart_id": ITEMS.c.id - 9, "name": "milk"}
    assert carts(session) == [(10, LIVE), (11, LIVE)]
    session.execute(update(ITEMS).values(in_turn))
    assert carts(session) == [(10, LIVE), (11, LIVE)]
    ordered = [(ITEMS.c.id, ITEMS.c.id + 1), (ITEMS.c.cart_id, ITEMS.c.id - 10)]
    session.execute(update(ITEMS).where(ITEMS.c.id == 11).ordered_values(*ordered))
    assert carts(session) == [(10, LIVE), (11, LIVE)]
    three = [(ITEMS.c.id, bindparam("new")), (ITEMS.c.cart_id, ITEMS.c.id - 10)]
    for new in (12, 13):
        session.connection().execute(
            update(ITEMS).where(ITEMS.c.id == 11).ordered_values(*three), {"new": new}
        )
        for value in (12, 13):
            numbered = [(ITEMS.c.id, value), (ITEMS.c.cart_id, ITEMS.c.id - 10)]
            session.execute(update(ITEMS).where(ITEMS.c.id == 11).ordered_values(*numbered))
    assert carts(session) == [(10, LIVE), (13, OTHER)]
    # Not in the order of the table's columns.
    swapped = [(ITEMS.c.cart_id, ITEMS.c.id - 12), (ITEMS.c.id, ITEMS.c.cart_id + 11)]
    session.execute(update(ITEMS).where(ITEMS.c.id == 13).ordered_values(*swapped))
    assert carts(session) == [(10, LIVE), (12, LIVE)]


def test_a_link_that_each_update_changes_is_no_link() -> None:
    class Other(DeclarativeBase):
        pass

    class Visit(TTLMixin, Other):
        __tablename__ = "visits"
        __ttl__ = HOUR
        id: Mapped[int] = mapped_column(primary_key=True)

    class Page(Other):
        __tablename__ = "pages"
        __ttl__ = Follows("visit_id")
        id: Mapped[int] = mapped_column(primary_key=True)
        visit_id: Mapped[int] = mapped_column(ForeignKey("visits.id"), onupdate=lambda: 1)

    try:
        with pytest.raises(TTLConfigurationError, match="'visit_id' has an onupdate"):
            configure_mappers()
    finally:
        Other.registry.dispose()
