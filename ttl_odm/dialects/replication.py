"""How a session keeps its writes from replicas and subscribers, and which rights that requires.

On PostgreSQL its writes have an origin, and a subscriber with ``origin = none`` receives only
writes without one. MariaDB marks them in its log, and a replica skips marked ones if it is set to.
MySQL doesn't log them.
"""

from __future__ import annotations

from typing import Final

ORIGIN: Final = "('ttl_odm:' || current_database())"
"""The origin's name. All databases of a server share origins; one session at a time uses each."""

FIND_ORIGIN: Final = (
    f"SELECT count(*) FROM pg_catalog.pg_replication_origin WHERE roname = {ORIGIN}"
)
MAKE_ORIGIN: Final = f"SELECT pg_replication_origin_create({ORIGIN})"
TAKE_ORIGIN: Final = f"SELECT pg_replication_origin_session_setup({ORIGIN})"
GIVE_ORIGIN_BACK: Final = "SELECT pg_replication_origin_session_reset()"
"""Neither of the last two is undone with its transaction."""

CHECK_DEFERRED: Final = "SET CONSTRAINTS ALL IMMEDIATE"
"""Makes deferred triggers write before the origin is given back, and not at the commit."""

_POSTGRESQL_RIGHTS: Final = (
    "It requires a superuser, who may GRANT EXECUTE ON FUNCTION "
    "pg_replication_origin_session_setup(text), pg_replication_origin_session_reset() to another "
    f"user (PostgreSQL 14 or later), after {MAKE_ORIGIN} was run once in this database."
)
_MYSQL_RIGHTS: Final = "It requires SESSION_VARIABLES_ADMIN, SYSTEM_VARIABLES_ADMIN or SUPER."


def unlogged_setting(*, is_mariadb: bool) -> tuple[str, int]:
    """Return the setting of a session of MariaDB or MySQL; neither accepts it in a transaction."""
    return ("skip_replication", 1) if is_mariadb else ("sql_log_bin", 0)


def denial(message: str, *, is_postgresql: bool) -> str:
    """Return the message for a user without the rights; MariaDB requires none."""
    rights = _POSTGRESQL_RIGHTS if is_postgresql else _MYSQL_RIGHTS
    return f"replicate=False: {message}. {rights}"
