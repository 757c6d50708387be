"""Writes by alias, of joins, inside CTEs, and with conditions that the ORM adds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import ForeignKey, delete, insert, select, update
from sqlalchemy.exc import CompileError
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    aliased,
    mapped_column,
    with_loader_criteria,
)

from tests.clocks import age
from ttl_odm.sqlalchemy import TTLMixin

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.exc import DBAPIError

HALF = 1800


class Base(DeclarativeBase):
    pass


class Shelf(Base):
    __tablename__ = "shelves"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    height: Mapped[int] = mapped_column(default=0)


class Book(TTLMixin, Base):
    __tablename__ = "books"
    __ttl__ = 3600

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    place: Mapped[int] = mapped_column(unique=True)
    shelf_id: Mapped[int] = mapped_column(ForeignKey("shelves.id"))
    kind: Mapped[int] = mapped_column(default=0)
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": 0}


class Atlas(Book):
    __tablename__ = "atlases"

    id: Mapped[int] = mapped_column(ForeignKey("books.id"), primary_key=True, autoincrement=False)
    maps: Mapped[int]
    __mapper_args__ = {"polymorphic_identity": 1}


BOOKS, ATLASES, SHELVES = Base.metadata.tables["books"], Atlas.__table__, Shelf.__table__


@pytest.fixture
def session(engine: Engine, made: Any, enforcing: None) -> Any:
    """Books 1 and 2 are on shelf 1, atlases 3 and 4 on shelf 2; the even ones have expired."""
    made(Base)
    with Session(engine) as session:
        session.add_all([Shelf(id=1), Shelf(id=2)])
        session.flush()
        session.add_all([Book(id=key, place=key, shelf_id=1) for key in (1, 2)])
        session.add_all([Atlas(id=key, place=key, shelf_id=2, maps=key) for key in (3, 4)])
        session.commit()
        for key in (1, 3):
            age(session.connection(), "books", key, HALF)
        for key in (2, 4):
            age(session.connection(), "books", key, 2 * 3600)
        session.commit()
        yield session


def were_stamped(session: Session) -> set[int]:
    """The books that were written since: they survive what the others don't."""
    for key in (1, 2, 3, 4):
        age(session.connection(), "books", key, HALF + 600)
    return set(session.scalars(select(BOOKS.c.id)))


@pytest.mark.parametrize("name", ["alias", "aliased class"])
def test_a_supplied_ts_is_not_stored_by_alias(session: Session, name: str) -> None:
    old = session.scalars(select(Book.last_modified).where(Book.id == 1)).one()
    book: Any = BOOKS.alias() if name == "alias" else aliased(Book)
    columns = book.c if name == "alias" else book
    stamp = columns["_ts"] if name == "alias" else columns.last_modified
    changed = update(book).where(columns.id == 1).values({stamp: old, columns.kind: 0})
    session.execute(changed, execution_options={"synchronize_session": False})
    assert were_stamped(session) == {1}


def test_an_alias_keeps_its_ts_where_that_is_asked_for(session: Session) -> None:
    book = BOOKS.alias()
    changed = update(book).where(book.c.id == 1).values(kind=0)
    session.connection().execute(changed, execution_options={"keep_last_modified": True})
    assert were_stamped(session) == set()


@pytest.mark.databases("mariadb", "mysql")
@pytest.mark.parametrize("form", ["join", "second table"])
def test_a_supplied_ts_is_not_stored_in_one_of_several_tables(session: Session, form: str) -> None:
    old = session.scalars(select(Book.last_modified).where(Book.id == 1)).one()
    beside = SHELVES.c.id == BOOKS.c.shelf_id
    statement = (
        update(SHELVES.join(BOOKS, beside)) if form == "join" else update(SHELVES).where(beside)
    )
    values = {BOOKS.c["_ts"]: old, BOOKS.c.kind: 0, SHELVES.c.height: 1}
    session.connection().execute(statement.values(values))
    assert were_stamped(session) == {1, 3}


@pytest.mark.databases("mariadb", "mysql")
def test_keys_in_several_tables_are_freed_by_what_they_become(session: Session) -> None:
    joined = SHELVES.join(BOOKS, (SHELVES.c.id == BOOKS.c.shelf_id) & (SHELVES.c.id == 1))
    session.connection().execute(update(joined).values({BOOKS.c.place: BOOKS.c.place + 1}))
    session.connection().execute(update(joined).values({BOOKS.c.place: 4}))
    assert session.execute(select(BOOKS.c.id, BOOKS.c.place)).all() == [(1, 4), (3, 3)]


@pytest.mark.databases("sqlite", "postgres")
@pytest.mark.parametrize("name", ["alias", "aliased class"])
def test_expired_rows_keep_nothing_from_a_delete_by_alias(session: Session, name: str) -> None:
    session.execute(delete(Book).where(Book.id == 1))
    shelf: Any = SHELVES.alias() if name == "alias" else aliased(Shelf)
    key = shelf.c.id if name == "alias" else shelf.id
    session.execute(delete(shelf).where(key == 1), execution_options={"synchronize_session": False})
    assert session.scalars(select(Shelf.id)).all() == [2]


@pytest.mark.databases("sqlite", "postgres")
def test_live_rows_keep_a_row_from_a_delete_by_alias(
    session: Session, violation: type[DBAPIError]
) -> None:
    shelf = SHELVES.alias()
    with pytest.raises(violation, match=r"(?i)foreign key constraint"):
        session.connection().execute(delete(shelf).where(shelf.c.id == 1))


@pytest.mark.databases("postgres")
def test_expired_rows_keep_nothing_from_a_delete_in_a_cte(session: Session) -> None:
    session.execute(delete(Book).where(Book.id == 1))
    gone = delete(SHELVES).where(SHELVES.c.id == 1).returning(SHELVES.c.id).cte()
    assert session.scalars(select(gone.c.id)).all() == [1]
    assert session.scalars(select(Shelf.id)).all() == [2]


@pytest.mark.databases("postgres", "mariadb", "mysql")
def test_expired_rows_keep_nothing_from_a_delete_by_another_table(session: Session) -> None:
    session.execute(delete(Book).where(Book.id == 1))
    other = SHELVES.alias()
    gone = delete(SHELVES).where(SHELVES.c.id == other.c.id - 1, other.c.id == 2)
    session.connection().execute(gone)
    assert session.scalars(select(Shelf.id)).all() == [2]


def test_loader_criteria_decide_whose_lives_are_prolonged(session: Session) -> None:
    session.add(Atlas(id=5, place=5, shelf_id=2, maps=5))
    session.flush()
    age(session.connection(), "books", 5, HALF)
    for maps in (3, 5, 3):  # by one statement in the cache
        ours = with_loader_criteria(Atlas, Atlas.maps == maps)
        with session.begin_nested() as savepoint:
            session.execute(update(Atlas).values(maps=Atlas.maps + 0).options(ours))
            assert were_stamped(session) - {5} == ({3} if maps == 3 else set())
            savepoint.rollback()


def removed(table: Any) -> Any:
    """A CTE that deletes."""
    return delete(table).where(table.c.id == 2).returning(table.c.id).cte("removed")


@pytest.mark.parametrize("place", ["subquery", "FROM", "SET"])
def test_a_joined_subclass_can_t_be_written_by_what_a_cte_writes(
    session: Session, place: str
) -> None:
    gone = removed(SHELVES)
    statement = {
        "subquery": update(ATLASES).where(ATLASES.c.id.in_(select(gone.c.id))).values(maps=1),
        "FROM": update(ATLASES).where(ATLASES.c.id == gone.c.id).values(maps=1),
        "SET": update(ATLASES).values(maps=select(gone.c.id).scalar_subquery()),
    }[place]
    with pytest.raises(
        CompileError, match=r"'atlases'.* _ts in 'books' \(Book\).* CTE that writes"
    ):
        session.connection().execute(statement)
    assert session.scalars(select(Shelf.id)).all() == [1, 2]


@pytest.mark.databases("mariadb", "mysql")
def test_a_joined_subclass_can_t_be_written_up_to_a_limit(session: Session) -> None:
    limited = update(ATLASES).values(maps=1).with_dialect_options(mysql_limit=1)
    with pytest.raises(CompileError, match=r"'atlases'.* a LIMIT"):
        session.connection().execute(limited)


@pytest.mark.databases("postgres")
def test_a_write_by_what_a_cte_writes_doesn_t_write_twice(session: Session) -> None:
    session.add(Shelf(id=9))
    session.flush()
    gone = delete(SHELVES).where(SHELVES.c.id == 9).returning(SHELVES.c.id).cte("gone")
    moved = update(BOOKS).where(BOOKS.c.id == gone.c.id - 8).values(place=BOOKS.c.place + 9)
    assert session.connection().execute(moved).rowcount == 1
    assert session.execute(select(BOOKS.c.id, BOOKS.c.place)).all() == [(3, 3), (1, 10)]


@pytest.mark.databases("postgres")
def test_an_insert_with_an_update_in_a_cte_frees_the_keys_of_both(session: Session) -> None:
    moved = update(BOOKS).where(BOOKS.c.id == 1).values(place=2).cte("moved")
    added = insert(BOOKS).values(id=4, place=4, shelf_id=1, kind=0).add_cte(moved)
    session.connection().execute(added)
    assert set(session.execute(select(BOOKS.c.id, BOOKS.c.place))) == {(1, 2), (3, 3), (4, 4)}
