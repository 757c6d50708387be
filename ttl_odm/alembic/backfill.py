"""The backfill: old rows get their last modification from a column, a few thousand at a time.

It walks along the primary key, and on SQLite, where that may hold NULL, along the rowid. Each
statement changes only rows whose ``_ts`` still is the instant at which the column was added. So a
row that was written meanwhile keeps its stamp, and a repeated walk changes nothing twice.
"""

from __future__ import annotations

import logging
import sys
from contextlib import contextmanager
from functools import partial
from operator import gt, le, lt
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import DateTime, and_, func, literal_column, select, text, update

from ttl_odm.alembic.reflection import read_columns
from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.sqlalchemy.sweep.table_walk import compared, in_order, places_of
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Column, ColumnElement, Row
    from sqlalchemy.engine import Dialect

    from ttl_odm.alembic.steps import Steps
    from ttl_odm.dialects import Family

log = logging.getLogger("alembic.ttl_odm")

_SECONDS_BETWEEN_LINES: Final = 10.0


def instant_of(source: Column[Any], dialect: Dialect) -> str:
    """Return SQL for the instant in a column of dates and times, in the unit of ``_ts``."""
    # MySQL's TIMESTAMP is stored in UTC.
    zoned = type(source.type).__name__ == "TIMESTAMP"
    if dialect.name == "postgresql":
        zoned = isinstance(source.type, DateTime) and source.type.timezone
    name = dialect.identifier_preparer.quote(source.name)
    return clock_of(dialect).instant_of_column(name, zoned=zoned)


class Backfill:
    """One walk over a table.

    Args:
        steps: The steps of the operation: its table, and what runs the statements.
        since: SQL for the ``_ts`` that old rows have.
        instant: SQL for the ``_ts`` that they get; None keeps theirs.
    """

    def __init__(self, steps: Steps[Family], *, since: str, instant: str | None) -> None:
        """Read the table's key."""
        runner, target, rowid = steps.run, steps.target, steps.existing.rowid
        self._runner = runner
        self._label = target.table.fullname
        table = read_columns(runner.connection, target.table.name, target.table.schema)
        self._table = table
        self._key: list[ColumnElement[Any]] = (
            [literal_column(rowid)] if rowid else list(table.primary_key)
        )
        stamp = table.c[target.last_modified.name]
        # No row was modified in the future, so instants after the migration's are ignored.
        new = since if instant is None else clock_of(runner.dialect).least(instant, since)
        value: ColumnElement[Any] = literal_column(new)
        if steps.rewrites_rows:  # every row, even if nothing changes (see `sqlite`)
            value = literal_column(
                f"CASE WHEN {stamp.name} = {since} THEN COALESCE({new}, {since}) "
                f"ELSE {stamp.name} END"
            )
            self._change = update(table).values({stamp: value})
        else:
            change = update(table).where(stamp == literal_column(since), value.is_not(None))
            self._change = change.values({stamp: value})
        if runner.dialect.name in MYSQL_FAMILY:
            names = {"schema": table.schema, "table": table.name}
            # Columns that the database would set to now because the row is written.
            for name in runner.connection.execute(_ON_UPDATE, names).scalars():
                self._change = self._change.values({table.c[name]: table.c[name]})

    def run(self) -> None:
        """Walk over the table."""
        connection, settings = self._runner.connection, self._runner.settings
        total = connection.scalar(select(func.count()).select_from(self._table)) or 0
        last: Row[tuple[object, ...]] | None = None
        with _progress(self._label, total) as advance, self._runner.holding_rows():
            while True:
                after = and_(True) if last is None else self._compare(gt, gt, last)  # noqa: FBT003
                bound = self._end_of_batch(after, settings.batch_rows)
                if bound == last:
                    bound = None  # a key that isn't read exactly, such as a REAL: all the rest
                within = after if bound is None else and_(after, self._compare(lt, le, bound))
                statement = self._change.where(within)
                begin = monotonic()
                self._runner.patiently(partial(connection.execute, statement), "locks on rows")
                advance(settings.batch_rows)
                if bound is None:
                    return
                last = bound
                if self._runner.dialect.name == "sqlite":
                    # Give other writers as much time: SQLite has one at a time.
                    sleep(monotonic() - begin)

    def _end_of_batch(
        self, after: ColumnElement[bool], size: int
    ) -> Row[tuple[object, ...]] | None:
        """Return the last key of the next batch; None if the rest of the table doesn't fill it."""
        if not self._key:
            return None
        places = places_of(self._key, self._runner.dialect)
        query = select(*places).select_from(self._table).order_by(*self._key)
        query = query.where(after).offset(size - 1).limit(1)
        return self._runner.connection.execute(query).one_or_none()

    def _compare(
        self, first: Callable[[Any, Any], Any], last: Callable[[Any, Any], Any], key: Row[Any]
    ) -> ColumnElement[bool]:
        dialect = self._runner.dialect
        return compared(in_order(self._key, dialect), first, last, tuple(key), clock_of(dialect))


_ON_UPDATE: Final = text(
    "SELECT column_name FROM information_schema.columns WHERE extra LIKE '%on update%' "
    "AND table_schema = COALESCE(:schema, DATABASE()) AND table_name = :table"
)


@contextmanager
def _progress(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar on a terminal, or a log line every ten seconds; yield what advances it."""
    if sys.stderr.isatty():
        # rich is slow to import, and most migrations have no backfill.
        from rich.console import Console  # noqa: PLC0415
        from rich.progress import Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

        columns = (
            *Progress.get_default_columns()[:-1],
            TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task(f"backfill of {label}", total=total)
            yield lambda rows: bar.update(task, advance=rows)
        return
    done = 0
    reported_at = monotonic()
    log.info("backfill of %s: %s", label, counted(total, "row"))

    def advance(rows: int) -> None:
        nonlocal done, reported_at
        done = min(done + rows, total)
        if monotonic() - reported_at >= _SECONDS_BETWEEN_LINES:
            log.info("backfill of %s: %s of %s", label, f"{done:,}", counted(total, "row"))
            reported_at = monotonic()

    yield advance
    log.info("backfill of %s: done", label)
