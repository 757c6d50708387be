"""fastapi-users' access tokens in MongoDB (Beanie) under ttl_odm: an hour after ``created_at``.

Run it: ``python examples/adoption/fastapi_users_documents.py [MONGODB_URL]``; it uses the database
``example_tokens``, and drops it.

fastapi-users compares ``created_at`` with the clock of the web server, but deletes a token only
when its user logs out. With the policy the database decides. Use release 5 of
fastapi-users-db-beanie with Beanie 2, and release 4 with Beanie 1.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import datetime, timezone
from typing import Any

from beanie import Document, init_beanie
from bson import ObjectId
from fastapi_users_db_beanie.access_token import BeanieAccessTokenDatabase, BeanieBaseAccessToken
from pymongo import AsyncMongoClient

from ttl_odm import ExpireAfter
from ttl_odm.beanie import enable, ensure_indexes, ttl_database

LIFETIME = 3600  # seconds


class AccessToken(BeanieBaseAccessToken, Document):
    """A token, as fastapi-users' documentation says to declare it."""

    class Settings(BeanieBaseAccessToken.Settings):
        """Beanie's settings."""

        name = "access_tokens"


# The adoption, together with ttl_database() where Beanie is initialised.
enable(AccessToken, ExpireAfter("created_at", LIFETIME))


async def open_tokens(database: Any) -> BeanieAccessTokenDatabase[AccessToken]:
    """Initialise Beanie; give the result to fastapi-users' ``DatabaseStrategy``."""
    await init_beanie(database=ttl_database(database), document_models=[AccessToken])
    return BeanieAccessTokenDatabase(AccessToken)


async def main(url: str) -> None:
    """Let a token expire, and create it again."""
    client: AsyncMongoClient[Any] = AsyncMongoClient(url)
    database, user = client["example_tokens"], ObjectId()
    tokens = await open_tokens(database)
    await ensure_indexes(AccessToken)  # MongoDB itself deletes what is over, within a minute
    await tokens.create({"token": "abc", "user_id": user})
    print("abc:", "found" if await tokens.get_by_token("abc") else "not found")
    past = datetime(2020, 1, 1, tzinfo=timezone.utc)
    await database["access_tokens"].update_many({}, {"$set": {"created_at": past}})
    print("after its end:", "found" if await tokens.get_by_token("abc") else "not found")
    await tokens.create({"token": "abc", "user_id": user})
    print("created again:", "found" if await tokens.get_by_token("abc") else "not found")
    await client.drop_database("example_tokens")
    await client.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "mongodb://127.0.0.1:27017"))
