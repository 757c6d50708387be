"""Follows(..., renews=True): a write to a row restarts the lifetime of its parent."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import ForeignKey, delete, event, func, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    configure_mappers,
    mapped_column,
    relationship,
)

from tests.clocks import age
from ttl_odm import ExpireAt, Follows, TTLConfigurationError
from ttl_odm.sqlalchemy import ExpiredError, TTLMixin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

HOUR = 3_600
WHILE = 100
"""Seconds: less than a thread lives, more than reactions wait before they renew one again."""


class Base(DeclarativeBase):
    pass


class Thread(TTLMixin, Base):
    __tablename__ = "threads"
    __ttl__ = HOUR

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class Message(Base):
    __tablename__ = "messages"
    __ttl__ = Follows("thread", renews=True)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    thread_id: Mapped[int] = mapped_column(ForeignKey("threads.id"), index=True)
    size: Mapped[int] = mapped_column(default=0)
    thread: Mapped[Thread] = relationship()


class Pin(Base):
    __tablename__ = "pins"
    __ttl__ = Follows("thread_id", renews=True)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    thread_id: Mapped[int] = mapped_column(ForeignKey("threads.id"), index=True)
    place: Mapped[int] = mapped_column(default=1, unique=True)


class Reaction(Base):
    __tablename__ = "reactions"
    __ttl__ = Follows("message_id", renews=True, at_most_every=60)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    message_id: Mapped[int] = mapped_column(ForeignKey("messages.id"), index=True)


@pytest.fixture
def session(engine: Engine, enforcing: None) -> Iterator[Session]:
    """Threads 1 and 2 with messages 10, 11 and 20, 21; reaction 100 to message 10."""
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([Thread(id=1), Thread(id=2)])
        session.flush()
        session.add_all([Message(id=n, thread_id=n // 10) for n in (10, 11, 20, 21)])
        session.flush()
        session.add(Reaction(id=100, message_id=10))
        session.commit()
        yield session


@contextmanager
def renewing(session: Session, *renewed: int) -> Iterator[None]:
    """Check that what the body writes renews these threads, and none else."""
    for key in (1, 2):
        age(session.connection(), "threads", key, WHILE)
    session.commit()
    stamps = select(Thread.id, Thread.last_modified)
    before: dict[int, datetime] = dict(session.execute(stamps).all())  # type: ignore[arg-type]
    session.commit()
    yield
    session.commit()
    after = session.execute(stamps).all()
    assert {key for key, stamp in after if stamp != before[key]} == set(renewed)
    session.commit()


def test_every_kind_of_write_renews(session: Session) -> None:
    with renewing(session, 1):
        session.add(Message(id=12, thread_id=1))
    with renewing(session, 1, 2):
        session.execute(insert(Message), [{"id": n, "thread_id": n // 10} for n in (13, 23)])
    with renewing(session, 2):
        session.get_one(Message, 20).size = 3
    with renewing(session, 1):
        session.execute(update(Message).where(Message.id < 15).values(size=4))
    with renewing(session, 1):
        session.execute(update(Message), [{"id": 10, "size": 5}])
    with renewing(session, 1, 2):
        session.get_one(Message, 11).thread_id = 2
    with renewing(session, 1):
        session.delete(session.get_one(Message, 12))
    with renewing(session, 2):
        session.execute(delete(Message).where(Message.thread_id == 2))


def test_what_is_no_write_renews_nothing(session: Session) -> None:
    with renewing(session):
        message = session.get_one(Message, 10)
        message.size = message.size
        session.execute(update(Message).where(Message.id == 99).values(size=1))
    with renewing(session):
        kept = update(Message).values(size=7).execution_options(keep_last_modified=True)
        session.execute(kept)


def ignoring(session: Session, table: Any = Message) -> Any:
    """An INSERT that does nothing where a key is taken."""
    dialect = session.connection().dialect.name
    if dialect in ("mysql", "mariadb"):
        return insert(table).prefix_with("IGNORE")
    module = postgresql if dialect == "postgresql" else sqlite
    return module.insert(table).on_conflict_do_nothing()


@pytest.mark.every_server
def test_a_row_that_is_ignored_for_its_key_renews_nothing(session: Session) -> None:
    taken, new = {"id": 10, "thread_id": 1}, {"id": 24, "thread_id": 2}
    with renewing(session):
        session.execute(ignoring(session).values(**taken))
    with renewing(session, 2):
        session.execute(ignoring(session), [taken, new])
    with renewing(session):
        session.execute(ignoring(session).values([taken, new]))
    with renewing(session, 2):
        session.execute(ignoring(session).values([{**taken, "thread_id": 1}, {**new, "id": 25}]))
    with renewing(session, 1):
        twice = [{"id": 15, "thread_id": 1}, {"id": 15, "thread_id": 2}]
        session.execute(ignoring(session).values(twice))
    with renewing(session):
        session.connection().execute(ignoring(session, Message.__table__), [taken])


@pytest.mark.every_server
def test_a_selected_row_that_is_ignored_for_its_key_renews_nothing(session: Session) -> None:
    columns = ["id", "thread_id", "size"]
    again = select(Message.id, Message.thread_id, Message.size).where(Message.id == 10)
    with renewing(session):
        session.execute(ignoring(session).from_select(columns, again))
    some = select(Message.id * 2 - 10, Message.thread_id, Message.size).where(
        Message.id.in_((10, 20))
    )
    with renewing(session, 2):
        session.execute(ignoring(session).from_select(columns, some))


@pytest.mark.every_server
def test_a_selected_row_that_is_ignored_for_a_default_renews_nothing(session: Session) -> None:
    columns, pinned = ["id", "thread_id"], select(Message.id, Message.thread_id)
    with renewing(session, 1):
        first = pinned.where(Message.id == 10)
        session.execute(ignoring(session, Pin).from_select(columns, first))
    with renewing(session):
        second = pinned.where(Message.id == 20)
        session.execute(ignoring(session, Pin).from_select(columns, second))


def test_sqlite_ignores_by_a_prefix_too(session: Session) -> None:
    if session.connection().dialect.name == "sqlite":
        prefixed = insert(Message).prefix_with("OR IGNORE")
        with renewing(session):
            session.execute(prefixed.values(id=10, thread_id=1))


def test_an_ignoring_insert_over_an_expired_key_renews(session: Session) -> None:
    session.execute(delete(Message).where(Message.thread_id == 2))
    session.add(Message(id=20, thread_id=2))
    session.commit()
    age(session.connection(), "threads", 2, 2 * HOUR)
    session.commit()
    with renewing(session, 1):
        session.execute(ignoring(session).values(id=20, thread_id=1))


def test_a_follower_of_a_follower_renews_the_thread(session: Session) -> None:
    with renewing(session, 1):
        session.add(Reaction(id=101, message_id=10))
    session.add(Reaction(id=102, message_id=11))  # less than a minute later
    stamp = session.get_one(Thread, 1).last_modified
    session.commit()
    assert session.get_one(Thread, 1).last_modified == stamp


def test_a_flush_renews_each_thread_once(session: Session) -> None:
    renewals = []

    def note(_c: Any, _cursor: Any, sql: str, *_: object) -> None:
        if sql.startswith("UPDATE threads"):
            renewals.append(sql)

    session.get_one(Message, 10).size = 1
    session.get_one(Message, 11).size = 2
    session.add_all([Message(id=14, thread_id=1), Message(id=15, thread_id=1, size=3)])
    event.listen(session.get_bind(), "before_cursor_execute", note)
    session.commit()
    event.remove(session.get_bind(), "before_cursor_execute", note)
    assert len(renewals) == 1


@pytest.mark.slow
@pytest.mark.databases("postgres", "mariadb", "mysql")
def test_many_may_write_under_one_thread_at_once(engine: Engine, session: Session) -> None:
    session.close()

    def work(number: int) -> None:
        with Session(engine) as other, other.begin():
            other.add(Message(id=1_000 + number, thread_id=1))
            other.flush()
            other.add(Reaction(id=1_000 + number, message_id=10))
            other.flush()
            other.execute(update(Message).where(Message.id == 10).values(size=number))

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(60)))
    assert session.scalar(select(func.count(Message.id)).where(Message.thread_id == 1)) == 62


def test_an_expired_thread_is_not_renewed(session: Session) -> None:
    age(session.connection(), "threads", 1, 2 * HOUR)
    session.add(Message(id=12, thread_id=1))
    with pytest.raises(ExpiredError):
        session.flush()
    session.rollback()
    age(session.connection(), "threads", 1, 2 * HOUR)
    session.commit()
    session.execute(update(Message).values(size=1))
    session.commit()
    assert session.get(Thread, 1) is None


def test_what_no_write_renews_cannot_be_renewed() -> None:
    class Other(DeclarativeBase):
        pass

    class Visit(Other):
        __tablename__ = "visits"
        __ttl__ = ExpireAt("ends")
        id: Mapped[int] = mapped_column(primary_key=True)
        ends: Mapped[datetime]

    class Page(Other):
        __tablename__ = "pages"
        __ttl__ = Follows("visit_id", renews=True)
        id: Mapped[int] = mapped_column(primary_key=True)
        visit_id: Mapped[int] = mapped_column(ForeignKey("visits.id"))

    try:
        with pytest.raises(TTLConfigurationError, match="no write renews rows of 'visits'"):
            configure_mappers()
    finally:
        Other.registry.dispose()
