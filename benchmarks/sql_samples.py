"""What is timed on a SQLAlchemy session, and what is not: connecting, BEGIN, loading, rolling back.

The process that must not know ttl_odm uses this too, so nothing here may import it.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from sqlalchemy import text
from sqlalchemy.orm import Session

from benchmarks.harness import timed, undisturbed

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine

    from benchmarks.harness import Sample


def reading(engine: Engine, make: Callable[[Session], Callable[[], object]]) -> Sample:
    """Time a read inside a transaction that has already begun, as one of many reads in it.

    Args:
        engine: where.
        make: makes the operation for a session.
    """

    def sample(count: int) -> float:
        with Session(engine) as session:
            _begin(session)
            seconds = timed(make(session))(count)
            # Psycopg drops its prepared statements on ROLLBACK, which a session sends on closing.
            session.commit()
        return seconds

    return sample


def reading_alone(engine: Engine, make: Callable[[Session], Callable[[], object]]) -> Sample:
    """Time a session that reads once and is closed: BEGIN, the read, ROLLBACK.

    Args:
        engine: where.
        make: makes the operation for a session.
    """

    def operation() -> None:
        with Session(engine) as session:
            make(session)()

    return timed(operation)


def flushing(engine: Engine, change: Callable[[Session], None]) -> Sample:
    """Time a flush, inside a transaction that has already begun and is rolled back.

    Args:
        engine: where.
        change: prepares what there is to flush; it takes no time.
    """

    def sample(count: int) -> float:
        seconds = 0.0
        with Session(engine, autoflush=False) as session, undisturbed():
            _begin(session)
            change(session)
            session.flush()
            for _ in range(count):
                session.expunge_all()
                change(session)
                begin = perf_counter()
                session.flush()
                seconds += perf_counter() - begin
        return seconds

    return sample


def acting(
    engine: Engine, make: Callable[[Session], Callable[[], object]], *, commit: bool = False
) -> Sample:
    """Time something that is done to a row that has just been loaded.

    Args:
        engine: where.
        make: loads the row, which takes no time, and makes the operation.
        commit: whether each is committed, which takes part of the time; else all are rolled back.
    """

    def sample(count: int) -> float:
        seconds = 0.0
        with Session(engine, autoflush=False) as session, undisturbed():
            for number in range(1 + count):
                session.expunge_all()
                operation = make(session)
                begin = perf_counter()
                operation()
                if commit:
                    session.commit()
                if number > 0:  # the first is the lead-in
                    seconds += perf_counter() - begin
        return seconds

    return sample


def _begin(session: Session) -> None:
    # Drivers send BEGIN along with the first statement.
    session.execute(text("SELECT 1"))
