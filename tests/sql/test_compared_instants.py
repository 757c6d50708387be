"""Comparisons of ``last_modified`` and ``expires_at`` with the database's own dates."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import DateTime, case, func, literal, or_, select, text, type_coerce
from sqlalchemy.dialects import mysql
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, aliased, mapped_column

from tests.clocks import set_last_modified
from tests.sql.adopted import UtcDateTime
from ttl_odm import TTL
from ttl_odm.sqlalchemy import TTLMixin, expires_at, touch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine

    Condition = Callable[[Any], Any]

NOON = datetime(2130, 1, 2, 12, tzinfo=timezone.utc)
DAY = timedelta(days=1)
WEST = "-10:00"


def page() -> Any:
    class Base(DeclarativeBase):
        pass

    class Page(TTLMixin, Base):
        __tablename__ = "pages"
        __ttl__ = 3600

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        before: Mapped[datetime] = mapped_column(DateTime(timezone=True))
        noon: Mapped[datetime] = mapped_column(DateTime(timezone=True))
        after: Mapped[datetime] = mapped_column(DateTime(timezone=True))
        never: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
        decorated: Mapped[datetime] = mapped_column(
            UtcDateTime().with_variant(DateTime(timezone=True), "postgresql")
        )

    return Page


@pytest.fixture
def pages(engine: Engine) -> Iterator[tuple[Session, Any]]:
    """A row that was written at noon in 2130, between two of its dates."""
    model = page()
    model.metadata.create_all(engine)
    with Session(engine) as session:
        row = model(id=1, before=NOON - DAY, noon=NOON, after=NOON + DAY, decorated=NOON - DAY)
        session.add(row)
        session.commit()
        set_last_modified(session.connection(), "pages", 1, NOON)
        session.commit()
        yield session, model


def dates(column: Any) -> Any:
    return select(column).scalar_subquery()


RIGHT: dict[str, Condition] = {
    "gt": lambda m: m.last_modified > m.before,
    "lt": lambda m: m.last_modified < m.after,
    "ge": lambda m: m.last_modified >= m.noon,
    "le": lambda m: m.last_modified <= m.noon,
    "eq": lambda m: m.last_modified == m.noon,
    "ne": lambda m: m.last_modified != m.before,
    "between": lambda m: m.last_modified.between(m.before, m.after),
    "half a between": lambda m: m.last_modified.between(NOON - DAY, m.noon),
    "in": lambda m: m.last_modified.in_([m.before, m.noon]),
    "in with a value": lambda m: m.last_modified.in_([m.before, NOON]),
    "in a query": lambda m: m.last_modified.in_(select(aliased(m).noon)),
    "in a subquery": lambda m: m.last_modified.in_(dates(aliased(m).noon)),
    "not in": lambda m: m.last_modified.not_in([m.before, m.after]),
    "distinct": lambda m: m.last_modified.is_distinct_from(m.before),
    "distinct from NULL": lambda m: m.last_modified.is_distinct_from(m.never),
    "not distinct": lambda m: m.last_modified.is_not_distinct_from(m.noon),
    "a subquery": lambda m: m.last_modified > dates(aliased(m).before),
    "a greater subquery": lambda m: m.last_modified < dates(func.max(aliased(m).after)),
    "now": lambda m: m.last_modified > func.now(),
    "a case": lambda m: m.last_modified > case((m.id == 1, m.before), else_=m.after),
    "a function": lambda m: m.last_modified < func.coalesce(m.never, m.after),
    "a literal": lambda m: m.last_modified > literal(NOON - DAY, DateTime(timezone=True)),
    "decorated": lambda m: m.last_modified > m.decorated,
    "itself": lambda m: m.last_modified == m.last_modified,
    "the end": lambda m: m.last_modified < m.expires_at,
    "a value": lambda m: m.last_modified == NOON,
    "NULL": lambda m: m.last_modified != None,  # noqa: E711 (an expression)
    "expires_at": lambda m: m.expires_at > m.noon,
    "expires_at before": lambda m: m.expires_at < m.after,
    "expires_at and now": lambda m: m.expires_at > func.current_timestamp(),
    "expires_at of an alias": lambda m: expires_at(m).between(m.noon, m.after),
    "max": lambda m: select(func.max(aliased(m).last_modified) == m.noon).scalar_subquery(),
    "a disjunction": lambda m: or_(m.last_modified > m.after, m.last_modified > m.before),
}


@pytest.mark.parametrize("condition", RIGHT.values(), ids=RIGHT)
@pytest.mark.parametrize("of", [lambda model: model, aliased], ids=["class", "alias"])
def test_an_instant_is_compared_with_dates(
    pages: tuple[Session, Any], condition: Condition, of: Any
) -> None:
    session, model = pages
    entity = of(model)
    for _ in range(2):  # once more with the compiled statement
        assert session.scalars(select(entity.id).where(condition(entity))).all() == [1]
        assert session.scalars(select(entity.id).where(~condition(entity))).all() == []


def test_a_null_date_is_neither(pages: tuple[Session, Any]) -> None:
    session, model = pages
    for condition in (model.last_modified > model.never, model.last_modified <= model.never):
        assert session.scalars(select(model.id).where(condition)).all() == []


def test_writes_are_restricted_by_such_a_condition(pages: tuple[Session, Any]) -> None:
    session, model = pages
    for column, rows in ((model.after, 0), (model.before, 1)):
        result: Any = session.execute(touch(model).where(model.last_modified > column))
        assert result.rowcount == rows


def test_a_literal_may_be_used_for_both_kinds(pages: tuple[Session, Any]) -> None:
    session, model = pages
    earlier = literal(NOON - timedelta(hours=1), DateTime(timezone=True))
    query = select(model.id).where(model.last_modified > earlier, model.after > earlier)
    assert session.scalars(query).all() == [1]
    assert session.scalars(query.where(model.before > earlier)).all() == []


def test_one_statement_is_compiled_for_each_date(
    pages: tuple[Session, Any], sent: list[str]
) -> None:
    session, model = pages
    for column, matched in ((model.before, [1]), (model.after, []), (model.before, [1])):
        assert (
            session.scalars(select(model.id).where(model.last_modified > column)).all() == matched
        )
    first, other, again = sent[-3:]
    assert first == again != other


@pytest.mark.databases("postgres")
def test_postgresql_compares_dates_as_they_are(pages: tuple[Session, Any], sent: list[str]) -> None:
    session, model = pages
    session.scalars(select(model.id).where(model.last_modified > model.before)).all()
    assert "pages._ts > pages.before" in sent[-1]


@pytest.mark.databases("mariadb", "mysql")
def test_the_session_s_time_zone_changes_nothing(engine: Engine) -> None:
    class Base(DeclarativeBase):
        pass

    class Ticket(TTLMixin, Base):
        __tablename__ = "tickets"
        __ttl__ = TTL(3600)
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        stamp: Mapped[datetime] = mapped_column(mysql.TIMESTAMP(fsp=6))
        naive: Mapped[datetime] = mapped_column(mysql.DATETIME(fsp=6))

    Base.metadata.create_all(engine)
    with Session(engine) as session:
        for zone in ("+00:00", WEST):
            session.execute(text(f"SET time_zone = '{zone}'"))
            session.execute(
                text(
                    "REPLACE INTO tickets (id, stamp, naive) "
                    "VALUES (1, CURRENT_TIMESTAMP(6), UTC_TIMESTAMP(6))"
                )
            )
            later = select(Ticket.id).where(
                Ticket.expires_at > Ticket.stamp,
                Ticket.expires_at > Ticket.naive,
                Ticket.expires_at > func.now(),
                Ticket.last_modified <= func.now(),
            )
            assert session.scalars(later).all() == [1]
            text_of_now = type_coerce(func.utc_timestamp(6), DateTime())
            earlier = select(Ticket.id).where(
                or_(
                    Ticket.expires_at <= Ticket.stamp,
                    Ticket.last_modified > func.now(),
                    Ticket.last_modified > text_of_now,
                )
            )
            assert session.scalars(earlier).all() == []
        session.execute(text("SET time_zone = '+00:00'"))
