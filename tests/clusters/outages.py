"""What the tests of outages share: migrations, and drops of partitions, that meet one."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from sqlalchemy import DateTime, event, inspect, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.orm import mapped_column

from tests.clusters.members import revive, until
from tests.migrations.conftest import models
from tests.migrations.projects import Project, catalogue
from tests.sql.cutting import is_mysql, keys, partitions
from ttl_odm.alembic.progress import PROGRESS_TABLE
from ttl_odm.errors import TTLError
from ttl_odm.sweeper import Ending, Sweeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from sqlalchemy import Engine

EngineOf: TypeAlias = "Callable[[Any], AbstractContextManager[Engine]]"
"""Connects to one member of a cluster."""

ADD: Final = "op.add_ttl({table!r}, 60, backfill='created_at', touch_trigger=True)"
SCAN: Final = "op.alter_ttl({table!r}, 60, sweep='scan', touch_trigger=False)"
INDEX: Final = "op.alter_ttl({table!r}, 60, sweep='index', touch_trigger=True)"
DROP: Final = "op.drop_ttl({table!r})"

WRONG: Final = ("Can't reconnect", "may not create")
"""What an error must not say whose reason is that the server was lost."""

_KEYS: Final = "abcdefgh"
_BATCH: Final = 3
"""Rows of a batch of the backfill, which takes several."""

_OLD: Final = datetime(2026, 1, 1, 10, 0, 0)  # noqa: DTZ001 - what a naive column holds
_READS: Final = ("SELECT", "SHOW", "DESCRIBE", "SET")
_BOUNDED: Final = "SET STATEMENT"
"""What precedes MariaDB's DDL."""


@dataclass(frozen=True)
class Moment:
    """A moment just before a statement, or a commit, which counts as one.

    Attributes:
        words: What the statements have that count; any change has none.
        number: Which of these it is, from 1 on.
        later: How many statements later it is.
    """

    words: tuple[str, ...]
    number: int = 1
    later: int = 0

    def among(self, statements: list[str]) -> bool:
        """Whether it is that of the last one of these."""
        if len(statements) <= self.later:
            return False
        reached = statements[: len(statements) - self.later]
        return self._counts(reached[-1]) and sum(map(self._counts, reached)) == self.number

    def _counts(self, statement: str) -> bool:
        is_change = statement.startswith(_BOUNDED) or not statement.startswith(_READS)
        return is_change and all(word in statement for word in self.words)


def change(number: int, *words: str) -> Moment:
    """The moment before the change of this number, of those that have these words."""
    return Moment(words, number)


def after(later: int, *words: str) -> Moment:
    """The moment so many statements after the first change that has these words."""
    return Moment(words, later=later)


@contextmanager
def outage_before(
    engine: Engine, moment: Moment, outage: Callable[[], object]
) -> Iterator[list[str]]:
    """Let an outage happen once, before a statement is sent or a transaction committed.

    Gives that statement in a list, once the outage is over.
    """
    met: list[str] = []
    sent: list[str] = []

    def hear(statement: str) -> None:
        if not met:
            sent.append(statement)
            if moment.among(sent):
                met.append(statement)
                outage()

    def send(_: Any, __: Any, statement: str, *___: Any) -> None:
        hear(statement)

    def commit(_: Any) -> None:
        hear("COMMIT")

    event.listen(engine, "before_cursor_execute", send)
    event.listen(engine, "commit", commit)
    try:
        yield met
    finally:
        event.remove(engine, "before_cursor_execute", send)
        event.remove(engine, "commit", commit)


@dataclass(frozen=True)
class Migrated:
    """A table with rows, and an Alembic project for nothing but that table."""

    engine: Engine
    table: str
    project: Project

    @classmethod
    def made(cls, engine: Engine, folder: Path, table: str, *before: str) -> Migrated:
        """Make the table, and migrate it by these operations.

        Args:
            engine: What leads to the primary, whichever that is.
            folder: For the project's files, and those of others.
            table: Its name, of which the other names of one test are no part.
            before: Operations, such as `ADD`.
        """
        model = models(name=table, created_at=mapped_column(DateTime))
        model.metadata.create_all(engine)
        rows = [{"id": key, "views": 0, "created_at": _OLD} for key in _KEYS]
        with engine.begin() as connection:
            connection.execute(model.__table__.insert(), rows)
        options = {"batch_rows": _BATCH, "give_up_after": 60}
        project = Project(
            folder / table, engine, version_table=f"{table}_versions", ttl_odm=options
        )
        migrated = cls(engine, table, project)
        for operation in before:
            migrated.add(operation)
            migrated.migrate()
        return migrated

    def add(self, operation: str) -> None:
        """Write the next revision."""
        self.project.revision(operation.format(table=self.table))

    def migrate(self) -> None:
        """Migrate to the last revision."""
        self.project.upgrade()

    def meets(self, moment: Moment, outage: Callable[[], object]) -> str | None:
        """Migrate, with an outage at a moment; return what was said of it, None if it never came.

        Then the migration is done.
        """
        said = None
        with outage_before(self.engine, moment, outage) as met:
            try:
                self.migrate()
            except (SQLAlchemyError, TTLError) as error:
                said = str(error)
        assert bool(met) is (said is not None), said
        return said

    def state(self, engine: Engine | None = None) -> Any:
        """The table, as a server has it, and the names of ours that are not of this table alone."""
        engine = engine or self.engine
        made = str([catalogue(engine, self.table), _triggers(engine, self.table)])
        with engine.connect() as connection:
            # _ts is the instant of the migration, or that of `created_at`.
            rows = connection.execute(text(f"SELECT * FROM {self.table} ORDER BY id")).mappings()  # noqa: S608
            stored = [(row["id"], row["views"], row.get("ttl")) for row in rows]
        left = PROGRESS_TABLE in inspect(engine).get_table_names()
        return made.replace(self.table, "TABLE"), stored, left

    def is_backfilled(self) -> bool:
        """Whether each row lives from the instant that the backfill was to give it."""
        origin = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', created_at)"
        if not is_mysql(self.engine):
            origin = "created_at AT TIME ZONE 'UTC'"
        query = f"SELECT count(*) FROM {self.table} WHERE _ts = {origin}"  # noqa: S608
        with self.engine.connect() as connection:
            return connection.scalar(text(query)) == len(_KEYS)

    def arrives(self, engine: Engine) -> None:
        """Wait until a replica has the table as the primary has it."""
        made = self.state()

        def has_it() -> bool:
            with suppress(DBAPIError):
                return self.table in inspect(engine).get_table_names() and (
                    self.state(engine) == made
                )
            return False

        until(has_it)


def resumed(  # noqa: PLR0913, PLR0917 (a migration, and its outage)
    engine: Engine,
    folder: Path,
    before: Sequence[str],
    operation: str,
    moment: Moment,
    outage: Callable[[], object],
) -> tuple[Migrated, str]:
    """Let an outage break an operation off, which the next run has to complete.

    Args:
        engine: What leads to the primary, whichever that is.
        folder: For the project's files.
        before: Operations that the table already has.
        operation: That one.
        moment: When the outage happens.
        outage: Ends when another server is the primary.

    Returns:
        The migrated table, and what the first run said.
    """
    made = Migrated.made(engine, folder, "undisturbed", *before, operation).state()
    migrated = Migrated.made(engine, folder, "visits", *before)
    migrated.add(operation)
    error = migrated.meets(moment, outage)
    assert error is not None
    engine.dispose()
    migrated.migrate()
    assert migrated.state() == made
    return migrated, error


def see_on_all(cluster: Any, migrated: Migrated, engine_of: EngineOf) -> None:
    """Start what is down, and wait until each member has the table as it was migrated."""
    revive(cluster)
    for member in cluster.members:
        with engine_of(member) as engine:
            migrated.arrives(engine)


def see_partitions_on_all(cluster: Any, engine: Engine, table: str, engine_of: EngineOf) -> None:
    """Start what is down, and wait until each member has the primary's partitions."""
    revive(cluster)
    made = partitions(engine, table)
    for member in cluster.members:
        with engine_of(member) as other:
            until(lambda other=other: partitions(other, table) == made)


def _triggers(engine: Engine, table: str) -> Any:
    """What MariaDB and MySQL say of triggers, which their tables' definitions don't show."""
    if not is_mysql(engine):
        return []
    query = (
        "SELECT trigger_name, action_statement FROM information_schema.triggers "
        "WHERE event_object_schema = DATABASE() AND event_object_table = :table"
    )
    with engine.connect() as connection:
        return connection.execute(text(query), {"table": table}).all()


def sweep_through(
    engine: Engine, scene: Any, moment: Moment, outage: Callable[[], object]
) -> tuple[Any, str]:
    """Sweep a table in partitions, with an outage in the middle; return its model and name.

    A partition is there with all of its rows, or is gone with them; the sweep finishes.

    Args:
        engine: What leads to the primary.
        scene: Makes the table; see `tests.sql.cutting.dropping`.
        moment: Before which statement.
        outage: Ends when another server is the primary.
    """
    model, left, gone = scene(engine)
    table = model.__table__.name
    before, rows = partitions(engine, table), keys(engine, model)
    found: list[Any] = []

    def fail() -> None:
        outage()
        engine.dispose()
        now = partitions(engine, table)
        assert now in (before, before - gone)
        found.append(now)
        assert keys(engine, model) == (rows if now == before else left)

    with outage_before(engine, moment, fail) as met:
        report = Sweeper(engine, model).run_once()
    assert met
    assert found
    assert report.ended is Ending.FINISHED
    report.raise_for_failures()
    Sweeper(engine, model).run_once().raise_for_failures()
    assert partitions(engine, table) == before - gone
    assert keys(engine, model) == left
    return model, table
