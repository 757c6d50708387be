"""What the sweeping benchmarks delete, and the four ways in which they do it."""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Engine, String, create_engine, select, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from ttl_odm.sqlalchemy import TTLMixin, expired, include_expired
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DAY: Final = 86_400
LIVE: Final = 20_000
"""Rows that stay, with keys from 1 on; somebody reads and writes them meanwhile."""

READ_AND_WRITE: Final = (
    "SELECT payload FROM entries WHERE id = :id",
    "UPDATE entries SET payload = payload WHERE id = :id",
)
"""What somebody does."""

_KEYS: Final = 1_000
"""Keys that are read, and then deleted, at a time, where somebody does it by hand."""

_COUNTING: Final = (
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows}) SELECT"
)
NUMBERS: Final = {
    "postgresql": "SELECT i FROM generate_series(1, {rows}) AS n(i)",
    "mariadb": "SELECT seq AS i FROM seq_1_to_{rows}",
    "mysql": f"{_COUNTING} /*+ SET_VAR(cte_max_recursion_depth = 1000000000) */ i FROM n",
    "sqlite": f"{_COUNTING} i FROM n",
}
"""Selects ``i`` from 1 up to a number of rows, by what `kind_of` tells."""

_SETTLE: Final = {"postgresql": "VACUUM ANALYZE {table}", "mysql": "ANALYZE TABLE {table}"}


class Base(DeclarativeBase):
    """The model's own."""


class Entry(TTLMixin, Base):
    """A row as wide as a small session."""

    __tablename__ = "entries"
    __ttl__ = DAY

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    payload: Mapped[str] = mapped_column(String(100))


def kind_of(engine: Engine) -> str:
    """The dialect's name; MariaDB's own once the engine has connected to one."""
    return "mariadb" if getattr(engine.dialect, "is_mariadb", False) else engine.dialect.name


def fill(engine: Engine, rows: int, *, age: int = 2 * DAY) -> None:
    """Replace the table's rows: `LIVE` live ones, and some that were all written some time ago.

    Args:
        engine: where.
        rows: how many are old; they are written in the order of their keys and of their ages.
        age: seconds since the first of them was written; each is a little younger.
    """
    Base.metadata.drop_all(engine)
    Base.metadata.create_all(engine)
    insert_rows(engine, Entry.__tablename__, rows, age=age, live=LIVE)


def insert_rows(  # noqa: PLR0913 - what there is to say of rows
    engine: Engine,
    table: str,
    rows: int,
    *,
    age: int,
    live: int = 0,
    more: Mapping[str, str] | None = None,
) -> None:
    """Fill a table with rows that were written some time ago, and tell the planner.

    Args:
        engine: where.
        table: an empty one, with the columns of `Entry`.
        rows: how many are old, as in `fill`.
        age: the same.
        live: how many were written just now, with the first keys.
        more: SQL for further columns, by name; ``i`` is the key.
    """
    clock, dialect = clock_of(engine.dialect), engine.dialect.name
    numbers = NUMBERS[kind_of(engine)].format(rows=rows + live)
    payload = f"substr('{'some payload ' * 8}', 1, 100)"
    seconds = f"CASE WHEN i <= {live} THEN 0 ELSE {age} - i * 3600.0 / {rows + live} END"
    stamp = f"{clock.now} - {seconds} * {clock.second}"
    if clock.per_second is not None:
        stamp = f"CAST({stamp} AS {'SIGNED' if dialect == 'mysql' else 'INTEGER'})"
    values = {"id": "i", "_ts": stamp, "payload": payload, **(more or {})}
    rows_of = f"SELECT {', '.join(values.values())} FROM ({numbers}) AS n"  # noqa: S608
    with engine.begin() as connection:
        if dialect == "postgresql":
            # Otherwise VACUUM doesn't know yet that they are committed, and calls no page
            # all-visible, as those of rows that are a day old are.
            connection.execute(text("SET LOCAL synchronous_commit = on"))
        connection.execute(text(f"INSERT INTO {table} ({', '.join(values)}) {rows_of}"))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(_SETTLE.get(dialect, "ANALYZE").format(table=table)))


def sweep(engine: Engine) -> int:
    """Delete as the sweeper does."""
    report = Sweeper(engine, Entry, lease=False).run_once()
    report.raise_for_failures()
    return report.deleted


def delete_at_once(engine: Engine) -> int:
    """Delete by one statement."""
    clock = clock_of(engine.dialect)
    cutoff = f"{clock.now} - {DAY} * {clock.second}"
    statement = f"DELETE FROM entries WHERE ttl IS NULL AND _ts <= {cutoff}"  # noqa: S608
    with engine.begin() as connection:
        return connection.execute(text(statement)).rowcount


def delete_in_halves(engine: Engine) -> int:
    """Delete by two statements at once, each from one half of the time in which rows expired."""
    clock = clock_of(engine.dialect)
    cutoff = f"{clock.now} - {DAY} * {clock.second}"
    expired = f"ttl IS NULL AND _ts <= {cutoff}"
    half = text(f"SELECT min(_ts) + ({cutoff} - min(_ts)) / 2 FROM entries WHERE {expired}")  # noqa: S608
    with engine.begin() as connection:
        middle = connection.scalar(half)

    def delete(part: str) -> int:
        statement = f"DELETE FROM entries WHERE {expired} AND _ts {part} :middle"  # noqa: S608
        with engine.begin() as connection:
            return connection.execute(text(statement), {"middle": middle}).rowcount

    with ThreadPoolExecutor(2) as threads:
        return sum(threads.map(delete, ("<", ">=")))


def delete_by_key(engine: Engine) -> int:
    """Delete as pt-archiver does: walk the primary key, read keys, delete these."""
    deleted, last = 0, 0
    table: Any = Entry.__table__
    while True:
        with engine.begin() as connection:
            found = select(table.c.id).where(expired(table), table.c.id > last)
            found = found.order_by(table.c.id).limit(_KEYS).options(include_expired())
            keys = list(connection.scalars(found))
            if not keys:
                return deleted
            numbers = ", ".join(map(str, keys))
            deleted += connection.execute(
                text(f"DELETE FROM entries WHERE id IN ({numbers})")  # noqa: S608
            ).rowcount
        last = keys[-1]


class Plain(DeclarativeBase):
    """A model of the same table without a policy: what somebody without ttl_odm has."""


class PlainEntry(Plain):
    """The same row."""

    __tablename__ = "entries"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    payload: Mapped[str] = mapped_column(String(100))


def delete_objects(engine: Engine) -> int:
    """Delete through the ORM, row by row: load each, `session.delete`, commit."""
    with Session(engine) as session:
        keys = session.scalars(select(PlainEntry.id).where(PlainEntry.id > LIVE)).all()
        for key in keys:
            session.delete(session.get_one(PlainEntry, key))
            session.commit()
    return len(keys)


_OWN_END: Final = {
    "postgresql": "((_ts AT TIME ZONE 'UTC') + ttl * interval '1 second') AT TIME ZONE 'UTC'",
    "sqlite": "_ts + ttl * 1000",
    "mysql": "_ttl_own",
}
"""When a row with a ttl of its own ends, as an index of the table has it."""

_LEASES: Final = "leases_by_hand"


class Script:
    """A sweeper as somebody writes it for this one table, without ttl_odm.

    It looks for an expired row in each of the two indexes. With a lease, a row in a table says who
    sweeps, until when and how often, and the sweep's result is stored as the lease is given back.

    Args:
        engine: where.
    """

    def __init__(self, engine: Engine) -> None:
        """Make the table for the lease."""
        clock, dialect = clock_of(engine.dialect), engine.dialect.name
        self._engine = engine
        looks = (
            f"ttl IS NULL AND _ts <= {clock.now} - {DAY} * {clock.second}",
            f"ttl > 0 AND {_OWN_END[dialect]} <= {clock.now}",
        )
        looked = ", ".join(f"(SELECT 1 FROM entries WHERE {look} LIMIT 1)" for look in looks)  # noqa: S608
        self._look = text(f"SELECT {looked}")
        kind = "timestamptz" if dialect == "postgresql" else "BIGINT"
        columns = f"name VARCHAR(40) PRIMARY KEY, holder VARCHAR(80), ends {kind}, token BIGINT"
        with engine.begin() as connection:
            connection.execute(text(f"DROP TABLE IF EXISTS {_LEASES}"))
            connection.execute(text(f"CREATE TABLE {_LEASES} ({columns}, result TEXT, at {kind})"))
            row = f"INSERT INTO {_LEASES} (name, token) VALUES ('sweep', 0)"  # noqa: S608
            connection.execute(text(row))
        self._take = text(
            f"UPDATE {_LEASES} SET holder = :holder, ends = {clock.now} + 60 * {clock.second}, "  # noqa: S608
            f"token = token + 1 WHERE name = 'sweep' AND (holder IS NULL OR ends <= {clock.now})"
        )
        self._give_back = text(
            f"UPDATE {_LEASES} SET holder = NULL, ends = NULL, result = :result, at = {clock.now} "  # noqa: S608
            "WHERE name = 'sweep' AND holder = :holder AND token = :token"
        )
        self._read = text(f"SELECT token FROM {_LEASES} WHERE name = 'sweep'")  # noqa: S608

    def sweep(self) -> None:
        """Find that nothing has expired."""
        with self._engine.begin() as connection:
            if any(connection.execute(self._look).one()):
                raise RuntimeError("something has expired")

    def sweep_with_lease(self) -> None:
        """Do so while nobody else does."""
        holder = {"holder": f"{os.getpid()}"}
        with self._engine.begin() as connection:
            if connection.execute(self._take, holder).rowcount != 1:
                raise RuntimeError("somebody else sweeps")
            token = connection.scalar(self._read)
        self.sweep()
        given = {**holder, "token": token, "result": '{"deleted":0}'}
        with self._engine.begin() as connection:
            if connection.execute(self._give_back, given).rowcount != 1:
                raise RuntimeError("somebody else has taken the lease")


SWEEPER: Final = "the sweeper"
AT_ONCE: Final = "one DELETE"
BY_KEY: Final = "find keys, delete these"
ROW_BY_ROW: Final = "row by row"
WAYS: Final[dict[str, Callable[[Engine], int]]] = {
    SWEEPER: sweep,
    AT_ONCE: delete_at_once,
    BY_KEY: delete_by_key,
    ROW_BY_ROW: delete_objects,
}


def remember(url: str) -> None:
    """Sweep everything, and print how far the most memory it ever had is above that before."""
    engine = create_engine(url)
    Entry.__ttl__ = 1  # what lives by the benchmark's ttl has expired by this one
    engine.connect().close()
    before = _kibibytes("VmRSS")
    deleted = sweep(engine)
    after = _kibibytes("VmHWM")
    engine.dispose()
    sys.stdout.write(json.dumps({"deleted": deleted, "kib": after - before}) + "\n")


def _kibibytes(what: str) -> int:
    # Not getrusage(): the most that it knows of may be that of the process before the exec.
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1])
    raise LookupError(f"Linux doesn't tell {what}")


if __name__ == "__main__":
    remember(sys.stdin.readline().strip())
