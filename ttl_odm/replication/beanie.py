"""The throttle for MongoDB, which asks the members of a replica set."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final

from pymongo.errors import OperationFailure

from ttl_odm.beanie.sweep.store import MongoStore
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.replication.lag import Lag, Reading, Replica, wait_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ttl_odm.beanie.drivers import Database, Filter
    from ttl_odm.sweeper.options import Throttle

_UNAUTHORIZED: Final = 13
_NO_REPLICATION: Final = 76

_PROGRESS: Final = {
    "serverStatus": 1,
    "repl": 1,
    **dict.fromkeys(("metrics", "wiredTiger", "tcmalloc", "locks", "transactions"), 0),
}
"""The command for the positions that secondaries report as they apply writes, and little else.

The positions in ``replSetGetStatus`` are those of the last heartbeats, up to two seconds old.
"""


def throttle_of(
    engine: Database | MongoStore, at_most: float, replicas: Sequence[object]
) -> Throttle:
    """Make the throttle; see `ttl_odm.replication.ReplicationLag`."""
    if replicas:
        raise TTLConfigurationError(
            "replicas = [...] is for MariaDB and MySQL: a replica set of MongoDB knows its members."
        )
    database = engine.database if isinstance(engine, MongoStore) else engine
    lag = Lag()

    async def replication() -> float | str | None:
        try:
            status = await database.client.admin.command("replSetGetStatus")
            progress = (await database.client.admin.command(_PROGRESS))["repl"]
        except OperationFailure as error:
            if error.code == _NO_REPLICATION:
                return None
            if error.code == _UNAUTHORIZED:
                raise TTLConfigurationError(
                    "throttle='replication' needs replSetGetStatus and serverStatus, and the "
                    "sweeper's user may not run them: grant the role clusterMonitor."
                ) from error
            raise
        return wait_for(lag.of(reading_of(status, progress), monotonic()), at_most)

    return replication


def reading_of(status: Filter, progress: Filter) -> Reading:
    """Return the positions of the members.

    Args:
        status: The answer to ``replSetGetStatus``.
        progress: The section ``repl`` of the answer to ``serverStatus``.
    """
    applied = {
        member["host"]: _position_in(member.get("lastAppliedOpTime", member["optime"]))
        for member in progress.get("replicationProgress", ())
    }
    members = status["members"]
    primary = next((member for member in members if member["stateStr"] == "PRIMARY"), None)
    secondaries = [member for member in members if member["stateStr"] == "SECONDARY"]
    replicas = []
    for member in secondaries:
        name, position = member["name"], _position_in(member["optime"])
        replicas.append(Replica(name, position=max(position, applied.get(name, position))))
    return Reading(replicas, None if primary is None else _position_in(primary["optime"]))


def _position_in(optime: Filter) -> int:
    timestamp = optime["ts"]
    return int(timestamp.time) << 32 | int(timestamp.inc)
