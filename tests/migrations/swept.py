"""What the tests of `sweep="database"` have in common: one run of the job, and what it left."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text

from tests.guard import GUARD
from tests.locks import answers
from ttl_odm.database_sweep.cli.checks import database_sweep
from ttl_odm.sqlalchemy.policy.bindings import binding_of
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine

    from ttl_odm.sqlalchemy.policy.bindings import Binding

    Log = tuple[int, int, str]

events = pytest.mark.databases("mariadb", "mysql")
postgresql = pytest.mark.databases("postgres")

ADD = "op.add_ttl('web_sessions', 3600, sweep='database')"
DROP = "op.drop_ttl('web_sessions')"
LEFT = (
    "SELECT event_name FROM information_schema.events WHERE event_schema = DATABASE() "
    "UNION ALL SELECT routine_name FROM information_schema.routines "
    "WHERE routine_schema = DATABASE()"
)
LEFT_ON_POSTGRESQL = (
    "SELECT proname FROM pg_proc WHERE pronamespace = to_regnamespace(current_schema()) "
    "AND proname LIKE '%ttl_sweep'"
)


@contextmanager
def alone(
    engine: Engine, table: str = "web_sessions", schema: str | None = None
) -> Iterator[Callable[[], Log]]:
    """Hold the lock by which one runs at a time, for runs by this session."""
    place = f"{schema}." if schema else ""
    name = f"LEFT(SHA2(CONCAT({repr(schema) if schema else 'DATABASE()'}, '.{table}'), 256), 48)"
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:

        def let_run() -> Log:
            connection.execute(text(f"CALL {place}{table}_ttl_sweep()"))
            return log(engine, place + table)

        if engine.dialect.name == "postgresql":  # where nothing calls it but the test
            yield let_run
            return
        name = f"CONCAT('ttl_odm.', {name})"
        assert connection.scalar(text(f"SELECT GET_LOCK({name}, 120)")) == 1
        yield let_run
        connection.scalar(text(f"SELECT RELEASE_LOCK({name})"))


def whole(let_run: Callable[[], Log]) -> Log:
    """Let it run until all rows are deleted: a run ends after ten seconds, however slow it is."""
    deleted, total, outcome = let_run()
    while outcome == "out of time":
        more, total, outcome = let_run()
        deleted += more
    return deleted, total, outcome


@contextmanager
def deletions_held(engine: Engine, table: str) -> Iterator[Callable[[], None]]:
    """Let each deletion of a row wait until this ends; yields what waits for one that does."""
    function = (
        "CREATE FUNCTION pause() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN PERFORM pg_advisory_xact_lock(42); RETURN OLD; END'"
    )
    pause, name = "EXECUTE FUNCTION pause()", "CONCAT(DATABASE(), '.pause')"
    hold, release = "SELECT pg_advisory_lock(42)", "SELECT pg_advisory_unlock(42)"
    waiting = (
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
        "AND wait_event = 'advisory'"
    )
    if engine.dialect.name == "postgresql":
        run(engine, function)
    else:
        pause = f"SET @pause = GET_LOCK({name}, {GUARD})"
        hold, release = f"SELECT GET_LOCK({name}, 0)", f"SELECT RELEASE_LOCK({name})"
        waiting = (
            "SELECT id FROM information_schema.processlist WHERE db = DATABASE() "
            "AND state = 'User lock' AND info LIKE '%pause%'"
        )
    run(engine, f"CREATE TRIGGER pausing BEFORE DELETE ON {table} FOR EACH ROW {pause}")
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(hold))
        yield lambda: answers(connection, waiting) and None
        connection.execute(text(release))


def run(engine: Engine, statement: str, **parameters: Any) -> Any:
    with engine.begin() as connection:
        result = connection.execute(text(statement), parameters)
        return list(result) if result.returns_rows else result.rowcount


def age(engine: Engine, key: str, seconds: int, ttl: int | None = None) -> None:
    clock = clock_of(engine.dialect)
    run(
        engine,
        f"UPDATE web_sessions SET _ts = {clock.now} - {seconds} * {clock.second}, ttl = :ttl "  # noqa: S608
        "WHERE id = :key",
        ttl=ttl,
        key=key,
    )


def left(engine: Engine) -> list[str]:
    """What of it there is, but for its log."""
    query = LEFT_ON_POSTGRESQL if engine.dialect.name == "postgresql" else LEFT
    return [name for (name,) in run(engine, query)]


def rows(engine: Engine) -> list[str]:
    return [key for (key,) in run(engine, "SELECT id FROM web_sessions ORDER BY id")]


def log(engine: Engine, table: str = "web_sessions") -> Log:
    (found,) = run(engine, f"SELECT deleted, total, outcome FROM {table}_ttl_sweeps")  # noqa: S608
    return tuple(found)  # type: ignore[return-value]


def bound(model: Any) -> Binding:
    """The policy of a model's table."""
    binding = binding_of(model.__table__)
    assert binding is not None
    return binding


def said_of_job(engine: Engine, model: Any, code: str) -> list[str]:
    """What `ttl-odm check` says of a table's job, by the code of the findings."""
    with engine.connect() as connection:
        found = list(database_sweep(connection, model.__name__, bound(model), None))
    return [finding.message for finding in found if finding.code == f"database-sweep-{code}"]
