"""What a migration raises that is refused, and what it says."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from alembic.util import CommandError
from sqlalchemy import inspect

from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from sqlalchemy import Connection


class MigrationRefusedError(TTLConfigurationError, CommandError):
    """A TTL migration can't be done as it is written."""


def unknown_table(connection: Connection, name: str, schema: str | None) -> MigrationRefusedError:
    """What to say of a table that isn't there."""
    tables = inspect(connection).get_table_names(schema=schema)
    near = get_close_matches(name, tables, n=3)
    where = f" in schema {schema!r}" if schema else ""
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    return MigrationRefusedError(f"There is no table {name!r}{where} on this database.{hint}")
