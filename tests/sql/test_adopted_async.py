"""The same over asynchronous drivers, of which some are strict about types; and hierarchies."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import ForeignKey, Integer, String, insert, select, text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Mapped, Session, mapped_column

from tests.clocks import family_of, stop_clock
from tests.sql.adopted import DAY, KINDS, kinds_of, new_base, table
from ttl_odm import TTL, ExpireAt
from ttl_odm.sqlalchemy import ExpiredError, TTLMixin, include_expired
from ttl_odm.sweeper import AsyncSweeper, Sweeper

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

NOW = datetime(2026, 6, 15, 12, tzinfo=timezone.utc)


@pytest.mark.slow
async def test_asynchronous_drivers_read_write_and_sweep_every_kind(
    async_engine: AsyncEngine,
) -> None:
    kinds = kinds_of(family_of(async_engine.dialect))
    base = new_base()
    fixed = {
        name: table(f"f_{name}", ExpireAt("at", **kind.options), base, kind.type)
        for name, kind in kinds.items()
    }
    sliding = {
        name: table(
            f"s_{name}",
            TTL(3600, last_modified="at", override="life", **kind.options),
            base,
            kind.type,
            life=mapped_column(Integer, nullable=True),
        )
        for name, kind in kinds.items()
    }
    async with async_engine.begin() as connection:
        await connection.run_sync(base.metadata.create_all)

    def work(session: Session) -> None:
        if family_of(session.get_bind().dialect) == "mysql":
            session.execute(text("SET time_zone = '+00:00'"))
        stop_clock(session.connection(), NOW)
        for name, kind in kinds.items():
            for model in (fixed[name], sliding[name]):
                rows = [
                    {"id": "dead", "at": kind.value(NOW - 2 * DAY), "views": 0},
                    {"id": "live", "at": kind.value(NOW + 2 * DAY), "views": 0},
                ]
                session.execute(insert(model), rows, execution_options={"keep_last_modified": True})
                assert session.scalars(select(model.id)).all() == ["live"], name
                row = session.get_one(model, "live")
                row.expire_in(90)
                session.flush()
                assert NOW + timedelta(seconds=90) <= row.expires_at <= NOW + 3 * DAY, name
                row.expire_at(NOW + 9 * DAY)
                session.flush()
                assert NOW + 9 * DAY <= row.expires_at <= NOW + 11 * DAY, name

    async with AsyncSession(async_engine) as session, session.begin():
        await session.run_sync(work)
        if family_of(async_engine.dialect) == "mysql":
            await session.execute(text("SET timestamp = DEFAULT"))
        if family_of(async_engine.dialect) == "postgresql":
            await session.execute(text("DROP SCHEMA stopped_clock CASCADE"))
    report = await AsyncSweeper(async_engine, base).run_once()
    assert not report.failed
    async with AsyncSession(async_engine) as session:
        for model in (*fixed.values(), *sliding.values()):
            left = await session.scalars(select(model.id).options(include_expired()))
            assert "dead" not in left.all(), model


@pytest.mark.parametrize("policy", [ExpireAt("at"), TTL(60, last_modified="at", override=None)])
def test_a_joined_subclass_lives_and_dies_with_its_base_row(engine: Engine, policy: Any) -> None:
    base = new_base()

    class Animal(TTLMixin, base):  # type: ignore[misc,valid-type]
        __tablename__ = "animals"
        __ttl__ = policy
        __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "animal"}
        id: Mapped[int] = mapped_column(primary_key=True)
        kind: Mapped[str] = mapped_column(String(10))
        at: Mapped[datetime | None] = mapped_column(KINDS["variant"].type)

    class Cat(Animal):
        __tablename__ = "cats"
        __mapper_args__ = {"polymorphic_identity": "cat"}
        id: Mapped[int] = mapped_column(ForeignKey("animals.id"), primary_key=True)
        name: Mapped[str] = mapped_column(String(10))

    assert Cat.__table__.c.keys() == ["id", "name"]
    base.metadata.create_all(engine)
    ahead = datetime.now(timezone.utc).replace(tzinfo=None, microsecond=0) + DAY
    with Session(engine, expire_on_commit=False) as session:
        dead = Cat(id=2, name="Tom", at=ahead - 2 * DAY)
        session.add_all([Cat(id=1, name="Tom", at=ahead), dead])
        session.flush()
        session.execute(
            Animal.__table__.update().where(Animal.__table__.c.id == 2),  # type: ignore[attr-defined]
            {"at": ahead - 2 * DAY},
            execution_options={"keep_last_modified": True, "include_expired": True},
        )
        session.commit()
        assert session.scalars(select(Cat.__table__.c.id)).all() == [1]
        cat = session.get(Cat, 1)
        cat.name = "Kit"
        session.commit()
        session.refresh(cat)
        assert (cat.at == ahead) == (policy == ExpireAt("at"))
        dead.name = "Zombie"
        with pytest.raises(ExpiredError):
            session.flush()
        session.rollback()
    assert Sweeper(engine, base).run_once().deleted == 1
