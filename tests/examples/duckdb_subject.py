"""DuckDB as a `Subject` of the contract's cases, by the family of examples/own_database."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import DDL, BigInteger, Column, Computed, MetaData, Table, delete, event, text
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateColumn

from tests.contract import on_sqlalchemy, raw_tables
from tests.contract.raw_tables import RawTables
from tests.contract.tables import DECLARED
from ttl_odm.dialects import EPOCH
from ttl_odm.sqlalchemy.time.clock import LastModified, Seconds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from sqlalchemy import Connection

    from tests.backends import Backend

DUCKDB = "duckdb"
NUMBERS = "numbers"
STORES_WHOLE_NUMBERS = "a column of integers takes nothing else"
NOT_ASKED = {
    "what sqlite takes into a column of integers has no effect: `20.5`": STORES_WHOLE_NUMBERS,
    'what sqlite takes into a column of integers has no effect: `"x"`': STORES_WHOLE_NUMBERS,
    'what sqlite takes into a column of integers has no effect: `b"x"`': STORES_WHOLE_NUMBERS,
    "what sqlite takes into a column of integers has no effect: `1e300`": STORES_WHOLE_NUMBERS,
    "a row that is renewed between look and delete stays": (
        "a DELETE goes by its transaction's snapshot, and doesn't see that a row was written since"
    ),
    "a row that has to be unique again takes the value of an expired row": (
        "DuckDB stores no generated columns, and has no partial indexes"
    ),
}
"""Cases that DuckDB can't be asked, with the reason."""


@compiles(Computed, DUCKDB)
def _not_generated(*_: object, **__: object) -> str:
    """A plain column: DuckDB stores no generated ones."""
    return ""


@compiles(CreateColumn, DUCKDB)
def _numbered(create: CreateColumn, compiler: Any, **kw: Any) -> str:
    """A key that the database counts up: DuckDB has sequences, and no SERIAL."""
    column: str = compiler.visit_create_column(create, **kw)
    return column.replace(" SERIAL ", f" INTEGER DEFAULT nextval('{NUMBERS}') ")


class DuckDBTables(RawTables):
    """Tables without reflection, which duckdb-engine hasn't, each emptied by itself.

    What refers to a row counts for DuckDB's foreign keys until its deletion is committed.
    """

    def table(self, name: str) -> Table:
        if name not in self._known:
            columns = [
                Column(
                    column.name,
                    BigInteger()
                    if isinstance(column.type, (LastModified, Seconds))
                    else column.type,
                    primary_key=column.primary_key,
                    autoincrement=False,
                )
                for column in DECLARED.base.metadata.tables[name].c
            ]
            self._known[name] = Table(name, MetaData(info={"ttl_odm": None}), *columns)
        self._used[name] = None
        return self._known[name]

    def clear(self) -> None:
        for name in reversed(self._used):
            with self.engine.begin() as connection:
                connection.execute(delete(self._known[name]))
        self._used.clear()


class OnDuckDB(on_sqlalchemy.SyncSQLAlchemy):
    tables = DuckDBTables

    def __init__(self, backend: Backend) -> None:
        create_sequence = DDL(f"CREATE SEQUENCE IF NOT EXISTS {NUMBERS}")
        metadata = self.declared.base.metadata
        event.listen(metadata, "before_create", create_sequence)
        try:
            super().__init__(backend)
        finally:
            event.remove(metadata, "before_create", create_sequence)


def stop_clock(connection: Connection, instant: datetime) -> None:
    """Let the function that tells DuckDB's time be another one, on one connection."""
    stopped = (instant - EPOCH) // timedelta(microseconds=1)
    connection.execute(
        text(
            f"CREATE OR REPLACE TEMP MACRO uuid_extract_timestamp(_) AS make_timestamptz({stopped})"
        )
    )


def opened(backend: Backend) -> Iterator[OnDuckDB]:
    """Open the subject, while its helpers know what DuckDB is."""
    now = "SELECT make_timestamp(epoch_us(uuid_extract_timestamp(uuidv7())))"
    known: list[tuple[dict[str, Any], Any]] = [
        (raw_tables.NOW, now),
        (raw_tables.NAMES, "DuckDB"),
        (raw_tables.STAMP_UNITS, timedelta(microseconds=1)),
        (raw_tables.TICKS, timedelta(milliseconds=1)),
        (on_sqlalchemy.UPSERTS, postgresql.insert),
    ]
    with pytest.MonkeyPatch.context() as patch:
        for of_dialect, value in known:
            patch.setitem(of_dialect, DUCKDB, value)
        patch.setattr(on_sqlalchemy, "stop_clock", stop_clock)
        subject = OnDuckDB(backend)
        yield subject
        subject.close()
