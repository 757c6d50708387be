"""What becomes of expired rows: deleted, archived, given to a sink, or deleted as objects."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    JSON,
    Column,
    DateTime,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    Numeric,
    String,
    Table,
    create_engine,
    delete,
    event,
    inspect,
    null,
    select,
    text,
    update,
)
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

from tests.clocks import age
from tests.sql.sweeping import HOUR, add, add_at_once, cart, left, servers
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sqlalchemy import Archive, TTLMixin, include_expired
from ttl_odm.sqlalchemy.time.clock import LastModified, clock_of
from ttl_odm.sweeper import AsyncSweeper, Hook, HookError, Progress, Purged, Skip, Sweeper

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

DAY = 24 * HOUR


def shop(archive_in: Any = None, *, sweep: str = "index", hooks: Any = None) -> Any:
    """Declare a model and its archive, which comes later and has columns of its own."""

    class Base(DeclarativeBase):
        pass

    class Cart(TTLMixin, Base):
        __tablename__ = "carts"
        __ttl__ = HOUR
        __ttl_sweep__ = sweep
        __ttl_archive__ = archive_in(lambda: OldCart) if callable(archive_in) else archive_in
        __ttl_on_purged__ = hooks

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        owner: Mapped[str | None] = mapped_column("Owner's name", String(40))
        price: Mapped[Any] = mapped_column(Numeric(12, 4), nullable=True)
        notes: Mapped[Any] = mapped_column(JSON, nullable=True)
        photo: Mapped[bytes | None] = mapped_column(LargeBinary)

    class OldCart(Base):
        __tablename__ = "old carts"

        number: Mapped[int] = mapped_column(primary_key=True)
        archived: Mapped[datetime] = mapped_column(LastModified())
        reason: Mapped[str] = mapped_column(String(10), server_default="ttl")
        id: Mapped[int]
        owner: Mapped[str | None] = mapped_column("Owner's name", String(40))
        price: Mapped[Any] = mapped_column(Numeric(12, 4), nullable=True)
        notes: Mapped[Any] = mapped_column(JSON, nullable=True)
        photo: Mapped[bytes | None] = mapped_column(LargeBinary)
        _ts: Mapped[datetime] = mapped_column(LastModified())

    return Cart, OldCart


def archive(into: Any) -> Archive:
    return Archive(into, archived_at="archived")


def fill(engine: Engine, model: Any, expired: int = 20) -> dict[int, Any]:
    """Write some live rows and some that have expired; return what the latter hold."""
    with Session(engine) as session:
        for number in range(expired + 3):
            session.add(
                model(
                    id=number,
                    owner=f"Anna's {number}",
                    price=number / 8,
                    notes=[null(), {"a": [number]}, None][number % 3],
                    photo=bytes([number, 0, 255]),
                )
            )
        session.commit()
        clock = clock_of(engine.dialect)
        session.execute(
            text(f"UPDATE carts SET _ts = _ts - {DAY} * {clock.second} - id * {clock.second}"),  # noqa: S608
        )
        session.execute(
            text(f"UPDATE carts SET _ts = {clock.stamp} WHERE id >= {expired}")  # noqa: S608
        )
        session.commit()
        return content(session.connection(), model.__table__, model.id < expired)


def content(connection: Connection, table: Table, *criteria: Any) -> dict[int, Any]:
    names = ["id", "Owner's name", "price", "notes", "photo", "_ts"]
    # JSON's null and SQL's are the same in Python.
    columns = [table.c[name] for name in names] + [table.c.notes.is_(None)]
    rows = connection.execute(select(*columns).where(*criteria).options(include_expired()))
    return {row[0]: tuple(row) for row in rows}


WAYS = {
    "plain": {},
    "with a hook": {"on_purged": lambda _: None},
    "in small batches": {"batch_size": 3},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("sweep", ["index", "scan"])
def test_an_archive_gets_the_rows_that_are_deleted_and_no_others(
    engine: Engine, made: Any, way: str, sweep: str
) -> None:
    model, old = shop(archive, sweep=sweep)
    made(model)
    expected = fill(engine, model)
    report = Sweeper(engine, model, **WAYS[way]).run_once()  # type: ignore[arg-type]
    report.raise_for_failures()
    assert (report.deleted, report.archived) == (20, 20)
    with Session(engine) as session:
        assert left(session.connection(), model) == {20, 21, 22}
        assert content(session.connection(), old.__table__) == expected
        kept = session.scalars(select(old)).all()
        assert {each.reason for each in kept} == {"ttl"}
        age = datetime.now(timezone.utc) - kept[0].archived
        assert timedelta(hours=-2) < age < timedelta(hours=2)
    assert Sweeper(engine, model).run_once().archived == 0


def test_rows_of_one_instant_are_archived_in_batches_too(engine: Engine, made: Any) -> None:
    events: list[Progress] = []
    told: list[Purged] = []
    model, _ = shop(archive, hooks=told.append)
    made(model)
    with engine.begin() as connection:
        add_at_once(connection, "carts", 20)
    report = Sweeper(engine, model, batch_size=8, on_progress=events.append).run_once()
    report.raise_for_failures()
    assert (report.deleted, report.archived) == (20, 20)
    assert [purged.count for purged in told] == [event.deleted for event in events]
    assert all(event.deleted <= event.batch_size for event in events)


async def test_an_archive_gets_the_rows_asynchronously(async_engine: AsyncEngine) -> None:
    model, old = shop(archive)
    async with async_engine.begin() as connection:
        await connection.run_sync(model.metadata.create_all)
        await connection.run_sync(add, "carts", [(n, None, DAY + n) for n in range(20)])
    report = await AsyncSweeper(async_engine, model, batch_size=6).run_once()
    report.raise_for_failures()
    assert (report.deleted, report.archived) == (20, 20)
    async with async_engine.connect() as connection:
        found = await connection.scalars(select(old.id))
        assert sorted(found) == list(range(20))


@servers
@pytest.mark.parametrize("way", WAYS)
def test_rows_that_somebody_holds_are_archived_by_the_next_sweep(
    engine: Engine, made: Any, way: str
) -> None:
    model, old = shop(archive)
    made(model)
    fill(engine, model)
    with engine.connect() as holder:
        holder.execute(text("SELECT id FROM carts WHERE id IN (3, 7) FOR UPDATE"))
        report = Sweeper(engine, model, **WAYS[way]).run_once()  # type: ignore[arg-type]
        report.raise_for_failures()
        assert (report.archived, dict(report.targets[0].skips)) == (18, {Skip.LOCKED: 2})
    assert Sweeper(engine, model).run_once().archived == 2
    with engine.connect() as connection:
        assert sorted(connection.scalars(select(old.id))) == list(range(20))


@servers
@pytest.mark.parametrize("way", WAYS)
def test_a_row_that_is_renewed_at_the_last_moment_is_neither_archived_nor_deleted(
    engine: Engine, made: Any, way: str
) -> None:
    model, old = shop(archive)
    made(model)
    fill(engine, model)
    renewed: list[str] = []

    def renew(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        moves = statement.startswith(("DELETE", "WITH deleted")) or "FOR UPDATE" in statement
        if moves and "carts" in statement and not renewed:
            renewed.append(statement)
            with engine.begin() as other:
                other.execute(update(model).values(owner="x").where(model.id == 3))
                stamp = clock_of(engine.dialect).stamp
                other.execute(text(f"UPDATE carts SET _ts = {stamp} WHERE id = 3"))  # noqa: S608

    event.listen(engine, "before_cursor_execute", renew)
    report = Sweeper(engine, model, **WAYS[way]).run_once()  # type: ignore[arg-type]
    report.raise_for_failures()
    assert renewed
    with engine.connect() as connection:
        assert left(connection, model) == {3, 20, 21, 22}
        assert 3 not in set(connection.scalars(select(old.id)))


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_what_an_archive_refuses_stays_and_is_told(engine: Engine, made: Any, way: str) -> None:
    model, old = shop(archive)
    made(model)
    fill(engine, model)
    with engine.begin() as connection:
        connection.execute(text("CREATE UNIQUE INDEX one ON " + quoted(engine) + " (id)"))
        connection.execute(
            old.__table__.insert().values(
                id=4, archived=datetime.now(timezone.utc), _ts=datetime.now(timezone.utc)
            )
        )
    report = Sweeper(engine, model, **WAYS[way]).run_once()  # type: ignore[arg-type]
    (failed,) = report.failed
    assert isinstance(failed.error, HookError)
    assert "old carts" in str(failed.error)
    with engine.connect() as connection:
        stayed = left(connection, model) - {20, 21, 22}
        assert 4 in stayed
        assert failed.skips == {Skip.HOOK: len(stayed)}
        archived = sorted(connection.scalars(select(old.id)))
    assert archived == sorted({*range(20)} - stayed | {4})


def quoted(engine: Engine) -> str:
    return engine.dialect.identifier_preparer.quote("old carts")


def test_an_archive_may_be_a_plain_table_with_dates(engine: Engine) -> None:
    metadata = MetaData()
    old = Table(
        "old", metadata, Column("id", Integer), Column("at", DateTime(timezone=True)), schema=None
    )
    model, _ = shop(Archive(old, archived_at="at"))
    model.metadata.create_all(engine)
    metadata.create_all(engine)
    fill(engine, model)
    assert Sweeper(engine, model).run_once().archived == 20
    with engine.connect() as connection:
        instants = set(connection.scalars(select(old.c.at)))
    for instant in instants:
        aware = instant if instant.tzinfo else instant.replace(tzinfo=timezone.utc)
        assert abs(datetime.now(timezone.utc) - aware) < timedelta(hours=2)


def test_an_archive_with_a_ttl_keeps_rows_from_the_moment_it_gets_them(
    engine: Engine, made: Any
) -> None:
    class Base(DeclarativeBase):
        pass

    class Old(TTLMixin, Base):
        __tablename__ = "old"
        __ttl__ = HOUR

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

    class Cart(TTLMixin, Base):
        __tablename__ = "carts"
        __ttl__ = HOUR
        __ttl_archive__ = Archive(Old)

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

    made(Cart)
    with engine.begin() as connection:
        add(connection, "carts", [(1, None, DAY), (2, 5, DAY)])
    report = Sweeper(engine, Base).run_once()
    report.raise_for_failures()
    assert (report.deleted, report.archived) == (2, 2)
    with Session(engine) as session:
        assert {row.id: row.ttl for row in session.scalars(select(Old))} == {1: None, 2: None}


class Sink:
    """Keeps what it gets."""

    def __init__(self) -> None:
        self.got: list[Purged] = []

    def write(self, purged: Purged) -> None:
        self.got.append(purged)


def test_a_sink_gets_whole_rows_by_the_names_of_their_columns(engine: Engine, made: Any) -> None:
    sink = Sink()
    model, _ = shop(sink)
    made(model)
    expected = fill(engine, model)
    report = Sweeper(engine, model, batch_size=8).run_once()
    report.raise_for_failures()
    assert report.archived == 20
    rows = [row for purged in sink.got for row in purged.rows or ()]
    names = ["id", "Owner's name", "price", "notes", "photo", "_ts"]
    assert {row["id"]: tuple(row[name] for name in names) for row in rows} == {
        key: values[:-1] for key, values in expected.items()
    }
    assert all(purged.transaction is not None for purged in sink.got)


@pytest.mark.parametrize("sweep", ["index", "scan"])
def test_hooks_get_composite_keys_in_their_order(engine: Engine, made: Any, sweep: str) -> None:
    class Base(DeclarativeBase):
        pass

    told: list[Purged] = []

    class Reading(TTLMixin, Base):
        __tablename__ = "readings"
        __ttl__ = HOUR
        __ttl_sweep__ = sweep
        __ttl_on_purged__ = (told.append, Hook(told.append, when="commit", rows=True))

        value: Mapped[int]
        site: Mapped[str] = mapped_column(String(20), primary_key=True)
        number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

    made(Reading)
    with Session(engine) as session:
        session.add_all([Reading(site="a", number=n, value=7, ttl=1) for n in range(5)])
        session.commit()
        second = clock_of(engine.dialect).second
        session.execute(text(f"UPDATE readings SET _ts = _ts - 10 * {second}"))  # noqa: S608
        session.commit()
    Sweeper(engine, Reading).run_once().raise_for_failures()
    first, second_ = told
    assert sorted(first.keys) == sorted(second_.keys) == [("a", n) for n in range(5)]
    assert first.rows is None
    assert second_.rows is not None
    assert [row["value"] for row in second_.rows] == [7] * 5


async def test_hooks_write_in_the_transaction_asynchronously(async_engine: AsyncEngine) -> None:
    told = Table("told", MetaData(), Column("id", Integer))

    async def tell(purged: Purged) -> None:
        await purged.transaction.execute(told.insert(), [{"id": key} for (key,) in purged.keys])

    model, _ = shop(hooks=tell)
    async with async_engine.begin() as connection:
        await connection.run_sync(model.metadata.create_all)
        await connection.run_sync(told.create)
        await connection.run_sync(add, "carts", [(n, None, DAY + n) for n in range(20)])
    report = await AsyncSweeper(async_engine, model, batch_size=6).run_once()
    report.raise_for_failures()
    async with async_engine.connect() as connection:
        assert sorted(await connection.scalars(select(told.c.id))) == list(range(20))


# Rows that a write displaces


def test_a_row_whose_key_is_taken_is_archived_and_told(engine: Engine, made: Any) -> None:
    told: list[Purged] = []
    hooks = (Hook(told.append, rows=True), Hook(told.append, when="commit"))
    model, old = shop(archive, hooks=hooks)
    made(model)
    fill(engine, model, expired=4)
    with Session(engine) as session:
        session.add(model(id=2, owner="Ben"))
        session.commit()
    (purged,) = told
    assert (purged.table, purged.keys, purged.reason) == ("carts", [(2,)], "displaced")
    assert purged.rows is not None
    assert purged.rows[0]["Owner's name"] == "Anna's 2"
    with Session(engine) as session:
        (kept,) = session.scalars(select(old)).all()
        assert (kept.id, kept.owner) == (2, "Anna's 2")
        assert session.get_one(model, 2).owner == "Ben"


async def test_a_row_whose_key_is_taken_is_told_asynchronously(async_engine: AsyncEngine) -> None:
    told = Table("told", MetaData(), Column("id", Integer))

    async def tell(purged: Purged) -> None:
        await purged.transaction.execute(told.insert(), [{"id": key} for (key,) in purged.keys])

    model, old = shop(archive, hooks=tell)
    async with async_engine.begin() as connection:
        await connection.run_sync(model.metadata.create_all)
        await connection.run_sync(told.create)
        await connection.run_sync(add, "carts", [(1, None, DAY), (2, None, DAY)])
    async with AsyncSession(async_engine) as session:
        session.add(model(id=2, owner="Ben"))
        await session.commit()
        assert list(await session.scalars(select(told.c.id))) == [2]
        assert list(await session.scalars(select(old.id))) == [2]


def test_a_write_fails_with_the_hook_that_it_would_have_told(engine: Engine, made: Any) -> None:
    def refuse(_: Purged) -> None:
        raise ValueError("not now")

    model, _ = shop(hooks=refuse)
    made(model)
    fill(engine, model, expired=4)
    with Session(engine) as session:
        session.add(model(id=2, owner="Ben"))
        with pytest.raises(HookError):
            session.commit()
    with engine.connect() as connection:
        assert 2 in left(connection, model)


def test_an_object_whose_key_is_taken_goes_with_what_the_orm_cascades_to(
    engine: Engine, made: Any
) -> None:
    customer, order, visit = household()
    made(customer)
    move_in(engine, customer, order, visit)
    gone: list[int] = []
    event.listen(customer, "after_delete", lambda _m, _c, target: gone.append(target.id))
    with Session(engine) as session:
        session.add(customer(id=2))
        session.commit()
        assert gone == [2]
        assert set(session.scalars(select(order.id))) == {0, 1, 2, 3, 6, 7}


# Through the ORM


def household(*, cascade: bool = True) -> Any:
    class Base(DeclarativeBase):
        pass

    class Customer(TTLMixin, Base):
        __tablename__ = "customers"
        __ttl__ = HOUR
        __ttl_purge__ = "orm"

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

    class Order(Base):
        __tablename__ = "orders"

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        customer_id: Mapped[int] = mapped_column(ForeignKey(Customer.id), index=True)

    class Visit(TTLMixin, Base):
        __tablename__ = "visits"
        __ttl__ = HOUR

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        customer_id: Mapped[int] = mapped_column(ForeignKey(Customer.id), index=True)

    if cascade:
        Customer.orders = relationship(Order, cascade="all, delete-orphan")  # type: ignore[attr-defined]
        Customer.visits = relationship(Visit, cascade="all, delete-orphan")  # type: ignore[attr-defined]
    return Customer, Order, Visit


def move_in(engine: Engine, customer: Any, order: Any, visit: Any) -> None:
    with Session(engine) as session:
        session.add_all([customer(id=number) for number in range(12)])
        session.flush()
        session.add_all([order(id=number, customer_id=number // 2) for number in range(8)])
        session.add_all([visit(id=number, customer_id=number) for number in range(12)])
        session.commit()
        second = clock_of(engine.dialect).second
        session.execute(
            text(f"UPDATE customers SET _ts = _ts - 86400 * {second} - id * {second} WHERE id < 10")  # noqa: S608
        )
        # Of the visits some have expired as well.
        session.execute(
            text(f"UPDATE visits SET _ts = _ts - 86400 * {second} WHERE id % 2 = 0")  # noqa: S608
        )
        session.commit()


@pytest.mark.usefixtures("enforcing")
@pytest.mark.parametrize("batch_size", [None, 3])
def test_rows_deleted_as_objects_take_along_what_the_orm_cascades_to(
    engine: Engine, made: Any, batch_size: int | None
) -> None:
    customer, order, visit = household()
    made(customer)
    move_in(engine, customer, order, visit)
    gone: list[int] = []
    event.listen(customer, "after_delete", lambda _m, _c, target: gone.append(target.id))
    told: list[Purged] = []
    report = Sweeper(engine, customer, batch_size=batch_size, on_purged=told.append).run_once()
    report.raise_for_failures()
    assert report.deleted == 10
    assert sorted(gone) == sorted(key for each in told for (key,) in each.keys) == list(range(10))
    with engine.connect() as connection:
        assert left(connection, customer) == {10, 11}
        assert left(connection, visit) == {10, 11}
        assert set(connection.scalars(select(order.id))) == set()


@pytest.mark.usefixtures("enforcing")
@pytest.mark.parametrize("way", ["a sweep", "a write that takes the key"])
def test_live_rows_that_the_orm_unlinks_keep_the_end_of_their_lives(
    engine: Engine, made: Any, way: str
) -> None:
    class Base(DeclarativeBase):
        pass

    class Team(TTLMixin, Base):
        __tablename__ = "teams"
        __ttl__ = HOUR
        __ttl_purge__ = "orm"

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        members: Mapped[list[Member]] = relationship()

    class Member(TTLMixin, Base):
        __tablename__ = "members"
        __ttl__ = DAY

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        team_id: Mapped[int | None] = mapped_column(ForeignKey(Team.id), index=True)
        name: Mapped[str] = mapped_column(String(10), default="")

    made(Team)
    with Session(engine) as session:
        session.add(Team(id=1, members=[Member(id=1), Member(id=2)]))
        session.commit()
        for table in ("teams", "members"):
            for key in (1, 2):
                age(session.connection(), table, key, 2 * HOUR)
        session.commit()

    @event.listens_for(Team, "before_delete")
    def name(_mapper: Any, connection: Any, _target: Any) -> None:
        connection.execute(update(Member).where(Member.id == 2).values(name="left"))

    if way == "a sweep":
        Sweeper(engine, Team).run_once().raise_for_failures()
    else:
        with Session(engine) as session:
            session.add(Team(id=1))
            session.commit()
    with Session(engine) as session:
        members = session.scalars(select(Member).order_by(Member.id)).all()
        assert [member.team_id for member in members] == [None, None]
        assert [member.name for member in members] == ["", "left"]
        left_of_life = members[0].time_left
        assert left_of_life is not None
        assert left_of_life < timedelta(hours=23)


@pytest.mark.slow
@pytest.mark.usefixtures("enforcing")
def test_objects_that_something_refers_to_stay_and_are_counted(engine: Engine, made: Any) -> None:
    customer, order, visit = household(cascade=False)
    made(customer)
    move_in(engine, customer, order, visit)
    with engine.begin() as connection:
        connection.execute(delete(visit).execution_options(include_expired=True))
        connection.execute(text("DELETE FROM visits"))
    told: list[Purged] = []
    report = Sweeper(engine, customer, on_purged=told.append).run_once()
    report.raise_for_failures()
    assert (report.deleted, dict(report.targets[0].skips)) == (6, {Skip.RESTRICTED: 4})
    assert sorted(key for each in told for (key,) in each.keys) == [4, 5, 6, 7, 8, 9]
    with engine.connect() as connection:
        assert left(connection, customer) == {0, 1, 2, 3, 10, 11}


@pytest.mark.slow
def test_an_event_that_raises_fails_its_batch(engine: Engine, made: Any) -> None:
    customer, order, visit = household()
    made(customer)
    move_in(engine, customer, order, visit)

    def refuse(_mapper: Any, _connection: Any, target: Any) -> None:
        if target.id == 5:
            raise ValueError("not this one")

    event.listen(customer, "before_delete", refuse)
    report = Sweeper(engine, customer, batch_size=4).run_once()
    (failed,) = report.failed
    assert isinstance(failed.error, HookError)
    with engine.connect() as connection:
        assert 5 in left(connection, customer)
    assert failed.deleted == 10 - failed.skips[Skip.HOOK] > 0


@pytest.mark.slow
async def test_rows_are_deleted_as_objects_asynchronously(async_engine: AsyncEngine) -> None:
    customer, order, _ = household()
    async with async_engine.begin() as connection:
        await connection.run_sync(customer.metadata.create_all)
        await connection.run_sync(add, "customers", [(n, None, DAY + n) for n in range(20)])
        await connection.execute(order.__table__.insert(), [{"id": 1, "customer_id": 4}])
    report = await AsyncSweeper(async_engine, customer, batch_size=6).run_once()
    report.raise_for_failures()
    assert report.deleted == 20


@servers
def test_an_object_renewed_at_the_last_moment_stays(engine: Engine, made: Any) -> None:
    customer, order, visit = household()
    made(customer)
    move_in(engine, customer, order, visit)
    renewed: list[str] = []

    def renew(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if "FOR UPDATE" in statement and not renewed:
            renewed.append(statement)
            with engine.begin() as other:
                stamp = clock_of(engine.dialect).stamp
                other.execute(text(f"UPDATE customers SET _ts = {stamp} WHERE id = 3"))  # noqa: S608

    event.listen(engine, "before_cursor_execute", renew)
    assert Sweeper(engine, customer).run_once().deleted == 9
    assert renewed
    with engine.connect() as connection:
        assert left(connection, customer) == {3, 10, 11}


# What can be declared


@pytest.mark.databases("sqlite")
@pytest.mark.parametrize(
    ("purge", "archive", "message"),
    [
        ("archive", None, "Cart.__ttl_purge__ = 'archive': write 'delete' or 'orm'"),
        (Archive("old"), None, "declare __ttl_archive__. Here write 'delete' or 'orm'"),
        ("orm", Archive("old"), "write __ttl_purge__ = 'delete'"),
        ("delete", "old", "Cart.__ttl_archive__ = 'old': write Archive"),
        ("delete", Archive("old"), "pass a Table, a model, or a function"),
        ("delete", Archive(Table("x", MetaData(), Column("n", Integer))), "'x' has no column 'id'"),
        (
            "delete",
            Archive(Table("x", MetaData(), Column("id", Integer)), archived_at="at"),
            "'x' has no column 'at'",
        ),
        ("delete", Sink, "write Archive(...), or an object with a method write()"),
    ],
)
def test_a_wrong_declaration_is_found_when_the_sweeper_is_made(
    engine: Engine, purge: Any, archive: Any, message: str
) -> None:
    class Base(DeclarativeBase):
        pass

    class Cart(TTLMixin, Base):
        __tablename__ = "carts"
        __ttl__ = 60
        __ttl_purge__ = purge
        __ttl_archive__ = archive

        id: Mapped[int] = mapped_column(primary_key=True)

    with pytest.raises(TTLConfigurationError) as caught:
        Sweeper(engine, Cart)
    assert message in str(caught.value)
    assert not inspect(engine).get_table_names()


@pytest.mark.databases("postgres")
@pytest.mark.parametrize("hooks", [None, lambda _: None], ids=["by statement", "by keys"])
def test_the_archive_is_in_the_schema_of_the_rows(engine: Engine, hooks: Any) -> None:
    cart, old_cart = shop(archive, hooks=hooks)
    tenant = engine.execution_options(schema_translate_map={None: "tenant"})
    with engine.begin() as connection:
        connection.execute(text("CREATE SCHEMA tenant"))
    for place in (engine, tenant):
        cart.metadata.create_all(place)
    with Session(tenant) as session:
        session.add_all([cart(id=number) for number in range(3)])
        session.flush()
        session.execute(text("UPDATE tenant.carts SET _ts = _ts - interval '2 hours'"))
        session.commit()
        session.add(cart(id=1))  # displaces the expired row
        session.commit()
    assert Sweeper(tenant, cart).run_once().archived == 2
    with Session(engine) as session:
        assert not session.scalars(select(old_cart.id)).all()
    with Session(tenant) as session:
        assert sorted(session.scalars(select(old_cart.id))) == [0, 1, 2]
        assert session.scalars(select(cart.id)).all() == [1]


@pytest.mark.databases("postgres")
@pytest.mark.parametrize(
    ("purge", "on_purged", "waits"),
    [("delete", None, False), ("delete", lambda _: None, True), ("orm", None, True)],
    ids=["plain", "with a hook", "orm"],
)
def test_only_a_purge_that_nobody_hears_of_does_not_wait_for_the_disk(
    engine: Engine, made: Any, purge: str, on_purged: Any, *, waits: bool
) -> None:
    model = made(cart())
    model.__ttl_purge__ = purge
    with engine.begin() as connection:
        add(connection, "carts", [(number, None, 2 * HOUR) for number in range(3)])
    found: list[str] = []

    def look(connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("DELETE"):
            cursor = connection.connection.cursor()
            cursor.execute("SHOW synchronous_commit")
            found.extend(cursor.fetchone())
            cursor.close()

    with engine.begin() as connection:
        connection.execute(
            text(f"ALTER DATABASE {engine.url.database} SET synchronous_commit = on")
        )
    safe = create_engine(engine.url)
    event.listen(safe, "before_cursor_execute", look)
    assert Sweeper(safe, model, on_purged=on_purged).run_once().deleted == 3
    safe.dispose()
    assert set(found) == {"on" if waits else "off"}
