"""A joined subclass's row is one row: written anywhere, its lifetime starts again."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import ForeignKey, String, event, select, text, update
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tests.clocks import age
from ttl_odm.sqlalchemy import ExpiredError, TTLMixin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine


class Base(DeclarativeBase):
    pass


class Token(TTLMixin, Base):
    __tablename__ = "tokens"
    __ttl__ = 3600
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "token"}

    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(String(20))
    name: Mapped[str | None] = mapped_column(String(20))


class ApiToken(Token):
    __tablename__ = "api_tokens"
    __mapper_args__ = {"polymorphic_identity": "api"}

    id: Mapped[int] = mapped_column(ForeignKey("tokens.id"), primary_key=True)
    scope: Mapped[str] = mapped_column(String(20), default="read")


@pytest.fixture
def session(engine: Engine) -> Iterator[Session]:
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", lambda c, _: c.execute("PRAGMA foreign_keys = ON"))
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([ApiToken(id=1), ApiToken(id=2)])
        session.flush()
        age(session.connection(), "tokens", 1, 1000)
        age(session.connection(), "tokens", 2, 4000)
        session.commit()
        session.expunge_all()
        yield session


def flush(session: Session) -> None:
    session.get_one(ApiToken, 1).scope = "write"
    session.commit()


def bulk(session: Session) -> None:
    session.execute(update(ApiToken).where(ApiToken.scope == "read").values(scope="write"))
    session.commit()


def by_primary_key(session: Session) -> None:
    session.execute(update(ApiToken), [{"id": 1, "scope": "write"}])
    session.commit()


def core(session: Session) -> None:
    table: Any = ApiToken.__table__
    session.execute(table.update().where(table.c.id == 1).values(scope="write"))
    session.commit()


@pytest.mark.parametrize("write", [flush, bulk, by_primary_key, core], ids=lambda w: w.__name__)
def test_a_write_to_the_subclass_table_alone_resets_the_last_modification(
    session: Session, write: Callable[[Session], None]
) -> None:
    before = session.get_one(ApiToken, 1).last_modified
    write(session)
    row = session.get_one(ApiToken, 1)
    assert row.scope == "write"
    assert row.last_modified - before > timedelta(seconds=900)
    # The expired row was not matched: nothing of it changed.
    assert session.scalar(text("SELECT scope FROM api_tokens WHERE id = 2")) == "read"
    assert session.get(ApiToken, 2) is None


def test_keep_last_modified_keeps_it(session: Session) -> None:
    before = session.get_one(ApiToken, 1).last_modified
    session.execute(
        update(ApiToken).where(ApiToken.id == 1).values(scope="write"),
        execution_options={"keep_last_modified": True},
    )
    session.commit()
    assert session.get_one(ApiToken, 1).last_modified == before


def test_the_object_in_memory_learns_of_it(session: Session) -> None:
    row = session.get_one(ApiToken, 1)
    before = row.last_modified
    row.scope = "write"
    session.flush()
    assert row.last_modified > before


@pytest.mark.parametrize("attribute", ["scope", "name"])
def test_an_expired_object_can_be_changed_in_neither_table(
    session: Session, attribute: str
) -> None:
    row = session.get_one(ApiToken, 1)
    age(session.connection(), "tokens", 1, 4000)
    setattr(row, attribute, "x")
    with pytest.raises(ExpiredError, match="ApiToken 1 can't be updated"):
        session.flush()
    session.rollback()


def test_an_expired_object_cannot_be_deleted(session: Session) -> None:
    row = session.get_one(ApiToken, 1)
    age(session.connection(), "tokens", 1, 4000)
    session.delete(row)
    with pytest.raises(ExpiredError, match="ApiToken 1 can't be deleted"):
        session.flush()
    session.rollback()
    assert session.scalars(text("SELECT id FROM api_tokens ORDER BY id")).all() == [1, 2]


@pytest.mark.parametrize("cls", [ApiToken, Token])
def test_the_key_of_an_expired_row_is_free_with_all_its_parts(
    session: Session, cls: type[Token]
) -> None:
    session.add(cls(id=2, name="new"))
    session.commit()
    assert session.scalars(select(Token.name).where(Token.id == 2)).one() == "new"
    parts = session.scalars(text("SELECT id FROM api_tokens ORDER BY id")).all()
    assert parts == ([1, 2] if cls is ApiToken else [1])


def test_deleting_a_live_object_deletes_all_its_parts(session: Session) -> None:
    session.delete(session.get_one(ApiToken, 1))
    session.commit()
    assert session.scalars(text("SELECT id FROM tokens")).all() == [2]
    assert session.scalars(text("SELECT id FROM api_tokens")).all() == [2]


def test_a_flush_may_change_the_subclass_table_and_end_the_row(session: Session) -> None:
    row = session.get_one(ApiToken, 1)
    row.scope = "write"
    row.expire_in(0)
    session.commit()
    session.expunge_all()
    assert session.get(ApiToken, 1) is None
    assert session.scalar(text("SELECT scope FROM api_tokens WHERE id = 1")) == "write"


def test_an_exact_end_survives_a_change_of_the_subclass_table(session: Session) -> None:
    row = session.get_one(ApiToken, 1)
    instant = (row.last_modified + timedelta(hours=5)).replace(microsecond=250_000)
    row.scope = "write"
    row.expire_at(instant)
    session.commit()
    assert row.expires_at == instant


def test_a_bulk_update_by_primary_key_names_the_expired_row(session: Session) -> None:
    with pytest.raises(ExpiredError, match="2 can't be updated"):
        session.execute(
            update(ApiToken), [{"id": 1, "scope": "write"}, {"id": 2, "scope": "write"}]
        )
    session.rollback()
