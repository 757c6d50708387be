"""Expired rows that refer to themselves, or to one another in a ring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    String,
    delete,
    event,
    insert,
    select,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

from tests.sql.sweeping import HOUR, add, left
from ttl_odm.sqlalchemy import Archive, TTLMixin, include_expired
from ttl_odm.sqlalchemy.purge.statements import is_one_of
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper import Hook, Purged, Skip, Sweeper

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine
    from sqlalchemy.exc import DBAPIError

pytestmark = pytest.mark.usefixtures("enforcing")


@dataclass(frozen=True)
class Shape:
    """Rows and what each refers to; what stays of them, and how many count as restricted."""

    refers: dict[int, int | None]
    live: frozenset[int] = frozenset()
    stays: frozenset[int] = frozenset()

    @property
    def restricted(self) -> int:
        return len(self.stays - self.live)


def ring(size: int) -> dict[int, int | None]:
    return {number: number % size + 1 for number in range(1, size + 1)}


SHAPES = {
    "a row and itself": Shape({1: 1, 2: 2, 3: None}),
    "two": Shape(ring(2)),
    "three": Shape(ring(3)),
    "more than a batch": Shape(ring(11)),
    "a ring with a tail and a head": Shape({**ring(3), 4: 1, 5: 4, 3: 6, 6: None, 7: 7, 8: 7}),
    "two rings": Shape({1: 2, 2: 1, 3: 4, 4: 3, 5: 5, 6: 1, 7: 6}),
    "a chain that is longer than a batch": Shape(
        {number: number - 1 or None for number in range(1, 14)}
    ),
    "a live member": Shape(ring(3), frozenset({2}), frozenset({1, 2, 3})),
    "a live row that refers to a member": Shape(
        {**ring(3), 4: 2, 5: 5}, frozenset({4}), frozenset({1, 2, 3, 4})
    ),
    "a live row that refers to one that refers to itself": Shape(
        {1: 1, 2: 1, 3: 3}, frozenset({2}), frozenset({1, 2})
    ),
    "a live row far behind": Shape(
        {**ring(2), 3: 1, 4: 3, 5: 4, 6: 3}, frozenset({5}), frozenset({1, 2, 3, 4, 5})
    ),
}


def posts(mode: str, heard: list[Purged]) -> Any:
    class Base(DeclarativeBase):
        pass

    class Post(TTLMixin, Base):
        __tablename__ = "ring_posts"
        __ttl__ = HOUR
        __ttl_purge__ = "orm" if "orm" in mode else "delete"
        __ttl_archive__ = Archive(lambda: OldPost) if "archive" in mode else None
        __ttl_on_purged__ = Hook(heard.append, rows=True) if "hook" in mode else None

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        answers: Mapped[int | None] = mapped_column(
            ForeignKey("ring_posts.id", ondelete="CASCADE" if "cascade" in mode else None),
            index=True,
        )

        if "relationship" in mode:
            answered: Mapped[Any] = relationship("Post", remote_side=[id])  # noqa: A003 (the column)

    class OldPost(Base):
        __tablename__ = "old_ring_posts"

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        answers: Mapped[int | None]

    return Post, OldPost


MODES = ["delete", "archive", "hook", "archive, hook", "orm", "orm, hook", "orm, relationship"]
MODES += ["cascade, archive", "cascade, hook", "cascade, orm, hook"]


def write(connection: Connection, shape: Shape) -> None:
    add(
        connection,
        "ring_posts",
        [(key, -1 if key in shape.live else None, 3 * HOUR - key) for key in shape.refers],
    )
    refer(connection, "ring_posts", shape.refers)


def refer(connection: Connection, table: str, refers: dict[int, int | None]) -> None:
    statement = text(f"UPDATE {table} SET answers = :to WHERE id = :id")  # noqa: S608
    connection.execute(statement, [{"id": key, "to": to} for key, to in refers.items()])


def references(connection: Connection, table: str) -> dict[int, int | None]:
    rows = connection.execute(text(f"SELECT id, answers FROM {table}"))  # noqa: S608
    return {row.id: row.answers for row in rows}


@pytest.mark.in_turns
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mode", MODES)
def test_rows_that_keep_only_one_another_go(
    engine: Engine, made: Any, mode: str, shape: str
) -> None:
    heard: list[Purged] = []
    rows = SHAPES[shape]
    post, _ = posts(mode, heard)
    made(post)
    with engine.begin() as connection:
        write(connection, rows)
    report = Sweeper(engine, post, batch_size=4).run_once()
    report.raise_for_failures()
    gone = {key: to for key, to in rows.refers.items() if key not in rows.stays}
    with engine.connect() as connection:
        assert references(connection, "ring_posts") == {key: rows.refers[key] for key in rows.stays}
        if "archive" in mode:
            assert references(connection, "old_ring_posts") == gone
    assert report.deleted == len(gone)
    assert report.targets[0].skips.get(Skip.RESTRICTED, 0) == rows.restricted
    if "hook" in mode:
        told = [row for purged in heard for row in purged.rows or ()]
        assert len(told) == len(gone)
        assert {row["id"]: row["answers"] for row in told} == gone


@pytest.mark.in_turns
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", ["a row and itself", "two", "more than a batch"])
def test_keys_of_rows_that_keep_only_one_another_are_free(
    engine: Engine, made: Any, mode: str, shape: str
) -> None:
    heard: list[Purged] = []
    rows = SHAPES[shape]
    post, _ = posts(mode, heard)
    made(post)
    with engine.begin() as connection:
        write(connection, rows)
    with Session(engine) as session:
        session.execute(insert(post).values(id=1))
        session.commit()
        session.add(post(id=2))
        session.commit()
        assert left(session.connection(), post) >= {1, 2}


@pytest.mark.slow
@pytest.mark.databases("sqlite")
@pytest.mark.parametrize("mode", ["cascade, archive", "cascade, hook", "cascade, orm, hook"])
@pytest.mark.parametrize("shape", ["ring", "chain"])
def test_each_row_below_costs_as_many_statements_as_the_one_above(
    engine: Engine, made: Any, mode: str, shape: str
) -> None:
    post, archived = posts(mode, [])
    made(post)
    statements: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    costs = []
    for size in (1, 5, 10, 15):  # the first statement also asks what the database is like
        rows = ring(size) if shape == "ring" else {row: row - 1 or None for row in ring(size)}
        with engine.begin() as connection:
            connection.execute(delete(post).options(include_expired()))
            connection.execute(delete(archived))
            write(connection, Shape(rows))
        before = len(statements)
        with engine.begin() as connection:
            connection.execute(insert(post).values(id=1))
        costs.append(len(statements) - before)
    assert costs[3] - costs[2] == costs[2] - costs[1]


def tied(table: str, *, ondelete: str | None = None, nullable: bool = True) -> Any:
    class Base(DeclarativeBase):
        pass

    class Tied(TTLMixin, Base):
        __tablename__ = table
        __ttl__ = HOUR

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        answers: Mapped[int | None] = mapped_column(
            ForeignKey(f"{table}.id", ondelete=ondelete, deferrable=True, initially="DEFERRED"),
            index=True,
            nullable=nullable,
        )

    return Tied


ROWS = {**ring(3), 4: 4, 5: 1, 6: 5}


@pytest.mark.parametrize("ondelete", ["RESTRICT", "CASCADE", "SET NULL"])
@pytest.mark.parametrize("batch_size", [2, 100])
def test_whatever_the_foreign_key_says_of_deletions_rings_go(
    engine: Engine, made: Any, ondelete: str, batch_size: int
) -> None:
    class Base(DeclarativeBase):
        pass

    class Post(TTLMixin, Base):
        __tablename__ = "ring_posts"
        __ttl__ = HOUR

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        answers: Mapped[int | None] = mapped_column(
            ForeignKey("ring_posts.id", ondelete=ondelete), index=True
        )

    made(Post)
    with engine.begin() as connection:
        write(connection, Shape(ROWS))
    Sweeper(engine, Post, batch_size=batch_size).run_once().raise_for_failures()
    with engine.connect() as connection:
        assert left(connection, Post) == set()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["delete", "orm"])
@pytest.mark.parametrize("seconds_apart", [0, 1])
def test_rings_by_a_column_that_cannot_be_null_go_where_deletes_are_checked_at_their_end(
    engine: Engine, made: Any, seconds_apart: int, mode: str
) -> None:
    model = tied("never_null_posts", nullable=False)
    model.__ttl_purge__ = mode
    if engine.dialect.name == "mysql":
        key = next(iter(model.__table__.c.answers.foreign_keys)).constraint
        key.deferrable = key.initially = None
    made(model)
    clock = clock_of(engine.dialect)
    with engine.begin() as connection:
        if engine.dialect.name == "mysql":
            connection.exec_driver_sql("SET foreign_key_checks = 0")
        for key, to in ROWS.items():
            past = f"{clock.now} - {2 * HOUR - key * seconds_apart} * {clock.second}"
            values = f"({key}, {to}, {past})"
            connection.execute(
                text(f"INSERT INTO never_null_posts (id, answers, _ts) VALUES {values}")  # noqa: S608
            )
        if engine.dialect.name == "mysql":
            connection.exec_driver_sql("SET foreign_key_checks = 1")
    sweeper = Sweeper(engine, model, batch_size=4)
    while (report := sweeper.run_once()).deleted:
        report.raise_for_failures()
    report.raise_for_failures()
    stays = {1, 2, 3, 4} if engine.dialect.name == "mysql" else set()
    with engine.connect() as connection:
        assert left(connection, model) == stays
    assert report.targets[0].skips.get(Skip.RESTRICTED, 0) == len(stays)


def books(mode: str) -> Any:
    class Base(DeclarativeBase):
        pass

    class Author(TTLMixin, Base):
        __tablename__ = "ring_authors"
        __ttl__ = HOUR
        __ttl_purge__ = "orm" if mode == "orm" else "delete"
        __ttl_archive__ = Archive(lambda: OldAuthor) if mode == "archive" else None

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        best: Mapped[int | None] = mapped_column(
            ForeignKey("ring_books.id", name="author_best", use_alter=True), index=True
        )

    class Book(TTLMixin, Base):
        __tablename__ = "ring_books"
        __ttl__ = HOUR
        __ttl_purge__ = "orm" if mode == "orm" else "delete"
        __ttl_archive__ = Archive(lambda: OldBook) if mode == "archive" else None

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        author: Mapped[int | None] = mapped_column(ForeignKey(Author.id), index=True)

    class OldAuthor(Base):
        __tablename__ = "old_ring_authors"

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        best: Mapped[int | None]

    class OldBook(Base):
        __tablename__ = "old_ring_books"

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        author: Mapped[int | None]

    return Author, Book, OldAuthor, OldBook


def write_books(connection: Connection, live: set[int] = frozenset()) -> None:  # type: ignore[assignment]
    """Authors 1 to 6; 1 to 5 have each a book of that number and one of ten times it."""
    add(connection, "ring_authors", [(key, None, 2 * HOUR + key) for key in range(1, 7)])
    keys = [*range(1, 6), *range(10, 60, 10)]
    add(
        connection,
        "ring_books",
        [(key, -1 if key in live else None, 2 * HOUR + key) for key in keys],
    )
    number = "CASE WHEN id < 10 THEN id ELSE id / 10 END"
    connection.execute(text(f"UPDATE ring_books SET author = {number}"))  # noqa: S608
    connection.execute(text("UPDATE ring_authors SET best = id WHERE id < 6"))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["delete", "archive", "orm"])
@pytest.mark.parametrize("batch_size", [2, 100])
def test_rings_over_several_tables_go(
    engine: Engine, made: Any, mode: str, batch_size: int
) -> None:
    author, book, old_author, old_book = books(mode)
    made(author)
    with engine.begin() as connection:
        write_books(connection)
    report = Sweeper(engine, author.registry, batch_size=batch_size).run_once()
    report.raise_for_failures()
    assert report.deleted == 16
    with engine.connect() as connection:
        assert left(connection, author) == left(connection, book) == set()
        if mode == "archive":
            assert connection.execute(
                select(old_author.id, old_author.best).order_by(old_author.id)
            ).all() == [(number, number if number < 6 else None) for number in range(1, 7)]
            assert len(connection.execute(select(old_book).where(old_book.author > 0)).all()) == 10


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["delete", "archive", "orm"])
def test_a_live_row_keeps_a_ring_over_several_tables(engine: Engine, made: Any, mode: str) -> None:
    author, book, _, _ = books(mode)
    made(author)
    with engine.begin() as connection:
        write_books(connection, {20, 3})
    report = Sweeper(engine, author.registry, batch_size=4).run_once()
    report.raise_for_failures()
    with engine.connect() as connection:
        assert left(connection, author) == {2, 3}
        assert left(connection, book) == {2, 3, 20}
    skips = {target.table: dict(target.skips) for target in report.targets}
    assert skips == {
        "ring_authors": {Skip.RESTRICTED: 2},
        "ring_books": {Skip.RESTRICTED: 1},
    }


@pytest.mark.parametrize("mode", ["delete", "archive", "orm"])
def test_keys_of_rings_over_several_tables_are_free(
    engine: Engine, made: Any, mode: str, violation: type[DBAPIError]
) -> None:
    author, book, _, _ = books(mode)
    made(author)
    with engine.begin() as connection:
        write_books(connection, {20})
        connection.execute(insert(author).values(id=1))
        connection.execute(insert(book).values(id=5))
    with engine.connect() as connection:
        assert left(connection, author) == {1, 2, 3, 4, 6}
        assert left(connection, book) == {2, 3, 4, 5, 20, 30, 40}
    with engine.connect() as connection, pytest.raises(violation, match="blocks this statement"):
        connection.execute(insert(author).values(id=2))


@pytest.mark.slow
def test_rings_of_composite_keys_go(engine: Engine, made: Any) -> None:
    class Base(DeclarativeBase):
        pass

    class Task(TTLMixin, Base):
        __tablename__ = "ring_tasks"
        __ttl__ = HOUR

        tenant: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        next: Mapped[int | None]

        __table_args__ = (
            ForeignKeyConstraint(["tenant", "next"], ["ring_tasks.tenant", "ring_tasks.id"]),
            Index("ring_tasks_next", "tenant", "next"),
        )

    made(Task)
    clock = clock_of(engine.dialect)
    with engine.begin() as connection:
        past = f"{clock.now} - {2 * HOUR} * {clock.second}"
        names = "ring_tasks (tenant, id, ttl, _ts)"
        statement = text(f"INSERT INTO {names} VALUES (:tenant, :id, :ttl, {past})")  # noqa: S608
        rows = [
            {"tenant": tenant, "id": key, "ttl": -1 if (tenant, key) == (2, 3) else None}
            for tenant in (1, 2)
            for key in range(1, 6)
        ]
        connection.execute(statement, rows)
        connection.exec_driver_sql(
            "UPDATE ring_tasks SET next = CASE WHEN id = 5 THEN 1 ELSE id + 1 END"
        )
    report = Sweeper(engine, Task, batch_size=3).run_once()
    report.raise_for_failures()
    assert (report.deleted, dict(report.targets[0].skips)) == (5, {Skip.RESTRICTED: 4})
    with Session(engine) as session:
        session.execute(text("UPDATE ring_tasks SET ttl = NULL"))
        session.execute(insert(Task).values(tenant=2, id=4))
        assert session.scalars(select(Task.id).options(include_expired())).all() == [4]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["delete", "orm"])
def test_rings_of_joined_subclasses_go(engine: Engine, made: Any, mode: str) -> None:
    class Base(DeclarativeBase):
        pass

    class Node(TTLMixin, Base):
        __tablename__ = "ring_nodes"
        __ttl__ = HOUR
        __ttl_purge__ = mode
        __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "node"}

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        kind: Mapped[str] = mapped_column(String(20), server_default="link")

    class Link(Node):
        __tablename__ = "ring_links"
        id: Mapped[int] = mapped_column(ForeignKey(Node.id), primary_key=True)
        answers: Mapped[int | None] = mapped_column(ForeignKey(Node.id), index=True)

        __mapper_args__ = {"polymorphic_identity": "link", "inherit_condition": id == Node.id}  # noqa: A003

    made(Node)
    shape = {**ring(5), 6: 6, 7: 1, 8: None}
    with engine.begin() as connection:
        add(connection, "ring_nodes", [(key, None, 3 * HOUR - key) for key in shape])
        connection.execute(
            text("INSERT INTO ring_links (id) VALUES (:id)"), [{"id": key} for key in shape]
        )
        refer(connection, "ring_links", shape)
    report = Sweeper(engine, Node, batch_size=3).run_once()
    report.raise_for_failures()
    assert report.deleted == 8
    with engine.connect() as connection:
        assert left(connection, Node) == set()
        assert references(connection, "ring_links") == {}


def test_a_batch_without_references_costs_nothing_more(engine: Engine, made: Any) -> None:
    post, _ = posts("delete", [])
    made(post)
    with engine.begin() as connection:
        write(connection, Shape(dict.fromkeys(range(1, 10))))
    statements: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    Sweeper(engine, post).run_once().raise_for_failures()
    assert len([one for one in statements if one.startswith("DELETE FROM ring_posts")]) <= 2
    assert not [one for one in statements if one.startswith("UPDATE ring_posts")]
    assert not [one for one in statements if "SAVEPOINT" in one]


def test_a_condition_of_no_keys_is_false(engine: Engine, made: Any) -> None:
    post, _ = posts("delete", [])
    made(post)
    with engine.begin() as connection:
        write(connection, Shape({1: None}))
        for columns in ([post.id], [post.id, post.answers]):
            rows = select(post.id).where(is_one_of(columns, [])).options(include_expired())
            assert connection.scalars(rows).all() == []


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["archive", "hook"])
def test_rings_that_cascade_by_a_column_that_cannot_be_null_are_recorded(
    engine: Engine, made: Any, mode: str
) -> None:
    heard: list[Purged] = []
    post, old = posts(f"cascade, {mode}", heard)
    post.__table__.c.answers.nullable = False
    made(post)
    if engine.dialect.name == "postgresql":
        with engine.begin() as connection:
            connection.exec_driver_sql(
                "ALTER TABLE ring_posts ALTER CONSTRAINT ring_posts_answers_fkey "
                "DEFERRABLE INITIALLY DEFERRED"
            )
    with engine.begin() as connection:
        add_referring(connection, {1: 1, 2: 1, 3: 2, 4: 4, 5: 4, 6: 7, 7: 6})
    for _ in range(3):
        Sweeper(engine, post, batch_size=4).run_once().raise_for_failures()
    with engine.connect() as connection:
        assert left(connection, post) == set()
        if mode == "archive":
            assert set(connection.scalars(select(old.id))) == set(range(1, 8))
        else:
            assert sorted(key for one in heard for (key,) in one.keys) == list(range(1, 8))


def add_referring(connection: Connection, refers: dict[int, int]) -> None:
    """Write rows whose references can't be NULL."""
    clock, dialect = clock_of(connection.dialect), connection.dialect.name
    if dialect == "sqlite":
        connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")
    elif dialect == "mysql":
        connection.exec_driver_sql("SET foreign_key_checks = 0")
    past = f"{clock.now} - {2 * HOUR} * {clock.second}"
    values = "ring_posts (id, answers, _ts) VALUES (:id, :to, " + past + ")"
    connection.execute(
        text(f"INSERT INTO {values}"), [{"id": key, "to": to} for key, to in refers.items()]
    )
    if dialect == "mysql":
        connection.exec_driver_sql("SET foreign_key_checks = 1")
