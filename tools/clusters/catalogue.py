"""The setups that docs/clusters.md reports on: the one list of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from local_servers.cluster import FAULTS
from local_servers.galera import GALERA
from local_servers.mariadb_replica import MARIADB_REPLICA
from local_servers.mongodb_members import MONGODB_MEMBERS
from local_servers.mysql_group import MYSQL_GROUP, MYSQL_GROUP_MULTI
from local_servers.mysql_replica import MYSQL_REPLICA, MYSQL_REPLICA_STATEMENT
from local_servers.postgres_standby import POSTGRES_STANDBY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from local_servers.cluster import ClusterKind, Fault

ASYNCHRONOUS = 60.0
"""What an engine may lose that acknowledges a write before another member has it: in seconds, more
than a replica of ours is ever behind."""

WITHOUT_PARTITION: tuple[Fault, ...] = ("kill", "switchover")
"""The faults of a setup without a fence. There a primary that was cut off goes on acknowledging
writes, which are lost when it becomes a replica; a deployment must end it before it promotes."""


@dataclass(frozen=True)
class Setup:
    """One way to run several servers as one database.

    Attributes:
        kind: How it is started; one of `lifetime.ON_REQUEST`.
        loses: For how many seconds before a primary is killed the engine may lose what it
            acknowledged.
        faults: What may become of its primary.
        clients: The adapter that its clients use.
        session: The statement with which clients begin a session, as docs/replicas.md has it.
    """

    kind: ClusterKind
    loses: float = 0.0
    faults: Sequence[Fault] = FAULTS
    clients: str = "sqlalchemy"
    session: str = ""

    @property
    def name(self) -> str:
        """What `--only` calls it."""
        return f"{self.kind.name}-django" if self.clients == "django" else self.kind.name

    @property
    def title(self) -> str:
        """What people call it."""
        return f"{self.kind.title}, Django" if self.clients == "django" else self.kind.title


SETUPS = (
    Setup(POSTGRES_STANDBY),
    Setup(POSTGRES_STANDBY, clients="django"),
    Setup(GALERA, session="SET SESSION wsrep_sync_wait = 15"),
    Setup(MARIADB_REPLICA, ASYNCHRONOUS, WITHOUT_PARTITION),
    Setup(MYSQL_GROUP),
    Setup(MYSQL_GROUP_MULTI, session="SET SESSION group_replication_consistency = 'BEFORE'"),
    Setup(MYSQL_REPLICA, ASYNCHRONOUS, WITHOUT_PARTITION),
    Setup(MYSQL_REPLICA_STATEMENT, ASYNCHRONOUS, WITHOUT_PARTITION),
    Setup(MONGODB_MEMBERS, clients="beanie"),
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
