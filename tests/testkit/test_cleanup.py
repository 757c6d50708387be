"""`empty` and `async_empty` on SQLAlchemy: expired rows go, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from sqlalchemy import ForeignKey, String, create_engine, func, insert, select
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session

from ttl_odm import Follows, TTLError
from ttl_odm.sqlalchemy import TTLMixin, include_expired, lease_table
from ttl_odm.testing import async_empty, empty

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    from ttl_odm.testing import TTLClock


def shop() -> Any:
    """A base with a follower, a self-reference, a ring of tables and joined inheritance.

    Its `models` are kept by name: a registry alone lets go of a class that nobody else refers to.
    """

    class Base(DeclarativeBase):
        models: ClassVar[dict[str, Any]]

    class Cart(TTLMixin, Base):
        __tablename__ = "carts"
        __ttl__ = 3600
        id: Mapped[int] = mapped_column(primary_key=True)
        parent_id: Mapped[int | None] = mapped_column(ForeignKey("carts.id"))
        coupon_id: Mapped[int | None] = mapped_column(ForeignKey("coupons.id"))
        kind: Mapped[str] = mapped_column(String(10), default="cart")
        __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "cart"}

    class Gift(Cart):
        __tablename__ = "gifts"
        __mapper_args__ = {
            "polymorphic_identity": "gift",
        }
        id: Mapped[int] = mapped_column(ForeignKey("carts.id"), primary_key=True)

    class Coupon(Base):
        __tablename__ = "coupons"
        id: Mapped[int] = mapped_column(primary_key=True)
        cart_id: Mapped[int | None] = mapped_column(
            ForeignKey("carts.id", name="coupons_cart", use_alter=True)
        )

    class Item(Base):
        __tablename__ = "items"
        __ttl__ = Follows("cart_id")
        id: Mapped[int] = mapped_column(primary_key=True)
        cart_id: Mapped[int] = mapped_column(ForeignKey("carts.id"))

    lease_table(Base.metadata, name="leases")
    Base.models = {"Cart": Cart, "Gift": Gift, "Coupon": Coupon, "Item": Item}
    return Base


def fill(session: Session, base: Any) -> None:
    """Carts in a chain, a ring with a coupon, a gift and an item; flushed."""
    tables, models = base.metadata.tables, base.models
    session.add(models["Coupon"](id=1))
    session.flush()
    session.add(models["Cart"](id=1, coupon_id=1))
    session.flush()
    session.add(models["Cart"](id=2, parent_id=1))
    session.add(models["Gift"](id=3, parent_id=1))
    session.add(models["Item"](id=1, cart_id=1))
    session.flush()
    session.get_one(models["Coupon"], 1).cart_id = 2
    session.flush()
    lease = {"name": "a", "token": 1, "paused": False, "history": ""}
    session.execute(insert(tables["leases"]).values(**lease))


def counts(session: Session, base: Any) -> dict[str, int]:
    """How many rows are really stored."""
    return {
        name: session.scalar(select(func.count()).select_from(table).options(include_expired()))
        or 0
        for name, table in base.metadata.tables.items()
    }


EMPTY = {"carts": 0, "gifts": 0, "coupons": 0, "items": 0, "leases": 1}


def test_emptying_a_base_leaves_no_expired_row_behind(engine: Engine, ttl_clock: TTLClock) -> None:
    base = shop()
    base.metadata.create_all(engine)
    with Session(engine) as session:
        fill(session, base)
        ttl_clock.advance(3600)
        assert counts(session, base) == {**EMPTY, "carts": 3, "gifts": 1, "coupons": 1, "items": 1}
        empty(base, session=session)
        assert counts(session, base) == EMPTY
        session.rollback()


async def test_so_does_emptying_it_asynchronously(
    async_engine: AsyncEngine, ttl_clock: TTLClock
) -> None:
    base = shop()
    async with async_engine.begin() as connection:
        await connection.run_sync(base.metadata.create_all)
    async with AsyncSession(async_engine) as session:
        await session.run_sync(fill, base)
        await session.commit()
        ttl_clock.advance(3600)
        await async_empty(base, session=session)
        assert await session.run_sync(counts, base) == EMPTY
        await session.rollback()
    await async_empty(base, session=async_engine)  # commits
    async with AsyncSession(async_engine) as session:
        assert await session.run_sync(counts, base) == EMPTY


@pytest.fixture
def stocked() -> Any:
    base, engine = shop(), create_engine("sqlite://")
    base.metadata.create_all(engine)
    with Session(engine) as session:
        fill(session, base)
        yield base, session
    engine.dispose()


def test_a_model_is_emptied_with_the_tables_of_its_subclasses(stocked: Any) -> None:
    base, session = stocked
    empty(base.models["Cart"], session=session)
    left = counts(session, base)
    assert (left["carts"], left["gifts"], left["coupons"], left["items"]) == (0, 0, 1, 1)


def test_a_table_and_the_lease_table_can_be_passed_by_themselves(stocked: Any) -> None:
    base, session = stocked
    tables = base.metadata.tables
    empty(tables["items"], tables["leases"], session=session)
    left = counts(session, base)
    assert (left["carts"], left["items"], left["leases"]) == (3, 0, 0)


def test_a_session_forgets_the_rows_and_takes_back_the_deletion(stocked: Any) -> None:
    base, session = stocked
    session.commit()
    coupon = base.models["Coupon"]
    session.add(coupon(id=2))  # not flushed yet
    empty(base, session=scoped_session(lambda: session))  # type: ignore[arg-type]
    assert session.get(coupon, 1) is None
    assert session.get(coupon, 2) is None
    session.rollback()
    assert counts(session, base)["coupons"] == 1


def test_hooks_are_not_called(engine: Engine, ttl_clock: TTLClock) -> None:
    class Base(DeclarativeBase): ...

    class Code(TTLMixin, Base):
        __tablename__ = "codes"
        __ttl__ = 60
        __ttl_on_purged__ = lambda *_: pytest.fail("called")  # noqa: E731
        id: Mapped[int] = mapped_column(primary_key=True)

    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(Code(id=1))
        session.commit()
        ttl_clock.advance(60)
    empty(Base, session=engine)
    with Session(engine) as session:
        assert counts(session, Base) == {"codes": 0}


class Plain(DeclarativeBase): ...


@pytest.mark.parametrize(
    ("arguments", "options", "advice"),
    [
        ((), {}, "at least one model"),
        ((Plain,), {}, r"empty\(Base, session=session\)"),
        ((Plain,), {"session": "sqlite://"}, "need a Session, Connection or Engine"),
        ((Plain,), {"session": create_async_engine("sqlite+aiosqlite://")}, "await async_empty"),
        ((int,), {"session": create_engine("sqlite://")}, "one kind"),
        ((int, Plain), {}, "one kind"),
    ],
)
def test_a_wrong_call_says_what_to_write(
    arguments: tuple[Any, ...], options: dict[str, Any], advice: str
) -> None:
    with pytest.raises(TTLError, match=advice):
        empty(*arguments, **options)


async def test_a_synchronous_session_is_no_asynchronous_one() -> None:
    with pytest.raises(TTLError, match="need an AsyncSession"):
        await async_empty(Plain, session=create_engine("sqlite://"))
