"""MySQL Group Replication: three members, of which one takes writes, or each.

The group elects its primary. A member that doesn't answer is expelled after some seconds, and joins
again when it can.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from local_servers.cluster import poll, take_away
from local_servers.kind import ADDRESS, NAME, free_port
from local_servers.mysql_members import Server, kind_of, make_servers

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from local_servers.children import Children
    from local_servers.cluster import Fault, Member

NAMES = ("one", "two", "three")

_GROUP = "5c1f6a0e-7b1d-4a55-9c0e-2f3a4b5c6d7e"
_MULTI = (
    "--group-replication-single-primary-mode=OFF",
    "--group-replication-enforce-update-everywhere-checks=ON",
)

_STATE = (
    "(SELECT member_state FROM performance_schema.replication_group_members "
    "WHERE member_id = @@server_uuid)"
)
_KNOWN = "SELECT member_port FROM performance_schema.replication_group_members"
_ONLINE = f"{_KNOWN} WHERE member_state = 'ONLINE'"
_PRIMARIES = f"{_ONLINE} AND member_role = 'PRIMARY'"
_JOIN = (
    f"CHANGE REPLICATION SOURCE TO SOURCE_USER = '{NAME}' FOR CHANNEL 'group_replication_recovery'",
    "START GROUP_REPLICATION",
)


@dataclass(frozen=True)
class _Group:
    """The `Cluster`.

    Attributes:
        servers: its members.
    """

    servers: Sequence[Server]

    @property
    def members(self) -> Sequence[Member]:
        return [server.member for server in self.servers]

    @property
    def url(self) -> str:
        """The primary's: MySQL has no addresses with several hosts."""
        return self.primary().url

    def primary(self) -> Member:
        return self._writers()[0].member

    def replicas(self) -> Sequence[Member]:
        first = self._writers()[0]
        return [server.member for server in self._up if server is not first]

    def kill(self, member: Member) -> None:
        self._server(member).kill()

    def stop(self, member: Member) -> None:
        self._server(member).stop()

    def start(self, member: Member) -> None:
        """Start it again; where no other member is online, it begins the group anew."""
        server = self._server(member)
        server.begin_again()
        if any(other.value(_STATE) == "ONLINE" for other in self._up if other is not server):
            self.join(server)
        else:
            self.begin(server)

    def freeze(self, member: Member) -> None:
        self._server(member).freeze()

    def thaw(self, member: Member) -> None:
        server = self._server(member)
        server.thaw()
        self.join(server)

    def fail_over(self, fault: Fault = "kill") -> Member:
        old = self.primary()
        if fault == "switchover":
            # Otherwise commits wait to be certified by a group that the member has left already,
            # and the member for them: as long as innodb_lock_wait_timeout.
            self._server(old).refuse_writes()
            self._server(old).end_sessions()
        take_away(self, old, fault)
        poll(lambda: not self._is_known(self._server(old)), f"the group still counts on {old.name}")
        return self.primary()

    def begin(self, server: Server) -> None:
        """Let a member be the first of the group."""
        switch = "SET GLOBAL group_replication_bootstrap_group = {}".format
        server.ask(switch("ON"), *_JOIN, switch("OFF"))
        self._writers()

    def join(self, server: Server) -> None:
        """Let a member take part, and wait until all see each other."""

        def takes_part() -> bool:
            if server.value(_STATE) in (None, "OFFLINE", "ERROR"):
                if self._is_known(server):
                    # While the group has not forgotten the process that it was before, it may be
                    # refused, or wait for an answer that never comes.
                    return False
                server.ask("STOP GROUP_REPLICATION", *_JOIN)
            online = [each for each in self._up if each.value(_STATE) == "ONLINE"]
            ports = {str(each.port) for each in online}
            return server in online and all(
                ports <= {port for (port,) in each.ask(_ONLINE)} for each in online
            )

        poll(takes_part, f"{server.member.name} has not joined the group")

    @property
    def _up(self) -> list[Server]:
        return [server for server in self.servers if server.is_up]

    def _is_known(self, server: Server) -> bool:
        """Whether the group of another member still lists a server."""
        others = (other for other in self._up if other is not server)
        return any((str(server.port),) in other.ask(_KNOWN) for other in others)

    def _server(self, member: Member) -> Server:
        return next(server for server in self.servers if server.member == member)

    def _writers(self) -> list[Server]:
        """Wait until members take writes, and return these."""
        found: list[Server] = []

        def are_there() -> bool:
            # One that was frozen may still take itself for the primary, alone.
            seen = [primaries for server in self._up if (primaries := server.ask(_PRIMARIES))]
            votes = Counter(port for primaries in seen for (port,) in primaries)
            found[:] = [
                server
                for server in self._up
                if votes[str(server.port)] > len(seen) / 2
                and server.value("@@super_read_only") == "0"
            ]
            return bool(found)

        poll(are_there, "the group has no primary")
        return found


def _open(programs: dict[str, str], folder: Path, children: Children, *, is_multi: bool) -> _Group:
    """Start the members and let them form a group."""
    addresses = [f"{ADDRESS}:{free_port()}" for _ in NAMES]

    def settings(number: int, _port: int) -> list[str]:
        return [
            "--plugin-load-add=group_replication.so",
            f"--group-replication-group-name={_GROUP}",
            f"--group-replication-local-address={addresses[number - 1]}",
            f"--group-replication-group-seeds={','.join(addresses)}",
            "--group-replication-start-on-boot=OFF",
            "--group-replication-recovery-get-public-key=ON",
            "--group-replication-exit-state-action=READ_ONLY",
            # Seconds in addition to the five after which a silent member is suspected.
            "--group-replication-member-expel-timeout=0",
            # Seconds until a member that found no donor looks for one again; 60 by default.
            "--group-replication-recovery-reconnect-interval=1",
            *(_MULTI if is_multi else ()),
        ]

    group = _Group(make_servers(programs, folder, children, settings, NAMES))
    first, *others = group.servers
    group.begin(first)
    for server in others:
        group.join(server)
    return group


MYSQL_GROUP = kind_of("mysql-group", "MySQL Group Replication", partial(_open, is_multi=False))
MYSQL_GROUP_MULTI = kind_of(
    "mysql-group-multi",
    "MySQL Group Replication, multi-primary",
    partial(_open, is_multi=True),
)
