"""A gateway to documentdb, for tests only: `python documentdb_gateway.py POSTGRES_URL PORT`.

Azure Cosmos DB for MongoDB (vCore) is documentdb, a PostgreSQL extension whose functions take and
give BSON, behind a gateway that clients talk to. Debian has the extension and no gateway. This one
knows what PyMongo and Beanie send, hands it to the engine, and names the engine's errors as Azure's
own gateway does. It has no users, no encryption and no limits: it listens on the loopback address
until it is stopped.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from functools import partial
from typing import TYPE_CHECKING, Final

import bson

from documentdb import wire
from documentdb.commands import run
from documentdb.engine import Engine
from documentdb.errors import CommandError

if TYPE_CHECKING:
    from documentdb.wire import Request

ADDRESS: Final = "127.0.0.1"


async def converse(
    engine: Engine, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Answer one client's commands, one after the other, until it goes."""
    try:
        while True:
            request = await wire.read(reader)
            reply = await _reply_to(engine, request)
            if request.wants_reply:
                writer.write(wire.answer(request, reply))
                await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def _reply_to(engine: Engine, request: Request) -> bytes:
    try:
        return await run(engine, request)
    except CommandError as error:
        return bson.encode(error.document())
    except Exception as error:  # noqa: BLE001 - a client that hears nothing would wait for ever
        traceback.print_exc()
        return bson.encode(CommandError(1, f"the gateway failed: {error!r}").document())


async def serve(url: str, port: int) -> None:
    """Listen until stopped."""
    engine = Engine(url)
    await engine.prepare()
    server = await asyncio.start_server(partial(converse, engine), ADDRESS, port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2])))
