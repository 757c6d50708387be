"""What `ttl-odm status` adds where an application has events: what waits for each consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ttl_odm.cli.application import answer
from ttl_odm.cli.extensions import FurtherStatus
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.events import text
from ttl_odm.events.handlers import adapter_of

if TYPE_CHECKING:
    from ttl_odm.cli.application import Application


async def further_status(app: Application) -> FurtherStatus | None:
    """Ask the outbox; None if it has no consumers, or isn't there, which `check` reports."""
    try:
        outbox = adapter_of(app.engine).read_from(app.engine, None).outbox()
        states = await answer(outbox.states())
    except TTLConfigurationError:
        return None
    if not states:
        return None
    content = [text.consumer_dict(state) for state in states]
    return FurtherStatus("consumers", text.consumer_rows(states), content)
