"""How late events are, with many timers pending, and what a table's events cost its writes.

All timers are pending when the worker begins, and end one after another, evenly spread; the first
of them end while it is measured. How late an event is, is what this host's clock says when the
handler is called, less the instant at which its row expired: the database has to be on this
machine.

Writes are compared with those of a like table without events, in turns: flushes and statements that
are rolled back, of which none meets an expired row.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import create_engine, delete, event, insert, update
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from benchmarks.bench import tell
from benchmarks.findings import Finding, ratio
from benchmarks.goals import EVENTS_IN_TIME, EVENTS_STATEMENTS, EVENTS_TIME
from benchmarks.harness import Estimate, sitting
from benchmarks.sql_samples import acting, flushing
from ttl_odm import ExpireAt
from ttl_odm.events import EventWorker, Expiry, on_expired
from ttl_odm.events.handlers import handlers
from ttl_odm.sqlalchemy import TTLMixin, touch
from ttl_odm.sqlalchemy.time.clock import LastModified

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine

    from benchmarks.bench import Bench, Database, Scale
    from benchmarks.harness import Round, Sample

LATENESS: Final = "Events: how late they are delivered"
IN_TIME: Final = "Events: share delivered within a second, of all timers"
STATEMENTS: Final = "Events: extra statements of a write to a table with events"
WRITES: Final = "Events: a write to a table with events / without"

_CHUNK: Final = 10_000
_FILLED_A_SECOND: Final = 4_000
"""Rows that the slowest database inserts; no timer may end before all are there."""

_PERCENTILES: Final = (50, 90, 99)
_ROWS: Final = 1_000
_WITH: Final = "with events"
_WITHOUT: Final = "without"


class Base(DeclarativeBase):
    """The models' own."""


class Timer(Base):
    """A row that ends at an instant."""

    __tablename__ = "timers"
    __ttl__ = ExpireAt("ends_at")

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    ends_at: Mapped[datetime] = mapped_column(LastModified(), index=True)


class _Columns(TTLMixin):
    __ttl__ = 86_400

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    amount: Mapped[int]


class Watched(_Columns, Base):
    """A row with events."""

    __tablename__ = "watched"


class Unwatched(_Columns, Base):
    """The same without."""

    __tablename__ = "unwatched"


_MODELS: Final[dict[str, Any]] = {_WITH: Watched, _WITHOUT: Unwatched}


def measure(bench: Bench) -> Iterator[Finding]:
    """Measure on every SQL database.

    Args:
        bench: what there is.
    """
    for database in bench.databases:
        tell(f"  {database.name}: {bench.scale.timers:,} timers")
        yield from _lateness(database, bench.scale)
        tell(f"  {database.name}: writes")
        yield from _writes(database, bench.scale.sittings, max(2, bench.scale.rounds // 2))


class _Punctuality:
    """A handler: how late each event is, and when all have come."""

    def __init__(self, expected: int) -> None:
        self.late: list[float] = []
        self.ended: Callable[[], object] = list
        self._expected = expected

    def __call__(self, expiry: Expiry) -> None:
        self.late.append((datetime.now(timezone.utc) - expiry.expires_at).total_seconds())
        if len(self.late) == self._expected:
            self.ended()


def _lateness(database: Database, scale: Scale) -> Iterator[Finding]:
    """Let timers end, with one worker."""
    timers, ended = scale.timers, scale.ended
    punctuality = _Punctuality(ended)
    known = [*handlers]
    on_expired(Timer, name="benchmark")(punctuality)
    try:
        with database.made() as url:
            engine = create_engine(url)
            Base.metadata.create_all(engine)
            _start(engine, timers, every=scale.timer_seconds / ended)
            worker = EventWorker(engine, Timer)
            punctuality.ended = worker.stop
            worker.run_forever()
            engine.dispose()
    finally:
        handlers[:] = known
    late = sorted(punctuality.late[:ended])
    for percentile in _PERCENTILES:
        figure = 1_000 * late[min(ended - 1, ended * percentile // 100)]
        what = f"p{percentile}"
        estimate = Estimate.exactly(figure)
        yield Finding(LATENESS, what, database.name, "ms", estimate, size=timers)
    share = sum(one <= 1 for one in late) / ended
    estimate = Estimate.exactly(share)
    yield Finding(IN_TIME, "share", database.name, "ratio", estimate, goal=EVENTS_IN_TIME)


def _start(engine: Engine, timers: int, every: float) -> None:
    """Insert timers, the first of which ends when all are there; then one ends every so often.

    Raises:
        RuntimeError: Some have ended before that.
    """
    begin = datetime.now(timezone.utc) + timedelta(seconds=2 + timers / _FILLED_A_SECOND)
    step = timedelta(seconds=every)
    with engine.begin() as connection:
        for first in range(0, timers, _CHUNK):
            numbers = range(first, min(timers, first + _CHUNK))
            rows = [{"id": number, "ends_at": begin + number * step} for number in numbers]
            connection.execute(insert(Timer), rows)
    if datetime.now(timezone.utc) > begin:
        raise RuntimeError(f"{timers:,} rows take longer to insert than they live")


def _writes(database: Database, sittings: int, rounds: int) -> Iterator[Finding]:
    """Compare writes with and without events."""
    known = [*handlers]
    on_expired(Watched, name="benchmark")(_ignored)
    taken: dict[str, list[list[Round]]] = {operation: [] for operation in _OPERATIONS}
    try:
        with database.made() as url:
            _create(url)
            for operation, sample in _OPERATIONS.items():
                yield _extra_statements(database.name, url, operation, sample)
            for _ in range(sittings):
                engine = create_engine(url)
                for operation, sample in _OPERATIONS.items():
                    samples = {side: sample(engine, model) for side, model in _MODELS.items()}
                    taken[operation].append(sitting(samples, rounds))
                engine.dispose()
    finally:
        handlers[:] = known
    for operation, found in taken.items():
        yield ratio(WRITES, operation, database.name, found, _WITH, _WITHOUT, EVENTS_TIME)


def _ignored(_expiry: Expiry) -> None: ...


def _create(url: str) -> None:
    engine = create_engine(url)
    Base.metadata.create_all(engine)
    with engine.begin() as connection:
        for model in _MODELS.values():
            rows = [{"id": number, "amount": 0} for number in range(_ROWS)]
            connection.execute(insert(model), rows)
    engine.dispose()


def _extra_statements(
    database: str, url: str, operation: str, sample: Callable[[Engine, Any], Sample]
) -> Finding:
    """Count what one more run of an operation sends."""
    sent = {}
    for side, model in _MODELS.items():
        engine = create_engine(url)
        statements: list[str] = []
        event.listen(engine, "before_cursor_execute", partial(_note, statements))
        run = sample(engine, model)
        lengths = []
        for runs in (1, 1, 2):  # the first one asks what an engine is asked once
            statements.clear()
            run(runs)
            lengths.append(len(statements))
        sent[side] = lengths[2] - lengths[1]
        engine.dispose()
    extra = float(sent[_WITH] - sent[_WITHOUT])
    figure = Estimate.exactly(extra)
    return Finding(STATEMENTS, operation, database, "statements", figure, goal=EVENTS_STATEMENTS)


def _note(statements: list[str], *arguments: Any) -> None:
    statements.append(arguments[2])


_numbers: Final = count(_ROWS)


def _insert(amount: int, engine: Engine, model: Any) -> Sample:
    def change(session: Session) -> None:
        session.add_all(model(id=next(_numbers), amount=1) for _ in range(amount))

    return flushing(engine, change)


def _flush(engine: Engine, model: Any) -> Sample:
    def change(session: Session) -> None:
        session.get_one(model, 1).amount += 1

    return flushing(engine, change)


def _execute(statement_of: Callable[[Any], Any], engine: Engine, model: Any) -> Sample:
    statement = statement_of(model)
    return acting(engine, lambda session: partial(session.execute, statement))


_OPERATIONS: Final[dict[str, Callable[[Engine, Any], Sample]]] = {
    "a flush that inserts 1 row, its own key": partial(_insert, 1),
    "a flush that inserts 100 rows, their own keys": partial(_insert, 100),
    "a flush that updates 1 row": _flush,
    "touch by key": partial(_execute, lambda model: touch(model).where(model.id == 1)),
    "execute(update(Model)) by key": partial(
        _execute, lambda model: update(model).where(model.id == 1).values(amount=2)
    ),
    "execute(delete(Model)) by key": partial(
        _execute, lambda model: delete(model).where(model.id == 1)
    ),
}
