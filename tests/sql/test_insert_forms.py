"""Forms of INSERT: none stores a ``_ts`` that the caller supplies, and each is stamped."""

from __future__ import annotations

import enum
from datetime import datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    ARRAY,
    ForeignKey,
    Numeric,
    String,
    cast,
    insert,
    literal,
    null,
    select,
    text,
    union,
)
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.exc import DBAPIError, InvalidRequestError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tests.clocks import age
from tests.sql.statements import is_mysql
from ttl_odm import TTLConfigurationError
from ttl_odm.sqlalchemy import TTLMixin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine

LATER = datetime(2099, 1, 1, tzinfo=timezone.utc)


class Base(DeclarativeBase):
    pass


class Token(TTLMixin, Base):
    __tablename__ = "tokens"
    __ttl__ = 3600
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "token"}

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    kind: Mapped[str] = mapped_column(String(20), default="token")
    name: Mapped[str | None] = mapped_column(String(20))


class ApiToken(Token):
    __tablename__ = "api_tokens"
    __mapper_args__ = {"polymorphic_identity": "api"}

    id: Mapped[int] = mapped_column(ForeignKey("tokens.id"), primary_key=True, autoincrement=False)
    scope: Mapped[str] = mapped_column(String(20))


class Robot(ApiToken):
    __tablename__ = "robots"
    __mapper_args__ = {"polymorphic_identity": "robot"}

    id: Mapped[int] = mapped_column(
        ForeignKey("api_tokens.id"), primary_key=True, autoincrement=False
    )
    model: Mapped[str] = mapped_column(String(20))


@pytest.fixture
def session(engine: Engine) -> Iterator[Session]:
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([Robot(id=1, scope="a", model="r2"), Robot(id=2, scope="b", model="d2")])
        session.flush()
        age(session.connection(), "tokens", 1, 4000)
        session.commit()
        session.expunge_all()
        yield session


API = {"id": 1, "scope": "new"}
SUPPLIED = {**API, "last_modified": LATER}


def bulk(session: Session) -> None:
    session.execute(insert(ApiToken), [SUPPLIED, {**SUPPLIED, "id": 3}])


def bulk_dict(session: Session) -> None:
    session.execute(insert(ApiToken), SUPPLIED)


def bulk_returning(session: Session) -> None:
    session.scalars(insert(ApiToken).returning(ApiToken), [SUPPLIED]).all()


def bulk_with_values(session: Session) -> None:
    session.execute(insert(ApiToken).values(last_modified=LATER, name="x"), [API])


def bulk_mappings(session: Session) -> None:
    session.bulk_insert_mappings(ApiToken, [SUPPLIED])


def third_level(session: Session) -> None:
    session.execute(insert(Robot), [{**SUPPLIED, "model": "c3po"}])


def root(session: Session) -> None:
    session.execute(insert(Token), [{"id": 1, "last_modified": LATER}])


def from_union(session: Session) -> None:
    one, other = (
        select(literal(number), literal("token"), literal(LATER, Token.last_modified.type))
        for number in (1, 4)
    )
    names = [Token.id, Token.kind, Token.last_modified]
    session.execute(insert(Token).from_select(names, union(one, other)))


def from_union_in_core(session: Session) -> None:
    table: Any = Token.__table__
    one, other = (select(table.c.id - 1, table.c._ts, literal(n)) for n in ("x", "y"))
    adding = insert(table).from_select(["id", "_ts", "name"], one.union(other).limit(1))
    session.connection().execute(adding)


@pytest.mark.parametrize(
    "write",
    [
        bulk,
        bulk_dict,
        bulk_returning,
        bulk_with_values,
        bulk_mappings,
        third_level,
        root,
        from_union,
        from_union_in_core,
    ],
    ids=lambda write: write.__name__,
)
def test_a_supplied_ts_is_not_stored_and_the_key_is_free(
    session: Session, write: Callable[[Session], None]
) -> None:
    old = session.get_one(Token, 2).last_modified
    if write is bulk_returning and is_mysql(session.get_bind().dialect):
        with pytest.raises(InvalidRequestError, match="executemany with RETURNING"):
            write(session)
        return
    write(session)
    session.commit()
    new = session.get_one(Token, 1)
    assert old <= new.last_modified < LATER


def test_keep_last_modified_stores_it_in_the_table_at_the_root(session: Session) -> None:
    session.execute(insert(ApiToken), [SUPPLIED], execution_options={"keep_last_modified": True})
    session.commit()
    assert session.get_one(ApiToken, 1).last_modified == LATER


def test_nothing_of_the_row_that_had_the_key_is_left(session: Session) -> None:
    session.execute(insert(ApiToken), [API])
    session.commit()
    assert list(session.scalars(text("SELECT id FROM robots"))) == [2]
    assert type(session.get_one(Token, 1)) is ApiToken


def upsert_into(session: Session, table: Any) -> Any:
    """An upsert of the row 2, which is live."""
    dialect = session.get_bind().dialect.name
    values: dict[str, Any] = {"scope": "upserted"}
    if dialect == "mysql":
        return mysql.insert(table).values(id=2, **values).on_duplicate_key_update(**values)
    insert_into: Any = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}[dialect]
    added = insert_into(table).values(id=2, **values)
    return added.on_conflict_do_update(index_elements=["id"], set_=values)


@pytest.mark.parametrize("target", [ApiToken, ApiToken.__table__], ids=["orm", "core"])
def test_an_upsert_that_updates_the_table_of_a_subclass_is_refused(
    session: Session, target: Any
) -> None:
    with pytest.raises(TTLConfigurationError, match=r"'api_tokens'.*'_ts'.*'tokens'.*merge"):
        session.execute(upsert_into(session, target))


def test_an_insert_that_ignores_conflicts_in_the_table_of_a_subclass_is_not(
    session: Session,
) -> None:
    table: Any = ApiToken.__table__
    adding = insert(table).values(id=2, scope="ignored")
    dialect = session.get_bind().dialect.name
    if dialect == "mysql":
        session.execute(adding.prefix_with("IGNORE"))
    else:
        insert_into: Any = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}[dialect]
        session.execute(insert_into(table).values(id=2, scope="x").on_conflict_do_nothing())
    assert session.get_one(ApiToken, 2).scope == "b"


class Kind(enum.Enum):
    FULL = "full"
    HALF = "half"


@pytest.fixture
def ticket(engine: Engine) -> Any:
    """A model whose keys have types that PostgreSQL doesn't take a text for."""

    class Base(DeclarativeBase):
        pass

    class Ticket(TTLMixin, Base):
        __tablename__ = "tickets"
        __ttl__ = 3600

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        kind: Mapped[Kind | None] = mapped_column(unique=True)
        seat: Mapped[int | None] = mapped_column(unique=True)
        price: Mapped[Decimal | None] = mapped_column(Numeric(8, 2))
        code: Mapped[str | None] = mapped_column(String(3), unique=True)

    Base.metadata.create_all(engine)
    return Ticket


@pytest.mark.every_driver
@pytest.mark.parametrize("has_ts", [False, True])
@pytest.mark.parametrize("nothing", [literal, cast, null])
def test_values_that_an_insert_selects_are_of_the_columns_types(
    engine: Engine,
    ticket: Any,
    nothing: Any,
    has_ts: bool,  # noqa: FBT001
) -> None:
    table = ticket.__table__
    values = {"id": 1, "kind": Kind.FULL, "code": "abc"}
    columns = [literal(value, table.c[name].type) for name, value in values.items()]
    names = [*values, "seat", "price"]
    columns += [
        null() if nothing is null else nothing(None, table.c[name].type)
        for name in ("seat", "price")
    ]
    if has_ts:
        names.append("_ts")
        columns.append(literal(LATER, ticket.last_modified.type))
    adding = insert(table).from_select(names, select(*columns))
    with engine.begin() as connection:
        connection.execute(adding)
        age(connection, "tickets", 1, 4000)
        connection.execute(adding)  # the row that had the keys has expired
    with Session(engine) as session:
        (row,) = session.scalars(select(ticket))
        assert (row.kind, row.seat, row.price, row.code) == (Kind.FULL, None, None, "abc")
        assert row.last_modified < LATER


@pytest.mark.every_driver
@pytest.mark.databases("postgres")
def test_selected_arrays_of_strings_are_of_the_columns_type_and_not_cut_off(engine: Engine) -> None:
    class Base(DeclarativeBase):
        pass

    class Label(TTLMixin, Base):
        __tablename__ = "labels"
        __ttl__ = 3600

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        words: Mapped[list[str] | None] = mapped_column(ARRAY(String(3)), unique=True)

    def adding(value: Any) -> Any:
        source = select(literal(1), value)
        return insert(Label.__table__).from_select(["id", "words"], source)

    Base.metadata.create_all(engine)
    for value in (literal(["abc", "d"]), null(), literal(["abc"], ARRAY(String(3)))):
        with engine.begin() as connection:
            connection.execute(adding(value))
            age(connection, "labels", 1, 4000)
    with engine.connect() as connection:
        assert connection.scalars(text("SELECT words FROM labels")).all() == [["abc"]]
        with pytest.raises(DBAPIError, match="too long"):
            connection.execute(adding(literal(["abcd"])))


@pytest.mark.every_driver
@pytest.mark.databases("postgres")
def test_a_selected_value_that_is_too_long_is_refused_and_not_cut_off(
    engine: Engine, ticket: Any
) -> None:
    values: list[Any] = [
        literal(1),
        literal("abcd", String(3)),
        literal(LATER, ticket.last_modified.type),
    ]
    adding = insert(ticket.__table__).from_select(["id", "code", "_ts"], select(*values))
    with engine.connect() as connection, pytest.raises(DBAPIError, match="too long"):
        connection.execute(adding)
