"""Sessions that have another database for each object, or for each statement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Engine, create_engine, inspect, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.ext.horizontal_shard import ShardedSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.sql.dml import Delete, Update

from tests.clocks import let_pass
from ttl_odm.sqlalchemy import ExpiredError, TTLMixin

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.databases("sqlite")

SHARDS = {"Asia": "asia", "Europe": "europe"}


@pytest.fixture
def weather() -> Any:
    class Base(DeclarativeBase):
        pass

    class WeatherLocation(TTLMixin, Base):
        __tablename__ = "weather_locations"
        __ttl__ = 3600
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        continent: Mapped[str]
        city: Mapped[str]

    return WeatherLocation


@pytest.fixture
def engines(weather: Any, tmp_path: Path) -> Iterator[dict[str, Engine]]:
    engines = {name: create_engine(f"sqlite:///{tmp_path}/{name}") for name in SHARDS.values()}
    for engine in engines.values():
        weather.metadata.create_all(engine)
    yield engines
    for engine in engines.values():
        engine.dispose()


def shard_chooser(mapper: Any, instance: Any, clause: Any = None) -> str:
    """As in SQLAlchemy's documentation: it asks the object."""
    del mapper, clause
    return SHARDS[instance.continent]


def sharded(engines: dict[str, Any], **options: Any) -> ShardedSession:
    return ShardedSession(
        shards=engines,
        shard_chooser=shard_chooser,
        identity_chooser=lambda *_, **__: list(engines),
        execute_chooser=lambda _: list(engines),
        **options,
    )


@pytest.fixture
def session(weather: Any, engines: dict[str, Engine]) -> Iterator[ShardedSession]:
    with sharded(engines, expire_on_commit=False) as session:
        session.add_all(
            [
                weather(id=1, continent="Asia", city="Tokyo"),
                weather(id=2, continent="Europe", city="London"),
                weather(id=3, continent="Europe", city="Dublin"),
            ]
        )
        session.commit()
        session.expunge_all()
        yield session


def expire(engines: dict[str, Engine], row: Any) -> None:
    with engines[SHARDS[row.continent]].begin() as connection:
        let_pass(connection, row, 4000)


def test_a_second_get_is_served_from_memory(session: ShardedSession, weather: Any) -> None:
    first = [session.get(weather, key) for key in (1, 2)]
    assert [session.get(weather, key) for key in (1, 2)] == first


def test_lifetimes_are_told(session: ShardedSession, weather: Any) -> None:
    london = session.get_one(weather, 2)
    assert not london.is_expired
    assert london.time_left.total_seconds() > 3000
    assert not london.touch(at_most_every=60)
    assert london.touch()
    session.commit()
    new = weather(id=4, continent="Asia", city="Delhi")
    session.add(new)
    session.flush()
    assert not new.is_expired


def test_an_object_that_has_expired_is_no_longer_found(
    session: ShardedSession, weather: Any, engines: dict[str, Engine]
) -> None:
    london = session.get_one(weather, 2)
    expire(engines, london)
    assert london.is_expired
    assert session.get(weather, 2) is None
    assert {row.id for row in session.scalars(select(weather))} == {1, 3}


@pytest.mark.parametrize("write", ["update", "delete"])
def test_a_write_to_an_expired_object_raises(
    session: ShardedSession, weather: Any, engines: dict[str, Engine], write: str
) -> None:
    london, tokyo = session.get_one(weather, 2), session.get_one(weather, 1)
    expire(engines, london)
    tokyo.city = "Osaka"
    if write == "update":
        london.city = "Leeds"
    else:
        session.delete(london)
    with pytest.raises(ExpiredError, match=f"WeatherLocation 2 can't be {write}d"):
        session.commit()


def test_an_object_merged_or_added_takes_the_key_of_one_that_has_expired(
    session: ShardedSession, weather: Any, engines: dict[str, Engine]
) -> None:
    london = session.get_one(weather, 2)
    assert inspect(london).key[2] == "europe"
    expire(engines, london)
    session.add(weather(id=2, continent="Europe", city="Leeds"))
    session.commit()
    found = session.scalars(select(weather), execution_options={"populate_existing": True})
    assert sorted(row.city for row in found) == ["Dublin", "Leeds", "Tokyo"]


async def test_an_asynchronous_session(weather: Any, engines: dict[str, Engine]) -> None:
    from sqlalchemy.ext.asyncio import create_async_engine

    ours = {
        name: create_async_engine(f"sqlite+aiosqlite:///{engine.url.database}")
        for name, engine in engines.items()
    }
    made = AsyncSession(
        sync_session_class=ShardedSession,
        expire_on_commit=False,
        shards={name: engine.sync_engine for name, engine in ours.items()},
        shard_chooser=shard_chooser,
        identity_chooser=lambda *_, **__: list(ours),
        execute_chooser=lambda _: list(ours),
    )
    try:
        async with made as session:
            session.add(weather(id=2, continent="Europe", city="London"))
            await session.commit()
            london = await session.get_one(weather, 2)
            assert await session.get(weather, 2) is london
            assert not london.is_expired
            assert not london.touch(at_most_every=60)
            expire(engines, london)
            assert await session.get(weather, 2) is None
    finally:
        for engine in ours.values():
            await engine.dispose()


class RoutingSession(Session):
    """As in SQLAlchemy's documentation: a read may go anywhere, a write to one place only."""

    engines: dict[str, Engine]

    def get_bind(self, mapper: Any = None, clause: Any = None) -> Engine:  # type: ignore[override]
        del mapper
        is_write = self._flushing or isinstance(clause, (Update, Delete))
        return self.engines["asia" if is_write else "europe"]


def test_a_session_with_a_get_bind_of_its_own(weather: Any, engines: dict[str, Engine]) -> None:
    with RoutingSession(expire_on_commit=False) as session:
        session.engines = {"asia": engines["asia"], "europe": engines["asia"]}
        tokyo = weather(id=1, continent="Asia", city="Tokyo")
        session.add(tokyo)
        session.commit()
        assert session.get(weather, 1) is tokyo
        assert not tokyo.is_expired
        expire(engines, tokyo)
        assert session.get(weather, 1) is None


class PerInstanceSession(Session):
    """Routes the connections of a flush by the object, and knows nothing of it elsewhere."""

    engine: Engine

    def connection_callable(self, mapper: Any = None, instance: Any = None, **kw: Any) -> Any:
        del instance
        return self.connection(bind_arguments={"mapper": mapper}, **kw)

    def get_bind(self, mapper: Any = None, clause: Any = None) -> Engine:  # type: ignore[override]
        del mapper, clause
        return self.engine


def test_a_get_bind_that_takes_no_object(weather: Any, engines: dict[str, Engine]) -> None:
    with PerInstanceSession(expire_on_commit=False) as session:
        session.engine = engines["asia"]
        tokyo = weather(id=1, continent="Asia", city="Tokyo")
        session.add(tokyo)
        session.commit()
        assert session.get(weather, 1) is tokyo
        assert not tokyo.is_expired
