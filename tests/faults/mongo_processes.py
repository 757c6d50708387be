"""Sweepers of MongoDB in processes of their own, of which some are killed.

``python -m`` this with a JSON job, as `tests.faults.processes`, which does the forking.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import random
import subprocess
import sys
from typing import Any, ClassVar

from tests.faults import processes


def run(**job: Any) -> Any:
    """Do a job in a new process, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.mongo_processes", json.dumps(job)],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    if done.returncode:
        raise AssertionError(done.stderr[-3000:])
    return json.loads(done.stdout)


def cart(mode: str) -> Any:
    """Declare a class whose purged documents go to ``kept``, by an archive or by a hook."""
    from beanie import Document

    from ttl_odm.beanie import Archive, TTLMixin

    class Cart(TTLMixin, Document):
        __ttl__: ClassVar[Any] = 3600
        __ttl_purge__ = "sweeper"
        __ttl_archive__ = Archive("kept") if mode == "archive" else None

        id: int  # type: ignore[assignment]

        class Settings:
            name = "carts"

    return Cart


async def opened(url: str, name: str, mode: str) -> tuple[Any, Any]:
    """Connect, and return the database and the class."""
    from beanie import init_beanie

    from tests.mongo.scratch import connect
    from ttl_odm.beanie import ttl_database

    database = ttl_database(connect(url)[name])
    model = cart(mode)
    await init_beanie(database=database, document_models=[model], skip_indexes=True)
    return database, model


async def closed(database: Any) -> None:
    """Disconnect; in a thread, as Motor waits for the server, which may be beyond this loop."""
    closing = await asyncio.to_thread(database.client.close)
    if inspect.isawaitable(closing):
        await closing


def _main(job: dict[str, Any]) -> Any:
    if job.get("clock"):
        processes._shift_clocks(job["clock"])
    from ttl_odm.sweeper import AsyncSweeper, Pace

    async def sweep(number: int, ready: int) -> dict[str, Any]:
        database, model = await opened(job["url"], job["name"], job["mode"])

        async def tell(purged: Any) -> None:
            """Keep the keys. Without keys of their own, so that one kept twice is there twice."""
            rows = [{"cart": key} for (key,) in purged.keys]
            await database["kept"].insert_many(rows, session=purged.transaction)

        options = {
            "lease": True,
            "lease_name": f"{number}",
            "pace": Pace(start=processes.ROWS, lowest=1, highest=processes.ROWS, target=10),
            "on_progress": lambda _: os.write(ready, b"."),
            "on_purged": tell if job["mode"] == "hook" else None,
            **job.get("options", {}),
        }
        report = await AsyncSweeper(database, model, **options).run_once()
        await closed(database)
        return report.to_dict()

    def work(number: int, ready: int) -> dict[str, Any]:
        random.seed(number)
        return asyncio.run(sweep(number, ready))

    if "kills" in job:
        return processes._kill(work, job["kills"], job["seed"])
    return processes._together(work, job["number"])


if __name__ == "__main__":
    json.dump(_main(json.loads(sys.argv[1])), sys.stdout)
