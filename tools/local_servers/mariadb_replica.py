"""A MariaDB with a replica: asynchronous, by GTIDs, with a log of rows.

The servers don't elect: to fail over is to promote the replica by hand. That loses what the primary
had acknowledged but not sent, as such a pair does. A former primary that comes back may hold such
transactions, so it is made anew from the new primary's log, which goes back to the first one.

The user ttl_odm may do everything but write to a server that is read-only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from local_servers import mariadb
from local_servers.children import READY_SECONDS, ServerError, make_folder, unprivileged_account
from local_servers.cluster import ClusterKind, opened_by, poll, refuse_partition, take_away
from local_servers.kind import ADDRESS, NAME, free_port
from local_servers.mariadb_members import Server, server_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from local_servers.children import Children
    from local_servers.cluster import Fault, Member

NAMES = ("one", "two")

_OPERATOR = "operator"
# Each server runs these itself: logged, they would run on the replica a second time.
_STATEMENTS = f"""\
SET sql_log_bin = 0;
{mariadb.FIRST_STATEMENTS}\
REVOKE READ ONLY ADMIN ON *.* FROM '{NAME}'@'%';
CREATE USER '{_OPERATOR}'@'%';
GRANT ALL PRIVILEGES ON *.* TO '{_OPERATOR}'@'%';
"""
_SETTINGS = (
    *("--log-bin=log", "--relay-log=relay", "--binlog-format=ROW", "--sync-binlog=0"),
    *("--log-slave-updates=ON", "--gtid-strict-mode=ON", "--skip-slave-start=ON"),
    "--log-bin-trust-function-creators=ON",
)
_READ_ONLY = "--read-only=ON"


@dataclass
class _Pair:
    """The `Cluster`.

    Attributes:
        servers: Both.
        source: The one that takes writes.
        statements: A file with the first statements of each.
        numbers: Gives each new set of files a `server_id`: a server ignores its own transactions.
        number: The `server_id` of each server, by its name.
        outdated: The names of former primaries.
    """

    servers: Sequence[Server]
    source: Server
    statements: Path
    numbers: Iterator[int] = field(default_factory=partial(count, 1))
    number: dict[str, int] = field(default_factory=dict)
    outdated: set[str] = field(default_factory=set)

    @property
    def members(self) -> Sequence[Member]:
        return [server.member for server in self.servers]

    @property
    def url(self) -> str:
        """The primary's: MariaDB has no addresses with several hosts."""
        return self.source.member.url

    def primary(self) -> Member:
        return self.source.member

    def replicas(self) -> Sequence[Member]:
        return [server.member for server in self._running_replicas()]

    def kill(self, member: Member) -> None:
        server_of(self.servers, member).kill()

    def stop(self, member: Member) -> None:
        server_of(self.servers, member).stop()

    def start(self, member: Member) -> None:
        """Start a server again; a former primary becomes a replica."""
        server = server_of(self.servers, member)
        if server is self.source:
            self._start(server)
            self._wait_for_replicas()
            return
        if server.name in self.outdated:
            server.empty()
            self._make(server)
            self.outdated.remove(server.name)
        else:
            self._start(server, _READ_ONLY)
        self.follow(server)

    def freeze(self, member: Member) -> None:
        server_of(self.servers, member).freeze()

    def thaw(self, member: Member) -> None:
        server_of(self.servers, member).thaw()
        self._wait_for_replicas()

    def fail_over(self, fault: Fault = "kill") -> Member:
        """As in `Cluster`: promotes the replica once it has applied all that it received.

        In a switchover that is all that was acknowledged.
        """
        refuse_partition(fault)
        replica = next(iter(self._running_replicas()), None)
        if replica is None:
            message = "there is no replica to promote"
            raise ServerError(message)
        if fault == "switchover":
            poll(self._refuses_writes, f"{self.source.name} still takes writes")
            self._wait_for(replica)
        take_away(self, self.source.member, fault)
        _ask(replica, "STOP SLAVE IO_THREAD")
        _wait_for_position(replica, _slave_status(replica)["Gtid_IO_Pos"])
        _ask(replica, "STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL read_only = OFF")
        self.outdated.add(self.source.name)
        self.source = replica
        return replica.member

    def _refuses_writes(self) -> bool:
        # With a limit: it waits for statements that wait for a row, whose holder waits behind it.
        _ask(self.source, "SET lock_wait_timeout = 2", "SET GLOBAL read_only = ON")
        return True

    def form(self) -> None:
        """Make the files of both, start them, and let one follow the other."""
        for server in self.servers:
            self._make(server)
        _ask(self.source, "SET GLOBAL read_only = OFF")
        for server in self._running_replicas():
            self.follow(server)

    def follow(self, server: Server) -> None:
        """Let a server follow the primary, from where it is, and wait until it has caught up."""
        _ask(
            server,
            "STOP SLAVE",
            f"CHANGE MASTER TO MASTER_HOST = '{ADDRESS}', MASTER_PORT = {self.source.port}, "
            f"MASTER_USER = '{_OPERATOR}', MASTER_USE_GTID = slave_pos, "
            "MASTER_CONNECT_RETRY = 1, MASTER_SSL = 0, MASTER_SSL_VERIFY_SERVER_CERT = 0",
            "START SLAVE",
        )
        self._wait_for(server)

    def _running_replicas(self) -> list[Server]:
        return [server for server in self.servers if server.is_up and server is not self.source]

    def _make(self, server: Server) -> None:
        """Start a server with new files."""
        folder = server.data.parent
        for name in ("base", "install.log"):
            (folder / name).unlink(missing_ok=True)
        mariadb.install(server.programs, server.data, server.children)
        self.number[server.name] = next(self.numbers)
        self._start(server, _READ_ONLY, f"--init-file={self.statements}")

    def _start(self, server: Server, *words: str) -> None:
        address = (f"--report-host={ADDRESS}", f"--report-port={server.port}")
        number = f"--server-id={self.number[server.name]}"
        server.start(*_SETTINGS, *address, number, *words)

    def _wait_for_replicas(self) -> None:
        if self.source.is_up:
            for replica in self._running_replicas():
                self._wait_for(replica)

    def _wait_for(self, replica: Server) -> None:
        """Wait until a replica is connected and has applied what the primary has logged."""
        replica.process.wait_until(
            lambda: _slave_status(replica)["Slave_IO_Running"] == "Yes",
        )
        _wait_for_position(replica, _ask(self.source, "SELECT @@GLOBAL.gtid_binlog_pos"))


def _ask(server: Server, *statements: str) -> str:
    rows = server.ask(*statements, user=_OPERATOR)
    return rows[0][0] if rows else ""


def _slave_status(server: Server) -> dict[str, str]:
    return server.record("SHOW SLAVE STATUS", user=_OPERATOR)


def _wait_for_position(server: Server, position: str) -> None:
    """Wait until a server has applied what comes before a position.

    Raises:
        ServerError: It took too long.
    """
    waited = _ask(server, f"SELECT MASTER_GTID_WAIT('{position}', {READY_SECONDS:.0f})")
    if waited != "0":
        message = f"{server.name} hasn't applied {position} after {READY_SECONDS:.0f} s"
        raise ServerError(message)


def _open(programs: dict[str, str], folder: Path, children: Children) -> _Pair:
    account = unprivileged_account("mysql")
    statements = folder / "first.sql"
    statements.write_text(_STATEMENTS)
    servers = [
        Server(name, programs, children, make_folder(folder / name, account), free_port())
        for name in NAMES
    ]
    pair = _Pair(servers, servers[0], statements)
    pair.form()
    return pair


MARIADB_REPLICA = ClusterKind(
    name="mariadb-replica",
    title="MariaDB with a replica",
    variable="TTL_ODM_TEST_MARIADB_URL",
    packages=mariadb.MARIADB.packages,
    remedy=mariadb.MARIADB.remedy,
    find=mariadb.find,
    start=opened_by(_open),
    suite=mariadb.SUITE,
    open=_open,
)
