"""``ttl-odm check --replica URL``: does a replica hide rows when its primary does?"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from ttl_odm.cli.application import answer
from ttl_odm.cli.connect import reached
from ttl_odm.cli.errors import UsageError
from ttl_odm.cli.urls import public_url
from ttl_odm.sweeper.findings import of_replica

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ttl_odm.cli.application import Application
    from ttl_odm.sweeper.findings import Finding


async def check_replicas(app: Application, replicas: Sequence[str]) -> list[Finding]:
    """Compare the clocks of replicas with the database's own, each right beside it.

    Args:
        app: The application, at the primary.
        replicas: The URLs of the replicas.
    """
    store, findings = app.store(), []
    for url in replicas:
        async with AsyncExitStack() as stack:
            replica = (await reached(url, stack)).store()
            if app.is_store or type(replica).__module__ != type(store).__module__:
                raise UsageError(f"--replica {public_url(url)}: it isn't of the database's kind.")
            server = await answer(replica.server())  # and is connected then
            before = await answer(store.now())
            now = await answer(replica.now())
            after = await answer(store.now())
        findings += of_replica(public_url(url), now, (before, after), server)
    return findings
