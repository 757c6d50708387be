"""The setups that docs/clusters.md reports on: the one list of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from local_servers.galera import GALERA
from local_servers.mariadb_replica import MARIADB_REPLICA
from local_servers.mysql_group import MYSQL_GROUP, MYSQL_GROUP_MULTI
from local_servers.mysql_replica import MYSQL_REPLICA, MYSQL_REPLICA_STATEMENT
from local_servers.postgres_standby import POSTGRES_STANDBY

if TYPE_CHECKING:
    from local_servers.cluster import ClusterKind

ASYNCHRONOUS = 60.0
"""What an engine may lose that acknowledges a write before another member has it: in seconds, more
than a replica of ours is ever behind."""


@dataclass(frozen=True)
class Setup:
    """One way to run several servers as one database.

    Attributes:
        kind: How it is started; one of `lifetime.ON_REQUEST`.
        loses: For how many seconds before a failover the engine may lose what it acknowledged.
    """

    kind: ClusterKind
    loses: float = 0.0

    @property
    def name(self) -> str:
        """What `--only` calls it."""
        return self.kind.name


SETUPS = (
    Setup(POSTGRES_STANDBY),
    Setup(GALERA),
    Setup(MARIADB_REPLICA, ASYNCHRONOUS),
    Setup(MYSQL_GROUP),
    Setup(MYSQL_GROUP_MULTI),
    Setup(MYSQL_REPLICA, ASYNCHRONOUS),
    Setup(MYSQL_REPLICA_STATEMENT, ASYNCHRONOUS),
)
NAMES = tuple(setup.name for setup in SETUPS)

NOT_TESTED = {
    "Servers on several hosts": "all members are on one machine, so their clocks agree, and a "
    "network can't be cut between them without stopping a member",
    "Sharded clusters of MongoDB": "mongos is in no Debian suite, and in no wheel",
    "Managed services": "Amazon Aurora and RDS, Azure Database, Cloud SQL and Atlas exist only as "
    "services",
}
"""What somebody may miss, and why it isn't tested."""
