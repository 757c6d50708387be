"""Under SERIALIZABLE, PostgreSQL takes a policy for an indexed column that each write changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import select, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from ttl_odm import Stored
from ttl_odm.sqlalchemy import TTLMixin

if TYPE_CHECKING:
    from sqlalchemy import Engine

HOUR = 3_600


def failures(engine: Engine, declared: Any, number: int) -> list[list[str]]:
    """What fails of two transactions that step by step write a row each, and of two that read."""

    class Base(DeclarativeBase):
        pass

    class Code(*((TTLMixin,) if declared else ()), Base):  # type: ignore[misc]
        __tablename__ = f"codes{number}"
        if declared:
            __ttl__ = declared
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        writes: Mapped[int] = mapped_column(default=0, index=not declared)

    Base.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.add_all([Code(id=key) for key in range(10)])

    def read(session: Session, key: int) -> None:
        session.scalars(select(Code).where(Code.id == key)).all()

    def write(session: Session, key: int) -> None:
        session.execute(update(Code).where(Code.id == key).values(writes=Code.writes + 1))

    steps: list[list[Any]] = [[write], [read], [read, write]]
    return [_failed(engine, actions) for actions in steps]


def _failed(engine: Engine, actions: list[Any]) -> list[str]:
    failed = []
    with Session(engine) as one, Session(engine) as other:
        sessions = (one, other)
        for step in [*actions, lambda session, _: session.commit()]:
            for key, session in enumerate(sessions):
                try:
                    step(session, key)
                except DBAPIError as error:
                    failed.append(str(getattr(error.orig, "sqlstate", error)))
                    session.rollback()
    return failed


@pytest.mark.slow
@pytest.mark.databases("postgres")
def test_a_policy_fails_no_transaction_that_an_indexed_column_would_not(engine: Engine) -> None:
    serializable = engine.execution_options(isolation_level="SERIALIZABLE")
    declared = [None, HOUR, Stored(HOUR)]
    plain, policy, stored = (
        failures(serializable, each, number) for number, each in enumerate(declared)
    )
    assert plain == [[], [], ["40001"]]
    assert policy == plain
    assert stored == plain
