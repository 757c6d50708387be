"""What a replica or a subscriber gets of a database, read as it would read it.

PostgreSQL's by a slot with ``test_decoding``. MariaDB's and MySQL's by the command with which a
replica asks for the log, which servers of the tests write for one database only: `LOGGED`.
"""

from __future__ import annotations

import re
import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pymysql
from sqlalchemy import create_engine, make_url, text

from tests.backends import server_url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import URL, Engine

    from tests.backends import Backend

LOGGED: Final = "ttl_odm_replicated"

_DUMP: Final = 0x12
_NON_BLOCKING: Final = 1
_QUERY, _TABLE_MAP = 2, 19
_ROWS: Final = {23: "INSERT", 24: "UPDATE", 25: "DELETE", 30: "INSERT", 31: "UPDATE", 32: "DELETE"}
_HEADER: Final = 19
_END: Final = 0xFE


@contextmanager
def replicated(backend: Backend) -> Iterator[URL]:
    """A fresh database that subscribers hear of, by the driver of a backend."""
    url = make_url(backend.sync_url or backend.async_url or "")
    if backend.database == "postgres":
        yield url
        drop_origin(url)
        return
    server = create_engine(url.set(drivername="mysql+pymysql"))
    try:
        with server.begin() as connection:
            assert connection.scalar(text("SELECT @@log_bin")), "This server writes no log."
            connection.execute(text(f"DROP DATABASE IF EXISTS {LOGGED}"))
            connection.execute(text(f"CREATE DATABASE {LOGGED}"))
        yield url.set(database=LOGGED)
        with server.begin() as connection:
            connection.execute(text(f"DROP DATABASE {LOGGED}"))
    finally:
        server.dispose()


@contextmanager
def subscriber(engine: Engine, database: str) -> Iterator[Any]:
    """What says what came since: ``hears()``, and ``hears(chosen=True)``, without sweeps.

    Lines such as ``DELETE carts``, and statements of DDL.
    """
    if database == "postgres":
        made = PostgreSQLSubscriber(engine)
        yield made
        made.close()
    else:
        yield BinlogSubscriber(database)


def drop_origin(url: URL) -> None:
    """Drop a database's origin: a server has places for ten."""
    server = create_engine(url.set(drivername="postgresql+psycopg"))
    with server.begin() as connection:
        connection.execute(
            text(
                "SELECT pg_replication_origin_drop(roname) FROM pg_replication_origin "
                "WHERE roname = 'ttl_odm:' || current_database()"
            )
        )
    server.dispose()


class PostgreSQLSubscriber:
    """A slot of a database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._run("SELECT pg_create_logical_replication_slot(current_database(), 'test_decoding')")

    def hears(self, *, chosen: bool = False) -> list[str]:
        """Read the slot; `chosen` as a subscription with ``origin = none``."""
        # What isn't safe on disk isn't decoded yet.
        self._run(
            "SELECT set_config('synchronous_commit', 'on', true), "
            "pg_logical_emit_message(true, 'a', 'b')"
        )
        lines = self._run(
            "SELECT data FROM pg_logical_slot_peek_changes(current_database(), NULL, NULL, "
            "'skip-empty-xacts', '1', 'only-local', :chosen)",
            chosen=str(int(chosen)),
        )
        found = (re.match(r"table public\.(\w+): (\w+):", line) for (line,) in lines)
        return [f"{match[2]} {match[1]}" for match in found if match]

    def close(self) -> None:
        """Drop the slot, without which the database can't be dropped."""
        self._run("SELECT pg_drop_replication_slot(current_database())")

    def _run(self, statement: str, **parameters: str) -> list[Any]:
        with self._engine.begin() as connection:
            return list(connection.execute(text(statement), parameters))


class BinlogSubscriber:
    """A place in the log of a server of MariaDB or MySQL."""

    def __init__(self, database: str) -> None:
        self._database = database
        with self._connection() as connection, connection.cursor() as cursor:
            log = "MASTER" if database == "mariadb" else "BINARY LOG"
            cursor.execute(f"SHOW {log} STATUS")
            self._file, self._place, *_ = cursor.fetchone() or ()

    def hears(self, *, chosen: bool = False) -> list[str]:
        """Read the log; `chosen` as a replica of MariaDB that skips what is marked."""
        with self._connection() as connection:
            with connection.cursor() as cursor:
                for ours in ("master", "source"):  # MariaDB's word, and MySQL's
                    cursor.execute(f"SET @{ours}_binlog_checksum = @@GLOBAL.binlog_checksum")
                cursor.execute("SELECT IF(@@GLOBAL.binlog_checksum = 'NONE', 0, 4)")
                (checksum,) = cursor.fetchone()
                if chosen and self._database == "mariadb":
                    cursor.execute("SET @mariadb_slave_capability = 4, skip_replication = 1")
            request = struct.pack("<IHI", self._place, _NON_BLOCKING, 4711)
            raw: Any = connection
            raw._execute_command(_DUMP, request + self._file.encode())
            return list(_lines(raw, checksum))

    def _connection(self) -> Any:
        url = make_url(server_url(self._database))
        assert url.host
        return pymysql.connect(
            host=url.host, port=url.port or 0, user=url.username, autocommit=True
        )


def _lines(connection: Any, checksum: int) -> Iterator[str]:
    tables: dict[bytes, str] = {}
    while True:
        packet = connection._read_packet().get_all_data()
        if packet[0] == _END:
            return
        event = packet[1 : len(packet) - checksum]
        kind, body = event[4], event[_HEADER:]
        if kind == _TABLE_MAP:
            _, rest = _text(body[8:])
            tables[body[:6]] = _text(rest)[0]
        elif kind in _ROWS:
            yield f"{_ROWS[kind]} {tables[body[:6]]}"
        elif kind == _QUERY:
            schema, variables = body[8], int.from_bytes(body[11:13], "little")
            statement = body[13 + variables + schema + 1 :].decode()
            if statement not in ("BEGIN", "COMMIT"):
                yield statement


def _text(raw: bytes) -> tuple[str, bytes]:
    """A text with its length before it and a zero behind, and what follows."""
    end = raw[0] + 1
    return raw[1:end].decode(), raw[end + 1 :]
