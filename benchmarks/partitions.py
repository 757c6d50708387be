"""What it takes to expire a table by its partitions: dropped, against deleted in batches.

The same rows, thirty days of them and all of them expired, in a table that is cut by days and in
one that isn't. Dropping them by hand shows what is the database's own: to give files back. While
partitions are dropped somebody reads the table; how long one of these reads takes at most is told,
since a drop needs the table for itself for a moment.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import DateTime, String, create_engine, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from benchmarks import goals
from benchmarks.bench import tell
from benchmarks.findings import Finding, ratio
from benchmarks.foreground import foreground
from benchmarks.harness import Estimate, rotated
from benchmarks.sweeping_tables import NUMBERS, kind_of
from ttl_odm import ExpireAfter, Partitions
from ttl_odm.partitions.dialects import partition_ddl
from ttl_odm.partitions.dialects.mysql import MySQLPartitions
from ttl_odm.partitions.dialects.postgresql import PostgreSQLPartitions
from ttl_odm.partitions.sqlalchemy.catalogue import read_leaves
from ttl_odm.sqlalchemy.policy.bindings import binding_of
from ttl_odm.sqlalchemy.policy.schema import as_ddl
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper import Sweeper
from ttl_odm.testing import TTLClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from benchmarks.bench import Bench
    from benchmarks.harness import Round
    from ttl_odm.partitions.sqlalchemy.catalogue import Leaf, Leaves

TIME: Final = "Expiry by partition: the time / of batches"
WITH_VACUUM: Final = "Expiry by partition: the time / of batches, and of the VACUUM behind them"
BY_HAND: Final = "Expiry by partition: the time / of dropping the same partitions by hand"
WAL: Final = "Expiry by partition: the log that the database writes / of batches"
WAIT: Final = "Expiry by partition: the longest of somebody's reads meanwhile"

DAYS: Final = 30
_DAY: Final = 86_400
_CUT, _WHOLE, _HAND = "cut", "whole", "by hand"
_VACUUM: Final = "whole and vacuum"

_DIRTY: Final = "SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_pages_dirty'"
_FEW: Final = 20
"""Pages that are changed whatever one does: the server's own."""

_SITTINGS: Final = 2
"""As one table has as many rows as all others together."""


def _declare(name: str, partitions: Partitions | None) -> Any:
    """A table of what happened."""

    class Base(DeclarativeBase):
        pass

    class Event(Base):
        __tablename__ = name
        __ttl__ = ExpireAfter("at", _DAY)
        __ttl_partition__ = partitions

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        at: Mapped[datetime] = mapped_column(DateTime(timezone=True), primary_key=True)
        payload: Mapped[str] = mapped_column(String(100))

    return Event


_MODELS: Final[dict[str, Any]] = {
    _CUT: _declare("cut_events", Partitions("1 day")),
    _WHOLE: _declare("whole_events", None),
    _HAND: _declare("cut_events", Partitions("1 day")),
}
_MADE_BEFORE: Final = _declare("cut_events", Partitions("1 day", ahead=DAYS + 2 + 7))
"""The first, as it was a month ago: so what is measured makes no partitions, or hardly any."""


def measure(bench: Bench) -> Iterator[Finding]:
    """Measure where a table can be cut.

    Args:
        bench: what there is.
    """
    for database in bench.databases:
        rows = bench.scale.cut.get(database.key)
        if rows is None:
            continue
        sittings: list[Round] = []
        for number in range(min(_SITTINGS, bench.scale.sittings)):
            tell(f"  {database.name}: sitting {number + 1}")
            with database.made() as url:
                engine = create_engine(url)
                if partition_ddl(engine.dialect.name) is None:
                    break
                sittings.append(_sit(engine, url, rows, number))
                engine.dispose()
        if sittings:
            yield from _compared(database.name, rows, sittings)


def _compared(database: str, rows: int, sittings: list[Round]) -> Iterator[Finding]:
    rounds = [[sitting] for sitting in sittings]
    what = f"{rows:,} rows of {DAYS} days"
    yield ratio(TIME, what, database, rounds, _CUT, _WHOLE, goals.PARTITIONS_TIME)
    if _VACUUM in sittings[0]:
        yield ratio(WITH_VACUUM, what, database, rounds, _CUT, _VACUUM)
    yield ratio(BY_HAND, what, database, rounds, _CUT, _HAND)
    if sittings[0][f"{_WHOLE} log"]:
        over, under = f"{_CUT} log", f"{_WHOLE} log"
        log = ratio(WAL, what, database, rounds, over, under, goals.PARTITIONS_LOG)
        yield Finding(log.section, what, database, "ratio", log.estimate, goal=log.goal)
    waits = sorted(sitting["wait"] * 1e3 for sitting in sittings)
    longest = Estimate(waits[-1], waits[0], waits[-1])
    yield Finding(WAIT, what, database, "ms", longest, goal=goals.PARTITIONS_WAIT)
    waits = sorted(sitting["wait by hand"] * 1e3 for sitting in sittings)
    longest = Estimate(waits[-1], waits[0], waits[-1])
    yield Finding(WAIT, f"{what}; by hand", database, "ms", longest)


def _sit(engine: Engine, url: str, rows: int, number: int) -> Round:
    """Expire both tables."""
    found: dict[str, float] = {}
    now = clock_of(engine.dialect).at_read
    for name, model in rotated(_MODELS.items(), number):
        _fill(engine, model, rows)
        reads = [f"SELECT payload FROM {model.__tablename__} WHERE id = :id AND at >= {now}"]  # noqa: S608
        log = _log(engine)
        with foreground(url, reads, rows) as took:
            begin = perf_counter()
            _WAYS[name](engine, model)
            found[name] = perf_counter() - begin
        found[f"{name} log"] = _log(engine) - log
        with engine.connect() as connection:
            left = connection.scalar(text(f"SELECT count(*) FROM {model.__tablename__}"))  # noqa: S608
        if left:
            raise RuntimeError(f"{name}: {left} of {rows} rows are left")
        if name == _CUT:
            found["wait"] = max(took)
        elif name == _HAND:
            found["wait by hand"] = max(took)
        elif name == _WHOLE and engine.dialect.name == "postgresql":
            begin = perf_counter()
            _settle(engine, "VACUUM", model)
            found[_VACUUM] = found[name] + perf_counter() - begin
        model.metadata.drop_all(engine)
    return found


def _fill(engine: Engine, model: Any, rows: int) -> None:
    """Make a table as if it had been in use for a month; nobody has vacuumed it since."""
    with TTLClock() as clock, clock.advance(-(DAYS + 2) * _DAY):
        (model if model is _MODELS[_WHOLE] else _MADE_BEFORE).metadata.create_all(engine)
    here = clock_of(engine.dialect)
    numbers = NUMBERS[kind_of(engine)].format(rows=rows)
    seconds = f"({2 * _DAY} + i * {DAYS - 1} * {_DAY}.0 / {rows})"
    at = here.date_ago(here.at_write, seconds)
    with engine.begin() as connection:
        connection.execute(
            text(
                f"INSERT INTO {model.__tablename__} (id, at, payload) "  # noqa: S608
                f"SELECT i, {at}, '{'x' * 100}' FROM ({numbers}) AS n"
            )
        )
    # As autovacuum would have done in all these days.
    settle = "VACUUM ANALYZE" if engine.dialect.name == "postgresql" else "ANALYZE TABLE"
    _settle(engine, settle, model)
    if getattr(engine.dialect, "is_mariadb", False):
        with suppress(OperationalError):  # not everybody may
            _write_back(engine)


def _write_back(engine: Engine) -> None:
    """Have MariaDB write changed pages, as it long has those of a partition that goes by its age.

    A file with such pages is dropped when the page cleaner has been there, a second later perhaps.
    """
    most = "innodb_max_dirty_pages_pct"
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        before = connection.scalar(text(f"SELECT @@GLOBAL.{most}"))
        low = connection.scalar(text(f"SELECT @@GLOBAL.{most}_lwm"))
        try:
            for name in (f"{most}_lwm", most):
                connection.execute(text(f"SET GLOBAL {name} = 0"))
            while int(connection.execute(text(_DIRTY)).one()[1]) > _FEW:
                sleep(0.1)
        finally:
            connection.execute(text(f"SET GLOBAL {most} = {before}"))
            connection.execute(text(f"SET GLOBAL {most}_lwm = {low}"))


def _settle(engine: Engine, command: str, model: Any) -> None:
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(f"{command} {model.__tablename__}"))


def _sweep(engine: Engine, model: Any) -> None:
    Sweeper(engine, model, lease=False).run_once().raise_for_failures()


def _drop(engine: Engine, model: Any) -> None:
    """Drop what is dead, a transaction for each."""
    binding = binding_of(model.__table__)
    if binding is None:
        raise TypeError(f"{model} has no policy")
    with engine.begin() as connection:
        leaves = read_leaves(connection, binding)
    if leaves is None:
        raise RuntimeError(f"{model} is not cut")
    for leaf in filter(leaves.is_dead, leaves.every):
        with engine.begin() as connection:
            for statement in _dropping(leaves, leaf):
                connection.execute(as_ddl(statement))


def _dropping(leaves: Leaves, leaf: Leaf) -> list[str]:
    if isinstance(leaves.ddl, MySQLPartitions):
        return [leaves.ddl.drop(leaves.cut, leaf.name[1])]
    ddl = PostgreSQLPartitions()
    return ddl.drop(leaves.cut, ddl.quoted(*leaf.name))


_WAYS: Final = {_CUT: _sweep, _WHOLE: _sweep, _HAND: _drop}


def _log(engine: Engine) -> float:
    """How many bytes of its log PostgreSQL has written so far; the others' status is too coarse."""
    if engine.dialect.name != "postgresql":
        return 0.0
    with engine.connect() as connection:
        return float(connection.scalar(text("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn")))
