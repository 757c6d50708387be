"""`FamilyContract`: the tests of a database's family, on SQLAlchemy's adapter.

The author of a family runs them on a real database:

    class TestMyFamily(FamilyContract):
        @pytest.fixture
        def engine(self):
            engine = create_engine("mydatabase://...")  # without tables
            yield engine
            engine.dispose()

They compare the results of the family's SQL with Python's, on stored rows. The deletion of rows is
in `StoreContract`, on a `ttl_odm.testing.SQLAlchemyRig`.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import pytest
from sqlalchemy import (
    BigInteger,
    Column,
    Date,
    DateTime,
    Double,
    MetaData,
    Numeric,
    String,
    Table,
    delete,
    func,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from ttl_odm import ExpireAt, ExpiredError
from ttl_odm.core import effective_ttl
from ttl_odm.sqlalchemy import TTLMixin, include_expired
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper import Sweeper
from ttl_odm.testing.clock import TTLClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine
    from sqlalchemy.types import TypeEngine

HOUR: Final = 3600
DAY: Final = 86_400
OLD: Final = 2 * DAY
AGES: Final = (0, HOUR // 2, 2 * HOUR, OLD)
TTLS: Final = (None, -1, 60, HOUR, DAY)
PATIENCE: Final = 60.0
"""Seconds to wait for a clock that seems to stand still."""

NO_INSTANTS: Final = (
    *("", "x", "2020-02-30T00:00:00Z", "2020-13-01T00:00:00Z", "2020-01-01"),
    *("2020-01-01T24:00:00Z", "2020-01-01T00:00:00+01:00", "0000-01-01T00:00:00Z"),
)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND: Final = timedelta(microseconds=1)


class Base(DeclarativeBase):
    """The declarative base of the tables."""


class Cart(TTLMixin, Base):
    """A row with all columns of the mixin, and with unique keys."""

    __tablename__ = "carts"
    __ttl__: ClassVar[Any] = HOUR
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    name: Mapped[str | None] = mapped_column(String(40), unique=True)
    views: Mapped[int] = mapped_column(default=0)


class Kind(NamedTuple):
    """A kind of column that an application may have: its type, and how it stores an instant."""

    type: TypeEngine[Any]
    unit: str | None
    store: Callable[[datetime], object]


def _microseconds(instant: datetime) -> int:
    return (instant - _EPOCH) // _MICROSECOND


KINDS: Final[dict[str, Kind]] = {
    "naive": Kind(DateTime(), None, lambda instant: instant.replace(tzinfo=None)),
    "zoned": Kind(DateTime(timezone=True), None, lambda instant: instant),
    "days": Kind(Date(), None, lambda instant: instant.date()),
    "seconds": Kind(BigInteger(), "s", lambda instant: _microseconds(instant) // 1_000_000),
    "milliseconds": Kind(BigInteger(), "ms", lambda instant: _microseconds(instant) // 1_000),
    "microseconds": Kind(BigInteger(), "us", _microseconds),
    "doubles": Kind(Double(), "s", lambda instant: _microseconds(instant) / 1e6),
    "decimals": Kind(
        Numeric(20, 6), "s", lambda instant: Decimal(_microseconds(instant)) / 1_000_000
    ),
    "texts": Kind(String(40), "iso", lambda instant: instant.isoformat()),
}


def _model(name: str, kind: Kind) -> Any:
    members = {
        "__tablename__": f"kind_{name}",
        "__ttl__": ExpireAt("ends", unit=kind.unit),  # type: ignore[arg-type]
        "id": mapped_column(BigInteger(), primary_key=True, autoincrement=False),
        "ends": mapped_column(kind.type),
    }
    return type(name.title(), (TTLMixin, Base), members)


MODELS: Final[dict[str, Any]] = {name: _model(name, kind) for name, kind in KINDS.items()}


def now_of(engine: Engine) -> datetime:
    """Return the database's time, by its clock for writes."""
    clock = clock_of(engine.dialect)
    with engine.connect() as connection:
        instant = clock.from_storage(connection.scalar(text(f"SELECT {clock.stamp}")))
    return instant.astimezone(timezone.utc)


def put(engine: Engine, *, key: int = 1, age: float = OLD, **values: object) -> None:
    """Store a cart that was last modified `age` seconds ago, past the gate."""
    clock = clock_of(engine.dialect)
    columns = {"id": key, "views": 0, "name": f"n{key}", **values}
    columns["_ts"] = clock.to_storage(now_of(engine) - timedelta(seconds=age))
    bare = Table(
        "carts",
        MetaData(info={"ttl_odm": None}),
        *(Column(name, clock.storage if name == "_ts" else None) for name in columns),
    )
    with engine.begin() as connection:
        connection.execute(bare.insert().values(columns))


def keys(session: Session, model: Any = Cart) -> set[int]:
    """Return the keys of the live rows."""
    return set(session.scalars(select(model.id)))


class FamilyContract:
    """The whole contract; a subclass provides an ``engine`` on a database without tables."""

    @pytest.fixture(autouse=True)
    def _tables(self, engine: Engine) -> Iterator[None]:
        Base.metadata.create_all(engine)
        yield
        Base.metadata.drop_all(engine)

    # --- the clock -----------------------------------------------------------------------------

    def test_both_clocks_tell_utc(self, engine: Engine) -> None:
        clock = clock_of(engine.dialect)
        with engine.connect() as connection:
            stored = connection.execute(text(f"SELECT {clock.now}, {clock.now_at_write}")).one()
        here = datetime.now(timezone.utc)
        for instant in map(clock.from_storage, stored):
            # Host and database may differ, but by no time zone.
            assert abs(instant.astimezone(timezone.utc) - here) < timedelta(minutes=14)

    def test_the_clock_for_writes_goes_on_within_a_transaction(self, engine: Engine) -> None:
        asked = text(f"SELECT {clock_of(engine.dialect).now_at_write}")
        with engine.begin() as connection:
            first = connection.scalar(asked)
            until = time.monotonic() + PATIENCE
            while connection.scalar(asked) == first:
                assert time.monotonic() < until, "it stands still: a late row would be born old"

    def test_a_stamp_comes_back_as_the_instant_of_the_write(self, engine: Engine) -> None:
        before = now_of(engine)
        with Session(engine) as session:
            session.add(Cart(id=1))
            session.commit()
            stamp = session.get_one(Cart, 1).last_modified
        assert before <= stamp <= now_of(engine)

    def test_a_test_can_move_the_clock(self, engine: Engine) -> None:
        with TTLClock() as clock, Session(engine) as session:
            session.add(Cart(id=1))
            session.commit()
            clock.advance(HOUR - 60)
            assert keys(session) == {1}
            clock.advance(60)
            assert keys(session) == set()

    # --- what is live --------------------------------------------------------------------------

    @pytest.mark.parametrize("default", [None, -1, 60, DAY])
    def test_reads_show_exactly_the_live_rows(self, engine: Engine, default: int | None) -> None:
        live = set()
        for key, (age, ttl) in enumerate((age, ttl) for age in AGES for ttl in TTLS):
            put(engine, key=key, age=age, ttl=ttl)
            lifetime = effective_ttl(default, ttl)
            if lifetime is None or age < lifetime:
                live.add(key)
        Cart.__ttl__ = default
        end = Cart.expires_at.label("end")
        try:
            with Session(engine) as session:
                assert keys(session) == live
                assert session.scalar(select(func.count()).select_from(Cart)) == len(live)
                ends = {row.id: row.end for row in session.execute(select(Cart.id, end))}
                assert ends == {row.id: row.expires_at for row in session.scalars(select(Cart))}
        finally:
            Cart.__ttl__ = HOUR

    def test_a_ttl_that_is_none_is_kept_out_by_the_check(self, engine: Engine) -> None:
        with pytest.raises(DBAPIError):
            put(engine, ttl=0)

    def test_writes_touch_live_rows_only_and_count_them(self, engine: Engine) -> None:
        put(engine, key=1)
        put(engine, key=2, age=60)
        with Session(engine) as session:
            changed: Any = session.execute(update(Cart).values(views=7))
            assert changed.rowcount == 1
            deleted: Any = session.execute(delete(Cart))
            assert deleted.rowcount == 1
            session.commit()
            rows = select(Cart.id, Cart.views).options(include_expired())
            assert [tuple(row) for row in session.execute(rows)] == [(1, 0)]

    def test_an_object_whose_row_has_expired_can_not_be_written(self, engine: Engine) -> None:
        with TTLClock() as clock, Session(engine, expire_on_commit=False) as session:
            row = Cart(id=1)
            session.add(row)
            session.commit()
            clock.advance(HOUR)
            row.views = 1
            with pytest.raises(ExpiredError):
                session.flush()

    # --- keys ----------------------------------------------------------------------------------

    @pytest.mark.parametrize("values", [{"id": 1}, {"id": 3, "name": "n1"}])
    def test_keys_of_expired_rows_are_free(self, engine: Engine, values: dict[str, object]) -> None:
        put(engine, key=1)
        with Session(engine) as session:
            session.add(Cart(**values))
            session.commit()
            assert keys(session) == {values["id"]}
        put(engine, key=5)
        with Session(engine) as session:
            session.execute(insert(Cart), [{"id": 5}])
            session.commit()
            assert keys(session) == {values["id"], 5}

    def test_keys_of_live_rows_are_taken(self, engine: Engine) -> None:
        put(engine, key=1, age=60)
        with Session(engine) as session:
            session.add(Cart(id=1))
            with pytest.raises(IntegrityError):
                session.flush()

    # --- columns of the application's ----------------------------------------------------------

    @pytest.mark.parametrize("kind", KINDS)
    def test_an_instant_in_a_column_is_read_as_it_was_meant(
        self, engine: Engine, kind: str
    ) -> None:
        model, store, now = MODELS[kind], KINDS[kind].store, now_of(engine)
        ends = {1: -40_000, 2: -2, 3: 2, 4: 2_000}  # days from now
        with Session(engine) as session:
            for key, days in ends.items():
                session.add(model(id=key, ends=store(now + timedelta(days=days))))
            session.add(model(id=5, ends=None))
            session.commit()
            assert keys(session, model) == {3, 4, 5}
        Sweeper(engine, [model], lease=False).run_once()
        with Session(engine) as session:
            rows = select(model.id).options(include_expired())
            assert set(session.scalars(rows)) == {3, 4, 5}

    @pytest.mark.parametrize("kind", KINDS)
    def test_an_instant_is_stored_as_the_column_keeps_it(self, engine: Engine, kind: str) -> None:
        model, end = MODELS[kind], now_of(engine) + timedelta(days=30)
        with Session(engine) as session:
            session.add(model(id=1, ends=None))
            session.flush()
            session.get_one(model, 1).expire_at(end)
            session.commit()
            stored = session.scalars(select(model.expires_at)).one()
            assert end <= stored <= end + timedelta(days=2 if kind == "days" else 0, seconds=1)

    def test_a_text_that_is_no_instant_never_expires(self, engine: Engine) -> None:
        model = MODELS["texts"]
        with Session(engine) as session:
            for key, value in enumerate(NO_INSTANTS):
                session.add(model(id=key, ends=value))
            session.add(model(id=99, ends="2020-01-01 00:00:00.5"))
            session.commit()
            assert keys(session, model) == set(range(len(NO_INSTANTS)))
