"""What one can ask of a row, and do with its lifetime."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Column, Computed, Integer, MetaData, Table, inspect, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, aliased, mapped_column

from tests.clocks import age
from tests.sql.models import web_session
from ttl_odm import TTL, ExpireAt, InvalidTTL, TTLConfigurationError, TTLError
from ttl_odm.sqlalchemy import TTLMixin, expired, expires_at, include_expired, live, touch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

HOUR = timedelta(hours=1)


@pytest.fixture
def session(engine: Engine, model: Any) -> Iterator[Session]:
    with Session(engine) as session:
        session.add_all([model(id="a"), model(id="own", ttl=50), model(id="never", ttl=-1)])
        session.commit()
        yield session


def test_a_row_tells_when_it_expires(session: Session, model: Any) -> None:
    a, own, never = (session.get(model, key) for key in ("a", "own", "never"))
    assert a.expires_at == a.last_modified + HOUR
    assert own.expires_at == own.last_modified + timedelta(seconds=50)
    assert never.expires_at is None
    assert HOUR - timedelta(minutes=1) < a.time_left <= HOUR
    assert never.time_left is None
    assert [row.is_expired for row in (a, own, never)] == [False] * 3
    assert a.expires_at.tzinfo is timezone.utc


def test_a_row_that_was_not_stored_has_no_end_yet(model: Any) -> None:
    row = model(id="new")
    assert (row.expires_at, row.time_left, row.is_expired) == (None, None, False)


def test_the_database_tells_the_same(session: Session, model: Any) -> None:
    age(session.connection(), "web_sessions", "own", 100)
    session.commit()
    other = aliased(model)
    for entity in (model, other):
        query = select(entity.id, entity.expires_at, entity.is_expired, live(entity))
        found = session.execute(query.options(include_expired())).all()
        assert {(row[0], row[2], row[3]) for row in found} == {
            ("a", False, True),
            ("own", True, False),
            ("never", False, True),
        }
        rows = session.scalars(select(model).options(include_expired()))
        assert {row[0]: row[1] for row in found} == {row.id: row.expires_at for row in rows}
    dead = select(model.id).where(expired(model)).options(include_expired())
    assert session.scalars(dead).all() == ["own"]
    assert set(session.scalars(select(model.id).where(~expired(model)))) == {"a", "never"}
    assert session.scalars(select(model.id).where(~live(model))).all() == []
    table = model.__table__
    ends = session.execute(select(table.c.id, expires_at(table)).where(live(table))).all()
    assert dict(tuple(row) for row in ends)["never"] is None


def test_expires_at_follows_the_default(session: Session, model: Any) -> None:
    a = session.get(model, "a")
    for default, life in ((60, timedelta(minutes=1)), (-1, None), (None, None)):
        model.__ttl__ = default
        end = None if life is None else a.last_modified + life
        assert a.expires_at == end
        assert session.scalars(select(model.expires_at).where(model.id == "a")).one() == end
    assert session.scalars(select(model.expires_at).where(model.id == "own")).one() is None  # off


CHANGES: dict[str, tuple[Callable[[Any], None], int | None, timedelta | None]] = {
    "persist": (lambda row: row.persist(), -1, None),
    "inherit_ttl": (lambda row: row.inherit_ttl(), None, HOUR),
    "expire_in seconds": (lambda row: row.expire_in(90), 90, timedelta(seconds=90)),
    "expire_in a timedelta": (lambda row: row.expire_in(2 * HOUR), 7200, 2 * HOUR),
    "expire_in the same again": (lambda row: row.expire_in(50), 50, timedelta(seconds=50)),
    "touch": (lambda row: row.touch(), 50, timedelta(seconds=50)),
    "a new ttl": (lambda row: setattr(row, "ttl", 90), 90, timedelta(seconds=90)),
}


@pytest.mark.parametrize(("change", "ttl", "life"), CHANGES.values(), ids=CHANGES)
def test_a_lifetime_can_be_changed(
    session: Session,
    model: Any,
    change: Callable[[Any], None],
    ttl: int | None,
    life: timedelta | None,
) -> None:
    age(session.connection(), "web_sessions", "own", 40)
    session.commit()
    row = session.get(model, "own")
    change(row)
    session.commit()
    assert row.ttl == ttl
    if life is None:
        assert row.time_left is None
    else:  # counted from the write on
        assert life - timedelta(seconds=5) < row.time_left <= life


@pytest.mark.parametrize("life", [0, -5, timedelta(seconds=-1), -0.5])
def test_expire_in_zero_or_less_expires_now_and_never_writes_zero(
    session: Session, model: Any, life: Any
) -> None:
    session.get(model, "a").expire_in(life)
    session.commit()
    session.expunge_all()
    assert session.get(model, "a") is None
    stored = session.scalars(select(model).options(include_expired()).where(model.id == "a")).one()
    assert stored.ttl == 1
    assert stored.is_expired


@pytest.mark.parametrize("life", [1.5, timedelta(seconds=1.5), 2147483648, True, float("nan")])
def test_expire_in_refuses_what_is_no_ttl(session: Session, model: Any, life: Any) -> None:
    row = session.get(model, "a")
    with pytest.raises(InvalidTTL, match=r"WebSession\.ttl"):
        row.expire_in(life)
    assert not session.dirty


def test_expire_at_is_exact(session: Session, model: Any) -> None:
    row = session.get(model, "a")
    instant = (row.last_modified + timedelta(seconds=100.25)).replace(microsecond=250_000)
    row.expire_at(instant)
    session.commit()
    assert row.expires_at == instant
    row.expire_at(instant.astimezone(timezone(timedelta(hours=5, minutes=45))))
    session.commit()
    assert row.expires_at == instant
    new = model(id="new")
    new.expire_at(instant)
    session.add(new)
    session.commit()
    assert new.expires_at == instant


def test_expire_at_in_the_past_expires_now(session: Session, model: Any) -> None:
    session.get(model, "a").expire_at(datetime(2020, 1, 1, tzinfo=timezone.utc))
    session.commit()
    session.expunge_all()
    assert session.get(model, "a") is None


def test_expire_at_refuses_a_naive_datetime(session: Session, model: Any) -> None:
    with pytest.raises(InvalidTTL, match="naive"):
        session.get(model, "a").expire_at(datetime(2030, 1, 1))  # noqa: DTZ001


def test_the_helpers_refuse_a_class_without_ttl(session: Session) -> None:

    class Base(DeclarativeBase):
        pass

    class Plain(Base):
        __tablename__ = "plain"
        id: Mapped[int] = mapped_column(primary_key=True)

    targets = (Plain, inspect(Plain), aliased(Plain))
    for helper, target in product((live, expired, expires_at), targets):
        with pytest.raises(TTLConfigurationError, match=r"^Plain has no TTL"):
            helper(target)
    with pytest.raises(TTLConfigurationError, match="has no TTL"):
        touch(Plain(id=1))


def test_the_helpers_name_a_table_without_ttl() -> None:
    table = Table("plain", MetaData(schema="app"), Column("id", Integer, primary_key=True))
    for helper, target in product((live, expired, expires_at), (table, table.alias("p"))):
        with pytest.raises(TTLConfigurationError, match=r"^Table 'app\.plain' has no TTL"):
            helper(target)


def test_a_detached_row_still_tells_its_age(session: Session, model: Any) -> None:
    row = session.get(model, "a")
    session.expunge(row)
    assert not row.is_expired


def test_an_age_that_nobody_can_know_is_an_error(model: Any, monkeypatch: Any) -> None:
    from ttl_odm.sqlalchemy.time import clock as database_clock

    monkeypatch.setattr(database_clock, "_latest", [])
    row = model(id="x", last_modified=datetime.now(timezone.utc))
    with pytest.raises(TTLError, match="Load the row in a session"):
        _ = row.is_expired


async def test_rows_behave_the_same_in_an_async_session(async_engine: AsyncEngine) -> None:
    model = web_session(3600)
    async with async_engine.begin() as connection:
        await connection.run_sync(model.metadata.create_all)
    async with AsyncSession(async_engine, expire_on_commit=False) as session:
        session.add_all([model(id="a"), model(id="b", ttl=50)])
        await session.commit()
        row = await session.get(model, "b")
        assert row is not None
        await session.refresh(row)
        row.expire_in(0)
        await session.commit()
        assert await session.get(model, "b") is None
        assert (await session.scalars(select(model.id))).all() == ["a"]
        streamed = await session.stream_scalars(select(model.id).options(include_expired()))
        assert sorted([key async for key in streamed]) == ["a", "b"]
        session.add(model(id="b", email="again@example.org"))
        await session.commit()
        assert sorted((await session.scalars(select(model.id))).all()) == ["a", "b"]


async def test_every_row_of_a_flush_is_counted(async_engine: AsyncEngine) -> None:
    """Asyncpg tells no row counts for executemany; an expired row among several must show."""
    from ttl_odm.sqlalchemy import ExpiredError

    model = web_session(3600)
    async with async_engine.begin() as connection:
        await connection.run_sync(model.metadata.create_all)
    async with AsyncSession(async_engine) as session:
        session.add_all([model(id=key) for key in "abc"])
        await session.flush()
        rows = (await session.scalars(select(model))).all()
        await session.run_sync(lambda s: age(s.connection(), "web_sessions", "b", 4000))
        for row in rows:
            row.views = 5
        with pytest.raises(ExpiredError, match="'b'"):
            await session.flush()
        await session.rollback()


class Generated(DeclarativeBase): ...


class Pass(TTLMixin, Generated):
    __tablename__ = "passes"
    __ttl__ = ExpireAt("ends", unit="s", null="never")
    id: Mapped[int] = mapped_column(primary_key=True)
    begins: Mapped[int]
    ends: Mapped[int | None] = mapped_column(Computed("begins + 60"))


class Badge(TTLMixin, Generated):
    __tablename__ = "badges"
    __ttl__ = TTL(60, override="life")
    id: Mapped[int] = mapped_column(primary_key=True)
    hours: Mapped[int]
    life: Mapped[int | None] = mapped_column(Computed("hours * 3600"))


@pytest.mark.parametrize("row", [Pass(begins=0), Badge(hours=1)], ids=["ExpireAt", "TTL"])
@pytest.mark.parametrize(
    "set_end",
    [
        lambda row: row.expire_in(5),
        lambda row: row.expire_in(0, only_if="shorter"),
        lambda row: row.expire_at(datetime(2040, 1, 1, tzinfo=timezone.utc)),
        lambda row: row.persist(),
    ],
)
def test_the_end_of_a_row_in_a_generated_column_cannot_be_set(
    row: Any, set_end: Callable[[Any], None]
) -> None:
    with pytest.raises(TTLError, match=r"computes column '\w+' \((begins \+ 60|hours \* 3600)\)"):
        set_end(row)


def test_nor_can_a_generated_ttl_be_removed() -> None:
    with pytest.raises(TTLError, match="computes column 'life'"):
        Badge(hours=1).inherit_ttl()
