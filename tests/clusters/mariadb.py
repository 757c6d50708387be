"""What the tests of MariaDB's clusters share: engines, and rows of any age."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pymysql
from sqlalchemy import create_engine, select, text
from sqlalchemy.orm import Session

from tests.sql.sweeping import HOUR, add, cart
from ttl_odm.sqlalchemy import include_expired, lease_table
from ttl_odm.sweeper import Pace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine

Cart: Final = cart()
lease_table(Cart.metadata)

EXPIRED: Final = range(200)
LIVE: Final = range(1_000, 1_020)
PACE: Final = Pace(start=20, lowest=20, highest=20, target=10)
"""Several batches for these rows, all of one size."""


@contextmanager
def engine_of(member: Any, **options: Any) -> Iterator[Engine]:
    """Connect to one member."""
    engine = create_engine(member.url.replace("mysql:", "mysql+pymysql:"), **options)
    try:
        yield engine
    finally:
        engine.dispose()


@contextmanager
def routed(place: Callable[[], Any]) -> Iterator[Engine]:
    """Connect to whatever member `place` returns at that moment, as a proxy or a DNS name does."""

    def connect() -> Any:
        host, _, database = place().url.removeprefix("mysql://").partition("/")
        user, _, address = host.partition("@")
        name, _, port = address.partition(":")
        return pymysql.connect(host=name, port=int(port), user=user, database=database)

    engine = create_engine("mysql+pymysql://", creator=connect)
    try:
        yield engine
    finally:
        engine.dispose()


def fill(engine: Engine) -> None:
    """Make the tables anew, with rows that have expired and others that are live."""
    Cart.metadata.drop_all(engine)
    Cart.metadata.create_all(engine)
    with engine.begin() as connection:
        add(connection, "carts", [(key, None, 2 * HOUR) for key in EXPIRED])
        add(connection, "carts", [(key, None, 0) for key in LIVE])


def renew(engine: Engine, key: int) -> None:
    """Let an expired row live again, as only raw SQL can."""
    with engine.begin() as connection:
        now = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
        connection.execute(text(f"UPDATE carts SET _ts = {now} WHERE id = :id"), {"id": key})  # noqa: S608


def seen(engine: Engine) -> list[int]:
    """The keys of the rows that an application sees."""
    with Session(engine) as session:
        return list(session.scalars(select(Cart.id).order_by(Cart.id)))


def stored(engine: Engine) -> list[int]:
    """The keys of the rows that are stored, expired ones too."""
    with Session(engine) as session:
        statement = select(Cart.id).order_by(Cart.id).options(include_expired())
        return list(session.scalars(statement))
