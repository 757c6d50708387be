"""SQLite with a write-ahead log: a sweep between two statements of a write doesn't hurt the write.

There a reader keeps no writer out, so a sweeper may delete what a write has just seen in its way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    Column,
    ForeignKey,
    Integer,
    MetaData,
    Table,
    create_engine,
    event,
    insert,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from tests.sql.sweeping import HOUR, add
from ttl_odm.sqlalchemy import Archive, TTLMixin
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from tests.backends import Backend

pytestmark = pytest.mark.databases("sqlite")

kept = Table("wal_kept", MetaData(), Column("id", Integer))


class Base(DeclarativeBase):
    pass


class Plain(TTLMixin, Base):
    __tablename__ = "wal_plain"
    __ttl__ = HOUR

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class Archived(TTLMixin, Base):
    __tablename__ = "wal_archived"
    __ttl__ = HOUR
    __ttl_archive__ = Archive(kept)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class Told(TTLMixin, Base):
    __tablename__ = "wal_told"
    __ttl__ = HOUR
    __ttl_on_purged__ = staticmethod(lambda purged: purged.keys)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class Loaded(TTLMixin, Base):
    __tablename__ = "wal_loaded"
    __ttl__ = HOUR
    __ttl_purge__ = "orm"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class Parent(TTLMixin, Base):
    __tablename__ = "wal_parent"
    __ttl__ = HOUR
    __ttl_archive__ = Archive(kept)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class Child(TTLMixin, Base):
    __tablename__ = "wal_child"
    __ttl__ = HOUR
    __ttl_archive__ = Archive(kept)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    parent: Mapped[int | None] = mapped_column(ForeignKey(Parent.id), index=True)


def application(url: str, *, begins: bool) -> Engine:
    """An engine as applications have it: pysqlite begins late, or SQLAlchemy's recipe at once."""
    engine = create_engine(url, connect_args={"timeout": 600})
    event.listen(engine, "connect", lambda driver, _: driver.execute("PRAGMA synchronous = OFF"))
    if begins:

        def leave_it_to_us(dbapi_connection: Any, _: Any) -> None:
            dbapi_connection.isolation_level = None

        event.listen(engine, "connect", leave_it_to_us)
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    return engine


@pytest.mark.parametrize("begins", [False, True])
@pytest.mark.parametrize("model", [Plain, Archived, Told, Loaded, Parent])
def test_a_sweep_between_any_two_statements_of_a_write_does_not_hurt_it(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, model: Any, *, begins: bool
) -> None:
    monkeypatch.setattr("ttl_odm.sweeper.batch_gate.ATTEMPTS", 1)
    assert backend.sync_url is not None
    engine = application(backend.sync_url, begins=begins)
    other = create_engine(backend.sync_url, connect_args={"timeout": 0})
    event.listen(other, "connect", lambda driver, _: driver.execute("PRAGMA synchronous = OFF"))
    with other.connect() as connection:
        connection.execute(text("PRAGMA journal_mode = WAL"))
    kept.create(other)
    Base.metadata.create_all(other)
    sweeper = Sweeper(other, [model, Child], lease=False)
    place = statements = 0
    while place <= statements:
        with other.begin() as connection:
            add(connection, model.__tablename__, [(place, None, 2 * HOUR)])
            if model is Parent:
                add(connection, "wal_child", [(place, None, 2 * HOUR)])
                connection.execute(text(f"UPDATE wal_child SET parent = id WHERE id = {place}"))  # noqa: S608
        statements = 0

        def sweep(_c: Any, _cursor: Any, statement: str, *_: Any, at: int = place) -> None:
            nonlocal statements
            if statements == at and not statement.startswith("BEGIN"):
                for target in sweeper.run_once().targets:  # it doesn't get in, once we write
                    assert target.error is None or "locked" in str(target.error)
            statements += not statement.startswith("BEGIN")

        event.listen(engine, "before_cursor_execute", sweep)
        with engine.begin() as connection:
            connection.execute(insert(model), {"id": place})
        event.remove(engine, "before_cursor_execute", sweep)
        place += 1
    assert place > 1
    with engine.connect() as connection:
        assert connection.scalar(text(f"SELECT count(*) FROM {model.__tablename__}")) == place  # noqa: S608
        kept_ids = list(connection.scalars(text("SELECT id FROM wal_kept")))
        # Once each, whoever has removed them.
        assert len(kept_ids) == place * (model in (Archived, Parent)) * (1 + (model is Parent))
    engine.dispose()
    other.dispose()
