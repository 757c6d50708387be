"""Counted, not timed: the statements that the gate adds to what SQLAlchemy sends anyway.

A statement is what reaches a DBAPI cursor; an executemany is one. What an engine asks its database
once belongs to no statement in particular, and is told apart from the others: the sample of the
clock, taken again every 300 seconds (`ttl_odm.sqlalchemy.time.clock`), and what the first flush of
a table asks about it. So everything is done once before it is counted.
"""

from __future__ import annotations

from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import create_engine, delete, event, select, update
from sqlalchemy.orm import Session

from benchmarks.findings import Finding
from benchmarks.goals import EXTRA, EXTRA_INSERTS, EXTRA_KEYED
from benchmarks.harness import Estimate
from benchmarks.sql_models import (
    Item,
    ItemByHand,
    Keyed,
    KeyedPlain,
    Named,
    NamedByHand,
    NamedPlain,
    Numbered,
    NumberedPlain,
    expired_by_hand,
)
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlalchemy import Engine

    from benchmarks.findings import Goal

    Change = Callable[[Session], Callable[[], object]]
    """Prepares in a session what is then done, and counted."""

ANYTHING = "SQLAlchemy: extra statements per read, UPDATE and DELETE"
INSERTS = "SQLAlchemy: extra statements per flush that inserts rows, for each table"

_A_LIVE_KEY = 1
_FEW = 10
_numbers = count()


class Case(NamedTuple):
    """Something to be counted with a TTL model and with one that has none."""

    section: str
    what: str
    goal: Goal
    gated: Change
    plain: Change
    tables: int = 1
    by_hand: Change | None = None


def count_statements(database: str, url: str) -> Iterator[Finding]:
    """Count what the gate adds.

    Args:
        database: its name in the report.
        url: SQLAlchemy's URL of a database with the tables.
    """
    gated, plain = create_engine(url), create_engine(url)
    try:
        clock = _samples_of_clock(gated)
        once: dict[str, list[float]] = {ANYTHING: [], INSERTS: []}
        for case in _cases():
            first = _statements(gated, case.gated) - _statements(plain, case.plain)
            added = _statements(gated, case.gated) - _statements(plain, case.plain)
            once[case.section].append((first - added) / case.tables)
            yield _counted(case.section, case.what, database, added / case.tables, case.goal)
            if case.by_hand is not None:
                freed = _statements(plain, case.by_hand) - _statements(plain, case.plain)
                what = f"{case.what}; freed by hand"
                yield _counted(case.section, what, database, freed / case.tables, None)
        yield _counted(ANYTHING, "the clock, once per engine and 300 s", database, clock, None)
        for section, firsts in once.items():
            what = "the first time, once per engine and table"
            yield _counted(section, what, database, max(firsts), None)
    finally:
        gated.dispose()
        plain.dispose()


def _cases() -> Iterator[Case]:
    for what, change in (
        ("select", _select),
        ("session.get", _get),
        ("flush that updates 1 row", _updated(1)),
        (f"flush that updates {_FEW} rows", _updated(_FEW)),
        ("flush that deletes 1 row", _deleted(1)),
        (f"flush that deletes {_FEW} rows", _deleted(_FEW)),
        ("execute(update(Model))", _bulk_update),
        ("execute(delete(Model))", _bulk_delete),
    ):
        yield Case(ANYTHING, what, EXTRA, change(Item), change(ItemByHand))
    for amount in (1, 100):
        what = "1 row" if amount == 1 else f"{amount} rows"
        yield Case(
            INSERTS,
            f"{what}, the database's key",
            EXTRA_INSERTS,
            _inserted(amount, Numbered),
            _inserted(amount, NumberedPlain),
        )
    for amount in (1, 100, 1000):
        what = "1 row" if amount == 1 else f"{amount} rows"
        yield Case(
            INSERTS,
            f"{what}, its own key",
            EXTRA_KEYED,
            _inserted(amount, Keyed),
            _inserted(amount, KeyedPlain),
        )
    yield Case(
        INSERTS,
        "100 rows, the database's key and a unique name",
        EXTRA_KEYED,
        _inserted(100, Named),
        _inserted(100, NamedPlain),
        by_hand=_freed(100),
    )
    yield Case(
        INSERTS,
        "10 rows in each of two tables",
        EXTRA_KEYED,
        _inserted(10, Keyed, Named),
        _inserted(10, KeyedPlain, NamedPlain),
        tables=2,
    )


def _select(model: Any) -> Change:
    return lambda session: lambda: session.scalars(select(model).limit(100)).all()


def _get(model: Any) -> Change:
    return lambda session: lambda: session.get_one(model, _A_LIVE_KEY)


def _updated(amount: int) -> Callable[[Any], Change]:
    def of(model: Any) -> Change:
        def prepare(session: Session) -> Callable[[], object]:
            for row in _some(session, model, amount):
                row.amount += 1
            return session.flush

        return prepare

    return of


def _deleted(amount: int) -> Callable[[Any], Change]:
    def of(model: Any) -> Change:
        def prepare(session: Session) -> Callable[[], object]:
            for row in _some(session, model, amount):
                session.delete(row)
            return session.flush

        return prepare

    return of


def _bulk_update(model: Any) -> Change:
    statement = update(model).where(model.amount == _A_LIVE_KEY).values(name="changed")
    return lambda session: lambda: session.execute(statement)


def _bulk_delete(model: Any) -> Change:
    statement = delete(model).where(model.amount == _A_LIVE_KEY)
    return lambda session: lambda: session.execute(statement)


def _inserted(amount: int, *models: Any) -> Change:
    def prepare(session: Session) -> Callable[[], object]:
        session.add_all(_new(model) for model in models for _ in range(amount))
        return session.flush

    return prepare


def _freed(amount: int) -> Change:
    """What frees the names of expired rows without ttl_odm, before they are inserted."""

    def prepare(session: Session) -> Callable[[], object]:
        rows = [_new(NamedByHand) for _ in range(amount)]
        dialect = session.get_bind().dialect.name
        expired = expired_by_hand(dialect, NamedByHand)
        names = [row.name for row in rows]
        session.add_all(rows)

        def free() -> None:
            freed = delete(NamedByHand).where(NamedByHand.name.in_(names), expired)
            with session.no_autoflush:
                session.execute(freed, execution_options={"synchronize_session": False})
            session.flush()

        return free

    return prepare


def _new(model: Any) -> Any:
    value = f"counted {next(_numbers)}"
    given = {name: value for name in ("key", "name") if hasattr(model, name)}
    return model(payload="x", **given)


def _some(session: Session, model: Any, amount: int) -> Sequence[Any]:
    return session.scalars(select(model).order_by(model.id).limit(amount)).all()


def _samples_of_clock(engine: Engine) -> int:
    """How often an engine that has met no TTL table yet is asked for the time, for two reads."""
    stamp = clock_of(engine.dialect).stamp
    with Session(engine) as session, _recorded(engine) as seen:
        _select(Item)(session)()
        _get(Item)(session)()
    return sum(statement == f"SELECT {stamp}" for statement in seen)


def _statements(engine: Engine, change: Change) -> int:
    with Session(engine) as session:
        run = change(session)
        with _recorded(engine) as seen:
            run()
    return len(seen)


@contextmanager
def _recorded(engine: Engine) -> Iterator[list[str]]:
    """The statements that reach a cursor in the block."""
    seen: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        seen.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(engine, "before_cursor_execute", note)


def _counted(section: str, what: str, database: str, number: float, goal: Goal | None) -> Finding:
    return Finding(section, what, database, "statements", Estimate.exactly(number), goal=goal)
