"""What a migration waits for at a member of a cluster: what was committed on other members."""

from __future__ import annotations

from contextlib import contextmanager
from math import ceil
from typing import TYPE_CHECKING, Final

from sqlalchemy.exc import DBAPIError

from ttl_odm.dialects.errors import code_of
from ttl_odm.dialects.waits import WAITED
from ttl_odm.errors import TTLError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ttl_odm.alembic.runner import Runner

_MEMBERSHIP: Final = """
SHOW GLOBAL VARIABLES WHERE (Variable_name = 'wsrep_on' AND Value = 'ON')
OR Variable_name = 'group_replication_consistency'
"""
"""Has a row, which begins with the name of a setting, on a node of Galera and where MySQL's plugin
for groups is loaded. Everybody may ask."""

_GALERA: Final = "wsrep_on"
_GALERA_WAIT: Final = "SET STATEMENT wsrep_sync_wait = 15 FOR SELECT 1"

_GROUP_SETTINGS: Final = "SELECT @@SESSION.group_replication_consistency, @@SESSION.wait_timeout"
_GROUP_SET: Final = "SET SESSION group_replication_consistency = '{}', SESSION wait_timeout = {}"
_GROUP_WAIT: Final = "SHOW DATABASES"
"""Waits, as any statement does that reads a table, if only one of the server's."""
_GROUP_LAGS: Final = 3797


def catch_up(runner: Runner) -> None:
    """Let a member apply what was committed on others before the schema is read.

    By default it may lag. After a run that broke off on another member, it would show a schema
    without that run's changes, and its progress neither.

    Galera waits for its ``repl.causal_read_timeout``. MySQL's `group_replication_consistency` has
    the session's ``wait_timeout`` as its limit, for which a migration takes its ``give_up_after``:
    https://dev.mysql.com/doc/refman/9.7/en/group-replication-configuring-consistency-guarantees.html

    Raises:
        TTLError: It doesn't catch up in time.
    """
    if runner.offline or runner.dialect.name not in {"mysql", "mariadb"}:
        return
    of = runner.connection.exec_driver_sql(_MEMBERSHIP).first()
    if of is None:
        return
    with runner.outside_transactions():  # inside one, it would not wait
        if of[0] == _GALERA:
            with _reporting(WAITED, "node of the Galera cluster", "its repl.causal_read_timeout"):
                runner.connection.exec_driver_sql(_GALERA_WAIT)
            return
        before = runner.connection.exec_driver_sql(_GROUP_SETTINGS).one()
        limit = ceil(runner.settings.give_up_after)
        runner.at_once(_GROUP_SET.format("BEFORE", limit))
        try:
            with _reporting(_GROUP_LAGS, "member of the group", f"give_up_after={limit} s"):
                runner.connection.exec_driver_sql(_GROUP_WAIT)
        finally:
            runner.at_once(_GROUP_SET.format(*before))


@contextmanager
def _reporting(code: int, member: str, limit: str) -> Iterator[None]:
    try:
        yield
    except DBAPIError as error:
        if code_of(error.orig) != code:
            raise
        raise TTLError(
            f"This {member} lags behind the others, and didn't catch up within {limit}. Nothing "
            f"was changed: migrate again once it has caught up, or at another one."
        ) from error
