"""What the tests of partitions share: tables that are cut by days, and rows of any age in them.

It is noon in them, see the fixture of that name: whatever a test calls today stays it until its
end, and a row that lives for an hour has expired the day after.
"""

from __future__ import annotations

import random
import threading
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from sqlalchemy import DateTime, event, inspect, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from ttl_odm import TTL, ExpireAfter, Partitions
from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.partitions.facts import PARTITIONS
from ttl_odm.sqlalchemy import TTLMixin
from ttl_odm.sqlalchemy.sweep.store import SQLAlchemyStore
from ttl_odm.sweeper import BatchRequest, Sweeper, UnreachableStoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection, Engine

    from ttl_odm.sweeper import TargetReport

DAY = 86_400
DAILY = Partitions("1 day", ahead=2)
MOVING = Partitions("1 day", ahead=2, survivors="move")


def log(days: int = 2, cut: Partitions | None = DAILY, **declared: Any) -> Any:
    """Declare a table of events that all live equally long."""

    class Base(DeclarativeBase):
        pass

    class Event(Base):
        __tablename__ = "events"
        __ttl__ = ExpireAfter("created_at", days * DAY)
        __ttl_partition__ = cut

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), primary_key=True)

    for name, value in declared.items():
        setattr(Event, name, value)
    return Event


def visits(default: Any = 3600, days: int = 30, cut: Partitions = DAILY, **declared: Any) -> Any:
    """Declare a table of visits that writes prolong, up to a limit."""

    class Base(DeclarativeBase):
        pass

    class Visit(TTLMixin, Base):
        __tablename__ = "visits"
        __ttl__ = TTL(default, max_lifetime=days * DAY, created="began")
        __ttl_partition__ = cut

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        began: Mapped[datetime] = mapped_column(DateTime(timezone=True), primary_key=True)

    for name, value in declared.items():
        setattr(Visit, name, value)
    return Visit


def is_mysql(engine: Engine | Connection) -> bool:
    """Whether it is MariaDB or MySQL, where partitions are not tables."""
    return engine.dialect.name in MYSQL_FAMILY


def ago(connection: Connection, days: int) -> datetime:
    """The beginning of a day in UTC, by the clock that decides over the rows."""
    question = "SELECT statement_timestamp()"
    if is_mysql(connection):
        question = "SELECT UTC_TIMESTAMP(6)"
    now: datetime = connection.scalar(text(question))
    now = now.replace(tzinfo=now.tzinfo or timezone.utc).astimezone(timezone.utc)
    return now.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=days)


def instant(connection: Engine | Connection, moment: datetime) -> str:
    """An aware datetime as the literal of a column's value."""
    if is_mysql(connection):
        return f"'{moment:%Y-%m-%d %H:%M:%S}'"
    return f"'{moment}'::timestamptz"


def cut_by(model: Any) -> str:
    """The column that a table is cut by."""
    return next(column.name for column in model.__table__.primary_key if column.name != "id")


def create(engine: Engine, model: Any, *past: int) -> None:
    """Make a table, and partitions of days that are past, so many days ago.

    MariaDB and MySQL have no holes between partitions: one begins where the one before it ends.
    """
    model.metadata.create_all(engine)
    table = model.__table__.name
    with engine.begin() as connection:
        if not is_mysql(engine):
            for days in past:
                first, last = ago(connection, days), ago(connection, days - 1)
                connection.execute(
                    text(
                        f"CREATE TABLE {table}_d{days} PARTITION OF {table} "
                        f"FOR VALUES FROM ('{first}') TO ('{last}')"
                    )
                )
        elif past:
            ends = [(f"{table}_d{days}", ago(connection, days - 1)) for days in sorted(past)[::-1]]
            if model.__ttl_partition__.made_by == "sweeper":
                ends.insert(0, (f"{table}_past", ago(connection, max(past))))
                wanted = model.__ttl_partition__.wanted(ago(connection, 0))
                ends += [(f"{table}_{time_range.suffix}", time_range.end) for time_range in wanted]
            parts = [
                f"PARTITION {name} VALUES LESS THAN ({instant(connection, end)})"
                for name, end in ends
            ]
            if model.__ttl_partition__.made_by == "sweeper":
                parts.append(f"PARTITION {table}_rest VALUES LESS THAN (MAXVALUE)")
            by = f"PARTITION BY RANGE COLUMNS ({cut_by(model)}) ({', '.join(parts)})"
            connection.execute(text(f"ALTER TABLE {table} {by}"))


def unmake(engine: Engine, table: str, *names: str) -> None:
    """Drop partitions with their rows."""
    with engine.begin() as connection:
        for name in names:
            drop = f"ALTER TABLE {table} DROP PARTITION {name}"
            connection.execute(text(drop if is_mysql(engine) else f"DROP TABLE {name}"))


def add(engine: Engine, model: Any, days: int, keys: Any, **more: str) -> None:
    """Write rows of a day, from its noon on, raw: each value but the key is an SQL expression."""
    table, stamp = model.__table__, cut_by(model)
    with engine.begin() as connection:
        noon = ago(connection, days) + timedelta(hours=12)
        more = {stamp: instant(connection, noon), **more}
        if "_ts" in table.c and "_ts" not in more:
            more["_ts"] = more[stamp]
            if is_mysql(engine):
                more["_ts"] = f"TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {more[stamp]})"
        names, values = ", ".join(more), ", ".join(more.values())
        connection.execute(
            text(f"INSERT INTO {table.name} (id, {names}) VALUES (:id, {values})"),  # noqa: S608
            [{"id": key} for key in keys],
        )


def partitions(engine: Engine, table: str) -> set[str]:
    """The names of a table's partitions."""
    found = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = to_regclass(:name)"
    if is_mysql(engine):
        found = (
            "SELECT partition_name FROM information_schema.partitions "
            "WHERE table_schema = DATABASE() AND table_name = :name "
            "AND partition_name IS NOT NULL"
        )
    with engine.connect() as connection:
        return set(connection.scalars(text(found), {"name": table}))


def tables(engine: Engine) -> set[str]:
    """The names of all tables."""
    if is_mysql(engine):
        return set(inspect(engine).get_table_names())
    with engine.connect() as connection:
        found = "SELECT relname::text FROM pg_class WHERE relkind IN ('r', 'p') "
        return set(connection.scalars(text(found + "AND relnamespace = 'public'::regnamespace")))


def keys(engine: Engine, model: Any) -> list[int]:
    """The keys of all rows that are stored, expired or not."""
    with engine.connect() as connection:
        table = model.__table__.name
        return list(connection.scalars(text(f"SELECT id FROM {table} ORDER BY id")))  # noqa: S608


def swept(engine: Engine, model: Any, **options: Any) -> TargetReport:
    """Sweep a table; return what came of it."""
    report = Sweeper(engine, model, **options).run_once()
    report.raise_for_failures()
    (target,) = report.targets
    return target


class Race:
    """Rows that are renewed for ever at random, and a reader that sees whether one is missing."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._is_over = threading.Event()
        self._random = random.Random(7)  # noqa: S311
        self.live: set[int] = set()
        self.failures: list[BaseException] = []
        self._threads = [threading.Thread(target=self._repeat, args=[turn]) for turn in self._turns]

    @property
    def _turns(self) -> list[Any]:
        return [self._write, self._read]

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _repeat(self, turn: Any) -> None:
        try:
            while not self._is_over.is_set():
                turn()
        except BaseException as error:  # noqa: BLE001 (a thread's)
            self.failures.append(error)

    def _write(self) -> None:
        key = self._random.randrange(2, 10) * 1_000 + self._random.randrange(300)
        renew = text("UPDATE visits SET ttl = -1 WHERE id = :id")
        with self._engine.connect() as connection:
            if connection.execute(renew, {"id": key}).rowcount:
                self.live.add(key)

    def _read(self) -> None:
        known = set(self.live)
        with self._engine.connect() as connection:
            assert known <= set(connection.scalars(text("SELECT id FROM visits WHERE ttl = -1")))


def run(engine: Engine, *statements: str) -> None:
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))


@contextmanager
def killed_before(engine: Engine, other: Engine, number: int) -> Iterator[list[int]]:
    """End a connection from the server's side before its nth statement; a commit is one, too.

    Yields the number of those that are still to come, in a list.
    """
    left = [number]

    def count(connection: Connection, *_: Any) -> None:
        left[0] -= 1
        if left[0] == 0:
            process: Any = connection.connection.driver_connection
            if is_mysql(engine):
                kill = f"KILL CONNECTION {process.thread_id()}"
            else:
                kill = f"SELECT pg_terminate_backend({process.info.backend_pid}, 10000)"
            with other.connect() as third:
                third.execute(text(kill))

    event.listen(engine, "before_cursor_execute", count)
    event.listen(engine, "commit", count)
    yield left
    event.remove(engine, "before_cursor_execute", count)
    event.remove(engine, "commit", count)


def purge_all(store: SQLAlchemyStore, target: str) -> None:
    resume: object = None
    while True:
        result = store.purge(BatchRequest(target, PARTITIONS, 1_000, resume))
        resume = result.resume
        if resume is None:
            return


def dropping(engine: Engine) -> tuple[Any, list[int], set[str]]:
    model = log(days=2)
    create(engine, model, 5)
    add(engine, model, 5, range(20))
    add(engine, model, 0, [99])
    return model, [99], {"events_d5"}


def looking(engine: Engine) -> tuple[Any, list[int], set[str]]:
    model = visits()
    create(engine, model, 3)
    add(engine, model, 3, range(20))
    add(engine, model, 0, [99])
    return model, [99], {"visits_d3"}


def kill_at_every_statement(engine: Engine, other: Engine, scene: Any) -> Any:
    """Purge partitions while connections are killed: nothing is left half done.

    `scene` makes a table, and says which rows are left in the end, and which partition changes.
    Returns the model.
    """
    model, left, changed = scene(engine)
    table = model.__table__.name
    store = SQLAlchemyStore(engine, model)
    before, rows = partitions(engine, table), keys(engine, model)
    every = tables(engine)
    for number in range(1, 200):
        with killed_before(engine, other, number) as to_come:
            try:
                purge_all(store, table)
            except UnreachableStoreError:
                assert to_come[0] <= 0
        engine.dispose()
        now = partitions(other, table)
        if now != before:  # it was committed
            assert now ^ before == changed
            break
        assert keys(other, model) == rows
        assert tables(other) == every
    else:
        raise AssertionError("It is never done.")
    purge_all(store, table)
    assert keys(engine, model) == left
    assert partitions(engine, table) ^ before == changed
    lost = every - tables(engine)
    assert lost <= changed  # and nothing is left beside the table
    assert tables(engine) - every <= changed
    return model


def race_with_drops(engine: Engine, other: Engine, survivors: Any) -> None:
    """Drop partitions while rows of them are renewed and read: none that lives is lost."""
    model = visits(3600, cut=Partitions("1 day", ahead=2, survivors=survivors))
    create(engine, model, *range(2, 10))
    for days in range(2, 10):
        add(engine, model, days, range(days * 1_000, days * 1_000 + 300))
    race = Race(other)
    with race:
        for _ in range(6):
            Sweeper(engine, model, lease=False).run_once().raise_for_failures()
    assert race.failures == []
    Sweeper(engine, model, lease=False).run_once().raise_for_failures()
    assert set(keys(engine, model)) == race.live
