"""advanced-alchemy's key-value store for Litestar under ttl_odm: values end at ``expires_at``.

Run it: ``python examples/adoption/litestar_store.py``.

The store keeps sessions, rate limits and cached responses. It compares ``expires_at`` with the
clock of the web server in each query, and has nothing that deletes what is over: its table grows
until somebody does.
"""

from __future__ import annotations

import asyncio
from typing import Any

from advanced_alchemy.extensions.litestar import SQLAlchemyAsyncConfig, SQLAlchemySyncConfig
from advanced_alchemy.extensions.litestar.store import SQLAlchemyStore, StoreModelMixin
from sqlalchemy import text

from ttl_odm import ExpireAt
from ttl_odm.sqlalchemy import enable
from ttl_odm.sweeper import AsyncSweeper


class StoredItem(StoreModelMixin):
    """The store's table, as its documentation says to declare it."""

    __tablename__ = "stored_items"


# The adoption.
enable(StoredItem, ExpireAt("expires_at"))


def make_store(config: SQLAlchemyAsyncConfig | SQLAlchemySyncConfig) -> SQLAlchemyStore[Any]:
    """Make a store; give it to ``Litestar(stores={"sessions": ...})``."""
    return SQLAlchemyStore(config, model=StoredItem, namespace="sessions")


async def main() -> None:
    """Let a value expire, set it again, and sweep."""
    config = SQLAlchemyAsyncConfig(connection_string="sqlite+aiosqlite://")
    engine, store = config.get_engine(), make_store(config)
    async with engine.begin() as connection:
        await connection.run_sync(StoredItem.metadata.create_all)
    await store.set("ada", b"basket: 3", expires_in=3600)
    await store.set("bob", b"basket: 1", expires_in=3600)
    print("ada:", await store.get("ada"))
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE stored_items SET expires_at = '2020-01-01 00:00:00'"))
    print("after its end:", await store.get("ada"))
    await store.set("ada", b"basket: 0", expires_in=3600)
    print("set again:", await store.get("ada"))
    print(await AsyncSweeper(engine, StoredItem).run_once())
    await engine.dispose()


if __name__ == "__main__":
    asyncio.run(main())
