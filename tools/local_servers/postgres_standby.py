"""A private PostgreSQL with two streaming standbys, of which one is synchronous.

Whoever waits for a commit waits until the synchronous standby has it. In a failover the standby
that has received most takes the primary's place: so it has all that was acknowledged, and the
other standby can follow it.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from local_servers import cluster, postgres
from local_servers.children import ServerError, make_folder, unprivileged_account
from local_servers.cluster import ClusterKind, Member
from local_servers.kind import ADDRESS, NAME, free_port

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from local_servers.children import Child, Children
    from local_servers.cluster import Fault

_NAMES = ("one", "two", "three")
_ANSWER_SECONDS = 5

_SETTINGS = {
    "synchronous_standby_names": f"FIRST 1 ({', '.join(_NAMES)})",
    "synchronous_commit": "on",
    # Members are killed while they write.
    "full_page_writes": "on",
    # For a standby that comes from another primary, where it had no slot yet.
    "wal_keep_size": "256MB",
    "wal_retrieve_retry_interval": "200ms",
}

_RECEIVES = "SELECT count(*) FROM pg_stat_wal_receiver"
_RECEIVED = "SELECT greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()) - '0/0'::pg_lsn"
_SLOTS = "SELECT string_agg(slot_name, ',') FROM pg_replication_slots"
_FOLLOWERS = (
    "SELECT string_agg(application_name, ',') FROM pg_stat_replication WHERE state = 'streaming'"
)


@dataclass
class Standbys:
    """A `cluster.Cluster` of PostgreSQL's.

    Attributes:
        ports: where each member listens.
    """

    programs: dict[str, str]
    folder: Path
    children: Children
    ports: dict[Member, int]
    _primary: Member
    _servers: dict[Member, Child] = field(default_factory=dict)
    _frozen: set[Member] = field(default_factory=set)
    _outdated: set[Member] = field(default_factory=set)

    @property
    def members(self) -> Sequence[Member]:
        """As in `Cluster`."""
        return list(self.ports)

    @property
    def url(self) -> str:
        """As in `Cluster`, as SQLAlchemy has it for psycopg and asyncpg."""
        hosts = "&".join(f"host={ADDRESS}:{port}" for port in self.ports.values())
        return f"postgresql://{NAME}@/{NAME}?{hosts}&target_session_attrs=read-write"

    def primary(self) -> Member:
        """As in `Cluster`."""
        return self._primary

    def replicas(self) -> Sequence[Member]:
        """As in `Cluster`, the synchronous one first."""
        others = [member for member in self.members if member != self._primary]
        return [member for member in others if self._is_up(member)]

    def kill(self, member: Member) -> None:
        """As in `Cluster`."""
        self._end(member, signal.SIGKILL)

    def stop(self, member: Member) -> None:
        """As in `Cluster`."""
        cluster.thaw(self._servers[member])
        self._end(member, signal.SIGINT)

    def start(self, member: Member) -> None:
        """As in `Cluster`; a member that missed a failover gets a copy of the primary's files."""
        if member in self._outdated:
            shutil.rmtree(self.folder / member.name / "data")
            self.copy(member)
            self._outdated.discard(member)
        self.launch(member)
        self._wait_for_followers()

    def freeze(self, member: Member) -> None:
        """As in `Cluster`."""
        self._frozen.add(member)
        cluster.freeze(self._servers[member])

    def thaw(self, member: Member) -> None:
        """As in `Cluster`; a member that missed a failover is started again.

        Before that, a former primary answers whoever is still connected to it.
        """
        cluster.thaw(self._servers[member])
        self._frozen.discard(member)
        if member in self._outdated and self._is_up(member):
            self._wait_until(member, "SELECT 1", "1")
            self.kill(member)
            self.start(member)

    def fail_over(self, fault: Fault = "kill") -> Member:
        """As in `Cluster`: promotes the standby that has received most."""
        cluster.take_away(self, self._primary, fault)
        standbys = self.replicas()
        if not standbys:
            message = "no standby is up that could be the primary"
            raise ServerError(message)
        for standby in standbys:
            # It would wait for one that is frozen, and receive more from it later.
            self._connect(standby, "")
        for standby in standbys:
            self._wait_until(standby, _RECEIVES, "0")
        chosen = max(standbys, key=lambda standby: int(self._ask(standby, _RECEIVED)))
        self._outdated.update(set(self.members) - set(standbys))
        self._ask(chosen, "SELECT pg_promote()")
        self._wait_until(chosen, "SELECT pg_is_in_recovery()", "f")
        self._primary = chosen
        for standby in standbys:
            if standby != chosen:
                self._make_slot(standby)
                self._connect(standby, self._address(standby))
        self._wait_for_followers()
        return chosen

    def launch(self, member: Member) -> None:
        """Start a member's process, and wait until it lets clients in."""
        self._servers[member] = postgres.launch(
            self.programs,
            self.folder / member.name,
            self.children,
            self.ports[member],
            _SETTINGS,
        )

    def copy(self, member: Member) -> None:
        """Give a member a copy of the primary's files, and make it a standby."""
        account = unprivileged_account("postgres")
        folder = self.folder / member.name
        data = make_folder(folder / "data", account)
        self._make_slot(member)
        self.children.run(
            [
                *(self.programs["pg_basebackup"], "--pgdata", str(data), "--checkpoint=fast"),
                *(
                    "--write-recovery-conf",
                    "--slot",
                    member.name,
                    "--no-sync",
                    "--wal-method=stream",
                ),
                *("--dbname", self._address(member)),
            ],
            log=folder / "copy.log",
            account=account,
        )

    def _address(self, member: Member) -> str:
        """How a standby connects to the primary."""
        port = self.ports[self._primary]
        return f"host={ADDRESS} port={port} user={NAME} application_name={member.name}"

    def _connect(self, standby: Member, address: str) -> None:
        """Let a standby receive from another primary, or from none."""
        self._ask(
            standby,
            f"ALTER SYSTEM SET primary_conninfo = '{address}'",
            "SELECT pg_reload_conf()",
        )

    def _make_slot(self, member: Member) -> None:
        """Let the primary keep what a standby hasn't received, if it doesn't already."""
        slots = self._ask(self._primary, _SLOTS).split(",")
        if member.name not in slots:
            make = f"SELECT pg_create_physical_replication_slot('{member.name}', true)"
            self._ask(self._primary, make)

    def _wait_for_followers(self) -> None:
        """Wait until all standbys that are up follow the primary."""
        if not self._is_up(self._primary):
            return
        names = {standby.name for standby in self.replicas()}
        self._servers[self._primary].wait_until(
            lambda: names <= set(self._ask(self._primary, _FOLLOWERS).split(","))
        )

    def _wait_until(self, member: Member, query: str, answer: str) -> None:
        self._servers[member].wait_until(lambda: self._ask(member, query) == answer)

    def _end(self, member: Member, number: signal.Signals) -> None:
        server = self._servers[member]
        server.send(number)
        server.process.wait()
        self._frozen.discard(member)

    def _is_up(self, member: Member) -> bool:
        server = self._servers.get(member)
        return server is not None and server.is_running() and member not in self._frozen

    def _ask(self, member: Member, *statements: str) -> str:
        """Run statements and return the answer of the last one.

        Raises:
            ServerError: the server doesn't answer, or with an error.
        """
        address = f"host={ADDRESS} port={self.ports[member]} user={NAME} dbname={NAME}"
        command = [
            *(self.programs["psql"], "-X", "--no-align", "--tuples-only", "--quiet"),
            *("--dbname", f"{address} connect_timeout={_ANSWER_SECONDS}"),
            *(word for statement in statements for word in ("--command", statement)),
        ]
        finished = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            env={"LC_ALL": "C"},
        )
        if finished.returncode != 0:
            message = f"{member.name} doesn't answer: {finished.stderr.strip()}"
            raise ServerError(message)
        return finished.stdout.strip()


def open_standbys(programs: dict[str, str], folder: Path, children: Children) -> Standbys:
    """Start a primary and two standbys."""
    account = unprivileged_account("postgres")
    ports = {}
    for name in _NAMES:
        make_folder(folder / name, account)
        port = free_port()
        ports[Member(name, postgres.url_of(port))] = port
    first, *others = ports
    standbys = Standbys(programs, folder, children, ports, first)
    postgres.create(programs, folder / first.name, children)
    standbys.launch(first)
    for member in others:
        standbys.copy(member)
        standbys.start(member)
    return standbys


def find() -> dict[str, str] | None:
    """Find the programs of a PostgreSQL with its clients."""
    return postgres.find_programs("initdb", "postgres", "pg_basebackup", "psql")


POSTGRES_STANDBY = ClusterKind(
    name="postgres-standby",
    title="PostgreSQL with two standbys",
    variable=postgres.POSTGRES.variable,
    packages=postgres.POSTGRES.packages,
    remedy="install PostgreSQL 13 or newer with pg_basebackup and psql",
    find=find,
    start=cluster.opened_by(open_standbys),
    wheel_on=postgres.POSTGRES.wheel_on,
    open=open_standbys,
)
