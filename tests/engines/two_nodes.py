"""A cluster of two nodes, each with a sweeper and a writer: no renewal is lost.

`python3 tools/dev.py engines` runs this on Galera. There a node knows nothing of the locks of the
other: which of two transactions that meet was first shows when they commit.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from sqlalchemy import create_engine, select, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tests.backends import fresh
from tests.guard import GUARD
from ttl_odm.dialects.errors import code_of
from ttl_odm.errors import ExpiredError
from ttl_odm.sqlalchemy import TTLMixin, include_expired, lease_table
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy import Engine

RENEWALS = 135  # of each writer
BATCH = 15
DEADLOCK = 1213  # which is also what the transaction hears that commits second


class Base(DeclarativeBase): ...


class Cart(TTLMixin, Base):
    __tablename__ = "carts"
    __ttl__ = -1
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


lease_table(Base.metadata)


@pytest.fixture
def nodes(mariadb_url: str, tmp_path: Path) -> Iterator[list[Engine]]:
    """An engine on each of two nodes, for a database of the test's own."""
    with fresh("mariadb-pymysql", tmp_path) as database:
        assert database.sync_url is not None
        first = create_engine(database.sync_url)
        with first.connect() as connection:
            status = text("SHOW STATUS LIKE 'wsrep_incoming_addresses'")
            places = connection.execute(status).one()[1].split(",")
        user = urlsplit(database.sync_url).username
        engines = [
            create_engine(
                urlsplit(database.sync_url)._replace(netloc=f"{user}@{place}").geturl(),
                # What one node has committed is there on the other a moment later.
                connect_args={"init_command": "SET SESSION wsrep_sync_wait = 7"},
            )
            for place in sorted(places)[:2]
        ]
        assert len(engines) == 2
        Base.metadata.create_all(engines[0])
        yield engines
        for engine in (first, *engines):
            engine.dispose()


def renew(engine: Engine, key: int) -> bool:
    """Let a row live on, unless it has expired."""
    while True:
        try:
            with Session(engine) as session, session.begin():
                cart = session.get(Cart, key)
                if cart is None:
                    return False
                cart.expire_in(3600)
        except ExpiredError:
            return False
        except OperationalError as error:
            if code_of(error.orig) != DEADLOCK:
                raise
        else:
            return True


def write(engine: Engine, number: int) -> set[int]:
    """Put rows in that live for a second or two, and renew what of them is still there."""
    renewed: set[int] = set()
    key, end = number, monotonic() + GUARD
    while len(renewed) < RENEWALS:
        assert monotonic() < end
        keys = range(key, key + 2 * BATCH, 2)
        key += 2 * BATCH
        with Session(engine) as session, session.begin():
            session.add_all(Cart(id=each, ttl=1 + each % 3) for each in keys)
        renewed |= {each for each in keys if renew(engine, each)}
    return renewed


def sweep(engine: Engine, options: dict[str, Any], enough: threading.Event) -> None:
    """Sweep again and again, until the writers have what they want."""
    sweeper = Sweeper(engine, Base, **options)
    while not enough.is_set():
        sweeper.run_once()


@pytest.mark.parametrize(
    "options", [{"lease": True}, {"lease": False}], ids=["one at a time", "both at once"]
)
def test_two_sweepers_take_no_row_that_a_writer_of_either_node_has_renewed(
    nodes: list[Engine], options: dict[str, Any]
) -> None:
    enough = threading.Event()
    with ThreadPoolExecutor(4) as pool:
        sweepers = [pool.submit(sweep, engine, options, enough) for engine in nodes]
        writers = [pool.submit(write, engine, number) for number, engine in enumerate(nodes)]
        try:
            renewed = set[int]().union(*(writer.result() for writer in writers))
        finally:
            enough.set()
        for sweeper in sweepers:
            sweeper.result()
    assert len(renewed) >= 2 * RENEWALS
    for engine in nodes:
        with Session(engine) as session:
            there = select(Cart.id).options(include_expired())
            assert renewed <= set(session.scalars(there))
