"""What an index for the sweeper costs those who write, and what it saves the sweeper: PostgreSQL.

The same rows in three tables: without an index for the sweeper, with the usual one, with a BRIN.
Rows were written in the order of their dates, as those of a log are. An UPDATE that changes what an
index holds is not a HOT update: it writes to every index of the table.
"""

from __future__ import annotations

from functools import partial
from itertools import count
from time import perf_counter
from typing import TYPE_CHECKING, Final

from sqlalchemy import Column, DateTime, Integer, MetaData, String, Table, create_engine, text

from benchmarks.bench import tell
from benchmarks.findings import Finding, ratio
from benchmarks.harness import Estimate, sitting, timed, undisturbed
from ttl_odm import TTL
from ttl_odm.sqlalchemy import disable, enable
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine

    from benchmarks.bench import Bench
    from benchmarks.harness import Round, Sample

WRITES: Final = "PostgreSQL: a write to a table with an index over the date / without"
WAL: Final = "PostgreSQL: the WAL of a write to a table with an index over the date / without"
SWEEPS: Final = "PostgreSQL: a sweep by an index over the date / by a walk over the table"

NONE, BTREE, BRIN = "logs_plain", "logs_btree", "logs_brin"
_NAMES: Final = {BTREE: "the usual index", BRIN: "BRIN"}
_INDEXES: Final = {
    BTREE: f"CREATE INDEX ON {BTREE} (at)",
    BRIN: f"CREATE INDEX ON {BRIN} USING brin (at)",
}
_HOUR: Final = 3_600
_EXPIRED: Final = 50
"""One row of so many has expired."""

_STRIDE: Final = 7_919
_WRITES_OF_WAL: Final = 2_000
_ROWS: Final = 100
"""In a batch that is inserted."""

# Room on each page, as a table has that is updated all the time: without it no update is HOT.
_CREATE: Final = (
    "CREATE TABLE {table} (id bigint PRIMARY KEY, at timestamptz NOT NULL, "
    "payload varchar(100) NOT NULL) WITH (fillfactor = 80)"
)
_FILL: Final = (
    "INSERT INTO {table} SELECT i, now() - CASE WHEN i <= {rows} / {expired} THEN 7200 ELSE 0 END "
    "* interval '1 s' + i * interval '1 us', repeat('x', 100) FROM generate_series(1, {rows}) i"
)
_TOUCH: Final = "UPDATE {table} SET at = clock_timestamp() WHERE id = :id"
_INSERT: Final = (
    "INSERT INTO {table} SELECT i, clock_timestamp(), repeat('x', 100) "
    "FROM generate_series(:id, :id + {rows} - 1) i"
)


def measure(bench: Bench) -> Iterator[Finding]:
    """Measure.

    Args:
        bench: what there is; without PostgreSQL nothing is found.
    """
    for database in bench.databases:
        if database.key != "postgres":
            continue
        rows = bench.scale.migrated
        touches: list[list[Round]] = []
        inserts: list[list[Round]] = []
        sweeps: list[list[Round]] = []
        wal: dict[str, float] = {}
        for number in range(bench.scale.sittings):
            tell(f"  {database.name}: sitting {number + 1} of {bench.scale.sittings}")
            with database.made() as url:
                engine = create_engine(url)
                sweeps.append([_sweeps(engine, rows)])
                live = partial(_live, rows, rows - rows // _EXPIRED)
                touches.append(sitting(_writes(engine, _TOUCH, live), bench.scale.rounds))
                new = partial(count, rows + 1, _ROWS)
                inserts.append(sitting(_writes(engine, _INSERT, new), bench.scale.rounds))
                wal = {table: _wal(engine, table, rows) for table in (NONE, *_NAMES)}
                engine.dispose()
        for table, index in _NAMES.items():
            for what, found in (
                ("an UPDATE of the date by key, and commit", touches),
                (f"an INSERT of {_ROWS} rows, and commit", inserts),
            ):
                yield ratio(WRITES, f"{what}: {index}", database.name, found, table, NONE)
            of_wal = Estimate.exactly(wal[table] / wal[NONE])
            yield Finding(WAL, f"an UPDATE of the date: {index}", database.name, "ratio", of_wal)
            what = f"one row of {_EXPIRED} has expired: {index}"
            yield ratio(SWEEPS, what, database.name, sweeps, table, NONE)


def _fill(engine: Engine, table: str, rows: int) -> None:
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(f"DROP TABLE IF EXISTS {table}"))
        connection.execute(text(_CREATE.format(table=table)))
        connection.execute(text(_FILL.format(table=table, rows=rows, expired=_EXPIRED)))
        if table in _INDEXES:
            connection.execute(text(_INDEXES[table]))
        connection.execute(text(f"VACUUM ANALYZE {table}"))


def _sweeps(engine: Engine, rows: int) -> Round:
    """Sweep each table once, newly filled."""
    seconds = {}
    for name in (NONE, *_NAMES):
        _fill(engine, name, rows)
        table = Table(
            name,
            MetaData(),
            Column("id", Integer, primary_key=True),
            Column("at", DateTime(timezone=True)),
            Column("payload", String(100)),
        )
        enable(table, TTL(_HOUR, last_modified="at", override=None))
        with undisturbed():
            begin = perf_counter()
            report = Sweeper(engine, table, lease=False).run_once()
            seconds[name] = perf_counter() - begin
        disable(table)
        if report.problems or report.deleted != rows // _EXPIRED:
            raise RuntimeError(f"{name}: {report}")
    return seconds


def _writes(engine: Engine, statement: str, keys: Callable[[], Iterator[int]]) -> dict[str, Sample]:
    """One write to each table, of keys that nobody has written yet."""
    return {
        table: timed(_write(engine, statement.format(table=table, rows=_ROWS), keys()))
        for table in (NONE, *_NAMES)
    }


def _live(rows: int, span: int) -> Iterator[int]:
    """Keys of rows that the sweep has left, in strides, lest one page have all that is written."""
    expired = rows // _EXPIRED
    return (expired + 1 + number * _STRIDE % span for number in count())


def _write(engine: Engine, statement: str, keys: Iterator[int]) -> Callable[[], None]:
    written, connection = text(statement), engine.connect()

    def write() -> None:
        connection.execute(written, {"id": next(keys)})
        connection.commit()

    return write


def _wal(engine: Engine, table: str, rows: int) -> float:
    """The bytes of the WAL that updates of a few pages write, after a checkpoint."""
    keys = _live(rows, min(_WRITES_OF_WAL, rows - rows // _EXPIRED))
    touch = _write(engine, _TOUCH.format(table=table), keys)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("CHECKPOINT"))
        before = connection.scalar(text("SELECT pg_current_wal_lsn()::text"))
        for _ in range(_WRITES_OF_WAL):
            touch()
        since = text("SELECT pg_current_wal_lsn() - CAST(:lsn AS pg_lsn)")
        return float(connection.execute(since, {"lsn": before}).scalar_one())
