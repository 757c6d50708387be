"""A flush deletes a live parent and its followers in the order that a link back asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import ForeignKey
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

from tests.sql.following import HOUR, stored
from ttl_odm import Follows
from ttl_odm.sqlalchemy import TTLMixin

if TYPE_CHECKING:
    from sqlalchemy import Engine

pytestmark = pytest.mark.usefixtures("enforcing")


class Base(DeclarativeBase):
    pass


class Chest(TTLMixin, Base):
    """Refers to one of the rows that follow it."""

    __tablename__ = "chests"
    __ttl__ = HOUR

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    best_id: Mapped[int | None] = mapped_column(
        ForeignKey("things.id", name="chest_best", use_alter=True), index=True
    )
    best: Mapped[Thing | None] = relationship(foreign_keys=best_id, post_update=True)
    things: Mapped[list[Thing]] = relationship(
        foreign_keys="Thing.chest_id", cascade="all, delete-orphan"
    )


class Thing(Base):
    __tablename__ = "things"
    __ttl__ = Follows("chest_id")

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    chest_id: Mapped[int | None] = mapped_column(ForeignKey("chests.id"), index=True)
    labels: Mapped[list[Label]] = relationship(cascade="all, delete-orphan")


class Label(Base):
    __tablename__ = "labels"
    __ttl__ = Follows("thing_id")

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    thing_id: Mapped[int | None] = mapped_column(ForeignKey("things.id"), index=True)


def test_a_parent_that_refers_to_a_follower_goes_with_its_family(engine: Engine) -> None:
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        for chest in (1, 2):
            things = [Thing(id=10 * chest + n, labels=[Label(id=10 * chest + n)]) for n in (0, 1)]
            session.add(Chest(id=chest, things=things))
            session.flush()
            session.get_one(Chest, chest).best_id = 10 * chest
        session.commit()
        session.delete(session.get_one(Chest, 1))
        session.commit()
        assert [thing.id for thing in session.query(Thing).order_by(Thing.id)] == [20, 21]
    assert stored(engine, "chests", "things", "labels") == [1, 2, 2]
