"""What `ttl-odm status` adds where an application has events: what waits for each consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ttl_odm.cli.application import answer
from ttl_odm.cli.extensions import FurtherStatus
from ttl_odm.events import text
from ttl_odm.events.handlers import adapter_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from ttl_odm.cli.application import Application
    from ttl_odm.events.outbox import ConsumerState


async def further_status(app: Application) -> FurtherStatus | None:
    """Ask the outbox; None if it has no consumers, or isn't there, which `check` reports."""
    if app.is_mongodb:
        states = await answer(adapter_of(app.engine).read_from(app.engine, None).outbox().states())
    else:
        states = await _states_in_tables(app)
    if not states:
        return None
    content = [text.consumer_dict(state) for state in states]
    return FurtherStatus("consumers", text.consumer_rows(states), content)


async def _states_in_tables(app: Application) -> Sequence[ConsumerState]:
    """Ask no table that isn't there: servers log that as an error."""
    from sqlalchemy import Table, inspect  # noqa: PLC0415 (not installed with Beanie alone)

    from ttl_odm.events.sqlalchemy.outbox import Statements  # noqa: PLC0415
    from ttl_odm.events.sqlalchemy.tables import outbox_with  # noqa: PLC0415

    targets = [one.entity for one in app.all_targets() if isinstance(one.entity, Table)]
    tables = next(filter(None, map(outbox_with, targets)), None)
    if tables is None:
        return []

    def read(connection: Connection) -> Sequence[ConsumerState]:
        catalogue = inspect(connection)
        if not all(catalogue.has_table(one.name, schema=one.schema) for one in tables):
            return []
        return Statements(tables).states_in(connection)

    return await app.ask(read)
