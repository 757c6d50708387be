"""Keys that an UPDATE takes from expired rows, and expired rows that refer to others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    ForeignKey,
    String,
    UniqueConstraint,
    column,
    delete,
    event,
    func,
    insert,
    select,
    table,
    text,
    update,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    mapped_column,
    relationship,
)

from tests.clocks import age
from ttl_odm.sqlalchemy import TTLMixin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine


class Base(DeclarativeBase):
    pass


class Page(TTLMixin, Base):
    __tablename__ = "pages"
    __ttl__ = 3600
    __table_args__ = (UniqueConstraint("site", "slug"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    site: Mapped[int]
    slug: Mapped[str] = mapped_column(String(20))
    token: Mapped[str | None] = mapped_column(String(20), unique=True)


class Author(Base):
    __tablename__ = "authors"

    id: Mapped[int] = mapped_column(primary_key=True)
    drafts: Mapped[list[Draft]] = relationship(back_populates="author", cascade="all")


class Draft(TTLMixin, Base):
    __tablename__ = "drafts"
    __ttl__ = 3600

    id: Mapped[int] = mapped_column(primary_key=True)
    author_id: Mapped[int] = mapped_column(ForeignKey("authors.id"))
    author: Mapped[Author] = relationship(back_populates="drafts")


class Note(TTLMixin, Base):
    __tablename__ = "notes"
    __ttl__ = 3600

    id: Mapped[int] = mapped_column(primary_key=True)
    draft_id: Mapped[int] = mapped_column(ForeignKey("drafts.id"))


class Pin(Base):
    __tablename__ = "pins"

    id: Mapped[int] = mapped_column(primary_key=True)
    draft_id: Mapped[int] = mapped_column(ForeignKey("drafts.id"))


@pytest.fixture
def session(engine: Engine) -> Iterator[Session]:
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", lambda c, _: c.execute("PRAGMA foreign_keys = ON"))
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all(
            [
                Page(id=1, site=1, slug="live", token="live"),
                Page(id=2, site=1, slug="dead", token="dead"),
                Page(id=3, site=2, slug="dead"),
                Page(id=4, site=2, slug="other"),
            ]
        )
        session.commit()
        for key in (2, 3):
            age(session.connection(), "pages", key, 4000)
        session.commit()
        session.expunge_all()
        yield session


def stored(session: Session, table: str = "pages") -> list[int]:
    return list(session.scalars(text(f"SELECT id FROM {table} ORDER BY id")))  # noqa: S608


def test_a_flush_takes_a_unique_value_from_an_expired_row(session: Session) -> None:
    session.get_one(Page, 1).token = "dead"
    session.commit()
    assert stored(session) == [1, 3, 4]


def test_a_flush_takes_a_part_of_a_composite_key(session: Session) -> None:
    session.get_one(Page, 1).slug = "dead"
    session.commit()
    assert stored(session) == [1, 3, 4]  # page 3 has the slug on another site: not in the way


def test_a_flush_takes_the_primary_key(session: Session) -> None:
    session.get_one(Page, 1).id = 2
    session.commit()
    assert stored(session) == [2, 3, 4]
    assert session.get_one(Page, 2).slug == "live"


def test_several_objects_of_one_flush_take_keys(session: Session) -> None:
    session.get_one(Page, 1).slug = "dead"
    session.get_one(Page, 4).slug = "dead"
    session.commit()
    assert stored(session) == [1, 4]


@pytest.mark.parametrize("target", [Page, Page.__table__], ids=["ORM", "Core"])
def test_a_bulk_update_takes_keys(session: Session, target: Any) -> None:
    c = Page.__table__.c
    session.execute(update(target).where(c.id == 1).values(token="dead"))
    session.execute(update(target).where(c.id == 4).values(slug="dead"))
    session.commit()
    assert stored(session) == [1, 4]


def test_a_bulk_update_takes_a_computed_key(session: Session) -> None:
    statement = update(Page).where(Page.token == "live")
    session.execute(statement.values(token=func.replace(Page.token, "live", "dead")))
    session.commit()
    assert stored(session) == [1, 3, 4]


def test_a_bulk_update_by_primary_key_takes_keys(session: Session) -> None:
    session.execute(update(Page), [{"id": 1, "token": "dead"}, {"id": 4, "slug": "dead"}])
    session.commit()
    assert stored(session) == [1, 4]


def test_an_update_never_displaces_a_live_row(session: Session) -> None:
    page = session.get_one(Page, 4)
    page.token = "live"
    with pytest.raises(IntegrityError):
        session.flush()
    session.rollback()
    assert stored(session) == [1, 2, 3, 4]


def test_deleting_a_parent_is_not_held_up_by_an_expired_child(session: Session) -> None:
    author = Author(id=1, drafts=[Draft(id=1), Draft(id=2)])
    session.add(author)
    session.flush()
    session.add(Note(id=1, draft_id=2))
    session.commit()
    age(session.connection(), "drafts", 2, 4000)
    age(session.connection(), "notes", 1, 4000)
    session.commit()
    session.delete(session.get_one(Author, 1))
    session.commit()
    assert (stored(session, "authors"), stored(session, "drafts")) == ([], [])
    assert stored(session, "notes") == []


@pytest.mark.parametrize("target", [Author, Author.__table__], ids=["ORM", "Core"])
def test_a_bulk_delete_of_parents_is_not_held_up_either(session: Session, target: Any) -> None:
    session.add(Author(id=1, drafts=[Draft(id=1)]))
    session.commit()
    age(session.connection(), "drafts", 1, 4000)
    session.execute(delete(target).where(Author.__table__.c.id == 1))
    session.commit()
    assert stored(session, "drafts") == []


def test_a_lightweight_table_can_be_written_as_ever(session: Session) -> None:
    authors = table("authors", column("id"))
    session.execute(insert(authors).values(id=7))
    session.execute(update(authors).values(id=8))
    session.execute(delete(authors))
    assert stored(session, "authors") == []


def test_a_live_child_still_restricts(session: Session) -> None:
    session.add(Author(id=1, drafts=[Draft(id=1)]))
    session.commit()
    with pytest.raises(IntegrityError):
        session.execute(Author.__table__.delete())
    session.rollback()
    assert stored(session, "drafts") == [1]


def test_a_live_child_of_an_expired_row_explains_why_its_key_is_not_free(
    session: Session,
) -> None:
    session.add(Author(id=1, drafts=[Draft(id=1)]))
    session.flush()
    session.add(Pin(id=1, draft_id=1))
    session.commit()
    age(session.connection(), "drafts", 1, 4000)
    session.commit()
    session.expunge_all()
    session.add(Draft(id=1, author_id=1))
    with pytest.raises(IntegrityError, match=r"expired row of 'drafts' is in the way.*ON DELETE"):
        session.flush()
    session.rollback()
    assert stored(session, "drafts") == [1]


def test_an_insert_without_conflicts_costs_at_most_one_statement_more(session: Session) -> None:
    statements: list[str] = []

    @event.listens_for(session.get_bind(), "before_cursor_execute")
    def record(_c: Any, _cur: Any, statement: str, *_: Any) -> None:
        statements.append(statement)

    session.add_all([Page(id=10 + n, site=9, slug=str(n), token=str(n)) for n in range(8)])
    session.flush()
    assert len([s for s in statements if not s.startswith("INSERT")]) <= 1
    statements.clear()
    session.add_all([Author(id=5), Author(id=6)])
    session.flush()
    assert all(s.startswith("INSERT") for s in statements)  # no TTL, nothing more
    assert session.scalar(select(func.count()).select_from(Author)) == 2
