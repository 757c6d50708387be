"""Asks the members of a replica set of MongoDB."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from pymongo.errors import OperationFailure

from ttl_odm.beanie.sweep.store import MongoStore
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.replication.lag import Lag, Reading, Replica, wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ttl_odm.sweeper.options import Throttle

_UNAUTHORIZED: Final = 13
_NO_REPLICATION: Final = 76


def throttle_of(engine: Any, at_most: float, replicas: Sequence[Any]) -> Throttle:
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
        except OperationFailure as error:
            if error.code == _NO_REPLICATION:
                return None
            if error.code == _UNAUTHORIZED:
                raise TTLConfigurationError(
                    "throttle='replication' needs replSetGetStatus, and the sweeper's user may not "
                    "run it: grant the role clusterMonitor."
                ) from error
            raise
        return wait_for(lag.of(reading_of(status), monotonic()), at_most)

    return replication


def reading_of(status: Mapping[str, Any]) -> Reading:
    """Return what ``replSetGetStatus`` shows."""
    members = status["members"]
    primary = next((member for member in members if member["stateStr"] == "PRIMARY"), None)
    secondaries = [member for member in members if member["stateStr"] == "SECONDARY"]
    return Reading(
        [Replica(member["name"], position=_position_of(member)) for member in secondaries],
        None if primary is None else _position_of(primary),
    )


def _position_of(member: Mapping[str, Any]) -> int:
    timestamp = member["optime"]["ts"]
    return int(timestamp.time) << 32 | int(timestamp.inc)
