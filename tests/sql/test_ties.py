"""Rows of a ``secondary`` table with a ttl: a tie that has expired is let go without a word.

The unit of work deletes ties as a consequence, as a cascade does; nobody gave one to
``session.delete()``. Nor may it matter whether a sweep has been there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Column, ForeignKey, Table, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

from tests.clocks import age
from ttl_odm.sqlalchemy import enable, include_expired
from ttl_odm.sqlalchemy.declare.mixin import last_modified_column, ttl_column
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine


def declare() -> Any:
    """Members and the groups that they belong to for a time."""

    class Base(DeclarativeBase):
        pass

    memberships = Table(
        "memberships",
        Base.metadata,
        Column("id", ForeignKey("members.id"), primary_key=True),
        Column("group_id", ForeignKey("member_groups.id"), primary_key=True),
        last_modified_column(),
        ttl_column(object),
    )
    enable(memberships, 60)

    class Group(Base):
        __tablename__ = "member_groups"
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

    class Member(Base):
        __tablename__ = "members"
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        groups = relationship(Group, secondary=memberships, passive_updates=False)

    return Base, Member, Group, memberships


@pytest.fixture
def models(engine: Engine, enforcing: None) -> Any:
    made = declare()
    made[0].metadata.create_all(engine)
    return made


@pytest.fixture
def session(engine: Engine, models: Any) -> Iterator[Session]:
    """Member 1's ties have expired since they were loaded, member 2's have not."""
    _, member, group, _ = models
    with Session(engine, expire_on_commit=False) as session:
        groups = [group(id=1), group(id=2)]
        members = [member(id=number, groups=groups[:]) for number in (1, 2)]
        session.add_all(members)
        session.commit()
        age(session.connection(), "memberships", 1, 100)
        session.commit()
        session.info["members"] = members
        yield session


def ties(session: Session, table: Table, *, every: bool = False) -> list[Any]:
    statement = select(table.c.id, table.c.group_id).order_by(*table.primary_key)
    if every:
        statement = statement.options(include_expired())
    return [tuple(row) for row in session.execute(statement)]


@pytest.fixture(params=["expired", "swept"])
def member(request: pytest.FixtureRequest, session: Session, engine: Engine, models: Any) -> Any:
    if request.param == "swept":
        Sweeper(engine, [models[3]]).run_once()
    return session.info["members"][0]


def test_removed_from_its_collection(session: Session, models: Any, member: Any) -> None:
    del member.groups[0]
    session.commit()
    assert ties(session, models[3]) == [(2, 1), (2, 2)]


def test_removed_together_with_a_live_one(session: Session, models: Any, member: Any) -> None:
    for some in session.info["members"]:
        some.groups.clear()
    session.commit()
    assert ties(session, models[3]) == []


def test_replaced_by_a_new_one(session: Session, models: Any, member: Any) -> None:
    third = models[2](id=3)
    member.groups = [third, member.groups[0]]
    session.commit()
    assert ties(session, models[3]) == [(1, 3), (2, 1), (2, 2)]
    session.expire(member)
    member.groups = [third, session.get_one(models[2], 1)]
    session.commit()
    assert ties(session, models[3]) == [(1, 1), (1, 3), (2, 1), (2, 2)]


def test_deleted_with_its_owner(session: Session, models: Any, member: Any) -> None:
    session.delete(member)
    session.commit()
    assert ties(session, models[3], every=True) == [(2, 1), (2, 2)]


def test_an_owner_whose_key_changes(session: Session, models: Any, member: Any) -> None:
    member.id = 3
    session.commit()
    assert ties(session, models[3], every=True) == [(2, 1), (2, 2)]
