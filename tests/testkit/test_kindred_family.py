"""A database that speaks PostgreSQL's SQL under another name, by a family that subclasses its own.

It is a PostgreSQL, behind a dialect that ttl_odm doesn't know: nothing that goes by the name of the
dialect counts, and all that goes by the family does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import (
    BigInteger,
    Column,
    MetaData,
    QueuePool,
    Table,
    create_engine,
    make_url,
)
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.schema import CreateSchema

from ttl_odm.dialects import PostgreSQL, families
from ttl_odm.sqlalchemy.sweep.due import stored_indexes
from ttl_odm.sqlalchemy.time import clock
from ttl_odm.testing import FamilyContract, SQLAlchemyRig
from ttl_odm.testing.contract import PurgeContract

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from tests.backends import Backend

KINDRED = "kindred"

pytestmark = pytest.mark.databases("postgres")


class KindredDialect(PGDialect_psycopg):
    name = KINDRED
    supports_statement_cache = True


class Kindred(PostgreSQL):
    names = (KINDRED,)


@pytest.fixture(autouse=True)
def _brought(monkeypatch: pytest.MonkeyPatch) -> None:
    registry.register(KINDRED, __name__, KindredDialect.__name__)
    monkeypatch.setitem(registry.impls, KINDRED, lambda: KindredDialect)
    monkeypatch.setattr(clock, "brought_family", {KINDRED: Kindred}.get)
    monkeypatch.setattr(clock, "_CLOCKS", dict(clock._CLOCKS))
    from ttl_odm.testing.clock import on_sqlalchemy

    monkeypatch.setattr(on_sqlalchemy, "brought_family", {KINDRED: Kindred}.get)
    monkeypatch.setattr(on_sqlalchemy, "_NOWS", dict(on_sqlalchemy._NOWS))


def made(backend: Backend) -> Engine:
    assert backend.sync_url is not None
    return create_engine(make_url(backend.sync_url).set(drivername=KINDRED), poolclass=QueuePool)


class TestFamily(FamilyContract):
    @pytest.fixture
    def engine(self, backend: Backend) -> Iterator[Engine]:
        engine = made(backend)
        yield engine
        engine.dispose()


class TestPurge(PurgeContract):
    @pytest.fixture
    def rig(self, backend: Backend) -> Iterator[SQLAlchemyRig]:
        rig = SQLAlchemyRig(made(backend), made(backend))
        yield rig
        rig.close()


def test_it_is_a_family_that_an_entry_point_may_bring() -> None:
    assert families._flaw(Kindred, KINDRED) is None


def test_sqlalchemy_is_asked_for_indexes_if_the_family_has_no_query(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the table's own schema."""
    monkeypatch.setattr(Kindred, "indexes_query", lambda *_: None)
    tables = [
        Table("carts", MetaData(schema=schema), Column("_ts", BigInteger(), index=True))
        for schema in (None, "apart")
    ]
    engine = made(backend)
    with engine.begin() as connection:
        connection.execute(CreateSchema("apart"))
        for table in tables:
            table.create(connection)
        found = [index.name for table in tables for index in stored_indexes(connection, table)]
        connection.rollback()
    engine.dispose()
    assert found == ["ix_carts__ts", "ix_apart_carts__ts"]
