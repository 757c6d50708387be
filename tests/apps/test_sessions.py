"""Every kind of session that applications use: the same rules hold in each."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import sqlmodel
from flask import Flask
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import MetaData, String, func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    mapped_column,
    scoped_session,
    sessionmaker,
)
from werkzeug.exceptions import NotFound

from tests.clocks import age
from ttl_odm import InvalidTTL
from ttl_odm.sqlalchemy import ExpiredError, TTLMixin, include_expired
from ttl_odm.sqlalchemy.sqlmodel import TTLModel

with warnings.catch_warnings():
    # advanced-alchemy 1.12 still uses a decorator that SQLAlchemy 2.1 has deprecated.
    warnings.filterwarnings("ignore", "The declarative_mixin decorator", DeprecationWarning)
    from advanced_alchemy.base import CommonTableAttributes
    from advanced_alchemy.exceptions import NotFoundError, RepositoryError
    from advanced_alchemy.repository import SQLAlchemyAsyncRepository, SQLAlchemySyncRepository

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    from tests.backends import Backend
    from ttl_odm.testing import TTLClock

HOUR = 3600


class Base(CommonTableAttributes, DeclarativeBase):
    """With what advanced-alchemy's repositories ask of a model."""

    metadata = MetaData()


class Ticket(TTLMixin, Base):
    __tablename__ = "tickets"
    __ttl__ = HOUR

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    email: Mapped[str | None] = mapped_column(String(80), unique=True)


class Hero(TTLModel, table=True):
    __tablename__ = "tickets"
    __ttl__ = HOUR
    metadata = MetaData()

    id: str = sqlmodel.Field(primary_key=True, max_length=40)
    email: str | None = sqlmodel.Field(default=None, unique=True, max_length=80)


class Shared(TTLModel):
    name: str = sqlmodel.Field(max_length=40)


class Villain(Shared, table=True):
    __ttl__ = HOUR
    metadata = MetaData()
    id: int | None = sqlmodel.Field(default=None, primary_key=True)


class Strict(TTLModel, table=True):
    __ttl__ = HOUR
    metadata = MetaData()
    model_config = {"validate_assignment": True}
    id: int | None = sqlmodel.Field(default=None, primary_key=True)


class Kind(NamedTuple):
    """A session of one kind, with a model for it."""

    session: Any
    model: Any


@contextmanager
def plain(engine: Engine, _: Backend) -> Iterator[Kind]:
    with Session(engine) as session:
        yield Kind(session, Ticket)


@contextmanager
def made_by_sessionmaker(engine: Engine, _: Backend) -> Iterator[Kind]:
    with sessionmaker(engine, expire_on_commit=False)() as session:
        yield Kind(session, Ticket)


@contextmanager
def scoped(engine: Engine, _: Backend) -> Iterator[Kind]:
    registry = scoped_session(sessionmaker(engine))
    yield Kind(registry, Ticket)
    registry.remove()


@contextmanager
def of_sqlmodel(engine: Engine, _: Backend) -> Iterator[Kind]:
    with sqlmodel.Session(engine) as session:
        yield Kind(session, Hero)


@contextmanager
def of_flask(_: Engine, backend: Backend) -> Iterator[Kind]:
    db, app = flask_application(backend)
    with app.app_context():
        yield Kind(db.session, db.Ticket)
        db.session.remove()
        db.engine.dispose()


def flask_application(backend: Backend) -> tuple[Any, Flask]:
    class FlaskBase(DeclarativeBase):
        pass

    db: Any = SQLAlchemy(model_class=FlaskBase)

    class Ticket(TTLMixin, db.Model):
        __ttl__ = HOUR
        __tablename__ = "tickets"
        id: Mapped[str] = mapped_column(String(40), primary_key=True)
        email: Mapped[str | None] = mapped_column(String(80), unique=True)

    app = Flask("shop")
    app.config["SQLALCHEMY_DATABASE_URI"] = backend.sync_url
    db.init_app(app)
    db.Ticket = Ticket
    return db, app


KINDS: list[Callable[..., Any]] = [plain, made_by_sessionmaker, scoped, of_sqlmodel, of_flask]


@pytest.fixture
def tables(engine: Engine) -> None:
    Base.metadata.create_all(engine)


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def kind(
    request: pytest.FixtureRequest, engine: Engine, backend: Backend, tables: None
) -> Iterator[Kind]:
    with request.param(engine, backend) as made:
        made.session.add_all([made.model(id="old", email="a@b.c"), made.model(id="live")])
        made.session.commit()
        yield made
        made.session.rollback()


def expire(engine: Engine, key: str = "old") -> None:
    let_age(engine, key, 2 * HOUR)


def let_age(engine: Engine, key: str, seconds: float) -> None:
    with engine.begin() as connection:
        age(connection, "tickets", key, seconds)


def ids(session: Any, model: Any) -> list[str]:
    return sorted(session.scalars(select(model.id)))


def test_expired_rows_are_invisible(kind: Kind, engine: Engine) -> None:
    session, model = kind
    assert ids(session, model) == ["live", "old"]
    session.commit()
    expire(engine)
    assert ids(session, model) == ["live"]
    assert session.get(model, "live").id == "live"
    session.expire_all()
    assert session.get(model, "old") is None
    assert session.scalar(select(func.count()).select_from(model)) == 1
    assert ids(session, model) == ["live"]
    every = select(model.id).options(include_expired())
    assert sorted(session.scalars(every)) == ["live", "old"]


@pytest.mark.parametrize("change", ["update", "delete"])
def test_a_write_of_an_expired_object_raises(kind: Kind, engine: Engine, change: str) -> None:
    session, model = kind
    old = session.get(model, "old")
    session.refresh(old)
    expire(engine)
    if change == "update":
        old.email = "new@b.c"
    else:
        session.delete(old)
    with pytest.raises(ExpiredError, match=model.__name__):
        session.flush()
    session.rollback()


def test_the_keys_of_an_expired_row_are_free_and_those_of_a_live_one_are_not(
    kind: Kind, engine: Engine
) -> None:
    session, model = kind
    expire(engine)
    session.add(model(id="old", email="a@b.c"))
    session.commit()
    assert ids(session, model) == ["live", "old"]
    session.add(model(id="other", email="a@b.c"))
    with pytest.raises(IntegrityError):
        session.flush()


def test_lifetimes_can_be_changed(kind: Kind, engine: Engine, ttl_clock: TTLClock) -> None:
    session, model = kind
    let_age(engine, "live", 100)
    live = session.get(model, "live")
    before = live.last_modified
    live.touch()
    session.commit()
    session.refresh(live)
    assert live.last_modified > before
    assert live.expires_at == live.last_modified + timedelta(seconds=HOUR)
    with ttl_clock.freeze():
        live.expire_in(60)
        session.commit()
        assert (live.ttl, live.is_expired) == (60, False)
        assert live.time_left == timedelta(seconds=60)
    live.ttl = timedelta(minutes=5)
    session.commit()
    assert live.ttl == 300
    with pytest.raises(InvalidTTL):
        live.ttl = 0
    session.rollback()
    session.add(model(id="own", ttl=-1))
    session.commit()
    assert session.get(model, "own").expires_at is None
    live.expire_in(0)
    session.commit()
    assert ids(session, model) == ["old", "own"]


# --- asynchronous sessions


@pytest.fixture(params=["AsyncSession", "async_sessionmaker", "async_scoped_session"])
async def async_session(
    request: pytest.FixtureRequest, async_engine: AsyncEngine
) -> AsyncIterator[Any]:
    async with async_engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    if request.param == "AsyncSession":
        session: Any = AsyncSession(async_engine, expire_on_commit=False)
    else:
        session = async_sessionmaker(async_engine, expire_on_commit=False)
        if request.param == "async_scoped_session":
            session = async_scoped_session(session, scopefunc=lambda: 1)
        else:
            session = session()
    session.add_all([Ticket(id="old", email="a@b.c"), Ticket(id="live")])
    await session.commit()
    yield session
    await session.close()
    if request.param == "async_scoped_session":
        await session.remove()


async def expire_async(engine: AsyncEngine) -> None:
    await let_age_async(engine, 2 * HOUR)


async def let_age_async(engine: AsyncEngine, seconds: float) -> None:
    async with engine.begin() as connection:
        await connection.run_sync(age, "tickets", "old", seconds)


async def test_expired_rows_are_invisible_in_async_sessions(
    async_session: Any, async_engine: AsyncEngine
) -> None:
    assert await async_session.get(Ticket, "old") is not None
    await async_session.commit()
    await expire_async(async_engine)
    async_session.expire_all()
    assert list(await async_session.scalars(select(Ticket.id))) == ["live"]
    assert await async_session.get(Ticket, "old") is None
    streamed = await async_session.stream_scalars(select(Ticket.id))
    assert [each async for each in streamed] == ["live"]


async def test_async_sessions_refuse_writes_of_expired_objects(
    async_session: Any, async_engine: AsyncEngine
) -> None:
    old = await async_session.get(Ticket, "old")
    await async_session.commit()
    await expire_async(async_engine)
    old.email = "new@b.c"
    with pytest.raises(ExpiredError):
        await async_session.flush()
    await async_session.rollback()


async def test_keys_are_free_and_lifetimes_change_in_async_sessions(
    async_session: Any, async_engine: AsyncEngine
) -> None:
    await expire_async(async_engine)
    async_session.expunge_all()
    fresh = Ticket(id="old", email="a@b.c")
    async_session.add(fresh)
    await async_session.commit()
    await let_age_async(async_engine, 100)
    await async_session.refresh(fresh)
    before = fresh.last_modified
    fresh.touch()
    await async_session.commit()
    await async_session.refresh(fresh)
    assert fresh.last_modified > before
    fresh.expire_in(60)
    await async_session.commit()
    await async_session.refresh(fresh)
    assert fresh.expires_at == fresh.last_modified + timedelta(seconds=60)


# --- Flask-SQLAlchemy's own ways to read


@pytest.fixture
def flask_db(backend: Backend, engine: Engine, tables: None) -> Iterator[Any]:
    db, app = flask_application(backend)
    with app.app_context():
        db.session.add_all([db.Ticket(id="old"), db.Ticket(id="live")])
        db.session.commit()
        expire(engine)
        db.session.expunge_all()
        yield db
        db.session.remove()
        db.engine.dispose()


def test_flask_sqlalchemy_reads_live_rows_only(flask_db: Any) -> None:
    ticket, session = flask_db.Ticket, flask_db.session
    assert [row.id for row in session.scalars(flask_db.select(ticket))] == ["live"]
    assert [row.id for row in ticket.query.all()] == ["live"]
    assert ticket.query.filter_by(id="old").first() is None
    assert ticket.query.count() == 1
    page = flask_db.paginate(flask_db.select(ticket), per_page=10, page=1)
    assert ([row.id for row in page.items], page.total) == (["live"], 1)
    page = ticket.query.paginate(per_page=10, page=1)
    assert ([row.id for row in page.items], page.total) == (["live"], 1)
    assert flask_db.get_or_404(ticket, "live").id == "live"
    for look in (
        lambda: flask_db.get_or_404(ticket, "old"),
        lambda: flask_db.first_or_404(flask_db.select(ticket).filter_by(id="old")),
        lambda: flask_db.one_or_404(flask_db.select(ticket).filter_by(id="old")),
        lambda: ticket.query.filter_by(id="old").first_or_404(),
    ):
        with pytest.raises(NotFound):
            look()


# --- SQLModel's own ways


@pytest.fixture
def hero_session(engine: Engine) -> Iterator[sqlmodel.Session]:
    Hero.metadata.create_all(engine)
    with sqlmodel.Session(engine) as session:
        session.add_all([Hero(id="old", email="a@b.c"), Hero(id="live")])
        session.commit()
        expire(engine)
        session.expunge_all()
        yield session


def test_sqlmodel_selects_live_rows_only(hero_session: sqlmodel.Session) -> None:
    assert [hero.id for hero in hero_session.exec(sqlmodel.select(Hero))] == ["live"]
    assert hero_session.exec(sqlmodel.select(Hero.id)).all() == ["live"]
    assert hero_session.exec(sqlmodel.select(func.count(Hero.id))).one() == 1
    assert hero_session.exec(sqlmodel.select(Hero).where(Hero.id == "old")).first() is None
    soon = sqlmodel.select(Hero.id).where(Hero.expires_at > Hero.last_modified)
    assert hero_session.exec(soon).all() == ["live"]
    result = hero_session.exec(sqlmodel.update(Hero).values(email="x"))
    assert result.rowcount == 1
    hero_session.commit()


def test_the_lifetime_of_a_sqlmodel_row_is_made_of_fields(hero_session: sqlmodel.Session) -> None:
    assert {"ttl", "last_modified"} < set(Hero.model_fields)
    hero = Hero.model_validate({"id": "new", "ttl": 60})
    assert hero.ttl == 60
    hero_session.add(hero)
    hero_session.commit()
    hero_session.refresh(hero)
    dumped = hero.model_dump()
    assert (dumped["ttl"], dumped["last_modified"]) == (60, hero.last_modified)
    assert hero.model_dump_json(include={"id", "ttl"}) in (
        '{"id":"new","ttl":60}',
        '{"ttl":60,"id":"new"}',
    )
    hero.sqlmodel_update({"ttl": 120})
    assert hero.ttl == 120
    hero.inherit_ttl()
    hero_session.commit()
    assert hero.ttl is None
    with pytest.raises(InvalidTTL, match=r"Hero\.ttl"):
        Hero(id="bad", ttl=0)


def test_a_sqlmodel_base_without_a_table_hands_the_fields_on(engine: Engine) -> None:
    Villain.metadata.create_all(engine)
    sent = Shared(name="Joker", ttl=30)
    assert (sent.ttl, sent.last_modified) == (30, None)
    sent.ttl = 40
    with sqlmodel.Session(engine) as session:
        villain = Villain.model_validate(sent)
        session.add(villain)
        session.commit()
        assert villain.expires_at == villain.last_modified + timedelta(seconds=40)


def test_assigned_lifetimes_are_not_judged_by_pydantic(hero_session: sqlmodel.Session) -> None:
    Strict.metadata.create_all(hero_session.connection())
    row = Strict()
    hero_session.add(row)
    hero_session.flush()
    row.touch()
    row.ttl = timedelta(minutes=1)
    hero_session.flush()
    assert row.ttl == 60
    hero_session.commit()


# --- advanced-alchemy's repositories


class Tickets(SQLAlchemySyncRepository[Ticket]):
    model_type = Ticket


class AsyncTickets(SQLAlchemyAsyncRepository[Ticket]):
    model_type = Ticket


@pytest.fixture
def tickets(engine: Engine, tables: None) -> Iterator[Tickets]:
    with Session(engine) as session:
        repository = Tickets(session=session)
        repository.add_many([Ticket(id="old", email="a@b.c"), Ticket(id="live")])
        session.commit()
        expire(engine)
        session.expunge_all()
        yield repository


# They still work; get_many() and get_many_and_count() are their new names.
@pytest.mark.filterwarnings("ignore:Call to deprecated method 'list:DeprecationWarning")
def test_a_repository_reads_live_rows_only(tickets: Tickets) -> None:
    assert [row.id for row in tickets.list()] == ["live"]
    assert tickets.list_and_count()[1] == 1
    assert tickets.count() == 1
    assert tickets.exists(id="live")
    assert not tickets.exists(id="old")
    assert tickets.get_one_or_none(id="old") is None
    assert tickets.get("live").id == "live"
    with pytest.raises(NotFoundError):
        tickets.get("old")


def test_a_repository_writes_live_rows_only(tickets: Tickets) -> None:
    with pytest.raises(NotFoundError):
        tickets.update(Ticket(id="old", email="new@b.c"))
    with pytest.raises(NotFoundError):
        tickets.delete("old")
    assert tickets.update(Ticket(id="live", email="x@b.c")).email == "x@b.c"
    assert tickets.delete("live").id == "live"
    assert tickets.count() == 0
    tickets.session.commit()


def test_a_repository_reports_a_loaded_row_that_has_expired(
    tickets: Tickets, engine: Engine
) -> None:
    live = tickets.get("live")
    tickets.session.rollback()
    live = tickets.get("live")
    tickets.session.commit()
    expire(engine, "live")
    live.email = "new@b.c"
    with pytest.raises((ExpiredError, RepositoryError)) as raised:
        tickets.update(live)
    assert isinstance(raised.value.__cause__ or raised.value, (ExpiredError, NotFoundError))
    tickets.session.rollback()


def test_a_repository_adds_and_upserts_in_place_of_an_expired_row(tickets: Tickets) -> None:
    assert tickets.add(Ticket(id="old", email="a@b.c")).email == "a@b.c"
    tickets.session.commit()
    again = tickets.upsert(Ticket(id="old", email="b@b.c"))
    tickets.session.commit()
    assert (again.email, tickets.count()) == ("b@b.c", 2)


def test_an_upsert_of_a_repository_starts_an_expired_row_anew(tickets: Tickets) -> None:
    row = tickets.upsert(Ticket(id="old"))
    tickets.session.commit()
    tickets.session.refresh(row)
    assert (row.id, row.email) == ("old", None)
    assert tickets.upsert_many([Ticket(id="live", email="l"), Ticket(id="third")])
    tickets.session.commit()
    assert tickets.count() == 3


def test_rows_of_a_repository_have_lifetimes(tickets: Tickets, engine: Engine) -> None:
    let_age(engine, "live", 100)
    live = tickets.get("live")
    before = live.last_modified
    live.touch()
    tickets.update(live)
    assert live.last_modified > before
    live.expire_in(60)
    tickets.update(live)
    assert live.expires_at == live.last_modified + timedelta(seconds=60)
    tickets.session.commit()


# They still work; get_many() and get_many_and_count() are their new names.
@pytest.mark.filterwarnings("ignore:Call to deprecated method 'list:DeprecationWarning")
async def test_an_async_repository_keeps_the_same_rules(async_engine: AsyncEngine) -> None:
    async with async_engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async with AsyncSession(async_engine, expire_on_commit=False) as session:
        tickets = AsyncTickets(session=session)
        await tickets.add_many([Ticket(id="old", email="a@b.c"), Ticket(id="live")])
        await session.commit()
        await expire_async(async_engine)
        session.expunge_all()
        assert [row.id for row in await tickets.list()] == ["live"]
        assert (await tickets.list_and_count())[1] == await tickets.count() == 1
        assert not await tickets.exists(id="old")
        for look in (tickets.get, tickets.delete):
            with pytest.raises(NotFoundError):
                await look("old")
        with pytest.raises(NotFoundError):
            await tickets.update(Ticket(id="old", email="new@b.c"))
        assert (await tickets.upsert(Ticket(id="old"))).email is None
        await session.commit()
        live = await tickets.get("live")
        live.expire_in(60)
        await tickets.update(live)
        assert live.expires_at == live.last_modified + timedelta(seconds=60)
        await tickets.delete("live")
        await session.commit()
        assert [row.id for row in await tickets.list()] == ["old"]
