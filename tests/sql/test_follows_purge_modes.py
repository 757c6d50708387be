"""Parents that are archived, that a hook hears of, that the ORM deletes, that have partitions."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import DateTime, ForeignKey, event, insert, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

from tests.clocks import age
from tests.sql.cutting import log
from tests.sql.following import HOUR, stored
from ttl_odm import Follows
from ttl_odm.sqlalchemy import Archive, TTLMixin
from ttl_odm.sweeper import Hook, Purged, Sweeper

if TYPE_CHECKING:
    from sqlalchemy import Engine

ALIVE, DEAD = 1, 2


def families(heard: list[Purged] | None = None, **attributes: Any) -> Any:
    """A parent with such options, and what follows it and what follows that."""

    class Base(DeclarativeBase):
        pass

    class OldThread(Base):
        __tablename__ = "old_threads"

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

    class Thread(TTLMixin, Base):
        __tablename__ = "threads"
        __ttl__ = HOUR
        __ttl_purge__ = attributes.get("purge", "delete")
        __ttl_archive__ = Archive(lambda: OldThread) if attributes.get("archive") else None
        __ttl_on_purged__ = None if heard is None else Hook(heard.append, rows=True)

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        messages = relationship("Message", back_populates="thread", passive_deletes="all")

    class Message(Base):
        __tablename__ = "messages"
        __ttl__ = Follows("thread")

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        thread_id: Mapped[int] = mapped_column(ForeignKey("threads.id"), index=True)
        thread = relationship("Thread", back_populates="messages")

    class Mark(Base):
        __tablename__ = "marks"
        __ttl__ = Follows("message_id")

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        message_id: Mapped[int] = mapped_column(ForeignKey("messages.id"), index=True)

    Base.Thread, Base.Message, Base.Mark = Thread, Message, Mark
    return Base


def fill(engine: Engine, base: Any) -> None:
    base.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(insert(base.Thread), [{"id": ALIVE}, {"id": DEAD}])
        rows = [{"id": 10 * key + n, "thread_id": key} for key in (ALIVE, DEAD) for n in range(3)]
        connection.execute(insert(base.Message), rows)
        marks = [{"id": row["id"], "message_id": row["id"]} for row in rows]
        connection.execute(insert(base.Mark), marks)
        age(connection, "threads", DEAD, 2 * HOUR)


TREE = ("threads", "messages", "marks")


def removed(engine: Engine, base: Any, how: str) -> None:
    """Let the expired thread go, by a sweep or because another one takes its key."""
    if how == "sweep":
        report = Sweeper(engine, base, lease=False).run_once()
        assert report.outcome == "finished", report.problems
        assert stored(engine, *TREE) == [1, 3, 3]
    else:
        with Session(engine) as session, session.begin():
            session.add(base.Thread(id=DEAD))
        assert stored(engine, *TREE) == [2, 3, 3]


@pytest.fixture(params=["sweep", "displace"])
def how(request: pytest.FixtureRequest, enforcing: None) -> str:
    return str(request.param)


def test_an_archived_parent_takes_its_followers_along(engine: Engine, how: str) -> None:
    base = families(archive=True)
    fill(engine, base)
    removed(engine, base, how)
    assert stored(engine, "old_threads") == [1]


def test_a_hook_hears_of_the_parent(engine: Engine, how: str) -> None:
    heard: list[Purged] = []
    base = families(heard)
    fill(engine, base)
    removed(engine, base, how)
    assert [key for purged in heard for key in purged.keys] == [(DEAD,)]


def test_the_orm_deletes_the_parent_once_its_followers_are_gone(engine: Engine, how: str) -> None:
    base = families(purge="orm")
    fill(engine, base)
    gone: list[int] = []
    event.listen(base.Thread, "before_delete", lambda _, __, row: gone.append(row.id))
    removed(engine, base, how)
    assert gone == [DEAD]


@pytest.mark.databases("postgres")
def test_partitions_that_others_follow_go_row_by_row(engine: Engine) -> None:
    parent = log()

    class Note(parent.__base__):  # type: ignore[misc, name-defined]
        __tablename__ = "event_notes"
        __ttl__ = Follows(parent, on={"event_id": "id", "at": "created_at"})

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        event_id: Mapped[int] = mapped_column(index=True)
        at: Mapped[datetime] = mapped_column(DateTime(timezone=True))

    parent.metadata.create_all(engine)
    now = datetime.now(timezone.utc)
    long_ago = now - timedelta(days=5)
    with engine.begin() as connection:
        events = [{"id": 1, "created_at": now}, {"id": 2, "created_at": now}]
        connection.execute(insert(parent), events)
        notes = [{"id": n, "event_id": n, "at": now} for n in (1, 2)]
        connection.execute(insert(Note), notes)
        past = {"then": long_ago}
        connection.execute(text("UPDATE events SET created_at = :then WHERE id = 2"), past)
        connection.execute(text("UPDATE event_notes SET at = :then WHERE id = 2"), past)
    report = Sweeper(engine, parent.metadata, lease=False).run_once()
    assert report.outcome == "finished", report.problems
    assert stored(engine, "events", "event_notes") == [1, 1]
