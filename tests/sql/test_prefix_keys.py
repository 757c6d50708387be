"""Unique indexes over the first characters of a column, which MariaDB and MySQL have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Index, String, Text, event, insert, literal, select, update
from sqlalchemy.dialects import mysql
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tests.clocks import age
from tests.sql.statements import EXPLAIN
from tests.sql.sweeping import HOUR, left
from ttl_odm.sqlalchemy import TTLMixin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine


class Base(DeclarativeBase):
    pass


class Link(TTLMixin, Base):
    __tablename__ = "links"
    __ttl__ = HOUR

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    url: Mapped[str] = mapped_column(String(50))


class Verse(TTLMixin, Base):
    __tablename__ = "verses"
    __ttl__ = HOUR

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    text: Mapped[str] = mapped_column(
        String(50).with_variant(mysql.VARCHAR(50, collation="utf8mb4_general_ci"), "mysql")
    )


class Page(TTLMixin, Base):
    __tablename__ = "pages"
    __ttl__ = HOUR

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    site: Mapped[int]
    body: Mapped[str] = mapped_column(Text)


Index("verses_text", Verse.text, unique=True, mysql_length=10)
Index("links_url", Link.url, unique=True, mysql_length=10)
Index("pages_body", Page.site, Page.body, unique=True, mysql_length={"body": 5})

mariadb = pytest.mark.databases("mariadb", "mysql")


@pytest.fixture
def session(engine: Engine) -> Iterator[Session]:
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all(
            [
                Link(id=1, url="ttl://50%_/expired"),
                Link(id=2, url="ttl://live/1"),
                Page(id=1, site=1, body="hello world"),
                Page(id=2, site=2, body="hello world"),
            ]
        )
        session.flush()
        for table in "links", "pages":
            age(session.connection(), table, 1, 2 * HOUR)
        session.commit()
        session.expunge_all()
        yield session


def _flush(session: Session, url: str) -> None:
    session.add(Link(id=9, url=url))
    session.flush()


def _core(session: Session, url: str) -> None:
    session.connection().execute(insert(Link.__table__), [{"id": 9, "url": url}])  # type: ignore[arg-type]


def _from_select(session: Session, url: str) -> None:
    rows = select(literal(9), literal(url))
    session.execute(insert(Link).from_select(["id", "url"], rows))


def _update(session: Session, url: str) -> None:
    _flush(session, "elsewhere")
    session.get_one(Link, 9).url = url
    session.flush()


def _update_by_parts(session: Session, url: str) -> None:
    _flush(session, "")
    where = update(Link).where(Link.id == 9)
    session.execute(
        where.values(url=Link.url + url), execution_options={"synchronize_session": False}
    )


WRITES = [_flush, _core, _from_select, _update, _update_by_parts]


@mariadb
@pytest.mark.parametrize("write", WRITES)
def test_the_first_characters_of_an_expired_row_are_free(
    session: Session, write: Callable[[Session, str], None]
) -> None:
    write(session, "ttl://50%_/new")
    assert left(session.connection(), Link) == {2, 9}


@mariadb
@pytest.mark.parametrize("write", WRITES)
def test_those_of_a_live_row_are_taken(
    session: Session, write: Callable[[Session, str], None]
) -> None:
    with pytest.raises(IntegrityError):
        write(session, "ttl://live/2")


@pytest.mark.parametrize("url", ["ttl://50x_/new", "ttl://5", "%", "ttl://50%x"])
def test_other_characters_displace_nothing(session: Session, url: str) -> None:
    _flush(session, url)
    assert left(session.connection(), Link) == {1, 2, 9}


@pytest.mark.databases("sqlite", "postgres")
def test_elsewhere_the_whole_column_is_the_key(session: Session) -> None:
    session.add(Link(id=3, url="ttl://50%_/other"))
    session.flush()
    session.add(Link(id=4, url="ttl://50%_/expired"))
    session.flush()
    assert left(session.connection(), Link) == {2, 3, 4}


@mariadb
@pytest.mark.parametrize("url", ["ttl://50%_/NEW", "TTL://50%_/new"])
def test_the_collation_says_what_is_the_same(session: Session, url: str) -> None:
    _flush(session, url)
    assert left(session.connection(), Link) == {2, 9}


@mariadb
def test_spaces_at_the_end_do_not_count(session: Session) -> None:
    session.add(Verse(id=1, text="ab"))
    session.flush()
    age(session.connection(), "verses", 1, 2 * HOUR)
    session.expunge_all()
    session.add(Verse(id=2, text="ab" + 10 * " " + "c"))
    session.flush()
    assert left(session.connection(), Verse) == {2}


@pytest.mark.databases("mysql")
def test_spaces_at_the_end_count_in_a_collation_that_pads_nothing(session: Session) -> None:
    session.add(Link(id=3, url="ab"))
    session.flush()
    age(session.connection(), "links", 3, 2 * HOUR)
    _flush(session, "ab" + 10 * " " + "c")
    assert left(session.connection(), Link) == {1, 2, 3, 9}
    session.add(Link(id=4, url="ab"))
    session.flush()
    assert left(session.connection(), Link) == {1, 2, 4, 9}


@mariadb
def test_a_key_may_have_a_part_of_one_column_and_the_whole_of_another(session: Session) -> None:
    session.add_all([Page(id=3, site=1, body="hello there"), Page(id=4, site=3, body="hello")])
    session.flush()
    assert left(session.connection(), Page) == {2, 3, 4}
    with pytest.raises(IntegrityError):
        session.execute(insert(Page), [{"id": 5, "site": 2, "body": "hello there"}])


@mariadb
def test_the_lookup_goes_by_the_index(session: Session) -> None:
    connection = session.connection()
    rows = [{"id": number, "url": f"{number:09}-abcdef"} for number in range(10, 2_010)]
    connection.execute(insert(Link), rows)
    age(connection, "links", 500, 2 * HOUR)  # without it nothing is looked for
    sent: list[tuple[str, Any]] = []

    @event.listens_for(connection, "before_cursor_execute")
    def record(_c: Any, _cur: Any, statement: str, parameters: Any, *_: Any) -> None:
        sent.append((statement, parameters))

    _flush(session, "000000500-new")
    asked = [call for call in sent if not call[0].startswith("INSERT")]
    assert any("links.url" in statement for statement, _ in asked)
    for statement, parameters in asked:
        explain = f"{EXPLAIN[connection.dialect.name]} {statement}"
        for plan in connection.exec_driver_sql(explain, parameters).mappings():
            assert plan["type"] != "ALL", statement
