"""Keys that an UPDATE takes from expired rows, and expired rows that refer to others."""

from __future__ import annotations

import enum
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from sqlalchemy import (
    Column,
    DateTime,
    Enum,
    ForeignKey,
    Integer,
    MetaData,
    String,
    Table,
    UniqueConstraint,
    bindparam,
    column,
    delete,
    event,
    exists,
    func,
    insert,
    literal,
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
from tests.sql.statements import beside_inserts
from ttl_odm import ExpireAt
from ttl_odm.sqlalchemy import Archive, TTLMixin, enable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine
    from sqlalchemy.exc import DBAPIError

    from ttl_odm.sweeper import Purged


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


class Comment(TTLMixin, Base):
    """Rows that refer to rows of the same table."""

    __tablename__ = "comments"
    __ttl__ = 3600

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    parent_id: Mapped[int | None] = mapped_column(ForeignKey("comments.id"))
    first_id: Mapped[int | None] = mapped_column(ForeignKey("comments.id"))
    note: Mapped[str | None] = mapped_column(String(20))


class Mention(TTLMixin, Base):
    __tablename__ = "mentions"
    __ttl__ = 3600

    id: Mapped[int] = mapped_column(primary_key=True)
    comment_id: Mapped[int] = mapped_column(ForeignKey("comments.id"))


class Account(TTLMixin, Base):
    __tablename__ = "accounts"
    __ttl__ = 3600
    __mapper_args__: ClassVar[Any] = {"polymorphic_on": "kind", "polymorphic_identity": "any"}

    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(String(20))


class Person(Account):
    """A unique value in the table of a joined subclass."""

    __tablename__ = "people"
    __mapper_args__: ClassVar[Any] = {"polymorphic_identity": "person"}

    id: Mapped[int] = mapped_column(ForeignKey("accounts.id"), primary_key=True)
    email: Mapped[str | None] = mapped_column(String(20), unique=True)


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


PAST = datetime(2000, 1, 1)  # noqa: DTZ001 (the column has no time zone)


class Grade(enum.Enum):
    LOW = 1
    HIGH = 2


@pytest.mark.every_server
@pytest.mark.parametrize(
    ("type_", "old", "new"),
    [(Enum(Grade), Grade.LOW, Grade.HIGH), (String(8), "a", "b")],
    ids=["enumeration", "text"],
)
def test_an_update_sets_a_part_of_a_key_that_drivers_send_without_its_type(
    engine: Engine, type_: Any, old: Any, new: Any
) -> None:
    rows = Table(
        "typed_parts",
        MetaData(),
        Column("id", Integer, primary_key=True),
        Column("part", type_),
        Column("number", Integer),
        Column("end", DateTime),
        UniqueConstraint("part", "number"),
    )
    enable(rows, ExpireAt("end"))
    rows.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(
            insert(rows),
            [
                {"id": 1, "part": old, "number": 1, "end": None},
                {"id": 2, "part": new, "number": 1, "end": PAST},
                {"id": 3, "part": new, "number": 2, "end": PAST},
            ],
        )
        connection.execute(update(rows).where(rows.c.part == old).values(part=new))
        assert list(connection.scalars(text("SELECT id FROM typed_parts ORDER BY id"))) == [1, 3]


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


def test_a_live_child_still_restricts(session: Session, violation: type[DBAPIError]) -> None:
    session.add(Author(id=1, drafts=[Draft(id=1)]))
    session.commit()
    with pytest.raises(violation, match=r"(?i)foreign key constraint"):
        session.execute(Author.__table__.delete())
    session.rollback()
    assert stored(session, "drafts") == [1]


@pytest.mark.every_driver
def test_a_live_child_of_an_expired_row_explains_why_its_key_is_not_free(
    session: Session, violation: type[DBAPIError]
) -> None:
    session.add(Author(id=1, drafts=[Draft(id=1)]))
    session.flush()
    session.add(Pin(id=1, draft_id=1))
    session.commit()
    age(session.connection(), "drafts", 1, 4000)
    session.commit()
    session.expunge_all()
    session.add(Draft(id=1, author_id=1))
    with pytest.raises(violation, match=r"expired row of 'drafts' blocks this.*ON DELETE"):
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
    assert beside_inserts(statements) == []
    statements.clear()
    session.add_all([Author(id=5), Author(id=6)])
    session.flush()
    assert all(s.startswith("INSERT") for s in statements)  # no TTL, nothing more
    assert session.scalar(select(func.count()).select_from(Author)) == 2


def expire(session: Session, table: str, *keys: int) -> None:
    session.flush()
    for key in keys:
        age(session.connection(), table, key, 4000)
    session.commit()
    session.expunge_all()


def add_thread(session: Session, length: int, **last: Any) -> None:
    """Comments that answer each other, the last one first in the way."""
    for number in range(1, length + 1):
        values = last if number == length else {}
        session.add(Comment(id=number, parent_id=number - 1 or None, **values))
        session.flush()


@pytest.mark.parametrize("length", [1, 2, 5, 30])
def test_expired_rows_that_refer_to_each_other_make_room(session: Session, length: int) -> None:
    add_thread(session, length)
    session.add(Mention(id=1, comment_id=length))
    session.flush()
    expire(session, "mentions", 1)
    expire(session, "comments", *range(1, length + 1))
    session.add(Comment(id=1, note="new"))
    session.commit()
    assert (stored(session, "comments"), stored(session, "mentions")) == ([1], [])
    assert session.get_one(Comment, 1).note == "new"


def test_a_live_row_at_the_end_of_them_holds_all(
    session: Session, violation: type[DBAPIError]
) -> None:
    add_thread(session, 5)
    expire(session, "comments", 1, 2, 3, 4)
    session.add(Comment(id=1))
    with pytest.raises(violation, match=r"expired row of 'comments' blocks this statement"):
        session.commit()
    session.rollback()
    assert stored(session, "comments") == [1, 2, 3, 4, 5]


def test_a_row_that_refers_to_several_of_them_goes_before_all(session: Session) -> None:
    add_thread(session, 4, first_id=1)
    session.add(Comment(id=9, parent_id=1, first_id=4))
    expire(session, "comments", 1, 2, 3, 4, 9)
    session.add(Comment(id=1))
    session.commit()
    assert stored(session, "comments") == [1]


def add_circle(session: Session) -> None:
    session.add(Comment(id=1, parent_id=1))
    session.flush()
    session.add(Comment(id=2, parent_id=1, first_id=2))
    expire(session, "comments", 1, 2)


def test_a_row_that_refers_to_itself_makes_room(session: Session) -> None:
    add_circle(session)
    session.add(Comment(id=1))
    session.commit()
    assert stored(session, "comments") == [1]


@pytest.mark.slow
def test_many_rows_with_referring_rows_make_room_at_once(session: Session) -> None:
    numbers = range(1, 451)
    session.add_all([Comment(id=number) for number in numbers])
    session.flush()
    session.add_all([Mention(id=number, comment_id=number) for number in numbers])
    session.flush()
    expire(session, "mentions", *numbers)
    expire(session, "comments", *numbers)
    session.add_all([Comment(id=number) for number in numbers])
    session.commit()
    assert (len(stored(session, "comments")), stored(session, "mentions")) == (450, [])


def test_deleting_a_parent_is_not_held_up_by_a_thread_of_expired_children(
    session: Session,
) -> None:
    add_thread(session, 5)
    expire(session, "comments", 2, 3, 4, 5)
    session.delete(session.get_one(Comment, 1))
    session.commit()
    assert stored(session, "comments") == []


def add_people(session: Session) -> None:
    session.add_all([Person(id=1, email="dead"), Person(id=2, email="live")])
    expire(session, "accounts", 1)


def test_a_unique_value_in_the_table_of_a_subclass_is_free_too(session: Session) -> None:
    add_people(session)
    session.add(Person(id=3, email="dead"))
    session.commit()
    assert (stored(session, "accounts"), stored(session, "people")) == ([2, 3], [2, 3])


def test_an_update_takes_a_unique_value_in_the_table_of_a_subclass(session: Session) -> None:
    add_people(session)
    session.get_one(Person, 2).email = "dead"
    session.commit()
    assert (stored(session, "accounts"), stored(session, "people")) == ([2], [2])


def test_a_live_row_keeps_its_unique_value_in_the_table_of_a_subclass(session: Session) -> None:
    add_people(session)
    session.add(Person(id=3, email="live"))
    with pytest.raises(IntegrityError):
        session.commit()
    session.rollback()
    assert stored(session, "people") == [1, 2]


@pytest.fixture
def told() -> Iterator[list[Purged]]:
    told: list[Purged] = []
    Page.__ttl_on_purged__ = told.append
    yield told
    del Page.__ttl_on_purged__


@pytest.mark.parametrize("warm", [False, True])
def test_the_hook_of_a_model_is_told_what_was_displaced(
    session: Session, told: list[Purged], *, warm: bool
) -> None:
    if warm:  # the statement has run before there was a hook
        hook = Page.__ttl_on_purged__
        del Page.__ttl_on_purged__
        session.add(Page(id=9, site=9, slug="x", token="x"))
        session.flush()
        Page.__ttl_on_purged__ = hook
    session.add(Page(id=2, site=2, slug="dead", token="new"))
    session.flush()
    assert {purged.reason for purged in told} == {"displaced"}
    assert sorted(key for purged in told for key in purged.keys) == [(2,), (3,)]
    session.add(Page(id=8, site=8, slug="y", token="y"))
    session.commit()
    assert sum(purged.count for purged in told) == 2


def test_what_is_displaced_is_archived(engine: Engine) -> None:
    class Own(DeclarativeBase):
        pass

    class OldVisit(Own):
        __tablename__ = "old_visits"

        id: Mapped[int] = mapped_column(primary_key=True)
        who: Mapped[str | None] = mapped_column(String(20))

    class Visit(TTLMixin, Own):
        __tablename__ = "visits"
        __ttl__ = 3600
        __ttl_archive__ = Archive(OldVisit)

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        who: Mapped[str | None] = mapped_column(String(20))

    Own.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([Visit(id=1, who="old"), Visit(id=2, who="live")])
        expire(session, "visits", 1)
        session.add(Visit(id=1, who="new"))
        session.commit()
        assert [(old.id, old.who) for old in session.scalars(select(OldVisit))] == [(1, "old")]
        assert session.get_one(Visit, 1).who == "new"


@pytest.mark.databases("postgres")
@pytest.mark.parametrize("target", [Page, Page.__table__], ids=["ORM", "Core"])
@pytest.mark.parametrize("kind", ["values", "multi", "parameters", "select"])
def test_an_insert_inside_a_cte_takes_keys(session: Session, target: Any, kind: str) -> None:
    row = {"id": 2, "site": 7, "slug": "new"}
    statement, parameters = insert(target), {}
    if kind == "values":
        statement = statement.values(row)
    elif kind == "multi":
        statement = statement.values([row, {"id": 3, "site": 8, "slug": "new"}])
    elif kind == "parameters":
        statement = statement.values({**row, "id": bindparam("number")})
        parameters = {"number": 2}
    else:
        statement = statement.from_select(list(row), select(*map(literal, row.values())))
    added = statement.returning(Page.__table__.c.id).cte("added")
    found = session.scalars(select(added.c.id), parameters).all()
    session.commit()
    assert 2 in found
    assert session.get_one(Page, 2).site == 7


@pytest.mark.databases("postgres")
def test_what_an_insert_moves_from_elsewhere_is_moved_once(session: Session) -> None:
    """Its source deletes, so it can't be asked beforehand what keys there will be."""
    pages = Page.__table__
    moved = pages.delete().where(pages.c.id == 1).returning(pages.c.site, pages.c.slug).cte("moved")
    source = select(literal(10), moved.c.site, moved.c.slug)
    session.execute(insert(pages).from_select(["id", "site", "slug"], source))
    session.commit()
    assert stored(session) == [2, 3, 4, 10]


@pytest.mark.databases("postgres")
def test_rows_that_a_cte_names_are_written_once(session: Session) -> None:
    pages = Page.__table__
    session.add(Author(id=5))
    session.flush()
    gone = pages.delete().where(pages.c.id == 4).returning(pages.c.id).cte("gone")
    other = pages.update().where(pages.c.id == 1, exists(select(gone.c.id)))
    session.execute(other.values(slug=pages.c.slug + "!"))
    named = pages.delete().where(pages.c.id == 1).returning(pages.c.id + 4).cte("named")
    session.execute(delete(Author).where(Author.id.in_(select(named))))
    session.commit()
    assert (stored(session), stored(session, "authors")) == ([2, 3], [])
