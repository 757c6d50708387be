"""Cutting a table while others use it, while connections are killed, and where it can't be done."""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
from alembic.util.exc import CommandError
from sqlalchemy import create_engine, event, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from tests.guard import GUARD
from tests.migrations.projects import catalogue
from tests.migrations.test_cutting import CUT, plain, rows
from tests.migrations.test_locks import Waits
from tests.migrations.test_resuming import BrokenOffError, breaking_off
from tests.sql.cutting import killed_before, partitions, run, tables
from ttl_odm.alembic import MigrationRefusedError
from ttl_odm.errors import TTLError
from ttl_odm.partitions.alembic import postgresql_cut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine

pytestmark = pytest.mark.databases("postgres")


@pytest.fixture
def other(engine: Engine) -> Iterator[Engine]:
    """A second engine of the same database."""
    second = create_engine(engine.url, isolation_level="AUTOCOMMIT")
    yield second
    second.dispose()


@pytest.fixture
def here(project: Any) -> Any:
    """A project whose one revision cuts the table."""
    made = project()
    made.revision(f"import ttl_odm; {CUT}")
    return made


@contextmanager
def before_statement(engine: Engine, words: str, work: Callable[[], None]) -> Iterator[None]:
    """Do something once, before the first statement that has these words."""
    is_done: list[str] = []

    def listen(_: Any, __: Any, statement: str, *___: Any) -> None:
        if words in statement and not is_done:
            is_done.append(statement)
            work()

    event.listen(engine, "before_cursor_execute", listen)
    yield
    event.remove(engine, "before_cursor_execute", listen)
    assert is_done


@contextmanager
def hearing(work: Callable[[str], None]) -> Iterator[None]:
    """Let something hear what the migration says."""
    handler = logging.Handler(logging.INFO)
    handler.emit = lambda record: work(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("alembic.ttl_odm")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield
    logger.removeHandler(handler)
    logger.setLevel(level)


class Users:
    """Some that write rows, change them and read them for ever; none ever loses one."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._is_over = threading.Event()
        self.written: dict[int, int] = {}
        self.failures: list[BaseException] = []
        turns = (self._insert, self._update, self._read)
        self._threads = [threading.Thread(target=self._repeat, args=[turn]) for turn in turns]
        self.has_begun = threading.Event()

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()
        assert self.has_begun.wait(GUARD)

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _repeat(self, turn: Any) -> None:
        try:
            with self._engine.connect() as connection:
                number = 1_000
                while not self._is_over.is_set():
                    turn(connection, number)
                    number += 1
        except BaseException as error:  # noqa: BLE001 (a thread's)
            self.failures.append(error)

    def _insert(self, connection: Any, number: int) -> None:
        connection.execute(text("INSERT INTO events (id, n) VALUES (:id, 0)"), {"id": number})
        self.written[number] = 0
        if number > 1_020:
            self.has_begun.set()

    def _update(self, connection: Any, _: int) -> None:
        changed = connection.execute(text("UPDATE events SET n = n + 1 WHERE id = 5")).rowcount
        assert changed == 1
        self.written[5] = self.written.get(5, 0) + 1

    def _read(self, connection: Any, _: int) -> None:
        known = len(self.written)
        count = connection.scalar(text("SELECT count(*) FROM events"))
        assert count >= 240 + known - 1


@pytest.mark.slow
def test_whoever_reads_and_writes_meanwhile_loses_nothing(
    engine: Engine, other: Engine, here: Any
) -> None:
    plain(engine, "ALTER TABLE events ADD n int DEFAULT 0")
    users = Users(other)
    with users:
        here.upgrade()
        assert "events_past" in partitions(engine, "events")
    assert users.failures == []
    written = users.written
    assert rows(engine, "SELECT n FROM events WHERE id = 5") == [(written.pop(5),)]
    stored = rows(engine, "SELECT id FROM events WHERE id >= 1000 ORDER BY id")
    assert [key for (key,) in stored] == sorted(written)


def state(engine: Engine) -> Any:
    """Whether the table is cut; what it is otherwise doesn't count, but its rows and columns do."""
    is_cut = bool(partitions(engine, "events"))
    stored = rows(engine, "SELECT id, created_at FROM events ORDER BY id")
    every = {name for name in tables(engine) if name.startswith("events_")}
    assert bool(every) is is_cut  # nothing is left beside the table
    return is_cut, stored


@pytest.mark.in_turns
@pytest.mark.slow
def test_a_connection_may_be_killed_before_any_statement(
    engine: Engine, other: Engine, here: Any
) -> None:
    plain(engine)
    before = state(engine)[1]
    seen = set()
    for number in range(1, 500):
        with killed_before(engine, other, number) as to_come:
            try:
                here.upgrade()
            except (SQLAlchemyError, TTLError):
                assert to_come[0] <= 0
        engine.dispose()
        is_cut, stored = state(other)
        assert stored == before
        seen.add(is_cut)
        if to_come[0] > 0:
            break
        here.upgrade()  # finishes
        assert state(other) == (True, before)
        assert "ttl_odm_bound" not in str([catalogue(other, name) for name in tables(other)])
        made = str(catalogue(other, "events"))
        run(other, "DROP TABLE IF EXISTS events, alembic_version")
        plain(other)
        run(other, "TRUNCATE events")
        with other.connect() as connection:
            connection.execute(
                text("INSERT INTO events VALUES (:id, :at)"),
                [{"id": key, "at": at} for key, at in before],
            )
    else:
        raise AssertionError("It is never done.")
    assert seen == {False, True}
    assert str(catalogue(other, "events")) == made


@pytest.mark.in_turns
@pytest.mark.slow
def test_a_migration_may_break_off_at_any_change(
    engine: Engine, other: Engine, project: Any
) -> None:
    """The CHECK that refuses late rows goes, whatever happens; and the next run finishes."""
    here = project()
    here.revision("import ttl_odm; op.execute('SELECT 1')")
    add = (
        "op.add_ttl('events', ttl_odm.TTL(60, max_lifetime=172800, created='created_at'), "
        "touch_trigger=True, partition='1 day')"
    )
    here.edit("op.execute('SELECT 1')", add)
    made = None
    for number in range(1, 100):
        plain(engine)
        with breaking_off(engine, number) as sent, suppress(BrokenOffError):
            here.upgrade()
        late = "INSERT INTO events VALUES (1000, now() + interval '9 days')"
        run(engine, late, "DELETE FROM events WHERE id = 1000")
        here.upgrade()
        stored = rows(engine, "SELECT id FROM events ORDER BY id")
        assert [key for (key,) in stored] == list(range(240))
        found = str(catalogue(engine, "events"))
        made = made or found
        assert found == made, sent[-1]
        assert "ttl_odm_migration" not in tables(engine)
        run(engine, "DROP TABLE IF EXISTS events, alembic_version")
        if len(sent) < number:
            break
    assert number > 10


@pytest.mark.slow
def test_a_long_reader_delays_the_migration_and_nobody_else(
    engine: Engine, other: Engine, here: Any
) -> None:
    plain(engine)
    waits = Waits()
    with engine.connect() as reader, hearing(lambda _: waits.happened.set()):
        reader.execute(text("SELECT count(*) FROM events"))
        # The index that is built concurrently waits for it without an end.
        reader.rollback()

        def read_again() -> None:
            reader.execute(text("SELECT count(*) FROM events"))

        with before_statement(engine, "LOCK TABLE", read_again):
            migration = threading.Thread(target=here.upgrade)
            migration.start()
            assert waits.happened.wait(GUARD)
            run(other, "INSERT INTO events VALUES (1000)")
            reader.rollback()
            migration.join(GUARD)
    assert not migration.is_alive()
    assert "events_past" in partitions(engine, "events")


@pytest.mark.slow
def test_one_that_gets_no_lock_leaves_no_check(engine: Engine, other: Engine, project: Any) -> None:
    plain(engine)
    here = project(ttl_odm={"give_up_after": 0.5, "lock_timeout": 0.1})
    here.revision(f"import ttl_odm; {CUT}")
    with engine.connect() as reader:

        def read() -> None:
            reader.execute(text("SELECT count(*) FROM events"))

        words = r"could not be dropped.*no session can write rows whose"
        with before_statement(engine, "LOCK TABLE", read), pytest.raises(TTLError, match=words):
            here.upgrade()
        reader.rollback()
    assert "ttl_odm_bound" in str(catalogue(engine, "events"))
    here.upgrade()
    assert "events_past" in partitions(engine, "events")
    assert "ttl_odm_bound" not in str(catalogue(engine, "events"))


@pytest.mark.slow
def test_a_connection_that_is_lost_with_the_check_is_named_in_the_log(
    engine: Engine, other: Engine, here: Any
) -> None:
    plain(engine)
    kill = (
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    heard: list[str] = []
    with (
        hearing(heard.append),
        before_statement(engine, "VALIDATE CONSTRAINT ttl_odm_bound", lambda: run(other, kill)),
        pytest.raises(TTLError, match="The connection to the database was lost"),
    ):
        here.upgrade()
    (said,) = (line for line in heard if "could not be dropped" in line)
    assert "reconnect" not in said.partition("could not be dropped")[0]
    here.upgrade()
    assert "ttl_odm_bound" not in str(catalogue(engine, "events"))


@pytest.mark.slow
def test_an_error_in_the_swap_leaves_the_table_as_it_was(
    engine: Engine, other: Engine, here: Any
) -> None:
    plain(engine)
    before = catalogue(engine, "events")
    change = "CREATE TABLE events_past ()"
    with (
        before_statement(engine, "LOCK TABLE", lambda: run(other, change)),
        pytest.raises(DBAPIError, match="events_past"),
    ):
        here.upgrade()
    after = str(catalogue(engine, "events"))
    assert all(str(line) in after for line in before[0] + before[1])
    assert "ttl_odm_bound" not in after
    run(engine, "DROP TABLE events_past")
    here.upgrade()
    assert "events_past" in partitions(engine, "events")


@pytest.mark.slow
def test_what_is_changed_before_the_swap_is_seen(engine: Engine, other: Engine, here: Any) -> None:
    plain(engine)
    change = "CREATE INDEX late ON events (id)"
    with before_statement(engine, "LOCK TABLE", lambda: run(other, change)):
        here.upgrade()
    assert "late_past" in str(catalogue(engine, "events_past"))
    assert "INDEX late ON ONLY public.events " in str(catalogue(engine, "events"))


@pytest.mark.slow
def test_what_can_not_be_carried_over_is_refused_even_then(
    engine: Engine, other: Engine, here: Any
) -> None:
    plain(engine)
    change = "CREATE VIEW late AS SELECT id FROM events"
    with (
        before_statement(engine, "LOCK TABLE", lambda: run(other, change)),
        pytest.raises(MigrationRefusedError, match="view late would stay with the old table"),
    ):
        here.upgrade()
    assert "ttl_odm_bound" not in str(catalogue(engine, "events"))


@pytest.mark.slow
def test_validating_for_too_long_takes_a_later_bound(
    engine: Engine, other: Engine, here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from datetime import timedelta

    monkeypatch.setattr(postgresql_cut, "_DAY", timedelta(seconds=1))
    plain(engine)
    said: list[str] = []
    with other.connect() as blocker:
        blocker.execution_options(isolation_level="READ COMMITTED")

        def block() -> None:
            blocker.execute(text("LOCK TABLE events IN SHARE UPDATE EXCLUSIVE MODE"))

        def hear(words: str) -> None:
            said.append(words)
            if "waiting for a lock" in words:  # to drop the CHECK
                blocker.rollback()

        with hearing(hear), before_statement(engine, "VALIDATE CONSTRAINT ttl_odm", block):
            here.upgrade()
    assert any("took too long: trying again" in words for words in said)
    assert "events_past" in partitions(engine, "events")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            "ALTER TABLE events ALTER created_at DROP NOT NULL",
            (
                r"may be NULL.*op.alter_column.*\. To avoid reading all rows under its lock, first "
                r"ADD CHECK \(\"created_at\" IS NOT NULL\) NOT VALID, and VALIDATE it"
            ),
        ),
        (
            "ALTER TABLE events ADD UNIQUE (name)",
            r"create_unique_constraint.*\['name', 'created_at'",
        ),
        ("CREATE UNIQUE INDEX one ON events (name)", r"op.drop_index\('one'\) first"),
        ("CREATE UNIQUE INDEX one ON events (lower(name))", "one would be unique only within"),
        (
            (
                "CREATE TABLE kids (of_event int REFERENCES events); "
                "CREATE TABLE more (of_event int REFERENCES events)"
            ),
            "foreign keys of kids, more refer to it",
        ),
        ("ALTER TABLE events ADD parent int REFERENCES events", "foreign keys of events refer"),
        (
            "CREATE VIEW seen AS SELECT * FROM events; CREATE VIEW two AS SELECT id FROM events",
            "view seen, view two would stay with the old table",
        ),
        ("CREATE MATERIALIZED VIEW seen AS SELECT 1 FROM events", "materialized view seen would"),
        (
            "CREATE FUNCTION of(events) RETURNS int LANGUAGE sql AS 'SELECT 1'",
            r"function of\(events\) would stay",
        ),
        ("CREATE TABLE notes (e events)", "notes would stay"),
        (
            "; ".join(
                f"CREATE TRIGGER {name} BEFORE UPDATE ON events FOR EACH ROW "
                "EXECUTE FUNCTION suppress_redundant_updates_trigger()"
                for name in ("mine", "yours")
            ),
            (
                r"triggers \(mine, yours\).*\(triggers for DELETE and TRUNCATE prevent dropping "
                r"partitions as a whole\)"
            ),
        ),
        ("ALTER TABLE events ENABLE ROW LEVEL SECURITY", "row-level security"),
        ("CREATE RULE r AS ON DELETE TO events DO INSTEAD NOTHING", "it has rules"),
        (
            "CREATE TABLE heir () INHERITS (events)",
            "inherits from a table, or a table inherits from it",
        ),
        (
            "CREATE PUBLICATION one FOR TABLE events; CREATE PUBLICATION two FOR TABLE events",
            r"publications \(one, two\)",
        ),
        (
            "ALTER TABLE events ADD EXCLUDE USING btree (id WITH =)",
            "excludes rows across all partitions",
        ),
        (
            "ALTER TABLE events ADD CONSTRAINT c CHECK (id >= 0) NOT VALID",
            "constraint c is not valid: VALIDATE",
        ),
        ("ALTER TABLE events ADD CONSTRAINT c CHECK (id >= 0) NO INHERIT", "c is NO INHERIT"),
        (
            "ALTER TABLE events DROP CONSTRAINT events_pkey, ADD PRIMARY KEY (id) DEFERRABLE",
            "is DEFERRABLE",
        ),
        (
            "ALTER TABLE events DROP CONSTRAINT events_pkey, ADD PRIMARY KEY (id) INCLUDE (name)",
            "has INCLUDE",
        ),
        ("ALTER TABLE events REPLICA IDENTITY USING INDEX events_pkey", "is its replica identity"),
        ("ALTER TABLE events SET UNLOGGED", "UNLOGGED"),
        ("CREATE TABLE events_past ()", r"names of new partitions are taken \(events_past\)"),
        ("CREATE TABLE events_pkey_past ()", r"are taken \(events_pkey_past\)"),
        ("UPDATE events SET created_at = 'infinity' WHERE id < 3", "3 rows are at infinity"),
        (
            "UPDATE events SET created_at = '2200-01-01' WHERE id < 4",
            "4 rows are at .* correct them",
        ),
        ("ALTER TABLE events ALTER created_at TYPE text", "unit='iso'"),
        ("ALTER TABLE events RENAME created_at TO made_at", "no column 'created_at'"),
        (
            (
                "DROP TABLE events; CREATE TABLE events (id int, created_at timestamptz NOT NULL) "
                "PARTITION BY RANGE (id)"
            ),
            "sweep='scan'|already partitioned",
        ),
        (
            "DROP TABLE events; CREATE VIEW events AS SELECT 1 AS id, now() AS created_at",
            "not an ordinary table",
        ),
    ],
)
def test_what_can_not_be_cut_is_refused_with_what_to_do(
    engine: Engine, here: Any, change: str, words: str
) -> None:
    plain(engine, "ALTER TABLE events ADD name text")
    run(engine, *change.split("; "))
    before = [(name, catalogue(engine, name)) for name in sorted(tables(engine))]
    with pytest.raises((MigrationRefusedError, CommandError), match=words):
        here.upgrade()
    run(engine, "DROP TABLE IF EXISTS alembic_version")
    assert [(name, catalogue(engine, name)) for name in sorted(tables(engine))] == before


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        (CUT.replace("1 day", "1 year"), "partition='1 year': Partitions.span = '1 year': write"),
        ("op.add_ttl('events', 60, partition='1 day')", "each write renews a row"),
        (
            CUT.replace("created_at", "day").replace("1 day", "1 hour"),
            "shorter than a day: write '1 day'",
        ),
        (CUT.replace("created_at", "name"), "unit='iso'"),
        (
            CUT.replace("('created_at', 172800", "('id', 172800, unit='s'").replace(
                "1 day", "1 day"
            ),
            "",
        ),
        (
            CUT.replace("'created_at', 172800", "'naive', 60, timezone='Europe/Paris'"),
            "read in timezone='Europe/Paris'",
        ),
        ("op.add_ttl('events', ttl_odm.ExpireAt('at'), partition='1 day')", "no column 'at'"),
        (
            "op.add_ttl('events', ttl_odm.ExpireAt('late'), partition='1 day')",
            "1 rows are at .* end",
        ),
    ],
)
def test_so_is_what_makes_no_sense(
    engine: Engine, project: Any, operation: str, words: str
) -> None:
    plain(
        engine,
        "ALTER TABLE events ADD name text, ADD day date, ADD naive timestamp, "
        "ADD late timestamptz NOT NULL DEFAULT now()",
        "UPDATE events SET late = '9999-12-31' WHERE id = 1",
    )
    here = project()
    here.revision(f"import ttl_odm; {operation}")
    if not words:
        here.upgrade()
        return
    with pytest.raises(MigrationRefusedError, match=words):
        here.upgrade()


@pytest.mark.slow
def test_a_table_in_partitions_gets_its_index_while_others_write(
    engine: Engine, project: Any
) -> None:
    """One partition after the other; a run that broke off is taken up."""
    run(
        engine,
        "CREATE TABLE web_sessions (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE ones PARTITION OF web_sessions FOR VALUES FROM (0) TO (100)",
        "CREATE TABLE others PARTITION OF web_sessions DEFAULT",
        "INSERT INTO web_sessions SELECT i FROM generate_series(0, 199) i",
    )
    here = project()
    here.revision("op.add_ttl('web_sessions', 60)", "op.drop_ttl('web_sessions')")
    for number in range(1, 100):
        with breaking_off(engine, number) as sent, suppress(BrokenOffError):
            here.upgrade()
        assert not [
            one
            for one in sent
            if "CREATE INDEX" in one and "DO " not in one[:3] and "CONCURRENTLY" not in one
        ]
        here.upgrade()
        for name in ("web_sessions", "ones", "others"):
            _, _, indexes, *_ = catalogue(engine, name)
            assert [is_valid for _, is_valid in indexes] == [True] * 3
        here.downgrade("base")
        if len(sent) < number:
            break
    assert number > 10
