"""What a migration raises that is refused."""

from __future__ import annotations

from alembic.util import CommandError

from ttl_odm.errors import TTLConfigurationError


class MigrationRefusedError(TTLConfigurationError, CommandError):
    """A TTL migration can't be done as it is written."""
