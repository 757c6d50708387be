"""Engines and caches: made before the import, of several dialects, pickled, filled too early."""

from __future__ import annotations

import pickle
import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import StaticPool, create_engine, func, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session

from tests.backends import fresh
from tests.clocks import age
from tests.leaks.models import Key, Text
from ttl_odm.sqlalchemy import TTLMixin

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Engine

HOUR = 3600


class Base(DeclarativeBase):
    """A base at module level, as pickle asks for."""


class Note(TTLMixin, Base):
    __tablename__ = "notes"
    __ttl__ = HOUR

    id: Mapped[Key]
    text: Mapped[Text]


def in_memory() -> Engine:
    return create_engine("sqlite://", poolclass=StaticPool)


def fill(engine: Engine) -> None:
    """One live and one expired note."""
    Base.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.add_all([Note(id=1, text="live"), Note(id=2, text="expired")])
        session.flush()
        age(session.connection(), "notes", 2, 2 * HOUR)


EARLY = """
from sqlalchemy import Column, Integer, MetaData, Table, create_engine, select, text
from sqlalchemy.pool import StaticPool

engine = create_engine("sqlite://", poolclass=StaticPool)
other = Table("other", MetaData(), Column("id", Integer))
connection = engine.connect()
other.metadata.create_all(connection)
connection.execute(select(other)).all()  # the dialect has compiled, the cache is in use
dialect_class = type(engine.dialect)

from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from ttl_odm.sqlalchemy import TTLMixin

class Base(DeclarativeBase):
    pass

class Note(TTLMixin, Base):
    __tablename__ = "notes"
    __ttl__ = 3600
    id: Mapped[int] = mapped_column(primary_key=True)

Base.metadata.create_all(connection)
with Session(connection) as session:
    session.add_all([Note(id=1), Note(id=2)])
    session.flush()
    session.execute(text("UPDATE notes SET _ts = _ts - 7200000 WHERE id = 2"))
    found = [note.id for note in session.scalars(select(Note))]
    core = session.connection().scalars(select(Note.__table__.c.id)).all()
connection.close()
engine.dispose()
print(found, core, dialect_class is type(engine.dialect))
"""


@pytest.mark.slow
def test_an_engine_that_was_used_before_the_import_sees_live_rows_only() -> None:
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", EARLY], capture_output=True, text=True, check=False
    )
    assert (run.stdout, run.stderr) == ("[1] [1] True\n", "")


def runs_on_all(backends: tuple[str, ...], folder: Path) -> None:
    """Run the same statement on an engine of each, forwards and backwards."""
    statement = select(Note.text)
    with ExitStack() as stack:
        engines = []
        for name in backends:
            backend = stack.enter_context(fresh(name, folder))
            engine = create_engine(str(backend.sync_url))
            stack.callback(engine.dispose)
            fill(engine)
            engines.append(engine)
        for engine in [*engines, *reversed(engines)]:
            with Session(engine) as session:
                assert session.scalars(statement).all() == ["live"]
                assert session.scalar(select(func.count()).select_from(Note)) == 1
                assert session.get(Note, 2) is None


@pytest.mark.slow
def test_one_statement_runs_on_engines_of_every_database(
    tmp_path: Path, postgres_url: str, mariadb_url: str
) -> None:
    runs_on_all(("sqlite", "postgres-psycopg", "mariadb-pymysql"), tmp_path)


def test_one_statement_runs_on_mariadb_and_on_mysql(
    tmp_path: Path, mariadb_url: str, mysql_url: str
) -> None:
    runs_on_all(("mariadb-pymysql", "mysql-pymysql"), tmp_path)


def test_metadata_with_ttl_tables_survives_pickling() -> None:
    copied: Any = pickle.loads(pickle.dumps(Base.metadata))  # noqa: S301 - our own
    notes = copied.tables["notes"]
    engine = in_memory()
    fill(engine)
    with engine.connect() as connection:
        assert connection.scalars(select(notes.c.text)).all() == ["live"]
    fresh_engine = in_memory()
    copied.create_all(fresh_engine)
    fresh_engine.dispose()
    engine.dispose()


def test_a_row_stays_hidden_in_an_object_that_was_pickled() -> None:
    engine = in_memory()
    fill(engine)
    with Session(engine) as session:
        pickled = pickle.dumps(session.get_one(Note, 1))
        age(session.connection(), "notes", 1, 2 * HOUR)
        session.commit()
    with Session(engine) as session:
        note: Any = pickle.loads(pickled)  # noqa: S301 - our own
        session.add(note)
        session.expire(note)
        assert session.get(Note, 1) is None
    engine.dispose()
