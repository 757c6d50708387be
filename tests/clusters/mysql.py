"""What the tests of MySQL's clusters share: engines, and rows of any age."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import pymysql
from pymysql.constants import CR
from sqlalchemy import create_engine, make_url, select, text

from tests.faults.carts import HOUR, add, left
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper import Pace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection, Engine

EXPIRED: Final = range(60)
LIVE: Final = range(1_000, 1_010)
PACE: Final = Pace(start=10, lowest=10, highest=10, target=10)
"""Several batches for these rows."""


@contextmanager
def engine_on(member: Any) -> Iterator[Engine]:
    """Connect to one member."""
    engine = create_engine(make_url(member.url).set(drivername="mysql+pymysql"))
    try:
        yield engine
    finally:
        engine.dispose()


@contextmanager
def engine_on_primary(cluster: Any) -> Iterator[Engine]:
    """Connect to whatever member takes writes at that moment, as through MySQL Router."""

    def connect() -> Any:
        for member in cluster.members:
            url = make_url(member.url)
            with suppress(pymysql.OperationalError):
                connection = pymysql.connect(
                    host=url.host, port=url.port or 0, user=url.username, database=url.database
                )
                if _takes_writes(connection):
                    return connection
                connection.close()
        raise pymysql.OperationalError(CR.CR_CONN_HOST_ERROR, "no member takes writes")

    engine = create_engine("mysql+pymysql://", creator=connect)
    try:
        yield engine
    finally:
        engine.dispose()


def _takes_writes(connection: Any) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT NOT @@super_read_only")
        return bool(cursor.fetchone()[0])


def fill(engine: Engine, model: Any) -> None:
    """Make the tables anew, with rows that have expired and others that are live."""
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE IF EXISTS carts, blockers"))
        connection.execute(text("CREATE TABLE blockers (id INT PRIMARY KEY)"))
        model.metadata.create_all(connection)
        add(connection, EXPIRED, age=2 * HOUR)
        add(connection, LIVE, age=HOUR / 2)


def renew(connection: Connection, key: int) -> None:
    """Modify a row now, also if it has expired, as a statement from before its expiry does."""
    now = clock_of(connection.dialect).now
    connection.execute(text(f"UPDATE carts SET _ts = {now} WHERE id = :id"), {"id": key})  # noqa: S608


def stored(engine: Engine, model: Any) -> set[int]:
    """The keys of all rows, expired ones too."""
    with engine.connect() as connection:
        return left(connection, model)


def seen(engine: Engine, model: Any) -> set[int]:
    """The keys of the rows that an application sees."""
    with engine.connect() as connection:
        return set(connection.scalars(select(model.id)))


def has_carts(engine: Engine, keys: set[int], model: Any) -> bool:
    """Whether a replica has got the table, with these rows."""
    with engine.connect() as connection:
        if not connection.execute(text("SHOW TABLES LIKE 'carts'")).all():
            return False
    return stored(engine, model) == keys
