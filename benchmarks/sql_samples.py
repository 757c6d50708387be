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
    """Time a read, inside a transaction that has already begun.

    Args:
        engine: where.
        make: makes the operation for a session.
    """

    def sample(count: int) -> float:
        with Session(engine) as session:
            _begin(session)
            return timed(make(session))(count)

    return sample


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
            for _ in range(count):
                change(session)
                begin = perf_counter()
                session.flush()
                seconds += perf_counter() - begin
                session.expunge_all()
        return seconds

    return sample


def _begin(session: Session) -> None:
    # Drivers send BEGIN along with the first statement.
    session.execute(text("SELECT 1"))
