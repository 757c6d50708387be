"""What a migration waits for at a member of a cluster: what was committed on other members."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Final

from sqlalchemy.exc import DBAPIError

from ttl_odm.dialects.errors import WAITED, code_of
from ttl_odm.errors import TTLError

if TYPE_CHECKING:
    from ttl_odm.alembic.runner import Runner

_WAIT: Final = "SHOW DATABASES"
"""Waits, as any statement does that reads a table, if only one of the server's."""

_LONGEST: Final = 365 * 86_400
"""The longest wait_timeout, in seconds."""


@dataclass(frozen=True)
class _Kind:
    """A kind of cluster whose members lag behind each other unless a session waits for them.

    Attributes:
        member: What its members are called.
        settings: What reads a session's settings.
        change: What sets them, with their places.
        lags: The error of a statement that has waited in vain.
    """

    member: str
    settings: str
    change: str
    lags: int


_GALERA: Final = _Kind(
    "node of the Galera cluster",
    "SELECT @@SESSION.wsrep_sync_wait",
    "SET SESSION wsrep_sync_wait = {}",
    WAITED,
)
_GROUP: Final = _Kind(
    "member of the group",
    "SELECT @@SESSION.group_replication_consistency, @@SESSION.wait_timeout",
    "SET SESSION group_replication_consistency = '{}', SESSION wait_timeout = {}",
    3797,
)

_OF: Final = {"wsrep_on": _GALERA, "group_replication_consistency": _GROUP}
_MEMBERSHIP: Final = """
SHOW GLOBAL VARIABLES WHERE (Variable_name = 'wsrep_on' AND Value = 'ON')
OR Variable_name = 'group_replication_consistency'
"""
"""Has a row, which begins with a key of `_OF`, on a node of Galera and where MySQL's plugin for
groups is loaded. Everybody may ask."""


def catch_up(runner: Runner) -> None:
    """Let a member apply what was committed on others before the schema is read.

    By default it may lag. After a run that broke off on another member, it would show a schema
    without that run's changes, and its progress neither.

    Galera waits for its ``repl.causal_read_timeout``. MySQL's ``group_replication_consistency`` has
    the session's ``wait_timeout`` as its limit, for which a migration takes its ``give_up_after``:
    https://dev.mysql.com/doc/refman/en/group-replication-configuring-consistency-guarantees.html

    Raises:
        TTLError: It doesn't catch up in time.
    """
    if runner.offline or runner.dialect.name not in {"mysql", "mariadb"}:
        return
    found = runner.connection.exec_driver_sql(_MEMBERSHIP).first()
    if found is None:
        return
    kind = _OF[found[0]]
    seconds = ceil(min(runner.settings.give_up_after, _LONGEST))
    waiting = (15,) if kind is _GALERA else ("BEFORE", seconds)
    with runner.outside_transactions():  # inside one, it would not wait
        before = runner.connection.exec_driver_sql(kind.settings).one()
        runner.at_once(kind.change.format(*waiting))
        try:
            runner.connection.exec_driver_sql(_WAIT)
        except DBAPIError as error:
            if code_of(error.orig) != kind.lags:
                raise
            limit = "repl.causal_read_timeout" if kind is _GALERA else f"give_up_after={seconds} s"
            raise TTLError(
                f"This {kind.member} lags behind the others, and didn't catch up within {limit}. "
                "Nothing was changed: migrate again once it has caught up, or at another one."
            ) from error
        finally:
            runner.at_once(kind.change.format(*before))
