"""How long a migration stalls a writer.

Another process updates single rows of the table, one after the other, while a step runs. What is
told is the longest that one of its statements took, for our operation and for the migration that
one would write without it.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import create_engine, text

import ttl_odm.alembic  # noqa: F401
from benchmarks.bench import tell
from benchmarks.findings import Finding
from benchmarks.foreground import foreground
from benchmarks.harness import Estimate
from benchmarks.sweeping_tables import NUMBERS, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine

    from benchmarks.bench import Bench

STALL: Final = "Migrating: the longest stall of a writer, with ttl_odm and by hand"
WHOLE: Final = "Migrating: the whole step, with ttl_odm and by hand"

STEPS: Final = ("add", "drop indexes", "add indexes", "drop", "add, with backfill")
WRITE: Final = "UPDATE logins SET views = views + 1 WHERE id = :id"


def fill(engine: Engine, rows: int) -> None:
    """Make the table anew, without TTL."""
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE IF EXISTS logins"))
        numbers = NUMBERS[kind_of(engine)].format(rows=rows)
        connection.execute(
            text(
                "CREATE TABLE logins (id INTEGER PRIMARY KEY, views INTEGER NOT NULL, "
                "who VARCHAR(60) NOT NULL, created_at TIMESTAMP NOT NULL)"
            )
        )
        connection.execute(
            text(
                "INSERT INTO logins SELECT i, 0, 'somebody with a name of usual length', "  # noqa: S608
                f"'2026-01-01 10:00:00' FROM ({numbers}) s"
            )
        )
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        analyze = {"mysql": "ANALYZE TABLE logins"}.get(engine.dialect.name, "ANALYZE")
        connection.execute(text(analyze))


_CLOCK: Final = {
    "postgresql": ("timestamptz", "clock_timestamp()"),
    "mysql": ("BIGINT", "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))"),
    "sqlite": ("BIGINT", "(CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER))"),
}
_CHECK: Final = "CHECK (ttl IS NULL OR ttl = -1 OR ttl > 0)"
_INDEXES: Final = {
    "postgresql": (
        "CREATE INDEX inherited ON logins (_ts) WHERE ttl IS NULL",
        (
            "CREATE INDEX own ON logins ((((_ts AT TIME ZONE 'UTC') + ttl * interval '1 second') "
            "AT TIME ZONE 'UTC')) WHERE ttl > 0"
        ),
    ),
    "sqlite": (
        "CREATE INDEX inherited ON logins (_ts) WHERE ttl IS NULL",
        "CREATE INDEX own ON logins (_ts + ttl * 1000) WHERE ttl > 0",
    ),
    "mysql": (
        (
            "ALTER TABLE logins "
            "ADD COLUMN inh BIGINT AS (CASE WHEN ttl IS NULL THEN _ts END) VIRTUAL, "
            "ADD COLUMN own BIGINT AS (CASE WHEN ttl > 0 THEN _ts + ttl * 1000000 END) VIRTUAL, "
            "ADD INDEX inherited (inh), ADD INDEX own (own)"
        ),
    ),
}


def by_hand(engine: Engine, step: str) -> list[str]:
    """What one would write by hand, in one transaction."""
    name = engine.dialect.name
    kind, clock = _CLOCK[name]
    dropped = {
        "mysql": ["ALTER TABLE logins DROP INDEX inherited, DROP INDEX own, DROP inh, DROP own"],
    }.get(name, ["DROP INDEX inherited", "DROP INDEX own"])
    if step == "drop indexes":
        return dropped
    if step == "add indexes":
        return list(_INDEXES[name])
    if step == "drop":
        if name == "mysql":
            return [
                (
                    "ALTER TABLE logins DROP INDEX inherited, DROP INDEX own, DROP COLUMN inh, "
                    "DROP COLUMN own, DROP CONSTRAINT ck, DROP COLUMN _ts, DROP COLUMN ttl"
                )
            ]
        return [
            *dropped,
            *(f"ALTER TABLE logins DROP COLUMN {column}" for column in ("_ts", "ttl")),
        ]
    added = [
        (
            f"ALTER TABLE logins ADD COLUMN _ts {kind} NOT NULL DEFAULT {clock}, "
            f"ADD COLUMN ttl INTEGER, ADD CONSTRAINT ck {_CHECK}"
        )
    ]
    if name == "sqlite":
        # Alembic's batch mode: SQLite can't add a column whose default is the clock.
        added = [
            (
                "CREATE TABLE copied (id INTEGER PRIMARY KEY, views INTEGER NOT NULL, who VARCHAR(60) "  # noqa: E501
                f"NOT NULL, created_at TIMESTAMP NOT NULL, _ts BIGINT NOT NULL DEFAULT {clock}, "
                f"ttl INTEGER {_CHECK})"
            ),
            "INSERT INTO copied (id, views, who, created_at) SELECT * FROM logins",
            "DROP TABLE logins",
            "ALTER TABLE copied RENAME TO logins",
        ]
    if step == "add, with backfill":
        old = {
            "postgresql": "created_at AT TIME ZONE 'UTC'",
            "mysql": "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', created_at)",
            "sqlite": "CAST(ROUND((julianday(created_at) - 2440587.5) * 86400000) AS INTEGER)",
        }[name]
        added.append(f"UPDATE logins SET _ts = {old}")  # noqa: S608
    return [*added, *_INDEXES[name]]


def run_by_hand(engine: Engine, step: str) -> None:
    """Do that."""
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        for statement in by_hand(engine, step):
            connection.exec_driver_sql(statement)
        connection.commit()


def run_ours(engine: Engine, step: str) -> None:
    """Let our operation do it."""
    with engine.connect() as connection:
        op: Any = Operations(MigrationContext.configure(connection))
        if step == "add":
            op.add_ttl("logins", 3600)
        elif step == "add, with backfill":
            op.add_ttl("logins", 3600, backfill="created_at")
        elif step == "drop":
            op.drop_ttl("logins")
        else:
            op.alter_ttl("logins", 3600, sweep="index" if step == "add indexes" else "scan")


WAYS: Final[dict[str, Callable[[Engine, str], None]]] = {
    "ttl_odm": run_ours,
    "by hand": run_by_hand,
}


def measure(bench: Bench) -> Iterator[Finding]:
    """Measure on every SQL database.

    Args:
        bench: what there is.
    """
    for database in bench.databases:
        tell(f"  {database.name}")
        patience: Any = {"timeout": 300} if database.key == "sqlite" else {}
        with database.made() as url:
            engine = create_engine(url, connect_args=patience)
            if database.key == "sqlite":
                with engine.connect() as connection:
                    connection.exec_driver_sql("PRAGMA journal_mode = WAL")
            found: list[Finding] = []
            for way, run in WAYS.items():
                fill(engine, bench.scale.migrated)
                for step in STEPS:
                    with foreground(url, [WRITE], bench.scale.migrated) as took:
                        begin = perf_counter()
                        run(engine, step)
                        whole = perf_counter() - begin
                    for section, seconds in ((STALL, max(took)), (WHOLE, whole)):
                        taken = Estimate.exactly(seconds * 1e3)
                        line = Finding(section, f"{step}; {way}", database.name, "ms", taken)
                        found.append(line)
            engine.dispose()
        # Both ways of a step beside each other.
        yield from sorted(found, key=lambda each: STEPS.index(each.what.partition(";")[0]))
