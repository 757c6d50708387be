"""`touch` within limits, conditions on a new end, and the helpers for classes without the mixin."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import String, create_engine, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tests.clocks import age
from tests.sql.models import web_session
from ttl_odm import ExpireAfter, ExpireAt, TTLConfigurationError, TTLError
from ttl_odm.sqlalchemy import (
    ExpiredError,
    enable,
    expire_at,
    expire_in,
    inherit_ttl,
    is_expired,
    persist,
    time_left,
    touch,
)
from ttl_odm.sqlalchemy.declare.mixin import last_modified_column, ttl_column

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

HOUR = timedelta(hours=1)


@pytest.fixture
def session(engine: Engine, model: Any) -> Iterator[Session]:
    with Session(engine) as session:
        session.add_all([model(id="a"), model(id="own", ttl=1000), model(id="never", ttl=-1)])
        session.commit()
        for key in ("a", "own", "never"):
            age(session.connection(), "web_sessions", key, 100)
        session.commit()
        yield session


def test_a_row_that_was_written_recently_costs_no_statement(
    session: Session, model: Any, verbs: list[str]
) -> None:
    row = session.get_one(model, "a")
    before = row.last_modified
    verbs.clear()
    for every in (101, 3600.5, timedelta(minutes=2)):
        assert not row.touch(at_most_every=every)
    session.flush()
    assert verbs == []
    assert row.touch(at_most_every=90)
    session.flush()
    assert verbs == ["UPDATE"]
    assert row.last_modified > before
    assert not row.touch(at_most_every=90)


def test_a_row_that_is_not_in_memory_is_loaded_to_know(
    session: Session, model: Any, verbs: list[str]
) -> None:
    row = session.get_one(model, "a")
    session.commit()
    verbs.clear()
    assert not row.touch(at_most_every=3600)
    session.flush()
    assert verbs == ["SELECT"]
    session.commit()
    assert row.touch(at_most_every=5)
    session.commit()
    assert not row.touch(at_most_every=60)


async def test_in_asyncio_a_row_that_is_not_in_memory_is_touched(
    async_engine: AsyncEngine,
) -> None:
    model = web_session(3600)
    async with async_engine.begin() as connection:
        await connection.run_sync(model.metadata.create_all)
    async with AsyncSession(async_engine) as session:
        row = model(id="a")
        session.add(row)
        await session.commit()
        assert row.touch(at_most_every=60)
        await session.flush()
        await session.refresh(row)
        assert not row.touch(at_most_every=60)


def test_another_change_still_resets_a_row_that_was_not_touched(
    session: Session, model: Any
) -> None:
    row = session.get_one(model, "a")
    before = row.last_modified
    assert not row.touch(at_most_every=3600)
    row.views = 1
    session.commit()
    assert row.last_modified > before


def test_several_are_touched_by_one_executemany_where_drivers_count_its_rows(
    session: Session, model: Any, verbs: list[str]
) -> None:
    rows = session.scalars(select(model).order_by(model.id)).all()
    before = [row.last_modified for row in rows]
    verbs.clear()
    for row in rows:
        row.touch()
    session.flush()
    counts = session.get_bind().dialect.supports_sane_multi_rowcount
    assert len(verbs) == (1 if counts else len(rows))
    assert len(set(verbs)) == 1
    assert all(row.last_modified > old for row, old in zip(rows, before, strict=True))


def test_a_touch_is_one_where_what_is_written_keeps_its_stamp(session: Session, model: Any) -> None:
    session.connection(execution_options={"keep_last_modified": True})
    row, other = session.get_one(model, "a"), session.get_one(model, "own")
    before = (row.last_modified, other.last_modified)
    row.touch()
    row.views = other.views = 5
    session.flush()
    assert (row.last_modified > before[0], other.last_modified) == (True, before[1])


def test_a_touch_that_is_due_does_not_revive(session: Session, model: Any) -> None:
    row = session.get_one(model, "a")
    age(session.connection(), "web_sessions", "a", 4000)
    session.commit()
    assert row.touch(at_most_every=60)
    with pytest.raises(ExpiredError):
        session.flush()


@pytest.mark.parametrize(
    ("only_if", "touched"),
    [
        (None, ["a", "never", "own"]),
        ("longer", ["a", "own"]),
        ("has_ttl", ["a", "own"]),
        ("no_ttl", ["never"]),
        ("shorter", []),
    ],
)
def test_a_touch_on_a_condition(only_if: Any, touched: list[str]) -> None:
    engine, model = create_engine("sqlite://"), web_session(3600)
    model.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([model(id="a"), model(id="own", ttl=1000), model(id="never", ttl=-1)])
        session.commit()
        before = {row.id: row.last_modified for row in session.scalars(select(model))}
        rows = session.scalars(select(model).order_by(model.id)).all()
        assert [row.id for row in rows if row.touch(only_if=only_if)] == touched
        session.commit()
        for row in rows:
            assert row.last_modified >= before[row.id]
    engine.dispose()


# The rows end in 3500 and in 900 seconds, and never.
@pytest.mark.parametrize(
    ("only_if", "life", "granted"),
    [
        (None, 2000, ["a", "never", "own"]),
        ("longer", 2000, ["own"]),
        ("longer", 4000, ["a", "own"]),
        ("longer", 500, []),
        ("shorter", 2000, ["a", "never"]),
        ("shorter", 4000, ["never"]),
        ("shorter", 0, ["a", "never", "own"]),
        ("has_ttl", 2000, ["a", "own"]),
        ("no_ttl", 2000, ["never"]),
    ],
)
def test_a_new_end_on_a_condition(only_if: Any, life: int, granted: list[str]) -> None:
    engine, model = create_engine("sqlite://"), web_session(3600)
    model.metadata.create_all(engine)
    for at in (False, True):
        with Session(engine) as session:
            session.add_all([model(id="a"), model(id="own", ttl=1000), model(id="never", ttl=-1)])
            session.commit()
            for key in ("a", "own", "never"):
                age(session.connection(), "web_sessions", key, 100)
            session.commit()
            rows = session.scalars(select(model).order_by(model.id)).all()
            instant = datetime.now(timezone.utc) + timedelta(seconds=life)
            got = [
                row.id
                for row in rows
                if (
                    row.expire_at(instant, only_if=only_if)
                    if at
                    else row.expire_in(life, only_if=only_if)
                )
            ]
            assert got == granted
            ends = {row.id: row.expires_at for row in rows if row.id not in granted}
            session.flush()
            assert {key: session.get_one(model, key).expires_at for key in ends} == ends
            session.rollback()
            session.execute(model.__table__.delete())
            session.commit()
    engine.dispose()


def test_mistakes_are_named(session: Session, model: Any) -> None:
    row = session.get_one(model, "a")
    with pytest.raises(TTLConfigurationError, match="at_most_every=0"):
        row.touch(at_most_every=0)
    for call in (
        lambda: row.touch(only_if="GT"),
        lambda: row.expire_in(5, only_if="XX"),
        lambda: row.expire_at(row.expires_at, only_if="XX"),
    ):
        with pytest.raises(TTLConfigurationError, match="only_if="):
            call()


def test_classes_without_the_mixin_have_the_same_as_functions(engine: Engine) -> None:
    class Base(DeclarativeBase):
        pass

    class Token(Base):
        __tablename__ = "tokens"
        id: Mapped[str] = mapped_column(String(10), primary_key=True)
        stamp = last_modified_column()
        seconds = ttl_column(object)

    enable(Token, 3600)
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        row = Token(id="a")
        session.add(row)
        session.commit()
        age(session.connection(), "tokens", "a", 100)
        session.commit()
        assert not is_expired(row)
        assert HOUR - timedelta(seconds=200) < (time_left(row) or HOUR * 2) < HOUR
        assert not touch(row, at_most_every=3600)
        assert touch(row, at_most_every=60, only_if="longer")
        session.commit()
        assert HOUR - timedelta(seconds=60) < (time_left(row) or HOUR * 2) <= HOUR
        persist(row)
        session.commit()
        assert time_left(row) is None
        assert not expire_in(row, 60, only_if="has_ttl")
        assert expire_in(row, 60, only_if="no_ttl")
        session.commit()
        assert row.seconds == 60
        assert not expire_at(row, datetime.now(timezone.utc) + HOUR, only_if="shorter")
        inherit_ttl(row)
        session.commit()
        assert row.seconds is None
        assert expire_in(row, 0)
        session.commit()
        assert session.scalars(select(Token.id)).all() == []


@pytest.mark.parametrize("policy", [ExpireAt("at"), ExpireAfter("at", 60)])
def test_what_no_write_prolongs_cannot_be_touched(policy: Any) -> None:
    class Base(DeclarativeBase):
        pass

    class Ticket(Base):
        __tablename__ = "tickets"
        id: Mapped[str] = mapped_column(String(10), primary_key=True)
        at: Mapped[datetime | None]

    enable(Ticket, policy)
    with pytest.raises(TTLError, match="no write renews"):
        touch(Ticket(id="a"), at_most_every=5)
