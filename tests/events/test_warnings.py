"""Rows that are about to expire are warned of once, unless their end has been moved meanwhile."""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from sqlalchemy import (
    Column,
    Date,
    DateTime,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    Numeric,
    String,
    Table,
    Time,
    Uuid,
    create_engine,
    delete,
    insert,
    select,
    update,
)
from sqlalchemy import Enum as EnumType
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tests.events.holds import HOUR, handled, kept, seat_hold, waiting, writes
from ttl_odm import TTL, ExpireAt, Follows, Stored
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.events import (
    AsyncEventWorker,
    Delivered,
    EventWorker,
    Expiry,
    events,
    on_expiring,
    record_expired,
    record_expiring,
)
from ttl_odm.events.sqlalchemy import source_of, warnings
from ttl_odm.sqlalchemy import TTLMixin, enable, set_policy
from ttl_odm.sqlalchemy.time.clock import LastModified
from ttl_odm.sweeper import StoreError, Sweeper, TransientStoreError

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    from ttl_odm.testing import TTLClock

BEGAN = datetime(2030, 1, 1, tzinfo=timezone.utc)
MINUTE = 60


class Color(Enum):
    """What a key may be made of, too."""

    RED = "dark red"


@pytest.fixture(autouse=True)
def the_clock_stands(ttl_clock: TTLClock) -> None:
    """No test depends on how long it takes."""
    ttl_clock.freeze(BEGAN)


def warned(model: Any, before: float = 10 * MINUTE, name: str = "warn", **options: Any) -> Any:
    """Register a handler, and return the list of what it gets."""
    got: list[Expiry] = []
    on_expiring(model, before=before, name=name, **options)(got.append)
    return got


def add(engine: Engine, *rows: Any) -> None:
    """Write rows."""
    with Session(engine) as session, session.begin():
        session.add_all(rows)


def write(engine: Engine, statement: Any, **options: Any) -> None:
    """Run a statement."""
    with engine.begin() as connection:
        connection.execute(statement, execution_options=options)


def keys(got: list[Expiry]) -> list[Any]:
    """The keys of events, in order."""
    return sorted(event.key[0] for event in got)


@pytest.mark.slow
def test_a_row_is_warned_of_once_when_so_much_is_left(engine: Engine, ttl_clock: TTLClock) -> None:
    model = seat_hold()
    got = warned(model, include=["person"])
    model.metadata.create_all(engine)
    add(engine, model(seat="A1", person="ann"))
    worker = EventWorker(engine, model)
    ttl_clock.advance(50 * MINUTE - 1)
    assert worker.run_once() == Delivered()
    ttl_clock.advance(1)
    assert worker.run_once() == Delivered(done=1)
    ttl_clock.advance(2 * MINUTE)
    assert worker.run_once() == Delivered()
    assert EventWorker(engine, model).run_once() == Delivered()
    (event,) = got
    assert (event.table, event.key, event.kind) == ("seat_holds", ("A1",), "expiring")
    assert event.before == timedelta(minutes=10)
    assert event.row == {"seat": "A1", "_ts": BEGAN.isoformat(), "ttl": None, "person": "ann"}
    assert event.last_modified == BEGAN
    assert event.expires_at == BEGAN + timedelta(hours=1)
    assert event.delivery == 1


def test_a_worker_doesnt_sweep_what_is_only_warned_of(engine: Engine, ttl_clock: TTLClock) -> None:
    model, other = seat_hold(), seat_hold(table="other_holds")
    record_expiring(model, before=MINUTE)
    record_expired(other)
    model.metadata.create_all(engine)
    add(engine, model(seat="A1", person="ann"))
    source = source_of(engine, [model, other])
    assert sorted(source.tables) == ["other_holds", "seat_holds"]
    assert [table.name for table in source.targets] == [
        "other_holds",
        "ttl_odm_deliveries",
        "ttl_odm_events",
    ]
    assert source_of(engine, other).warnings() is None
    ttl_clock.advance(HOUR)
    EventWorker(engine, model).run_once()
    assert kept(engine, model) == 1


@pytest.mark.slow
def test_a_row_that_expires_is_warned_of_and_released(engine: Engine, ttl_clock: TTLClock) -> None:
    model = seat_hold()
    lost, soon, sooner = handled(model), warned(model), warned(model, MINUTE, "hurry")
    model.metadata.create_all(engine)
    add(engine, model(seat="A1", person="ann"))
    worker = EventWorker(engine, model)
    for _ in range(4 * 60):
        ttl_clock.advance(15)
        worker.run_once()
    assert [event.before for event in soon] == [timedelta(minutes=10)]
    assert [event.before for event in sooner] == [timedelta(minutes=1)]
    assert keys(lost) == ["A1"]
    assert len({event.id for event in (*lost, *soon, *sooner)}) == 3
    assert kept(engine, model) == 0


@pytest.mark.slow
@pytest.mark.parametrize("ttl", [5 * MINUTE, None])
def test_a_row_with_less_time_than_that_is_warned_of_at_once(
    engine: Engine, ttl_clock: TTLClock, ttl: int | None
) -> None:
    model = seat_hold(HOUR if ttl else 5 * MINUTE)
    got = warned(model)
    model.metadata.create_all(engine)
    worker = EventWorker(engine, model)
    worker.run_once()
    add(engine, model(seat="A1", person="ann", ttl=ttl))
    ttl_clock.advance(10 * MINUTE / 100)
    assert worker.run_once() == Delivered(done=1)
    assert got[0].expires_at == BEGAN + timedelta(minutes=5)


def test_rows_without_an_end_or_past_it_are_not_warned_of(
    engine: Engine, ttl_clock: TTLClock
) -> None:
    model = seat_hold(10 * MINUTE)
    got = warned(model)
    model.metadata.create_all(engine)
    add(engine, model(seat="A1", person="ann", ttl=-1), model(seat="A2", person="ann"))
    ttl_clock.advance(10 * MINUTE)
    EventWorker(engine, model).run_once()
    assert got == []


@pytest.mark.slow
def test_a_row_that_is_renewed_before_its_warning_is_told_has_another_one(
    engine: Engine, ttl_clock: TTLClock
) -> None:
    model = seat_hold()
    got = warned(model)
    model.metadata.create_all(engine)
    add(engine, model(seat="A1", person="ann"))
    worker = EventWorker(engine, model)
    worker.run_once()
    ttl_clock.advance(50 * MINUTE)
    assert worker._warnings is not None
    assert worker._warnings.record() == 1
    write(engine, update(model).values(person="bob"))
    assert worker.run_once() == Delivered()
    ttl_clock.advance(50 * MINUTE)
    assert worker.run_once() == Delivered(done=1)
    assert [event.last_modified for event in got] == [BEGAN + timedelta(minutes=50)]
    assert len(list(events(engine, consumer="all", kinds=["expiring"]))) == 1


@pytest.mark.parametrize("how", ["own", "default", "stored"])
@pytest.mark.parametrize("hours", [0.9, 2, -1])
def test_an_end_that_is_moved_has_a_warning_of_its_own(
    engine: Engine, ttl_clock: TTLClock, how: str, hours: float
) -> None:
    model = seat_hold(Stored(HOUR) if how == "stored" else HOUR)
    got = warned(model)
    model.metadata.create_all(engine)
    add(engine, model(seat="A1", person="ann", ttl=HOUR if how == "own" else None))
    worker = EventWorker(engine, model)
    worker.run_once()
    ttl_clock.advance(50 * MINUTE)
    assert worker._warnings is not None
    assert worker._warnings.record() == 1
    ttl = -1 if hours < 0 else int(hours * HOUR)
    if how == "own":
        write(engine, update(model).values(ttl=ttl), keep_last_modified=True)
    elif how == "default":
        model.__ttl__ = ttl
    else:
        with engine.begin() as connection:
            set_policy(connection, model, ttl, by="test")
    if hours < 1:
        ttl_clock.advance(6)
        assert worker.run_once() == Delivered(done=int(hours > 0))
    else:
        assert worker.run_once() == Delivered()
        ttl_clock.advance(HOUR)
        assert worker.run_once() == Delivered(done=1)
    ends = [] if hours < 0 else [BEGAN + timedelta(hours=hours)]
    assert [event.expires_at for event in got] == ends


@pytest.mark.slow
def test_a_default_that_is_lowered_is_noticed_at_the_next_look(
    engine: Engine, ttl_clock: TTLClock
) -> None:
    plain, stored = seat_hold(30 * HOUR), seat_hold(Stored(30 * HOUR), "stored_holds")
    got = warned(plain, HOUR) + warned(stored, HOUR, "other")
    for model in (plain, stored):
        model.metadata.create_all(engine)
        add(engine, model(seat="A1", person="ann"))
    worker = EventWorker(engine, [plain, stored])
    worker.run_once()
    plain.__ttl__ = HOUR
    with engine.begin() as connection:
        set_policy(connection, stored, HOUR, by="test")
    assert worker.run_once() == Delivered(done=2)
    assert got == []


def test_an_end_that_is_shortened_is_noticed(engine: Engine, ttl_clock: TTLClock) -> None:
    model = seat_hold(30 * HOUR)
    got = warned(model, 10 * HOUR)
    model.metadata.create_all(engine)
    add(engine, model(seat="A1", person="ann"))
    worker = EventWorker(engine, model)
    worker.run_once()
    write(engine, update(model).values(ttl=HOUR), keep_last_modified=True)
    ttl_clock.advance(30)
    assert worker.run_once() == Delivered()
    ttl_clock.advance(30)
    assert worker.run_once() == Delivered(done=1)
    assert got[0].expires_at == BEGAN + timedelta(hours=1)


@pytest.mark.parametrize("how", ["deleted", "replaced", "expired"])
def test_a_warning_of_a_row_that_is_gone_is_not_told(
    engine: Engine, ttl_clock: TTLClock, how: str
) -> None:
    model = seat_hold()
    got = warned(model)
    model.metadata.create_all(engine)
    add(engine, model(seat="A1", person="ann"))
    ttl_clock.advance(50 * MINUTE)
    worker = EventWorker(engine, model)
    worker._subscribe()
    assert worker._warnings is not None
    assert worker._warnings.record() == 1
    if how == "expired":
        ttl_clock.advance(10 * MINUTE)
    else:
        write(engine, delete(model))
    if how == "replaced":
        add(engine, model(seat="A1", person="bob"))
    assert worker.run_once() == Delivered()
    assert waiting(engine, model) == 0
    assert got == []


@pytest.mark.slow
def test_two_workers_record_a_warning_once(engine: Engine, ttl_clock: TTLClock) -> None:
    model = seat_hold()
    got = warned(model)
    model.metadata.create_all(engine)
    add(engine, *(model(seat=f"A{number}", person="ann") for number in range(30)))
    ttl_clock.advance(50 * MINUTE)
    workers = [EventWorker(engine, model) for _ in range(3)]
    workers[0]._subscribe()
    begin = threading.Barrier(len(workers))

    def work(worker: EventWorker) -> None:
        assert worker._warnings is not None
        begin.wait()
        with suppress(TransientStoreError):
            worker._warnings.record()

    threads = [threading.Thread(target=work, args=[worker]) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert EventWorker(engine, model).run_once() == Delivered(done=30)
    assert len({event.id for event in got}) == 30


def test_a_page_that_another_worker_records_is_recorded_again(
    engine: Engine, ttl_clock: TTLClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = seat_hold()
    record_expiring(model, before=10 * MINUTE)
    model.metadata.create_all(engine)
    add(engine, model(seat="A1", person="ann"), model(seat="A2", person="ann"))
    ttl_clock.advance(50 * MINUTE)
    worker = EventWorker(engine, model)
    inserting, tries = warnings.insert_events, []

    def meanwhile(connection: Any, tables: Any, new: Any, *rest: Any) -> int:
        tries.append(len(new))
        if len(tries) == 1:  # they aren't seen any more when they are looked for
            inserting(connection, tables, new[:1], *rest)
            connection.execute(
                insert(tables.events).from_select(
                    [column.name for column in tables.events.c], select(tables.events)
                )
            )
        return inserting(connection, tables, new, *rest)

    monkeypatch.setattr(warnings, "insert_events", meanwhile)
    assert worker._warnings is not None
    assert worker._warnings.record() == 2
    assert tries == [2, 2]
    assert len(list(events(engine, model, consumer="all", kinds=["expiring"]))) == 2


def test_a_handler_by_the_name_of_a_table_gets_its_own_warnings(
    engine: Engine, ttl_clock: TTLClock
) -> None:
    model = seat_hold()
    for before in (10 * MINUTE, 20 * MINUTE):
        record_expiring(model, before=before, include=["person"])
    got = warned("seat_holds")
    with pytest.raises(TTLConfigurationError, match=r"write it there, with record_expiring\(\)"):
        warned("seat_holds", include=["person"])
    model.metadata.create_all(engine)
    add(engine, model(seat="A1", person="ann"))
    worker = EventWorker(engine, model)
    ttl_clock.advance(40 * MINUTE)
    assert worker.run_once() == Delivered()
    ttl_clock.advance(10 * MINUTE)
    assert worker.run_once() == Delivered(done=1)
    assert [(event.key, event.row["person"]) for event in got] == [(("A1",), "ann")]


@pytest.mark.slow
def test_a_reader_gets_the_kinds_that_it_wants(engine: Engine, ttl_clock: TTLClock) -> None:
    model = seat_hold()
    record_expiring(model, before=10 * MINUTE)
    record_expired(model)
    model.metadata.create_all(engine)
    add(engine, model(seat="A1", person="ann"), model(seat="A2", person="ann"))
    ttl_clock.advance(50 * MINUTE)
    worker = EventWorker(engine, model)
    worker.run_once()
    write(engine, update(model).where(model.seat == "A2").values(person="bob"))
    first = events(engine, model, consumer="first", kinds=("expired", "expiring"))
    assert [event.key for event in first] == [("A1",)]
    ttl_clock.advance(10 * MINUTE)
    worker.run_once()
    second = events(engine, consumer="second", kinds=("expired", "expiring"))
    for reader in (first, second):  # it is gone by now, so nobody is warned of it any more
        assert [(event.kind, event.key) for event in reader] == [("expired", ("A1",))]
    assert [event.kind for event in events(engine, consumer="third")] == ["expired"]


@pytest.mark.slow
def test_subclasses_and_limits_have_ends_of_their_own(engine: Engine, ttl_clock: TTLClock) -> None:
    class Base(DeclarativeBase):
        pass

    class Job(TTLMixin, Base):
        __tablename__ = "jobs"
        __ttl__ = TTL(4 * HOUR, created="created_at", max_lifetime=6 * HOUR)
        __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "job"}
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        kind: Mapped[str] = mapped_column(String(10))
        created_at: Mapped[datetime] = mapped_column(LastModified())

    class Export(Job):
        __ttl__ = 2 * HOUR
        __mapper_args__ = {"polymorphic_identity": "export"}

    got = warned(Job, HOUR)
    Base.metadata.create_all(engine)
    add(
        engine,
        Job(id=1, created_at=BEGAN),
        Job(id=2, created_at=BEGAN - timedelta(hours=3)),
        Export(id=3, created_at=BEGAN),
        Export(id=4, created_at=BEGAN, ttl=5 * HOUR),
        Export(id=5, created_at=BEGAN, ttl=-1),
    )
    worker = EventWorker(engine, Base)
    worker.run_once()
    told = []
    for hour in range(1, 7):
        ttl_clock.advance(HOUR)
        worker.run_once()
        told += [(hour, event.key[0], event.expires_at) for event in got[len(told) :]]
    ends = {1: 4, 2: 3, 3: 2, 4: 5, 5: 6}
    assert sorted(told) == sorted(
        (end - 1, key, BEGAN + timedelta(hours=end)) for key, end in ends.items()
    )


@pytest.mark.slow
def test_a_table_without_an_index_is_walked(engine: Engine, ttl_clock: TTLClock) -> None:
    class Base(DeclarativeBase):
        pass

    class Hold(TTLMixin, Base):
        __tablename__ = "holds"
        __ttl__ = HOUR
        __ttl_sweep__ = "scan"
        seat: Mapped[str] = mapped_column(String(20), primary_key=True)
        row: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

    got = warned(Hold)
    Base.metadata.create_all(engine)
    add(engine, *(Hold(seat=seat, row=row) for seat in "ABC" for row in range(3)))
    worker = EventWorker(engine, Base)
    ttl_clock.advance(49 * MINUTE)
    worker.run_once()
    ttl_clock.advance(MINUTE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(warnings, "CHUNK", 2)
        assert worker.run_once().done == 9
    assert sorted(event.key for event in got) == [(seat, row) for seat in "ABC" for row in range(3)]


def test_a_date_column_of_ones_own(engine: Engine, ttl_clock: TTLClock) -> None:
    metadata = MetaData()
    tokens = Table(
        "tokens",
        metadata,
        Column("id", Integer, primary_key=True, autoincrement=False),
        Column("ends", DateTime),
    )
    enable(tokens, ExpireAt("ends"))
    got = warned(tokens)
    metadata.create_all(engine)
    with engine.begin() as connection:
        end = BEGAN.replace(tzinfo=None) + timedelta(hours=1)
        rows = [{"id": 1, "ends": end}, {"id": 2, "ends": None}]
        connection.execute(insert(tokens), [*rows, {"id": 3, "ends": end + timedelta(seconds=1)}])
    worker = EventWorker(engine, tokens)
    worker.run_once()
    assert got == []
    ttl_clock.advance(50 * MINUTE)
    assert worker.run_once() == Delivered(done=1)
    assert got[0].expires_at == got[0].last_modified == BEGAN + timedelta(hours=1)
    assert got[0].row == {"id": 1, "ends": end.isoformat()}


@pytest.mark.slow
def test_tenants_have_defaults_of_their_own(engine: Engine, ttl_clock: TTLClock) -> None:
    class Base(DeclarativeBase):
        pass

    class Message(TTLMixin, Base):
        __tablename__ = "messages"
        __ttl__ = Stored(4 * HOUR, by="tenant")
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        tenant: Mapped[str | None] = mapped_column(String(20))

    got = warned(Message)
    Base.metadata.create_all(engine)
    with engine.begin() as connection:
        set_policy(connection, Message, HOUR, scope="acme", by="test")
    tenants = {1: "acme", 2: "other", 3: None}
    add(engine, *(Message(id=number, tenant=tenant) for number, tenant in tenants.items()))
    worker = EventWorker(engine, Base)
    worker.run_once()
    ttl_clock.advance(50 * MINUTE)
    worker.run_once()
    assert [(event.key, event.expires_at) for event in got] == [((1,), BEGAN + timedelta(hours=1))]
    ttl_clock.advance(3 * HOUR)
    worker.run_once()
    assert keys(got) == [1, 2, 3]


def test_a_row_is_found_again_by_any_key(engine: Engine, ttl_clock: TTLClock) -> None:
    class Base(DeclarativeBase):
        pass

    class Upload(TTLMixin, Base):
        __tablename__ = "uploads"
        __ttl__ = HOUR
        a: Mapped[UUID] = mapped_column(Uuid, primary_key=True)
        b: Mapped[Decimal] = mapped_column(Numeric(10, 2), primary_key=True)
        c: Mapped[date] = mapped_column(Date, primary_key=True)
        d: Mapped[datetime] = mapped_column(LastModified(), primary_key=True)
        e: Mapped[time] = mapped_column(Time, primary_key=True)
        f: Mapped[Color] = mapped_column(EnumType(Color), primary_key=True)

    class Photo(TTLMixin, Base):
        __tablename__ = "photos"
        __ttl__ = HOUR
        digest: Mapped[bytes] = mapped_column(LargeBinary(20), primary_key=True)

    got = warned(Upload)
    Base.metadata.create_all(engine, tables=set(Base.metadata.sorted_tables) - {Photo.__table__})
    upload = Upload(
        a=UUID("12345678-1234-5678-1234-567812345678"),
        b=Decimal("1.50"),
        c=date(2030, 1, 31),
        d=BEGAN + timedelta(milliseconds=5),
        e=time(12, 30),
        f=Color.RED,
    )
    add(engine, upload)
    ttl_clock.advance(50 * MINUTE)
    worker = EventWorker(engine, Upload)
    assert worker.run_once() == Delivered(done=1)
    assert got[0].key[1:3] == ("1.50", "2030-01-31")
    assert warnings.from_json(Photo.__table__.c.digest, "AP8=") == b"\x00\xff"


@pytest.mark.slow
@pytest.mark.parametrize("seconds_apart", [0, 1])
def test_a_long_window_is_read_page_by_page(
    engine: Engine, ttl_clock: TTLClock, monkeypatch: pytest.MonkeyPatch, seconds_apart: int
) -> None:
    model = seat_hold()
    got = warned(model)
    model.metadata.create_all(engine)
    rows = [
        {
            "seat": f"A{number:02}",
            "person": "ann",
            "_ts": BEGAN - timedelta(seconds=MINUTE + number // 4 * seconds_apart),
            "ttl": None if number % 2 else HOUR,
        }
        for number in range(50)
    ]
    with engine.begin() as connection:
        connection.execute(
            insert(model.__table__), rows, execution_options={"keep_last_modified": True}
        )
    ttl_clock.advance(50 * MINUTE)
    monkeypatch.setattr(warnings, "CHUNK", 3)
    worker = EventWorker(engine, model)
    worker._subscribe()
    assert worker._warnings is not None
    counts = []
    while not counts or counts[-1]:
        counts.append(worker._warnings.record())
    assert sum(counts) == 50
    assert max(counts) <= 3 * warnings.PAGES
    assert worker.run_once() == Delivered(done=50)
    assert keys(got) == [row["seat"] for row in rows]


def test_writes_need_no_statement_more(engine: Engine, sent: list[str]) -> None:
    plain, model = seat_hold(), seat_hold()
    record_expiring(model, before=MINUTE)
    model.metadata.create_all(engine)
    assert writes(engine, sent, plain, "A") == writes(engine, sent, model, "B")


@pytest.mark.slow
def test_a_look_that_finds_nothing_sends_one_statement_for_each_table(
    engine: Engine, sent: list[str], ttl_clock: TTLClock
) -> None:
    tables = [seat_hold(table=f"holds_{number}") for number in range(4)]
    counts = []
    for number in range(1, 5):
        models = tables[:number]
        model = models[-1]
        for before in (MINUTE, 5 * MINUTE):
            record_expiring(model, before=before)
        model.metadata.create_all(engine)
        add(engine, model(seat="A1", person="ann"), model(seat="A2", person="ann", ttl=HOUR // 2))
        worker = EventWorker(engine, models)
        assert worker._warnings is not None
        worker._warnings.record()
        for rest in (0, 61):  # and so does one at the whole of an empty window
            ttl_clock.advance(rest)
            sent.clear()
            assert worker._warnings.record() == 0
            counts.append(len(sent) - 2 * number)
    assert set(counts) == {counts[0]}
    assert counts[0] <= 4  # the clock, and settings of the session


@pytest.mark.slow
def test_a_table_that_fails_doesnt_hold_up_the_others(
    engine: Engine, ttl_clock: TTLClock, caplog: pytest.LogCaptureFixture
) -> None:
    missing, model, other = (seat_hold(table=f"{name}_holds") for name in ("a", "b", "c"))
    record_expiring(missing, before=MINUTE)
    got = [warned(one, name=one.__tablename__) for one in (model, other)]
    for one in (model, other):
        one.metadata.create_all(engine)
        add(engine, one(seat="A1", person="ann"))
    ttl_clock.advance(50 * MINUTE)
    worker = EventWorker(engine, [model, missing, other])
    assert worker.run_once() == Delivered(done=2)
    assert [len(one) for one in got] == [1, 1]
    assert "Warnings weren't recorded" in caplog.text
    assert worker._warnings is not None
    with pytest.raises(StoreError):
        worker._warnings.record()


def test_any_sweeper_deletes_rows_that_were_warned_of(engine: Engine, ttl_clock: TTLClock) -> None:
    model = seat_hold()
    got = warned(model)
    model.metadata.create_all(engine)
    add(engine, model(seat="A1", person="ann"))
    ttl_clock.advance(50 * MINUTE)
    worker = EventWorker(engine, model)
    worker._subscribe()
    assert worker._warnings is not None
    assert worker._warnings.record() == 1
    ttl_clock.advance(HOUR)
    assert Sweeper(engine, model.__table__).run_once().deleted == 1
    assert worker.run_once() == Delivered()
    assert got == []


class Base(DeclarativeBase):
    """What the mistakes are made with."""


class Cart(TTLMixin, Base):
    """A parent."""

    __tablename__ = "carts"
    __ttl__ = HOUR
    id: Mapped[int] = mapped_column(primary_key=True)


class Item(Base):
    """A follower."""

    __tablename__ = "items"
    __ttl__ = Follows("cart_id")
    id: Mapped[int] = mapped_column(primary_key=True)
    cart_id: Mapped[int] = mapped_column(ForeignKey(Cart.id), index=True)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: warned(Item), "Item can't have events: its rows follow"),
        (lambda: warned(int), "int can't have events: they are recorded for SQLAlchemy"),
        (lambda: warned(Table("t", MetaData())), "Table 't' has no TTL"),
        (lambda: warned(seat_hold(), include=["a"]), "has no column 'a'; it has seat, person"),
        (lambda: warned(seat_hold(), 0), "before = 0: give whole seconds"),
        (lambda: warned(seat_hold(), 1.5), "before = 1.5: give whole seconds"),
        (lambda: EventWorker(create_engine("sqlite://"), seat_hold()), "No model here has events"),
    ],
)
def test_mistakes_are_named(make: Any, message: str) -> None:
    with pytest.raises(TTLConfigurationError, match=message):
        make()


def test_a_target_that_was_rejected_has_no_warnings(engine: Engine) -> None:
    model = seat_hold()
    with pytest.raises(TTLConfigurationError, match="has no column"):
        record_expiring(model, before=MINUTE, include=["a"])
    with pytest.raises(TTLConfigurationError, match="No model here has events"):
        source_of(engine, model)


@pytest.mark.slow
def test_a_warning_is_kept_until_its_row_expires(engine: Engine, ttl_clock: TTLClock) -> None:
    model = seat_hold(40 * 24 * HOUR)
    got = warned(model, 30 * 24 * HOUR)
    model.metadata.create_all(engine)
    add(engine, model(seat="A1", person="ann"))
    worker = EventWorker(engine, model)
    for _ in range(40):
        worker.run_once()
        ttl_clock.advance(24 * HOUR)
    assert [event.last_modified for event in got] == [BEGAN]


@pytest.mark.slow
async def test_an_asynchronous_worker(async_engine: AsyncEngine, ttl_clock: TTLClock) -> None:
    model = seat_hold()
    got: list[Expiry] = []

    async def warn(event: Expiry) -> None:
        got.append(event)

    on_expiring(model, before=10 * MINUTE, name="warn")(warn)
    async with async_engine.begin() as connection:
        await connection.run_sync(model.metadata.create_all)
        await connection.execute(
            model.__table__.insert(),
            [{"seat": seat, "person": "ann", "ttl": None} for seat in ("A1", "A2")],
        )
    worker = AsyncEventWorker(async_engine, model)
    assert await worker.run_once() == Delivered()
    ttl_clock.advance(50 * MINUTE)
    assert worker._warnings is not None
    assert await worker._warnings.record() == 2
    async with async_engine.begin() as connection:
        await connection.execute(update(model).where(model.seat == "A2").values(person="bob"))
    assert await worker.run_once() == Delivered(done=1)
    assert keys(got) == ["A1"]
    reader = events(async_engine, model, consumer="all", kinds=["expired", "expiring"])
    assert [event.key async for event in reader] == [("A1",)]
