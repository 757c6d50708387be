"""A private Galera cluster: three MariaDB servers on the loopback address that are one database.

A node that joins gets what it missed from another node's memory (IST) or, where it has no files or
was away too long, a copy of another node's files (SST). The nodes share a disk, so the script that
copies needs none of the programs that Galera's own scripts want, such as rsync.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from local_servers.children import ServerError, make_folder, unprivileged_account
from local_servers.cluster import ClusterKind, opened_by, poll, take_away
from local_servers.kind import ADDRESS, NAME, free_port
from local_servers.mariadb import FIRST_STATEMENTS, begin, install
from local_servers.mariadb import suite as mariadb_suite
from local_servers.mariadb_members import Server, server_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from local_servers.children import Children
    from local_servers.cluster import Fault, Member

SUITE = mariadb_suite("trixie", "galera-4")
NAMES = ("one", "two", "three")

_METHOD = "copy"
# Joiner and donor both run this. The address is the name of the joiner's folder, since a path may
# have spaces. A donor gets a password on its input, and the transfer fails if it ends before it has
# read that. With --bypass, the joiner's own files will do. Galera's memory and state belong to a
# node and aren't copied. `tables_flushed` appears once the donor has stopped writing to its files.
_TRANSFER = """\
#!/bin/sh
set -e
while [ $# -gt 0 ]; do
  case "$1" in
    --role) role="$2" ;;
    --address) address="$2" ;;
    --datadir) data="${2%/}" ;;
    --gtid) position="$2" ;;
    --bypass) bypass=1 ;;
  esac
  shift
done
if [ "$role" = joiner ]; then
  rm -f "$data/position"
  echo "ready ${data##*/}"
  until [ -s "$data/position" ]; do sleep 0.05; done
  cat "$data/position"
  exit
fi
cat > /dev/null
target="${data%/*}/$address"
if [ -z "$bypass" ]; then
  rm -f "$data/tables_flushed"
  echo "flush tables"
  until [ -s "$data/tables_flushed" ]; do sleep 0.05; done
  cd "$data"
  for file in *; do
    case "$file" in
      galera.cache|grastate.dat|gvwstate.dat|tables_flushed|position|*.pid|*.sock) ;;
      *) rm -rf "$target/$file"; cp -R "$file" "$target/" ;;
    esac
  done
  echo continue
fi
echo "$position" > "$target/position.new"
mv "$target/position.new" "$target/position"
echo "done $position"
"""
_RECOVERED = re.compile(r"Recovered position: *(\S+)")
# Galera's own limits are 5 and 15 seconds.
_TIMEOUTS = "evs.suspect_timeout=PT3S;evs.inactive_timeout=PT9S"


@dataclass
class _Galera:
    """The `Cluster`. All nodes take writes; the first that is up counts as the primary.

    Attributes:
        servers: Its nodes.
        peers: The ports on which they listen for each other, in the same order.
        folder: For the files of all.
    """

    servers: Sequence[Server]
    folder: Path
    peers: Sequence[int] = field(init=False)

    def __post_init__(self) -> None:
        self.peers = [free_port() for _ in self.servers]

    @property
    def members(self) -> Sequence[Member]:
        return [server.member for server in self.servers]

    @property
    def url(self) -> str:
        """The primary's: MariaDB has no addresses with several hosts."""
        return self.primary().url

    def primary(self) -> Member:
        return self._up()[0].member

    def replicas(self) -> Sequence[Member]:
        return [server.member for server in self._up()[1:]]

    def kill(self, member: Member) -> None:
        server_of(self.servers, member).kill()
        self.wait_until_synced()

    def stop(self, member: Member) -> None:
        server_of(self.servers, member).stop()
        self.wait_until_synced()

    def start(self, member: Member) -> None:
        """Let a node join those that are up."""
        server = server_of(self.servers, member)
        self._up()
        server.start(*self._settings(server), *_position(self._recovered(server)))
        self.wait_until_synced()

    def empty(self, member: Member) -> None:
        """Remove the files of a node that is down, so that it joins by SST."""
        server_of(self.servers, member).empty()

    def freeze(self, member: Member) -> None:
        """Stop a node's process, and wait until the others go on without it."""
        server_of(self.servers, member).freeze()
        self.wait_until_synced()

    def thaw(self, member: Member) -> None:
        server_of(self.servers, member).thaw()
        self.wait_until_synced()

    def fail_over(self, fault: Fault = "kill") -> Member:
        """Take the first node away, and return the next one once it takes writes."""
        take_away(self, self.primary(), fault)
        return self.primary()

    def form(self, *words: str) -> None:
        """Start the first node as a new cluster, and let the others join it one by one."""
        first, *others = self.servers
        first.start(*self._settings(first), "--wsrep-new-cluster", *words)
        for server in others:
            self.start(server.member)

    def wait_until_synced(self) -> None:
        """Wait until the nodes that are up are one cluster that takes writes."""
        running = self._up()
        expected = {
            ("wsrep_cluster_size", str(len(running))),
            ("wsrep_cluster_status", "Primary"),
            ("wsrep_local_state_comment", "Synced"),
            ("wsrep_ready", "ON"),
        }
        for server in running:
            poll(
                lambda server=server: expected <= _status(server),  # type: ignore[misc]
                f"{server.name} isn't in a cluster of {len(running)}",
            )

    def _up(self) -> list[Server]:
        if found := [server for server in self.servers if server.is_up]:
            return found
        message = "no node is up"
        raise ServerError(message)

    def _settings(self, server: Server) -> list[str]:
        """What makes a server a node."""
        # Only those that are up: a frozen one would be waited for.
        peers = [
            f"{ADDRESS}:{port}"
            for other, port in zip(self.servers, self.peers, strict=True)
            if other is not server and other.is_up
        ]
        here = f"{ADDRESS}:{self.peers[self.servers.index(server)]}"
        options = f"gmcast.listen_addr=tcp://{here};ist.recv_addr={ADDRESS}:{free_port()}"
        provider = Path(server.programs["mariadbd"]).parents[1] / "lib/galera/libgalera_smm.so"
        return [
            *("--binlog-format=ROW", "--innodb-autoinc-lock-mode=2", "--wsrep-on=ON"),
            *(f"--wsrep-provider={provider}", f"--wsrep-cluster-name={NAME}"),
            *(f"--wsrep-cluster-address=gcomm://{','.join(peers)}", f"--wsrep-node-address={here}"),
            f"--wsrep-node-incoming-address={ADDRESS}:{server.port}",
            f"--wsrep-provider-options={options};gcache.size=32M;{_TIMEOUTS}",
            f"--wsrep-sst-method={_METHOD}",
        ]

    def _recovered(self, server: Server) -> str:
        """The position of a node's files, which a killed node has in InnoDB only."""
        if not (server.data / "ibdata1").exists():
            return ""
        log = self.folder / f"{server.name}-recovery.log"
        log.unlink(missing_ok=True)
        server.children.run(
            [
                *begin(server.programs, server.data, server.port),
                *self._settings(server),
                "--wsrep-recover",
            ],
            log=log,
            account=unprivileged_account("mysql"),
        )
        found = _RECOVERED.findall(log.read_text())
        return found[-1] if found else ""


def _position(recovered: str) -> list[str]:
    return [f"--wsrep-start-position={recovered}"] if recovered else []


def _status(server: Server) -> set[tuple[str, str]]:
    rows = server.ask("SHOW STATUS LIKE 'wsrep%'")
    return {(row[0], row[1]) for row in rows if len(row) > 1}


def _open(programs: dict[str, str], folder: Path, children: Children) -> _Galera:
    """Start all nodes; only the first has files, the others get a copy."""
    account = unprivileged_account("mysql")
    servers = [
        Server(name, programs, children, make_folder(folder / name, account), free_port())
        for name in NAMES
    ]
    install(programs, servers[0].data, children)
    statements = folder / "first.sql"
    statements.write_text(FIRST_STATEMENTS)
    script = folder / f"wsrep_sst_{_METHOD}"
    script.write_text(_TRANSFER)
    script.chmod(0o755)
    cluster = _Galera(servers, folder)
    cluster.form(f"--init-file={statements}")
    return cluster


GALERA = ClusterKind(
    name="galera",
    title="Galera",
    variable="TTL_ODM_TEST_MARIADB_URL",
    packages=lambda: (),
    remedy="it comes out of Debian's packages only",
    find=SUITE.find,
    start=opened_by(_open),
    suite=SUITE,
    open=_open,
)
