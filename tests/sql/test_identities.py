"""Writes by objects whose key was taken anew: never into the new row, never in silence."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import ForeignKey, Integer, String, event, insert, inspect, select, text, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship
from sqlalchemy.orm.attributes import set_committed_value

from tests.clocks import age, let_pass, stop_clock
from ttl_odm import ExpireAt
from ttl_odm.sqlalchemy import ExpiredError, TTLMixin, include_expired, persist, touch
from ttl_odm.sqlalchemy.time.clock import clock_of, observe, sample_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Connection, Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    from ttl_odm.testing import TTLClock

AGAIN = "Reload it"


class Models:
    """Classes of a base of their own, as attributes."""

    def __init__(self) -> None:
        class Base(DeclarativeBase):
            pass

        class Seat(TTLMixin, Base):
            __tablename__ = "seats"
            __ttl__ = 3600
            id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
            kind: Mapped[str] = mapped_column(String(10))
            holder: Mapped[str | None] = mapped_column(String(40))
            beside_id: Mapped[int | None] = mapped_column(ForeignKey("seats.id"))
            beside = relationship("Seat", remote_side="Seat.id", post_update=True)
            version: Mapped[int] = mapped_column()
            __mapper_args__ = {
                "polymorphic_on": "kind",
                "polymorphic_identity": "seat",
                "version_id_col": version,
            }

        class Box(Seat):
            __tablename__ = "boxes"
            id: Mapped[int] = mapped_column(
                ForeignKey("seats.id"), primary_key=True, autoincrement=False
            )
            chairs: Mapped[int] = mapped_column(default=4)
            __mapper_args__ = {"polymorphic_identity": "box"}

        class Standing(Seat):
            __mapper_args__ = {"polymorphic_identity": "standing"}

        class Hall(Base):
            __tablename__ = "halls"
            id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
            bookings = relationship("Booking", cascade="all, delete-orphan")

        class Booking(TTLMixin, Base):
            __tablename__ = "bookings"
            __ttl__ = 3600
            id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
            holder: Mapped[str | None] = mapped_column(String(40))
            hall_id: Mapped[int | None] = mapped_column(Integer, ForeignKey("halls.id"))

        self.Base, self.Seat, self.Box, self.Standing = Base, Seat, Box, Standing
        self.Hall, self.Booking = Hall, Booking
        self.every = (Seat, Box)


@pytest.fixture
def m(engine: Engine) -> Models:
    models = Models()
    models.Base.metadata.create_all(engine)
    return models


@pytest.fixture
def clock() -> TTLClock | None:
    """None: rows are aged in the database. A clock: it is moved, see `tests.testkit`."""
    return None


@pytest.fixture
def session(engine: Engine, m: Models, clock: TTLClock | None) -> Iterator[Session]:
    with Session(engine, expire_on_commit=False, info={"clock": clock}) as session:
        session.add_all([m.Seat(id=1, holder="ann"), m.Seat(id=2, holder="bob")])
        session.add(m.Box(id=3, holder="cid"))
        session.add(m.Hall(id=1, bookings=[m.Booking(id=1, holder="dan")]))
        session.commit()
        yield session


def expire(session: Session, row: Any) -> None:
    """Let an object's row expire: by what it knows itself, and in the database."""
    clock: TTLClock | None = session.info["clock"]
    with session.get_bind().connect() as connection:  # type: ignore[union-attr]
        if clock is None:
            let_pass(connection, row, 4000)
        else:
            clock.advance(4000)
            _keep_young(connection, session, row)
        connection.commit()


def _keep_young(connection: Connection, session: Session, row: Any) -> None:
    """Let the other rows of a table, and what a session has of them, be 4000 seconds younger."""
    mapper = inspect(row).mapper.base_mapper
    loaded = [
        other
        for other in session.identity_map.values()
        if other is not row and inspect(other).mapper.base_mapper is mapper
    ]
    for other in loaded:
        let_pass(connection, other, -4000)
    done = {row.id, *(other.id for other in loaded)}
    table = mapper.local_table.name
    for key in set(connection.scalars(text(f"SELECT id FROM {table}"))) - done:  # noqa: S608
        age(connection, table, key, -4000)


def retake(session: Session, row: Any, **values: Any) -> None:
    """Let an object's row expire, and another session take its key."""
    expire(session, row)
    key = {column.key: value for column, value in zip(*_key(row), strict=True)}
    with Session(session.get_bind()) as other:
        other.add(type(row)(**{**key, "holder": "eve", **values}))
        other.commit()


def _key(row: Any) -> tuple[Any, Any]:
    state = inspect(row)
    return state.mapper.primary_key, state.identity


def renew(session: Session, row: Any) -> None:
    """Let the end that an object knows pass, after another session has renewed its row."""
    with Session(session.get_bind()) as other:
        touch(other.get_one(type(row), _key(row)[1]))
        other.commit()
    expire(session, row)
    with session.get_bind().connect() as connection:  # type: ignore[union-attr]
        age(connection, inspect(row).mapper.base_mapper.local_table.name, row.id, -4000)
        connection.commit()


def holders(session: Session, table: str = "seats") -> list[Any]:
    with session.get_bind().connect() as connection:  # type: ignore[union-attr]
        return list(connection.scalars(text(f"SELECT holder FROM {table} ORDER BY id")))  # noqa: S608


def change(_: Session, seat: Any) -> None:
    seat.holder = "ann again"


def prolong(_: Session, seat: Any) -> None:
    touch(seat)


def keep_for_ever(_: Session, seat: Any) -> None:
    persist(seat)


def sit_beside(session: Session, seat: Any) -> None:
    seat.beside = session.get_one(type(seat), 2)


def delete(session: Session, seat: Any) -> None:
    session.delete(seat)


def change_without_stamp(session: Session, seat: Any) -> None:
    session.commit()
    session.connection(execution_options={"keep_last_modified": True})
    seat.holder = "ann again"


WRITES = [change, prolong, keep_for_ever, sit_beside, delete, change_without_stamp]
by_name = pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)


@by_name
def test_a_write_does_not_reach_the_new_row(session: Session, m: Models, write: Any) -> None:
    seat = session.get_one(m.Seat, 1)
    retake(session, seat)
    write(session, seat)
    with pytest.raises(ExpiredError, match=rf"Seat 1 can't be .*\. {AGAIN}") as caught:
        session.commit()
    assert (caught.value.model, caught.value.key) == ("Seat", 1)
    session.rollback()
    assert holders(session) == ["eve", "bob", "cid"]
    assert session.get_one(m.Seat, 1).holder == "eve"


@by_name
def test_nor_a_row_that_others_have_renewed_until_it_was_loaded_anew(
    session: Session, m: Models, write: Any
) -> None:
    seat = session.get_one(m.Seat, 1)
    renew(session, seat)
    write(session, seat)
    with pytest.raises(ExpiredError, match=AGAIN):
        session.flush()
    session.rollback()
    session.refresh(seat)
    write(session, seat)
    session.commit()
    assert holders(session) == ([] if write is delete else holders(session)[:1]) + ["bob", "cid"]


def test_a_change_of_a_subclass_s_own_table(session: Session, m: Models) -> None:
    box = session.get_one(m.Box, 3)
    retake(session, box, chairs=6)
    box.chairs = 2
    with pytest.raises(ExpiredError, match=f"Box 3 can't be updated.*{AGAIN}"):
        session.flush()
    session.rollback()
    assert session.get_one(m.Box, 3).chairs == 6


def test_bulk_save_objects(session: Session, m: Models) -> None:
    booking = session.get_one(m.Booking, 1)
    retake(session, booking)
    booking.holder = "dan again"
    with pytest.raises(ExpiredError, match=f"Booking 1 can't be updated.*{AGAIN}"):
        session.bulk_save_objects([booking])
    session.rollback()
    assert holders(session, "bookings") == ["eve"]


def test_bulk_save_objects_that_fails_has_written_nothing(session: Session, m: Models) -> None:
    session.add(m.Booking(id=2, holder="fay", ttl=-1))
    session.commit()
    kept, booking = session.get_one(m.Booking, 2), session.get_one(m.Booking, 1)
    retake(session, booking)
    kept.holder, booking.holder = "fay again", "dan again"
    with pytest.raises(ExpiredError, match=f"Booking 1 can't be updated.*{AGAIN}"):
        session.bulk_save_objects([kept, booking])
    session.commit()
    assert sorted(holders(session, "bookings")) == ["eve", "fay"]


def test_a_delete_that_cascades(session: Session, m: Models) -> None:
    hall = session.get_one(m.Hall, 1)
    retake(session, hall.bookings[0])
    session.delete(hall)
    with pytest.raises(ExpiredError, match=f"Booking 1 can't be deleted.*{AGAIN}"):
        session.flush()
    session.rollback()
    assert holders(session, "bookings") == ["eve"]


def test_an_object_that_is_let_go(session: Session, m: Models) -> None:
    hall = session.get_one(m.Hall, 1)
    retake(session, hall.bookings[0])
    hall.bookings = []
    with pytest.raises(ExpiredError, match=f"Booking 1 can't be deleted.*{AGAIN}"):
        session.flush()


def retake_own(session: Session, m: Models) -> Any:
    """An object that its session has written last, whose end has passed and key is another's."""
    seat = session.get_one(m.Seat, 1)
    touch(seat)
    session.commit()
    assert "last_modified" not in vars(seat)
    clock: TTLClock | None = session.info["clock"]
    if clock is not None:
        clock.advance(3600)
        with Session(session.get_bind()) as other:
            other.add(m.Seat(id=1, holder="eve"))
            other.commit()
        return seat
    with session.get_bind().connect() as connection:  # type: ignore[union-attr]
        age(connection, "seats", 1, 4000)
        connection.commit()
        with Session(connection) as other:
            other.add(m.Seat(id=1, holder="eve", ttl=3600))
            other.commit()
        age(connection, "seats", 1, -60)  # a minute later, for all that the session knows
        connection.commit()
    m.Seat.__ttl__ = 1
    return seat


def test_what_a_session_wrote_itself_is_known_too(session: Session, m: Models) -> None:
    seat = retake_own(session, m)
    seat.holder = "ann again"
    with pytest.raises(ExpiredError, match=AGAIN):
        session.flush()
    session.rollback()
    assert session.get_one(m.Seat, 1).holder == "eve"


def test_what_a_session_wrote_itself_is_read_anew(session: Session, m: Models) -> None:
    seat = retake_own(session, m)
    assert session.scalars(select(m.Seat).where(m.Seat.id == 1)).one() is seat
    assert seat.holder == "eve"


def test_its_own_writes_one_after_another_need_no_look(session: Session, m: Models) -> None:
    seat = session.get_one(m.Seat, 1)
    sent: list[str] = []
    event.listen(session.get_bind(), "before_cursor_execute", lambda *a: sent.append(a[2]))
    for holder in "abc":
        seat.holder = holder
        session.commit()
    assert [statement.split()[0] for statement in sent] == ["UPDATE"] * 3


def test_a_row_near_its_end_is_looked_at_and_written(session: Session, m: Models) -> None:
    booking = session.get_one(m.Booking, 1)
    booking.ttl = 4
    session.commit()
    assert session.get(m.Booking, 1, populate_existing=True)
    booking.holder = "dan in haste"
    session.commit()
    assert holders(session, "bookings") == ["dan in haste"]


@pytest.mark.databases("sqlite")
def test_no_stamp_is_later_than_a_clock_that_rounds_is_taken_to_be(engine: Engine) -> None:
    """Or a session takes the row that it has just written for another one."""
    clock, day = clock_of(engine.dialect), 2461207.5
    with engine.connect() as connection:
        driver: Any = connection.connection
        driver.create_function("julianday", 1, lambda _: day + 0.0004 / 86400)  # rounded down
        observe(connection)
        driver.create_function("julianday", 1, lambda _: day + 0.0006 / 86400)  # and up
        stamp = connection.exec_driver_sql(f"SELECT {clock.stamp}").scalar_one()
        sample: Any = sample_of(engine.dialect)
        assert sample.at(sample.asked) >= clock.from_storage(stamp)


def test_a_change_that_waits_is_not_overwritten_by_a_load(session: Session, m: Models) -> None:
    seat = session.get_one(m.Seat, 1)
    retake(session, seat)
    seat.holder = "ann again"
    loads: list[Callable[[], Any]] = [
        lambda: session.get(m.Seat, 1),
        lambda: session.scalars(select(m.Seat)).all(),
        lambda: session.refresh(seat, ["beside_id"]),
    ]
    with session.no_autoflush:
        for load in loads:
            with pytest.raises(ExpiredError, match=AGAIN):
                load()
    assert seat.holder == "ann again"
    with pytest.raises(ExpiredError, match=AGAIN):
        session.scalars(select(m.Seat)).all()


def test_a_new_object_does_not_hide_a_change_to_the_old_one(session: Session, m: Models) -> None:
    booking = session.get_one(m.Booking, 1)
    expire(session, booking)
    booking.holder = "dan again"
    session.add(m.Booking(id=1, holder="new"))
    with pytest.raises(ExpiredError, match="Booking 1 can't be updated"):
        session.flush()


def test_nor_does_it_replace_a_row_in_place_of_the_deleted_one(session: Session, m: Models) -> None:
    booking = session.get_one(m.Booking, 1)
    retake(session, booking)
    session.delete(booking)
    session.add(m.Booking(id=1, holder="new"))
    with pytest.raises(ExpiredError, match="Booking 1 can't be deleted"):
        session.flush()
    session.rollback()
    assert holders(session, "bookings") == ["eve"]


@pytest.fixture
def owner(engine: Engine) -> Any:
    """A class whose objects have parts, with keys that a flush takes from their owners."""

    class Base(DeclarativeBase):
        pass

    class Owner(Base):
        __tablename__ = "owners"
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        parts = relationship("Part", cascade="all, delete-orphan", backref="owner")

    class Part(TTLMixin, Base):
        __tablename__ = "parts"
        __ttl__ = 3600
        id: Mapped[int] = mapped_column(ForeignKey("owners.id"), primary_key=True)
        name: Mapped[str] = mapped_column(String(10))
        note: Mapped[str | None] = mapped_column(String(10))

    Base.metadata.create_all(engine)
    return Owner


def parts_of(session: Session, owner: Any) -> tuple[Any, type[Any]]:
    """Store an owner with a part whose life ends an hour later; return it, and the parts' class."""
    kind: Any = inspect(owner).relationships["parts"].mapper.class_
    one = owner(id=1, parts=[kind(name="old", note="old")])
    session.add(one)
    session.commit()
    let_pass(session.connection(), session.scalars(select(kind)).one(), 4000)
    session.commit()
    return one, kind


@pytest.mark.parametrize("is_orphan", [True, False])
def test_a_new_object_that_gets_an_expired_one_s_key_from_its_parent_is_inserted(
    engine: Engine, owner: Any, *, is_orphan: bool
) -> None:
    with Session(engine, expire_on_commit=False) as session:
        one, part = parts_of(session, owner)
        old = one.parts[0]
        if not is_orphan:
            session.expire(one, ["parts"])
            assert one.parts == []
        one.parts = [part(name="new")]
        session.commit()
        row = session.execute(select(part.name, part.note)).one()
        assert tuple(row) == ("new", None)
        assert old not in session


def test_nor_does_it_replace_a_row_that_others_have_put_there(engine: Engine, owner: Any) -> None:
    with Session(engine, expire_on_commit=False) as session:
        one, part = parts_of(session, owner)
        with Session(engine) as other:
            other.add(part(id=1, name="other"))
            other.commit()
        one.parts = [part(name="new")]
        with pytest.raises(ExpiredError, match="Part 1"):
            session.commit()
        session.rollback()
        assert session.scalars(select(part.name)).all() == ["other"]


def test_a_key_that_another_class_has_taken(session: Session, m: Models) -> None:
    seat = session.get_one(m.Seat, 1)
    expire(session, seat)
    with Session(session.get_bind()) as other:
        other.add(m.Standing(id=1, holder="eve"))
        other.commit()
    session.commit()  # on MariaDB, a transaction goes on seeing what it has seen
    with pytest.raises(ExpiredError, match="It is a Standing now: expunge the old object"):
        session.scalars(select(m.Seat)).all()
    session.expunge(seat)
    assert session.get_one(m.Seat, 1).holder == "eve"


def test_after_a_commit_an_object_is_whichever_row_has_its_key(session: Session, m: Models) -> None:
    session.expire_on_commit = True
    seat = session.get_one(m.Seat, 1)
    retake(session, seat)
    session.commit()
    seat.beside_id = 2
    session.commit()
    assert (seat.holder, seat.beside_id) == ("eve", 2)


def test_a_default_that_was_raised_and_ttl_that_is_off(session: Session, m: Models) -> None:
    for default in (None, -1, 10_000):
        seat = session.get_one(m.Seat, 1)
        expire(session, seat)
        m.Seat.__ttl__ = default
        assert session.get(m.Seat, 1) is seat
        seat.holder = f"by {default}"
        session.commit()
        assert holders(session)[0] == f"by {default}"
        m.Seat.__ttl__ = 3600
        session.refresh(seat)


def test_expired_rows_that_are_read_on_purpose(session: Session, m: Models) -> None:
    hall = session.get_one(m.Hall, 1)
    (booking,) = hall.bookings
    expire(session, booking)
    statement = select(m.Booking).options(include_expired())
    assert session.scalars(statement).all() == [booking]
    assert booking.holder == "dan"
    booking.holder = "dan again"
    with session.no_autoflush:
        assert session.scalars(statement).all() == [booking]
    with pytest.raises(ExpiredError, match="has expired, or was deleted"):
        session.flush()


@pytest.mark.parametrize("keys", [[1], [2, 1]], ids=str)
def test_a_post_update_of_rows_that_expired_unnoticed(
    session: Session, m: Models, keys: list[int]
) -> None:
    box = session.get_one(m.Box, 3)
    for seat in [session.get_one(m.Seat, key) for key in keys]:
        seat.beside = box
    with session.get_bind().connect() as connection:  # type: ignore[union-attr]
        age(connection, "seats", 1, 4000)
        connection.commit()
    with pytest.raises(ExpiredError, match="Seat 1 can't be updated: the row has expired"):
        session.flush()


def test_rows_of_which_some_were_renewed_meanwhile(session: Session, m: Models) -> None:
    first, second, box = (session.get_one(m.Seat, key) for key in (1, 2, 3))
    retake(session, second)
    with Session(session.get_bind()) as other:
        other.get_one(m.Box, 3).holder = "cid again"
        other.commit()
    session.commit()
    seats = session.scalars(select(m.Seat).order_by(m.Seat.id)).all()
    assert seats == [first, second, box]
    assert [seat.holder for seat in seats] == ["ann", "eve", "cid"]


def test_a_composite_key(engine: Engine) -> None:
    class Base(DeclarativeBase):
        pass

    class Place(TTLMixin, Base):
        __tablename__ = "places"
        __ttl__ = 3600
        row: Mapped[str] = mapped_column(String(2), primary_key=True)
        number: Mapped[int] = mapped_column(primary_key=True)
        holder: Mapped[str] = mapped_column(String(40))

    Base.metadata.create_all(engine)
    with Session(engine, expire_on_commit=False) as session:
        session.add(Place(row="a", number=1, holder="ann"))
        session.commit()
        place = session.get_one(Place, ("a", 1))
        place.ttl = 600
        session.commit()
        session.refresh(place)
        session.execute(
            update(Place).values(ttl=3600), execution_options={"synchronize_session": False}
        )
        session.commit()
        assert inspect(place).dict["ttl"] == 600
        earlier = place.last_modified - timedelta(seconds=601)
        set_committed_value(place, "last_modified", earlier)  # 601 seconds have passed
        assert place.is_expired
        place.holder = "ann again"
        with pytest.raises(ExpiredError, match=rf"Place \('a', 1\) can't be updated.*{AGAIN}"):
            session.flush()
        session.rollback()
        session.refresh(place)
        place.holder = "ann again"
        session.commit()
        assert session.scalars(select(Place.holder)).all() == ["ann again"]


def test_an_instant_of_the_applications_own(engine: Engine) -> None:
    class Base(DeclarativeBase):
        pass

    class Coupon(Base):
        __tablename__ = "coupons"
        __ttl__ = ExpireAt("until", unit="s")
        id: Mapped[int] = mapped_column(primary_key=True)
        until: Mapped[int]
        text: Mapped[str] = mapped_column(String(40))

    Base.metadata.create_all(engine)
    now = int(datetime.now(timezone.utc).timestamp())
    with Session(engine, expire_on_commit=False) as session:
        session.add(Coupon(id=1, until=now + 3600, text="old"))
        session.commit()
        coupon = session.get_one(Coupon, 1)
        with engine.begin() as connection:
            connection.execute(text("UPDATE coupons SET until = until - 7200"))
        inspect(coupon).dict["until"] -= 7200
        with engine.begin() as connection:
            connection.execute(insert(Coupon), {"id": 1, "until": now + 9999, "text": "new"})
        coupon.text = "mine"
        with pytest.raises(ExpiredError, match=AGAIN):
            session.flush()
        session.rollback()
        assert session.get_one(Coupon, 1).text == "new"


async def test_an_asynchronous_session(async_engine: AsyncEngine) -> None:
    m = Models()
    async with async_engine.begin() as connection:
        await connection.run_sync(m.Base.metadata.create_all)
    async with AsyncSession(async_engine, expire_on_commit=False) as session:
        session.add(m.Booking(id=1, holder="dan"))
        await session.commit()
        booking = await session.get_one(m.Booking, 1)

        async def taken_anew(holder: str) -> None:
            async with async_engine.begin() as connection:
                await connection.run_sync(let_pass, booking, 4000)
                await connection.execute(insert(m.Booking), {"id": 1, "holder": holder})

        await taken_anew("eve")
        await session.commit()
        assert (await session.get_one(m.Booking, 1)).holder == "eve"
        assert booking.expires_at > datetime.now(timezone.utc) + timedelta(minutes=50)
        await session.commit()
        await taken_anew("fay")
        booking.holder = "dan again"
        with pytest.raises(ExpiredError, match=AGAIN):
            await session.commit()
        await session.rollback()
        assert await session.scalar(select(m.Booking.holder)) == "fay"


def own_key(names: str) -> Any:
    """A class whose keys are in other columns than its table's, or in another order."""

    class Base(DeclarativeBase):
        pass

    class Locker(TTLMixin, Base):
        __tablename__ = "lockers"
        __ttl__ = 3600
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        hall: Mapped[str] = mapped_column(String(10), primary_key=names != "code")
        code: Mapped[str] = mapped_column(String(10), unique=True)
        holder: Mapped[str | None] = mapped_column(String(40))
        __mapper_args__ = {"primary_key": names.split()}

    return Locker


@pytest.mark.parametrize("names", ["code", "hall id"])
@pytest.mark.parametrize(
    "write",
    [lambda _, row: setattr(row, "holder", "bob"), lambda session, row: session.delete(row)],
    ids=["update", "delete"],
)
def test_a_key_that_a_class_names_itself(engine: Engine, names: str, write: Any) -> None:
    locker = own_key(names)
    locker.metadata.create_all(engine)
    with Session(engine, expire_on_commit=False) as session:
        row, near = (locker(id=n, hall="A", code=f"A{n}") for n in (1, 2))
        session.add_all([row, near])
        session.flush()
        near.ttl = 4
        session.flush()
        near.holder = "ann"  # a row near its end is looked at
        session.commit()
        age(session.connection(), "lockers", 1, 4000)
        session.commit()
        write(session, row)
        with pytest.raises(ExpiredError, match="Locker"):
            session.flush()
        session.rollback()
        assert session.scalars(select(locker.holder)).all() == ["ann"]


@pytest.mark.parametrize("names", ["code", "hall id"])
def test_such_a_key_that_was_taken_anew(engine: Engine, names: str) -> None:
    locker = own_key(names)
    locker.metadata.create_all(engine)
    with Session(engine, expire_on_commit=False) as session:
        row = locker(id=1, hall="A", code="A1", ttl=1)
        session.add(row)
        session.commit()
        stamp = row.last_modified
        age(session.connection(), "lockers", 1, 4000)
        set_committed_value(row, "last_modified", stamp - timedelta(seconds=4000))
        session.connection().execute(insert(locker).values(id=1, hall="A", code="A1", holder="cid"))
        session.commit()
        session.delete(row)
        with pytest.raises(ExpiredError, match=AGAIN):
            session.flush()
        session.rollback()
        assert session.scalars(select(locker.holder)).all() == ["cid"]


CROWD = 1_100
"""More keys of two columns than SQLite takes in one statement: it nests conditions 1,000 deep."""


@pytest.fixture
def crowd(engine: Engine) -> Any:
    """A class whose keys have two columns, which one statement names one by one."""

    class Base(DeclarativeBase):
        pass

    class Guest(TTLMixin, Base):
        __tablename__ = "guests"
        __ttl__ = 3600
        hall: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        drinks: Mapped[int] = mapped_column(default=0)

    Base.metadata.create_all(engine)
    return Guest


@pytest.mark.slow
def test_a_flush_may_write_many_rows_near_their_end(engine: Engine, crowd: Any) -> None:
    with Session(engine) as session:
        stop_clock(session.connection(), datetime(2026, 6, 15, tzinfo=timezone.utc))
        session.add_all([crowd(hall=1, number=number, ttl=1) for number in range(CROWD)])
        session.flush()
        for guest in session.scalars(select(crowd)):
            guest.drinks = 1
        session.flush()
        assert session.scalars(select(crowd.drinks)).all() == [1] * CROWD


@pytest.mark.slow
def test_a_flush_of_many_rows_names_those_that_have_expired(engine: Engine, crowd: Any) -> None:
    with Session(engine) as session, session.no_autoflush:
        session.add_all([crowd(hall=number % 2, number=number) for number in range(CROWD)])
        session.flush()
        for guest in session.scalars(select(crowd)):
            guest.drinks = 1
        past = f"_ts - 4000 * {clock_of(engine.dialect).second}"
        session.connection().execute(text(f"UPDATE guests SET _ts = {past} WHERE hall = 1"))  # noqa: S608
        with pytest.raises(ExpiredError, match=r"one of Guest \[\(1, 1\), \(1, 3\)"):
            session.flush()
