"""A process of its own that has the carts, with a start of its own: a line in, a line out."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from beanie import init_beanie

from tests.mongo.scratch import connect
from tests.mongo.stored import declared
from ttl_odm import Stored
from ttl_odm.beanie import ensure_indexes, set_policy, ttl_database
from ttl_odm.beanie.policy.bindings import collection_of


async def main(url: str, name: str, start: str) -> None:
    """Start as a release does that has this start; then answer."""
    model = declared(Stored(int(start)), purge="native")
    client = connect(url)
    await init_beanie(database=ttl_database(client[name]), document_models=[model])
    await ensure_indexes(model)
    print("ready", flush=True)  # noqa: T201 (it is what the process is for)
    while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
        if line != "?":
            ttl: Any = None if line == "off" else int(line)
            await set_policy(model, ttl, by=start)
        found = collection_of(model).find({}, {"_id": 1})
        print(*sorted([row["_id"] async for row in found]), flush=True)  # noqa: T201 (as above)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
