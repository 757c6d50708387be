"""Expressions that fail on a value which only an expired row has: 10 / 0, or JSON that is none.

Which condition of a WHERE clause comes first is the database's choice. These forms leave it none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import String, case, delete, func, select, update
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tests.clocks import age
from ttl_odm.sqlalchemy import TTLMixin, live

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine


@pytest.fixture
def model() -> Any:
    class Base(DeclarativeBase):
        pass

    class Ratio(TTLMixin, Base):
        __tablename__ = "ratios"
        __ttl__ = 60

        id: Mapped[str] = mapped_column(String(10), primary_key=True)
        n: Mapped[int]
        document: Mapped[str] = mapped_column(String(20))

    return Ratio


@pytest.fixture
def session(engine: Engine, model: Any) -> Iterator[Session]:
    """One live row, and an expired one whose values fail."""
    model.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all(
            [
                model(id="live", n=2, document='{"n": 5}'),
                model(id="dead", n=0, document="none"),
            ]
        )
        session.commit()
        age(session.connection(), "ratios", "dead", 100)
        session.commit()
        yield session


@pytest.fixture
def failing(session: Session, model: Any) -> Any:
    """What is 5 for the live row, and an error of the database for the other."""
    if session.get_bind().dialect.name == "sqlite":  # which divides by 0
        return func.json_extract(model.document, "$.n")
    return 10 / model.n


def test_what_is_selected_grouped_and_ordered_by_is_asked_of_live_rows_alone(
    session: Session, model: Any, failing: Any
) -> None:
    assert session.execute(select(failing)).scalars().all() == [5]
    assert session.execute(select(func.sum(failing))).scalar_one() == 5
    if session.get_bind().dialect.driver != "pg8000":  # see docs/limits.md
        groups = select(failing, func.count()).group_by(failing)
        assert [tuple(row) for row in session.execute(groups)] == [(5, 1)]
    assert session.execute(select(model.id).order_by(failing)).scalars().all() == ["live"]


def test_what_an_update_sets_is_computed_for_live_rows_alone(
    session: Session, model: Any, failing: Any
) -> None:
    assert session.execute(update(model).values(n=failing)).rowcount == 1
    assert session.execute(select(model.n)).scalar_one() == 5


def test_a_case_on_live_asks_a_condition_of_live_rows_alone(
    session: Session, model: Any, failing: Any
) -> None:
    condition = case((live(model), failing > 1))
    assert session.execute(select(model.id).where(condition)).scalars().all() == ["live"]
    assert session.execute(update(model).where(condition).values(n=3)).rowcount == 1
    assert session.execute(delete(model).where(condition)).rowcount == 1


def test_a_division_by_nullif_fails_on_no_row(session: Session, model: Any) -> None:
    condition = 10 / func.nullif(model.n, 0) > 1
    assert session.execute(select(model.id).where(condition)).scalars().all() == ["live"]
    assert session.execute(update(model).where(condition).values(n=3)).rowcount == 1
    assert session.execute(delete(model).where(condition)).rowcount == 1
