"""Each server really answers, through each driver, and each test has a database to itself.

When these fail, look at the servers (tools/servers.py) before looking at ttl_odm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pymongo import MongoClient
from sqlalchemy import Column, Integer, MetaData, Table, inspect, text

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    from tests.backends import Backend

_VERSIONS = {
    "sqlite": "sqlite_version()",
    "postgres": "version()",
    "mariadb": "version()",
    "mysql": "IF(VERSION() LIKE '%MariaDB%', 'MariaDB', 'MySQL')",
}
_ANSWERS = {"sqlite": "3.", "postgres": "PostgreSQL ", "mariadb": "MariaDB", "mysql": "MySQL"}

_METADATA = MetaData()
_TABLE = Table("only_table", _METADATA, Column("id", Integer, primary_key=True))


def test_a_sync_driver_gets_an_answer(engine: Engine, backend: Backend) -> None:
    with engine.connect() as connection:
        version = connection.scalar(text(f"SELECT {_VERSIONS[backend.database]}"))
    assert _ANSWERS[backend.database] in version


async def test_an_async_driver_gets_an_answer(
    async_engine: AsyncEngine, async_backend: Backend
) -> None:
    async with async_engine.connect() as connection:
        version = await connection.scalar(text(f"SELECT {_VERSIONS[async_backend.database]}"))
    assert _ANSWERS[async_backend.database] in version


@pytest.mark.parametrize("_repetition", [1, 2])
def test_a_database_is_empty_at_first(engine: Engine, _repetition: int) -> None:
    assert inspect(engine).get_table_names() == []
    _METADATA.create_all(engine)
    assert inspect(engine).get_table_names() == ["only_table"]


def test_mongodb_is_a_replica_set_that_runs_transactions(mongodb_url: str) -> None:
    with MongoClient(mongodb_url, serverSelectionTimeoutMS=10_000) as client:
        assert client.admin.command("hello")["setName"]
        collection = client["ttl_odm_servers_answer"]["documents"]
        try:
            with client.start_session() as session, session.start_transaction():
                collection.insert_one({"_id": 1}, session=session)
                session.abort_transaction()
            assert collection.count_documents({}) == 0
        finally:
            client.drop_database("ttl_odm_servers_answer")
