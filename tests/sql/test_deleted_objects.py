"""``session.delete()`` of an expired object raises, whatever else the flush deletes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import ForeignKey, Integer, String, func, select, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship
from sqlalchemy.orm.exc import StaleDataError

from tests.clocks import age
from ttl_odm.sqlalchemy import ExpiredError, TTLMixin, include_expired

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine


def declare() -> dict[str, Any]:
    """A versioned parent with a joined subclass, and children in two tables with a ttl."""

    class Base(DeclarativeBase):
        pass

    class Folder(TTLMixin, Base):
        __tablename__ = "folders"
        __ttl__ = 3600
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        kind: Mapped[str] = mapped_column(String(10))
        parent_id: Mapped[int | None] = mapped_column(ForeignKey("folders.id"))
        version: Mapped[int] = mapped_column()
        folders = relationship("Folder", cascade="all, delete-orphan")
        files = relationship("File", cascade="all, delete-orphan")
        __mapper_args__ = {
            "polymorphic_on": "kind",
            "polymorphic_identity": "folder",
            "version_id_col": version,
        }

    class Drive(Folder):
        __tablename__ = "drives"
        id: Mapped[int] = mapped_column(
            ForeignKey("folders.id"), primary_key=True, autoincrement=False
        )
        letter: Mapped[str | None] = mapped_column(String(1))
        __mapper_args__ = {"polymorphic_identity": "drive"}

    class File(TTLMixin, Base):
        __tablename__ = "files"
        __ttl__ = 3600
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        folder_id: Mapped[int | None] = mapped_column(
            Integer, ForeignKey("folders.id", ondelete="CASCADE")
        )

    Base.registry.configure()
    return {"Base": Base, "Folder": Folder, "Drive": Drive, "File": File}


class Models:
    """The classes as attributes."""

    def __init__(self) -> None:
        vars(self).update(declare())

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


@pytest.fixture
def m(engine: Engine) -> Models:
    models = Models()
    models.Base.metadata.create_all(engine)
    return models


@pytest.fixture
def session(engine: Engine, m: Models) -> Iterator[Session]:
    with Session(engine) as session:
        yield session


def count(session: Session, model: Any) -> int:
    statement = select(func.count()).select_from(model).options(include_expired())
    return session.scalar(statement) or 0


def expire(session: Session, key: int, table: str = "folders") -> None:
    age(session.connection(), table, key, 4000)
    session.commit()


@pytest.mark.parametrize("cls", ["Folder", "Drive"])
def test_with_live_children_of_another_table(session: Session, m: Models, cls: str) -> None:
    session.expire_on_commit = False
    parent = getattr(m, cls)(id=1, files=[m.File(id=1), m.File(id=2)])
    session.add(parent)
    session.commit()
    expire(session, 1)
    session.delete(parent)
    with pytest.raises(ExpiredError, match=rf"{cls} 1 can't be deleted"):
        session.commit()
    session.rollback()
    assert (count(session, m.Folder), count(session, m.File)) == (1, 2)


@pytest.mark.parametrize("cls", ["Folder", "Drive"])
def test_with_live_children_of_the_same_table(session: Session, m: Models, cls: str) -> None:
    session.expire_on_commit = False
    inner = m.Folder(id=3)
    parent = getattr(m, cls)(id=1, folders=[m.Folder(id=2, folders=[inner])])
    session.add(parent)
    session.commit()
    expire(session, 1)
    session.delete(parent)
    with pytest.raises(ExpiredError, match=rf"{cls} 1 can't be deleted"):
        session.commit()
    session.rollback()
    assert count(session, m.Folder) == 3


@pytest.mark.parametrize("table", ["folders", "files"])
def test_beside_a_live_object_of_another_table(session: Session, m: Models, table: str) -> None:
    session.expire_on_commit = False
    objects = {"folders": m.Folder(id=1), "files": m.File(id=1)}
    session.add_all(objects.values())
    session.commit()
    expire(session, 1, table)
    for row in objects.values():
        session.delete(row)
    with pytest.raises(ExpiredError, match=f"{type(objects[table]).__name__} 1 can't be deleted"):
        session.flush()
    session.rollback()
    assert (count(session, m.Folder), count(session, m.File)) == (1, 1)


def test_a_row_that_another_has_changed_since_it_was_loaded_stays(
    session: Session, m: Models
) -> None:
    session.add(m.Folder(id=1))
    session.commit()
    folder = session.get_one(m.Folder, 1)
    session.execute(text("UPDATE folders SET version = version + 1"))
    session.delete(folder)
    with pytest.raises(StaleDataError):
        session.flush()


def test_in_a_savepoint(session: Session, m: Models) -> None:
    session.expire_on_commit = False
    parent = m.Folder(id=1, files=[m.File(id=1)])
    session.add(parent)
    session.commit()
    expire(session, 1)
    savepoint = session.begin_nested()
    session.delete(parent)
    with pytest.raises(ExpiredError):
        session.flush()
    savepoint.rollback()
    assert count(session, m.File) == 1


def test_expired_children_go_with_a_live_parent_in_silence(session: Session, m: Models) -> None:
    session.expire_on_commit = False
    parent = m.Folder(id=1, files=[m.File(id=1), m.File(id=2)], folders=[m.Folder(id=2)])
    session.add(parent)
    session.commit()
    expire(session, 2)
    expire(session, 2, "files")
    session.delete(parent)
    session.commit()
    assert session.scalars(select(m.Folder)).all() == session.scalars(select(m.File)).all() == []


# On SQLite the connections would wait for each other.
@pytest.mark.databases("postgres", "mariadb", "mysql")
def test_on_two_databases_at_once(engine: Engine, m: Models) -> None:
    other = engine.execution_options()
    with Session(binds={m.Folder: engine, m.File: other}, expire_on_commit=False) as session:
        folder, file = m.Folder(id=1), m.File(id=1)
        session.add_all([folder, file])
        session.commit()
        with engine.begin() as connection:
            age(connection, "folders", 1, 4000)
        session.delete(file)
        session.delete(folder)
        with pytest.raises(ExpiredError, match="Folder 1 can't be deleted"):
            session.commit()
        session.rollback()
    with Session(engine) as session:
        assert (count(session, m.Folder), count(session, m.File)) == (1, 1)
