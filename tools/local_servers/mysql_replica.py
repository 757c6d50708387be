"""A MySQL with a replica: asynchronous, by GTIDs, with a log of rows or of statements.

Nothing elects here: to fail over is to promote the replica by hand. What a primary had acknowledged
and not sent is lost then, as such a pair does lose it; if it comes back, it becomes a replica, and
gets the new primary's data in place of its own where it has transactions that the other never had.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from local_servers.children import READY_SECONDS, ServerError
from local_servers.cluster import poll, refuse_partition, take_away
from local_servers.kind import ADDRESS, NAME
from local_servers.mysql_client import StatementError
from local_servers.mysql_members import Server, kind_of, make_servers

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from local_servers.children import Children
    from local_servers.cluster import Fault, Member

NAMES = ("one", "two")

_ENDED = 3707
"""The error for a clone that is complete: its server ends, for a supervisor to start it again."""

_EXECUTED = "@@GLOBAL.gtid_executed"
_RECEIVED = (
    "(SELECT received_transaction_set FROM performance_schema.replication_connection_status)"
)
_IS_CONNECTED = (
    "(SELECT service_state = 'ON' FROM performance_schema.replication_connection_status)"
)


@dataclass
class _Pair:
    """The `Cluster`.

    Attributes:
        servers: both members.
        source: the one that takes writes.
    """

    servers: Sequence[Server]
    source: Server

    @property
    def members(self) -> Sequence[Member]:
        return [server.member for server in self.servers]

    @property
    def url(self) -> str:
        """The primary's: MySQL has no addresses with several hosts."""
        return self.source.member.url

    def primary(self) -> Member:
        return self.source.member

    def replicas(self) -> Sequence[Member]:
        return [server.member for server in self._replicas if server.is_up]

    def kill(self, member: Member) -> None:
        self._server(member).kill()

    def stop(self, member: Member) -> None:
        self._server(member).stop()

    def start(self, member: Member) -> None:
        server = self._server(member)
        server.begin_again()
        if server is not self.source:
            self._rejoin(server)
            return
        _allow_writes(server)
        for replica in self._replicas:
            if replica.is_up:
                self._wait_for(replica)

    def freeze(self, member: Member) -> None:
        self._server(member).freeze()

    def thaw(self, member: Member) -> None:
        self._server(member).thaw()
        for replica in self._replicas:
            if replica.is_up and self.source.is_up:
                self._wait_for(replica)

    def fail_over(self, fault: Fault = "kill") -> Member:
        """As in `Cluster`: the replica gets the primary's place with all that it has received.

        In a switchover that is all that was acknowledged.
        """
        refuse_partition(fault)
        replica = next((server for server in self._replicas if server.is_up), None)
        if replica is None:
            message = "there is no replica to promote"
            raise ServerError(message)
        if fault == "switchover":
            self.source.refuse_writes()
            self._wait_for(replica)
        take_away(self, self.source.member, fault)
        replica.ask("STOP REPLICA IO_THREAD")
        _wait_for_transactions(replica, replica.value(_RECEIVED))
        replica.ask("STOP REPLICA", "RESET REPLICA ALL")
        _allow_writes(replica)
        self.source = replica
        return replica.member

    def follow(self, server: Server) -> None:
        """Let a server follow the primary, and wait until it does."""
        server.ask(
            "STOP REPLICA",
            f"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '{ADDRESS}', "
            f"SOURCE_PORT = {self.source.port}, SOURCE_USER = '{NAME}', "
            "SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1, "
            "SOURCE_CONNECT_RETRY = 1, SOURCE_RETRY_COUNT = 0",
            "SET GLOBAL super_read_only = ON",
            "START REPLICA",
        )
        self._wait_for(server)

    @property
    def _replicas(self) -> list[Server]:
        return [server for server in self.servers if server is not self.source]

    def _server(self, member: Member) -> Server:
        return next(server for server in self.servers if server.member == member)

    def _rejoin(self, server: Server) -> None:
        own = server.value(_EXECUTED)
        theirs = self.source.value(_EXECUTED)
        if server.value(f"GTID_SUBTRACT('{own}', '{theirs}')"):
            self._clone(server)
        self.follow(server)

    def _clone(self, server: Server) -> None:
        """Give a server the primary's data in place of its own."""
        server.ask(
            "SET GLOBAL super_read_only = OFF",
            f"SET GLOBAL clone_valid_donor_list = '{ADDRESS}:{self.source.port}'",
        )
        clone = f"CLONE INSTANCE FROM '{NAME}'@'{ADDRESS}':{self.source.port} IDENTIFIED BY ''"
        try:
            server.ask(clone)
        except StatementError as error:
            if error.code != _ENDED:
                raise
        server.wait_for_end()
        server.begin_again()

    def _wait_for(self, replica: Server) -> None:
        """Wait until a replica is connected and has what the primary has."""
        poll(
            lambda: replica.value(_IS_CONNECTED) == "1",
            f"{replica.member.name} doesn't follow {self.source.member.name}",
        )
        _wait_for_transactions(replica, self.source.value(_EXECUTED))


def _wait_for_transactions(server: Server, gtids: str | None) -> None:
    """Wait until a server has executed transactions."""
    waited = f"WAIT_FOR_EXECUTED_GTID_SET('{gtids}', {READY_SECONDS:.0f})"
    if server.value(waited) != "0":
        message = f"{server.member.name} hasn't executed {gtids} after {READY_SECONDS:.0f} s"
        raise ServerError(message)


def _allow_writes(server: Server) -> None:
    server.ask("SET GLOBAL read_only = OFF")  # and super_read_only with it


def _open(programs: dict[str, str], folder: Path, children: Children, *, log_format: str) -> _Pair:
    """Start both, and let the second one follow the first."""

    def settings(_number: int, _port: int) -> list[str]:
        return [
            f"--binlog-format={log_format}",
            *("--skip-replica-start=ON", "--relay-log=relay", "--relay-log-recovery=ON"),
            "--plugin-load-add=mysql_clone.so",
        ]

    first, second = make_servers(programs, folder, children, settings, NAMES)
    pair = _Pair([first, second], first)
    pair.follow(second)
    return pair


MYSQL_REPLICA = kind_of("mysql-replica", "MySQL with a replica", partial(_open, log_format="ROW"))
MYSQL_REPLICA_STATEMENT = kind_of(
    "mysql-replica-statement",
    "MySQL with a replica, by statements",
    partial(_open, log_format="STATEMENT"),
)
