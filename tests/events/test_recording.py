"""Events are recorded in the transaction that deletes a row, one for each of its lives."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

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
    Uuid,
    create_engine,
    delete,
    event,
    insert,
    select,
    update,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tests.events.holds import HOUR, handled, kept, recorded, seat_hold, writes
from ttl_odm import TTL, ExpireAt, Follows, Stored
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.events import EventWorker, events, on_expired, record_expired
from ttl_odm.events.sqlalchemy import event_tables
from ttl_odm.sqlalchemy import Archive, TTLMixin, enable, include_expired, set_policy
from ttl_odm.sqlalchemy.time.clock import LastModified
from ttl_odm.sweeper import HookError, Sweeper

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from ttl_odm.testing import TTLClock


def all_of(engine: Engine, model: Any = None) -> list[Any]:
    """Every event that the outbox has, for a consumer that is new."""
    return list(events(engine, model, consumer="test"))


def test_a_sweep_records_what_it_deletes(engine: Engine, ttl_clock: TTLClock) -> None:
    model = seat_hold()
    got = handled(model, include=["person"])
    model.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(model(seat="A1", person="ann"))
        session.add(model(seat="A2", person="bob", ttl=-1))
        session.commit()
        began = session.get_one(model, "A1").last_modified
    ttl_clock.advance(HOUR)
    assert EventWorker(engine, model).run_once().done == 1
    (event,) = got
    assert (event.table, event.key, event.kind) == ("seat_holds", ("A1",), "expired")
    assert event.row == {
        "seat": "A1",
        "_ts": began.isoformat(),
        "ttl": None,
        "person": "ann",
    }
    assert event.last_modified == began
    assert event.expires_at == began + timedelta(seconds=HOUR)
    assert event.delivery == 1
    assert kept(engine, model) == 1


@pytest.mark.slow
def test_any_sweeper_records_them(engine: Engine, ttl_clock: TTLClock) -> None:
    model = seat_hold()
    record_expired(model)
    model.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.add_all(model(seat=f"A{n}", person="ann") for n in range(1200))
    ttl_clock.advance(HOUR)
    assert Sweeper(engine, model, batch_size=700).run_once().deleted == 1200
    assert {event.key for event in all_of(engine, model)} == {(f"A{n}",) for n in range(1200)}


@pytest.mark.parametrize("how", ["flush", "core", "unique", "update"])
def test_a_write_that_takes_the_key_records_it_in_its_own_transaction(
    engine: Engine, ttl_clock: TTLClock, how: str
) -> None:
    model = seat_hold()
    record_expired(model)
    model.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.add(model(seat="A1", person="ann", ticket=1))
    ttl_clock.advance(HOUR)
    with Session(engine) as session, session.begin():
        session.add(model(seat="B1", person="eve", ticket=2))
    values = {"seat": "A1", "person": "bob", "ticket": 3}

    def write(session: Session) -> None:
        if how == "flush":
            session.add(model(**values))
            session.flush()
        elif how == "core":
            session.connection().execute(insert(model.__table__), [values])
        elif how == "unique":
            session.add(model(**{**values, "seat": "C1", "ticket": 1}))
            session.flush()
        else:
            session.execute(update(model).where(model.seat == "B1").values(ticket=1))

    with Session(engine) as session:
        write(session)
        assert recorded(session.connection(), model) == 1
        session.rollback()
        assert recorded(session.connection(), model) == 0
    with Session(engine) as session, session.begin():
        write(session)
    (event,) = all_of(engine, model)
    assert event.key == ("A1",)
    assert Sweeper(engine, model).run_once().deleted == 0


@pytest.mark.slow
def test_each_life_of_a_key_has_an_event_of_its_own(engine: Engine, ttl_clock: TTLClock) -> None:
    model = seat_hold()
    got = handled(model)
    model.metadata.create_all(engine)
    worker = EventWorker(engine, model)
    for _ in range(3):
        with Session(engine) as session, session.begin():
            session.add(model(seat="A1", person="ann"))
        ttl_clock.advance(HOUR)
        worker.run_once()
        worker.run_once()
    assert [one.key for one in got] == [("A1",)] * 3
    assert len({event.id for event in got}) == 3


def test_a_row_that_is_put_back_as_it_was_has_no_second_event(
    engine: Engine, ttl_clock: TTLClock
) -> None:
    model = seat_hold()
    got = handled(model)
    model.metadata.create_all(engine)
    worker = EventWorker(engine, model)
    with Session(engine) as session, session.begin():
        session.add(model(seat="A1", person="ann"))
    with engine.connect() as connection:
        row = connection.execute(select(model.__table__)).mappings().one()
    ttl_clock.advance(HOUR)
    worker.run_once()
    with engine.begin() as connection:
        connection.execute(
            insert(model.__table__).execution_options(keep_last_modified=True), [dict(row)]
        )
    worker.run_once()
    assert kept(engine, model) == 0
    assert len(got) == 1


def test_nothing_is_recorded_of_rows_that_are_renewed_or_deleted(
    engine: Engine, ttl_clock: TTLClock
) -> None:
    model = seat_hold()
    got = handled(model)
    model.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.add_all(model(seat=seat, person="ann") for seat in ("A1", "A2", "A3"))
    ttl_clock.advance(HOUR - 60)
    with Session(engine) as session, session.begin():
        session.get_one(model, "A1").touch()
        session.delete(session.get_one(model, "A2"))
        session.execute(delete(model).where(model.seat == "A3"))
    ttl_clock.advance(60)
    EventWorker(engine, model).run_once()
    assert got == []
    assert kept(engine, model) == 1


def test_a_stored_default_decides(engine: Engine, ttl_clock: TTLClock) -> None:
    model = seat_hold(Stored(HOUR))
    got = handled(model)
    model.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.add(model(seat="A1", person="ann"))
    worker = EventWorker(engine, model)
    ttl_clock.advance(HOUR)
    with engine.begin() as connection:
        set_policy(connection, model, 3 * HOUR, by="test")
    worker.run_once()
    assert got == []
    with engine.begin() as connection:
        set_policy(connection, model, HOUR, by="test")
    worker.run_once()
    assert [one.key for one in got] == [("A1",)]


def test_a_stored_default_says_when_a_row_expired(engine: Engine, ttl_clock: TTLClock) -> None:
    model = seat_hold(Stored(HOUR))
    got = handled(model)
    model.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.add(model(seat="A1", person="ann"))
    ttl_clock.advance(HOUR + 5)
    EventWorker(engine, model).run_once()
    assert got[0].last_modified is not None
    assert got[0].expires_at == got[0].last_modified + timedelta(seconds=HOUR)


def test_a_row_of_a_date_column_of_ones_own(engine: Engine, ttl_clock: TTLClock) -> None:
    metadata = MetaData()
    tokens = Table(
        "tokens",
        metadata,
        Column("id", Integer, primary_key=True, autoincrement=False),
        Column("expires_at", DateTime),
    )
    enable(tokens, ExpireAt("expires_at"))
    record_expired(tokens)
    metadata.create_all(engine)
    end = datetime.now(timezone.utc).replace(microsecond=0) + timedelta(hours=1)
    with engine.begin() as connection:
        connection.execute(insert(tokens), [{"id": 1, "expires_at": end.replace(tzinfo=None)}])
    ttl_clock.advance(HOUR + 1)
    Sweeper(engine, metadata).run_once()
    (event,) = all_of(engine, tokens)
    assert event.expires_at == event.last_modified == end
    assert event.row == {"id": 1, "expires_at": end.replace(tzinfo=None).isoformat()}


def test_subclasses_of_one_table_have_ends_of_their_own(
    engine: Engine, ttl_clock: TTLClock
) -> None:
    class Base(DeclarativeBase):
        pass

    class Job(TTLMixin, Base):
        __tablename__ = "jobs"
        __ttl__ = 2 * HOUR
        __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "job"}
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        kind: Mapped[str] = mapped_column(String(10))

    class Export(Job):
        __ttl__ = HOUR
        __mapper_args__ = {"polymorphic_identity": "export"}

    got = handled(Job)
    Base.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.add_all([Job(id=1), Export(id=2)])
    ttl_clock.advance(2 * HOUR)
    EventWorker(engine, Base).run_once()
    lives = {}
    for one in got:
        assert one.last_modified is not None
        lives[one.key] = one.expires_at - one.last_modified
    assert lives == {(1,): timedelta(hours=2), (2,): timedelta(hours=1)}


def test_a_parent_has_an_event_and_its_followers_have_none(
    engine: Engine, ttl_clock: TTLClock
) -> None:
    class Base(DeclarativeBase):
        pass

    class Cart(TTLMixin, Base):
        __tablename__ = "carts"
        __ttl__ = HOUR
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

    class Item(Base):
        __tablename__ = "items"
        __ttl__ = Follows("cart_id")
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        cart_id: Mapped[int] = mapped_column(ForeignKey(Cart.id), index=True)

    got = handled(Cart)
    with pytest.raises(TTLConfigurationError, match="Item can't have events: its rows follow"):
        on_expired(Item)
    Base.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.add(Cart(id=1))
        session.flush()
        session.add_all([Item(id=1, cart_id=1), Item(id=2, cart_id=1)])
    ttl_clock.advance(HOUR)
    EventWorker(engine, Base).run_once()
    assert [(event.table, event.key) for event in got] == [("carts", (1,))]
    with engine.connect() as connection:
        assert connection.scalars(select(Item.id).options(include_expired())).all() == []


@pytest.mark.parametrize("purge", ["archive", "orm", "hook"])
def test_what_else_is_declared_for_expired_rows_still_happens(
    engine: Engine, ttl_clock: TTLClock, purge: str
) -> None:
    class Base(DeclarativeBase):
        pass

    heard: list[Any] = []
    declared: dict[str, Any] = {
        "archive": {"__ttl_archive__": Archive(lambda: OldCart)},
        "orm": {"__ttl_purge__": "orm"},
        "hook": {"__ttl_on_purged__": heard.append},
    }[purge]
    columns: Any = type("Columns", (), declared)

    class Cart(columns, TTLMixin, Base):  # type: ignore[misc]
        __tablename__ = "carts"
        __ttl__ = HOUR
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

    class OldCart(Base):
        __tablename__ = "old_carts"
        number: Mapped[int] = mapped_column(primary_key=True)
        id: Mapped[int]

    if purge == "orm":
        event.listen(Cart, "after_delete", lambda *_: heard.append("deleted"))
    got = handled(Cart)
    Base.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.add(Cart(id=1))
    ttl_clock.advance(HOUR)
    EventWorker(engine, Base).run_once()
    assert [one.key for one in got] == [(1,)]
    with engine.connect() as connection:
        archived = connection.scalars(select(OldCart.id)).all()
    assert archived == ([1] if purge == "archive" else [])
    assert len(heard) == (0 if purge == "archive" else 1)


def test_values_are_as_json_has_them(engine: Engine, ttl_clock: TTLClock) -> None:
    class Base(DeclarativeBase):
        pass

    class Upload(TTLMixin, Base):
        __tablename__ = "uploads"
        __ttl__ = HOUR
        id: Mapped[UUID] = mapped_column(Uuid, primary_key=True)
        part: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        price: Mapped[Decimal] = mapped_column(Numeric(10, 2, asdecimal=True))
        meta: Mapped[Any] = mapped_column(JSON)
        photo: Mapped[bytes] = mapped_column(LargeBinary)
        on: Mapped[datetime] = mapped_column("made on", LastModified())

    on_expired(Upload, name="x", include=["price", "meta", "photo", "made on"])(print)
    Base.metadata.create_all(engine)
    key = UUID("12345678-1234-5678-1234-567812345678")
    made = datetime(2026, 1, 31, 12, tzinfo=timezone(timedelta(hours=2)))
    with Session(engine) as session, session.begin():
        session.add(
            Upload(
                id=key,
                part=7,
                price=Decimal("1.50"),
                meta={"Größe": [1, None]},
                photo=b"\x00\xff",
                on=made,
            )
        )
    ttl_clock.advance(HOUR)
    Sweeper(engine, Base).run_once()
    (got,) = all_of(engine, Base)
    assert got.key == (str(key), 7)
    row = {name: value for name, value in got.row.items() if name != "_ts"}
    assert row == {
        "id": str(key),
        "part": 7,
        "ttl": None,
        "price": "1.50",
        "meta": {"Größe": [1, None]},
        "photo": "AP8=",
        "made on": "2026-01-31T10:00:00+00:00",
    }


def test_events_have_a_ttl_themselves(engine: Engine, ttl_clock: TTLClock) -> None:
    model = seat_hold()
    tables = event_tables(model.metadata, retention=timedelta(days=2))
    got = handled(model, attempts=1)
    model.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.add(model(seat="A1", person="ann"))
    ttl_clock.advance(HOUR)
    Sweeper(engine, model).run_once()
    ttl_clock.advance(2 * 24 * HOUR)
    worker = EventWorker(engine, model)
    worker.run_once()
    assert got == []
    with engine.connect() as connection:
        for table in (tables.events, tables.deliveries):
            assert connection.execute(select(table).options(include_expired())).all() == []


def test_without_the_tables_no_row_goes_unrecorded(engine: Engine, ttl_clock: TTLClock) -> None:
    model = seat_hold()
    record_expired(model)
    model.__table__.create(engine)
    with Session(engine) as session, session.begin():
        session.add(model(seat="A1", person="ann"))
    ttl_clock.advance(HOUR)
    report = Sweeper(engine, model).run_once()
    assert report.deleted == 0
    assert kept(engine, model) == 1
    with pytest.raises(TTLConfigurationError, match="lacks one of the tables ttl_odm_events"):
        all_of(engine, model)
    with Session(engine) as session:
        session.add(model(seat="A1", person="bob"))
        with pytest.raises(HookError):
            session.flush()


def test_writes_need_no_statement_more(engine: Engine, sent: list[str]) -> None:
    plain, model = seat_hold(), seat_hold()
    record_expired(model)
    model.metadata.create_all(engine)
    assert writes(engine, sent, plain, "A") == writes(engine, sent, model, "B")


def test_a_second_call_adds_columns(engine: Engine, ttl_clock: TTLClock) -> None:
    model = seat_hold()
    record_expired(model, include=["person"])
    record_expired(model, include=["ticket"])
    model.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.add(model(seat="A1", person="ann", ticket=4))
    ttl_clock.advance(HOUR)
    Sweeper(engine, model).run_once()
    (event,) = all_of(engine, model)
    assert (event.row["person"], event.row["ticket"]) == ("ann", 4)


def test_a_class_that_inherits_the_hooks_isnt_recorded(engine: Engine, ttl_clock: TTLClock) -> None:
    class Base(DeclarativeBase):
        pass

    class Cart(TTLMixin, Base):
        __tablename__ = "carts"
        __ttl__ = HOUR
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

    record_expired(Cart)

    class OtherCart(Cart):
        __tablename__ = "other_carts"
        __ttl__ = HOUR
        __mapper_args__ = {"concrete": True}
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        _ts: Mapped[datetime] = mapped_column(LastModified())

    assert [table.name for table in _recorded_tables(engine, Base)] == ["carts"]


def _recorded_tables(engine: Engine, base: Any) -> list[Table]:
    from ttl_odm.events.sqlalchemy import source_of

    return [table for table in source_of(engine, base).targets if "ttl_odm" not in table.name]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: on_expired(int), "int can't have events: they are recorded for SQLAlchemy"),
        (lambda: on_expired(Table("t", MetaData())), "Table 't' has no TTL"),
        (lambda: on_expired("t", include=["a"]), "decides what they have"),
        (lambda: on_expired(seat_hold(), include=["a"]), "has no column 'a'; it has seat, person"),
        (lambda: on_expired("t", attempts=0), "attempts = 0: give a whole number"),
        (lambda: on_expired("t", attempts=True), "attempts = True"),
        (lambda: on_expired("t")(lambda _: None), "no name that is the same in every process"),
        (lambda: on_expired("t", name="x" * 201)(print), "give 1 to 200 characters"),
        (lambda: on_expired("t")(5), "must be callable"),
        (lambda: EventWorker(create_engine("sqlite://"), seat_hold()), "No model here has events"),
        (lambda: events(object(), consumer="x"), "can't have events"),
        (lambda: events(create_engine("sqlite://"), consumer=""), "give 1 to 200 characters"),
        (
            lambda: events(create_engine("sqlite://"), consumer="x", poll=0),
            "poll = 0: give seconds",
        ),
    ],
)
def test_mistakes_are_named(make: Any, message: str) -> None:
    with pytest.raises(TTLConfigurationError, match=message):
        make()


def test_two_handlers_of_one_name_are_a_mistake() -> None:
    on_expired("carts", name="release")(print)
    with pytest.raises(TTLConfigurationError, match="There is a consumer 'release' already"):
        on_expired("carts", name="release")(len)
    on_expired("carts", name="release")(print)  # as when its module is loaded again


def test_ttl_that_is_off_records_nothing(engine: Engine, ttl_clock: TTLClock) -> None:
    model = seat_hold(TTL(None))
    got = handled(model)
    model.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.add(model(seat="A1", person="ann", ttl=5))
    ttl_clock.advance(HOUR)
    EventWorker(engine, model).run_once()
    assert got == []
