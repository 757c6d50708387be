"""Joined eager loads with ``innerjoin``: an expired partner doesn't hide a live row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Column, ForeignKey, String, Table, func, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    aliased,
    contains_eager,
    defaultload,
    joinedload,
    mapped_column,
    relationship,
    selectinload,
    subqueryload,
    with_polymorphic,
)

from tests.clocks import age
from ttl_odm import ExpireAfter, Follows
from ttl_odm.sqlalchemy import TTLMixin, disable, enable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine


class Base(DeclarativeBase):
    pass


class Shop(Base):
    __tablename__ = "shops"
    id: Mapped[int] = mapped_column(primary_key=True)
    clubs: Mapped[list[Club]] = relationship(secondary="memberships")


class Cart(TTLMixin, Base):
    __tablename__ = "eager_carts"
    __ttl__ = 3600
    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(String(10))
    shop_id: Mapped[int] = mapped_column(ForeignKey("shops.id"))
    shop: Mapped[Shop] = relationship()
    above_id: Mapped[int | None] = mapped_column(ForeignKey("eager_carts.id"))
    above: Mapped[Cart | None] = relationship(remote_side="Cart.id")
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "cart"}


class Gift(Cart):
    __tablename__ = "gifts"
    id: Mapped[int] = mapped_column(ForeignKey("eager_carts.id"), primary_key=True)
    card: Mapped[str] = mapped_column(String(10), default="hello")
    __mapper_args__ = {"polymorphic_identity": "gift"}


class Line(Base):
    __tablename__ = "eager_lines"
    id: Mapped[int] = mapped_column(primary_key=True)
    cart_id: Mapped[int] = mapped_column(ForeignKey("eager_carts.id"))
    cart: Mapped[Cart | None] = relationship(lazy="joined", innerjoin=True)


class Note(Base):
    """A note's row follows its cart."""

    __tablename__ = "notes"
    __ttl__ = Follows("cart")
    id: Mapped[int] = mapped_column(primary_key=True)
    cart_id: Mapped[int] = mapped_column(ForeignKey("eager_carts.id", ondelete="CASCADE"))
    cart: Mapped[Cart] = relationship()


class Pin(Base):
    __tablename__ = "pins"
    id: Mapped[int] = mapped_column(primary_key=True)
    note_id: Mapped[int] = mapped_column(ForeignKey("notes.id"))
    note: Mapped[Note | None] = relationship()


class Club(Base):
    __tablename__ = "clubs"
    id: Mapped[int] = mapped_column(primary_key=True)
    shops: Mapped[list[Shop]] = relationship(secondary="memberships", overlaps="clubs")
    carts: Mapped[list[Cart]] = relationship(secondary="clubs_carts")


class Membership(TTLMixin, Base):
    __tablename__ = "memberships"
    __ttl__ = 3600
    id: Mapped[int] = mapped_column(primary_key=True)
    club_id: Mapped[int] = mapped_column(ForeignKey("clubs.id"))
    shop_id: Mapped[int] = mapped_column(ForeignKey("shops.id"))


Table(
    "clubs_carts",
    Base.metadata,
    Column("club_id", ForeignKey("clubs.id"), primary_key=True),
    Column("cart_id", ForeignKey("eager_carts.id"), primary_key=True),
)


def stock(session: Session) -> None:
    """Add rows of which those with the number 2 refer to what has expired."""
    session.add_all([Shop(id=1), Shop(id=2)])
    session.flush()
    session.add_all([Cart(id=1, shop_id=1), Cart(id=2, shop_id=1)])
    session.flush()
    session.add_all([Cart(id=3, shop_id=1, above_id=1), Cart(id=4, shop_id=1, above_id=2)])
    session.add_all([Gift(id=5, shop_id=1), Gift(id=6, shop_id=1)])
    session.add_all([Club(id=1), Club(id=2)])
    session.flush()
    session.add_all([Membership(id=n, club_id=n, shop_id=n) for n in (1, 2)])
    session.add_all([Line(id=1, cart_id=1), Line(id=2, cart_id=2)])
    session.add_all([Line(id=5, cart_id=5), Line(id=6, cart_id=6)])
    session.add_all([Note(id=1, cart_id=1), Note(id=2, cart_id=2)])
    session.flush()
    session.add_all([Pin(id=1, note_id=1), Pin(id=2, note_id=2)])
    ties = Base.metadata.tables["clubs_carts"]
    session.execute(ties.insert(), [{"club_id": n, "cart_id": n} for n in (1, 2)])
    for key in (2, 6):
        age(session.connection(), "eager_carts", key, 4000)
    age(session.connection(), "memberships", 2, 4000)
    session.commit()
    session.expunge_all()


@pytest.fixture
def session(engine: Engine) -> Iterator[Session]:
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        stock(session)
        yield session


def key_of(related: Any) -> Any:
    """The key of what a relationship holds, or the keys; None of nothing."""
    return [one.id for one in related] if isinstance(related, list) else related and related.id


# A row of each class: those with the number 2 (and 6) have expired partners.
INNER: dict[str, tuple[Any, Any, dict[int, Any]]] = {
    "of a many-to-one": (Line, joinedload(Line.cart, innerjoin=True), {1: 1, 2: None}),
    "of a follower": (Pin, joinedload(Pin.note, innerjoin=True), {1: 1, 2: None}),
    "to the class itself": (Cart, joinedload(Cart.above, innerjoin=True), {3: 1, 4: None}),
    "of a collection": (Club, joinedload(Club.carts, innerjoin=True), {1: [1], 2: []}),
    "over a table with a policy": (Club, joinedload(Club.shops, innerjoin=True), {1: [1], 2: []}),
    "to a joined subclass": (
        Line,
        joinedload(Line.cart.of_type(Gift), innerjoin=True),
        {5: 5, 6: None},
    ),
    "to a polymorphic class": (
        Line,
        joinedload(Line.cart.of_type(with_polymorphic(Cart, [Gift], flat=True)), innerjoin=True),
        {1: 1, 2: None, 5: 5, 6: None},
    ),
    "to a polymorphic subquery": (
        Line,
        joinedload(Line.cart.of_type(with_polymorphic(Cart, [Gift], aliased=True)), innerjoin=True),
        {1: 1, 2: None, 5: 5, 6: None},
    ),
}
ATTRIBUTES = {Line: "cart", Pin: "note", Cart: "above", Club: "carts"}


@pytest.mark.parametrize("kind", INNER)
def test_an_inner_joined_load_returns_the_row_without_its_expired_partner(
    session: Session, kind: str
) -> None:
    model, load, partners = INNER[kind]
    attribute = "shops" if kind == "over a table with a policy" else ATTRIBUTES[model]
    rows = select(model).where(model.id.in_(partners)).options(load)
    found = {row.id: key_of(getattr(row, attribute)) for row in session.scalars(rows).unique()}
    assert found == partners


def test_every_way_to_load_a_row_finds_it(session: Session) -> None:
    """``lazy="joined"`` and ``innerjoin=True`` of the mapping: no option says so."""
    assert session.scalar(select(func.count()).select_from(Line)) == 4
    line = session.get_one(Line, 2)
    assert line.cart is None
    session.refresh(line)
    session.expire(line)
    assert (line.cart_id, line.cart) == (2, None)
    session.expunge_all()
    query = select(Line).order_by(Line.id)
    assert [row.id for row in session.scalars(query)] == [1, 2, 5, 6]
    assert [row.id for row in session.scalars(query.limit(2))] == [1, 2]
    assert [row.id for row in session.query(Line).order_by(Line.id)] == [1, 2, 5, 6]
    streamed = session.scalars(query, execution_options={"yield_per": 10})
    assert [row.id for row in streamed] == [1, 2, 5, 6]
    other = aliased(Line)
    assert set(session.scalars(select(other.id).where(other.id == 2))) == {2}
    assert [row.id for row in session.scalars(select(other).order_by(other.id))] == [1, 2, 5, 6]


def test_rows_with_expired_partners_can_be_locked(session: Session) -> None:
    """PostgreSQL locks no optional side of a join, so FOR UPDATE names the others."""
    rows = select(Line).order_by(Line.id)
    assert [row.id for row in session.scalars(rows.with_for_update())] == [1, 2, 5, 6]
    assert [row.id for row in session.scalars(rows.with_for_update(read=True))] == [1, 2, 5, 6]
    assert [row.id for row in session.scalars(rows.limit(2).with_for_update())] == [1, 2]
    assert [row.id for row in session.scalars(rows.with_for_update(of=Line))] == [1, 2, 5, 6]
    other = aliased(Line)
    locked = select(other).order_by(other.id).with_for_update(skip_locked=True)
    assert [row.id for row in session.scalars(locked)] == [1, 2, 5, 6]
    line = session.get_one(Line, 2, with_for_update=True)
    session.refresh(line, with_for_update={"nowait": True})
    assert line.cart is None
    beyond = joinedload(Line.cart, innerjoin=True).joinedload(Cart.shop, innerjoin=True)
    deep = rows.options(beyond.joinedload(Shop.clubs, innerjoin=True)).with_for_update()
    assert [row.id for row in session.scalars(deep).unique()] == [1, 2, 5, 6]


@pytest.mark.databases("sqlite")
@pytest.mark.parametrize("inner", [True, "unnested"])
def test_what_is_loaded_beyond_an_expired_partner_hides_nothing(
    session: Session, inner: Any
) -> None:
    beyond = joinedload(Line.cart, innerjoin=inner).joinedload(Cart.shop, innerjoin=inner)
    beyond = beyond.joinedload(Shop.clubs, innerjoin=inner)
    rows = session.scalars(select(Line).order_by(Line.id).options(beyond)).unique().all()
    shops = {row.id: row.cart and [club.id for club in row.cart.shop.clubs] for row in rows}
    assert shops == {1: [1], 2: None, 5: [1], 6: None}


@pytest.mark.databases("sqlite")
@pytest.mark.parametrize("inner", [True, "unnested"])
def test_an_expired_partner_of_a_row_that_is_loaded_itself_hides_nothing(
    session: Session, inner: Any
) -> None:
    """An outer join to a live row, and an inner one from there: that live row stays, too."""
    nested = joinedload(Club.carts).joinedload(Cart.above, innerjoin=inner)
    ties = Base.metadata.tables["clubs_carts"]
    session.execute(ties.insert(), [{"club_id": 2, "cart_id": n} for n in (3, 4)])
    club = session.scalars(select(Club).where(Club.id == 2).options(nested)).unique().one()
    assert {cart.id: key_of(cart.above) for cart in club.carts} == {3: 1, 4: None}


@pytest.mark.databases("sqlite")
@pytest.mark.parametrize("load", [selectinload, subqueryload])
def test_a_join_inside_another_load_hides_nothing(
    session: Session, load: Callable[..., Any]
) -> None:
    ties = Base.metadata.tables["clubs_carts"]
    session.execute(ties.insert(), [{"club_id": 2, "cart_id": n} for n in (3, 4)])
    nested = load(Club.carts).joinedload(Cart.above, innerjoin=True)
    club = session.scalars(select(Club).where(Club.id == 2).options(nested)).one()
    assert {cart.id: key_of(cart.above) for cart in club.carts} == {3: 1, 4: None}


@pytest.mark.databases("sqlite")
def test_a_join_of_the_users_own_stays_inner(session: Session) -> None:
    rows = select(Line).join(Line.cart).options(contains_eager(Line.cart))
    assert {row.id for row in session.scalars(rows)} == {1, 5}
    beyond = rows.options(defaultload(Line.cart).joinedload(Cart.above, innerjoin=True))
    assert {row.id for row in session.scalars(beyond)} == {1, 5}


@pytest.mark.databases("sqlite")
def test_joins_between_tables_without_a_policy_stay_inner(session: Session) -> None:
    class Plain(DeclarativeBase):
        pass

    class Desk(Plain):
        __tablename__ = "eager_desks"
        id: Mapped[int] = mapped_column(primary_key=True)

    class Lamp(Plain):
        __tablename__ = "lamps"
        id: Mapped[int] = mapped_column(primary_key=True)
        desk_id: Mapped[int] = mapped_column(ForeignKey("eager_desks.id"))
        desk: Mapped[Desk] = relationship(lazy="joined", innerjoin=True)

    assert "OUTER" not in str(select(Lamp))
    assert "OUTER" in str(select(Line))


@pytest.mark.databases("sqlite")
def test_a_policy_that_comes_late_makes_the_joins_outer(engine: Engine) -> None:
    class Plain(DeclarativeBase):
        pass

    class Desk(Plain):
        __tablename__ = "eager_desks"
        id: Mapped[int] = mapped_column(primary_key=True)
        seen: Mapped[int] = mapped_column(default=0)

    class Lamp(Plain):
        __tablename__ = "lamps"
        id: Mapped[int] = mapped_column(primary_key=True)
        desk_id: Mapped[int] = mapped_column(ForeignKey("eager_desks.id"))
        desk: Mapped[Desk | None] = relationship(lazy="joined", innerjoin=True)

    Plain.metadata.create_all(engine)
    query = select(Lamp)
    with Session(engine) as session:
        session.add(Desk(id=1))
        session.flush()
        session.add(Lamp(id=1, desk_id=1))
        session.commit()
        assert session.scalars(query).one().desk_id == 1
        session.expunge_all()
        enable(Desk, ExpireAfter("seen", 60, unit="s"))
        try:
            lamp = session.scalars(query).one()
            assert (lamp.id, lamp.desk) == (1, None)
        finally:
            disable(Desk)


@pytest.mark.databases("sqlite")
async def test_an_async_session_finds_the_row(async_engine: AsyncEngine) -> None:
    async with async_engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async with AsyncSession(async_engine) as session:
        await session.run_sync(stock)
        line = await session.get_one(Line, 2)
        assert line.cart is None


@pytest.mark.databases("sqlite")
@pytest.mark.filterwarnings("ignore:Skipped unsupported reflection")
def test_a_second_table_of_one_with_a_policy_is_joined_like_the_first(
    engine: Engine, session: Session
) -> None:
    class Other(DeclarativeBase):
        pass

    Other.metadata.reflect(engine)

    class OtherCart(Other):
        __table__ = Other.metadata.tables["eager_carts"]

    class OtherLine(Other):
        __table__ = Other.metadata.tables["eager_lines"]
        cart: Mapped[OtherCart | None] = relationship(lazy="joined", innerjoin=True)

    rows = session.scalars(select(OtherLine).order_by(OtherLine.id))
    assert {row.id: key_of(row.cart) for row in rows} == {1: 1, 2: None, 5: 5, 6: None}
