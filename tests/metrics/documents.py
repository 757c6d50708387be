"""An application of documents whose hooks take part, and which tells of its phases."""

from __future__ import annotations

import os
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tests.cli.documents import Event
from ttl_odm.cli.connect import connect
from ttl_odm.cli.source import Source
from ttl_odm.sweeper import Hook, Progress

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


def tell(progress: Progress) -> None:
    """Print the phases of a batch."""
    print(*sorted(progress.phases), file=sys.stderr)  # noqa: T201


@asynccontextmanager
async def hooked() -> AsyncIterator[Any]:
    """Connect as the command line does, with a purge that hooks are told of."""
    Event.__ttl_purge__ = "sweeper"
    hooks = [Hook(lambda _: None), Hook(lambda _: None, when="commit")]
    async with connect(Source("tests.cli.documents:MODELS", os.environ["EVENTS_URL"])) as app:
        yield app.engine, [Event], {"on_purged": hooks, "on_progress": tell}
