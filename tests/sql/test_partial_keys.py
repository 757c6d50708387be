"""Rows that come into a unique index without a change of what it is over.

The condition of a partial index becomes true, or what a generated column or an expression is made
of changes: an expired row that has the value by then makes way.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    Computed,
    DateTime,
    Index,
    String,
    and_,
    bindparam,
    case,
    event,
    func,
    insert,
    literal,
    null,
    select,
    text,
    update,
)
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tests.clocks import age
from tests.sql.statements import explained, is_delete
from ttl_odm.sqlalchemy import TTLMixin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine

GONE = datetime(2024, 1, 1)  # noqa: DTZ001
SHOWN = "CASE WHEN deleted_at IS NULL THEN email END"


def model_of(kind: str) -> Any:
    """A class with soft deletes: no two rows that aren't deleted have the same e-mail address."""

    class Base(DeclarativeBase):
        pass

    class User(TTLMixin, Base):
        __tablename__ = "users"
        __ttl__ = 3600

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        tenant: Mapped[int] = mapped_column(default=1)
        email: Mapped[str | None] = mapped_column(String(40))
        deleted_at: Mapped[datetime | None] = mapped_column(DateTime())
        if kind == "generated":
            shown: Mapped[str | None] = mapped_column(
                String(40), Computed(SHOWN, persisted=True), unique=True
            )

    shown: Any = func.lower(case((User.deleted_at.is_(None), User.email)))
    conditions: dict[str, Any] = {
        "partial": User.deleted_at.is_(None),
        "by text": text("deleted_at IS NULL"),
        "by two": and_(User.deleted_at.is_(None), User.tenant > 0),
    }
    if kind in conditions:
        options = dict.fromkeys(("postgresql_where", "sqlite_where"), conditions[kind])
        columns = [User.email] if kind != "by two" else [User.tenant, User.email]
        Index("uq_users", *columns, unique=True, **options)
    if kind == "expression":
        Index("uq_users", shown, unique=True)
    return User


KINDS = {
    "sqlite": ("partial", "by text", "by two", "generated", "expression"),
    "postgresql": ("partial", "by text", "by two", "generated", "expression"),
    "mysql": ("generated",),
}


def models(engine: Engine) -> Iterator[Any]:
    """A class for each way in which a database has such keys, in an empty table."""
    engine.connect().close()  # so that the dialect knows its server
    kinds = KINDS[engine.dialect.name]
    if engine.dialect.name == "mysql" and not getattr(engine.dialect, "is_mariadb", False):
        kinds = (*kinds, "expression")
    for kind in kinds:
        model = model_of(kind)
        model.metadata.create_all(engine)
        yield model
        model.metadata.drop_all(engine)


def fill(session: Session, model: Any) -> None:
    """Add two expired rows, one of them deleted, and a deleted one that is live."""
    session.add_all([model(id=1, email="ann"), model(id=2, email="bob", deleted_at=GONE)])
    session.add_all([model(id=3, email="ann", deleted_at=GONE), model(id=4, email="eve")])
    session.flush()
    for key in (1, 2):
        age(session.connection(), "users", key, 4000)
    session.commit()
    session.expunge_all()


def stored(session: Session) -> list[Any]:
    return list(session.scalars(text("SELECT id FROM users ORDER BY id")))


def by_flush(s: Session, m: Any) -> None:
    s.get_one(m, 3).deleted_at = None


def by_core(s: Session, m: Any) -> None:
    table = m.__table__
    s.connection().execute(update(table).where(table.c.id == 3).values(deleted_at=None))


def by_sql(s: Session, m: Any) -> None:
    s.execute(update(m).where(m.id == 3).values(deleted_at=null()))


def by_computed_sql(s: Session, m: Any) -> None:
    shown = func.nullif(m.deleted_at, GONE)
    s.execute(update(m).where(m.email == "ann").values(deleted_at=shown))


def by_keys(s: Session, m: Any) -> None:
    s.execute(update(m), [{"id": 3, "deleted_at": None}])


def by_many_executions(s: Session, m: Any) -> None:
    table = m.__table__
    statement = (
        update(table).where(table.c.id == bindparam("key")).values(deleted_at=bindparam("d"))
    )
    s.connection().execute(statement, [{"key": 4, "d": GONE}, {"key": 3, "d": None}])


def by_alias(s: Session, m: Any) -> None:
    if s.get_bind().dialect.name == "mysql":
        by_core(s, m)
        return
    user = m.__table__.alias("u")
    s.connection().execute(update(user).where(user.c.id == 3).values(deleted_at=None))


def by_a_cte(s: Session, m: Any) -> None:
    if s.get_bind().dialect.name != "postgresql":
        by_core(s, m)
        return
    table = m.__table__
    shown = update(table).where(table.c.id == 3).values(deleted_at=None).returning(table.c.id).cte()
    s.execute(select(shown.c.id))


def by_upsert(s: Session, m: Any) -> None:
    values = {"id": 3, "tenant": 1, "email": "ann", "deleted_at": GONE}
    name = s.get_bind().dialect.name
    upsert: Any
    if name == "mysql":
        upsert = mysql.insert(m).values(**values).on_duplicate_key_update(deleted_at=None)
    else:
        upsert = (sqlite if name == "sqlite" else postgresql).insert(m).values(**values)
        upsert = upsert.on_conflict_do_update(index_elements=["id"], set_={"deleted_at": None})
    s.execute(upsert)


def by_moving_too(s: Session, m: Any) -> None:
    s.get_one(m, 4).deleted_at = GONE
    s.flush()
    s.get_one(m, 4).email = "ann"
    s.flush()
    s.execute(update(m).where(m.id == 3).values(email="zoe"))
    s.execute(update(m).where(m.id == 4).values(deleted_at=None, tenant=m.tenant + 0))


WRITES = [
    *(by_flush, by_core, by_sql, by_computed_sql, by_keys, by_many_executions, by_alias, by_a_cte),
    *(by_upsert, by_moving_too),
]


@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
def test_a_row_that_is_shown_again_takes_the_value_of_an_expired_row(
    engine: Engine, write: Callable[[Session, Any], None]
) -> None:
    for model in models(engine):
        with Session(engine) as session:
            fill(session, model)
            write(session, model)
            session.commit()
            assert stored(session) == [2, 3, 4]


def test_a_live_row_keeps_its_value(engine: Engine) -> None:
    for model in models(engine):
        with Session(engine) as session:
            fill(session, model)
            session.add(model(id=5, email="eve", deleted_at=GONE))
            session.commit()
            session.get_one(model, 5).deleted_at = None
            with pytest.raises(IntegrityError):
                session.flush()
            session.rollback()
            assert stored(session) == [1, 2, 3, 4, 5]


@pytest.mark.databases("sqlite", "postgres")
def test_a_part_of_a_key_and_its_condition_change_one_after_the_other(engine: Engine) -> None:
    model = model_of("by two")
    model.metadata.create_all(engine)
    with Session(engine) as session:
        fill(session, model)
        session.execute(update(model).where(model.id == 3).values(deleted_at=None, tenant=0))
        assert stored(session) == [1, 2, 3, 4]
        session.execute(update(model).where(model.id == 3).values(tenant=1))
        assert stored(session) == [2, 3, 4]


@pytest.mark.databases("postgres")
def test_a_row_that_leaves_the_index_costs_no_statement_more(engine: Engine) -> None:
    model = model_of("partial")
    model.metadata.create_all(engine)
    with Session(engine) as session:
        fill(session, model)
        row = session.get_one(model, 4)
        sent: list[str] = []
        event.listen(engine, "before_cursor_execute", lambda *call: sent.append(call[2]))
        row.deleted_at = GONE
        session.flush()
        assert [statement.split()[0] for statement in sent] == ["UPDATE"]


@pytest.mark.slow
@pytest.mark.databases("postgres")
def test_the_partial_index_answers_the_lookup(engine: Engine) -> None:
    for kind in ("partial", "by text", "by two"):
        model = model_of(kind)
        model.metadata.create_all(engine)

        with Session(engine) as session:
            fill(session, model)
            numbers = select(func.generate_series(100, 3000).label("n")).subquery()
            names = ["id", "tenant", "email"]
            source = select(numbers.c.n, literal(1), func.concat("e", numbers.c.n))
            session.execute(insert(model).from_select(names, source))
            session.execute(text("ANALYZE users"))
            session.commit()
            with explained(engine, is_delete) as plans:
                session.add(model(id=9, email="ann"))
                session.flush()
                session.rollback()
                session.get_one(model, 3).deleted_at = None
                session.flush()
        assert len([line for line in plans if "uq_users" in line]) >= 2
        assert not [line for line in plans if "Seq Scan" in line]
        model.metadata.drop_all(engine)
