"""A private Galera cluster: two MariaDB servers on the loopback address that are one database.

The second node begins with a copy of what the first one had when it was stopped, and gets what it
missed from the first one's memory. So none of Galera's own scripts is needed, which want rsync and
more.
"""

from __future__ import annotations

import shutil
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from local_servers.children import make_folder, unprivileged_account
from local_servers.kind import ADDRESS, NAME, Kind, free_port
from local_servers.mariadb import FIRST_STATEMENTS, SBIN, begin, greets, install
from local_servers.mariadb import suite as mariadb_suite

if TYPE_CHECKING:
    from local_servers.children import Child, Children

SUITE = mariadb_suite("trixie", "galera-4")

_READY = "Synchronized with group, ready for connections"
_METHOD = "position"
# Both nodes run this, in its two roles, when the second one joins.
_TRANSFER = """\
#!/bin/sh
while [ $# -gt 0 ]; do
  case "$1" in
    --role) role="$2" ;;
    --address) address="$2" ;;
    --datadir) data="$2" ;;
    --gtid) position="$2" ;;
  esac
  shift
done
if [ "$role" = donor ]; then
  echo "$position" > "$address"
  echo "done $position"
else
  place="${data%/}/position"
  echo "ready $place"
  until [ -s "$place" ]; do sleep 0.1; done
  cat "$place"
fi
"""


@dataclass(frozen=True)
class _Node:
    """One of the two.

    Attributes:
        data: its files.
        port: for clients.
        peers: for the other one.
    """

    data: Path
    port: int
    peers: int

    def settings(self, provider: Path, join: str) -> list[str]:
        """What makes a server a node.

        Args:
            provider: Galera's library.
            join: the address of a node that is there already; empty for the first.
        """
        here = f"{ADDRESS}:{self.peers}"
        options = f"gmcast.listen_addr=tcp://{here};ist.recv_addr={ADDRESS}:{free_port()}"
        return [
            *("--binlog-format=ROW", "--innodb-autoinc-lock-mode=2", "--wsrep-on=ON"),
            *(f"--wsrep-provider={provider}", f"--wsrep-cluster-name={NAME}"),
            *(f"--wsrep-cluster-address=gcomm://{join}", f"--wsrep-node-address={here}"),
            f"--wsrep-node-incoming-address={ADDRESS}:{self.port}",
            f"--wsrep-provider-options={options};gcache.size=32M",
            f"--wsrep-sst-method={_METHOD}",
        ]


@dataclass(frozen=True)
class _Cluster:
    """How its nodes are started."""

    programs: dict[str, str]
    folder: Path
    children: Children

    def start(self, node: _Node, *words: str, join: str = "") -> Child:
        """Start a node and wait until it lets clients in."""
        provider = Path(self.programs["mariadbd"]).parents[1] / "lib/galera/libgalera_smm.so"
        server = self.children.start(
            [
                # Galera looks for its script on PATH.
                *("/usr/bin/env", f"PATH={self.folder}:{SBIN}"),
                *begin(self.programs, node.data, node.port),
                *(*node.settings(provider, join), *words),
            ],
            log=self.folder / f"{node.data.name}.log",
            account=unprivileged_account("mysql"),
        )
        server.wait_until(lambda: greets(node.port) and _READY in server.log.read_text())
        return server


def start(programs: dict[str, str], folder: Path, children: Children) -> str:
    """Start both nodes and return the first one's URL; it knows the other's address."""
    account = unprivileged_account("mysql")
    first, second = (_Node(folder / name, free_port(), free_port()) for name in ("one", "two"))
    install(programs, make_folder(first.data, account), children)
    statements = folder / "first.sql"
    statements.write_text(FIRST_STATEMENTS)
    script = folder / f"wsrep_sst_{_METHOD}"
    script.write_text(_TRANSFER)
    script.chmod(0o755)
    cluster = _Cluster(programs, folder, children)
    alone = cluster.start(first, "--wsrep-new-cluster", f"--init-file={statements}")
    alone.send(signal.SIGTERM)
    alone.process.wait()
    shutil.copytree(first.data, second.data, ignore=shutil.ignore_patterns("galera.cache"))
    if account is not None:
        for path in (second.data, *second.data.rglob("*")):
            shutil.chown(path, account.uid, account.gid)
    cluster.start(first, "--wsrep-new-cluster")
    cluster.start(second, join=f"{ADDRESS}:{first.peers}")
    return f"mysql://{NAME}@{ADDRESS}:{first.port}/{NAME}"


GALERA = Kind(
    name="galera",
    title="Galera",
    variable="TTL_ODM_TEST_MARIADB_URL",
    packages=lambda: (),
    remedy="it comes out of Debian's packages only",
    find=SUITE.find,
    start=start,
    suite=SUITE,
)
