"""Several servers that hold one database, and what may be done to them while they run.

Each kind of cluster is a `Kind` as well, so `servers.py --only postgres-standby -- CMD` starts one
and gives CMD the URL of the server that takes writes. `lifetime.running_cluster` is for those who
have to kill, freeze and revive members themselves.
"""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

from local_servers.children import POLL_SECONDS, READY_SECONDS, ServerError
from local_servers.kind import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from local_servers.children import Child, Children

Fault: TypeAlias = Literal["kill", "switchover", "partition"]
"""What becomes of a primary: SIGKILL; an end in good order, with nothing lost; or it is frozen, so
that for clients and other members its network is cut, and doesn't know that it was replaced."""

FAULTS: Final[tuple[Fault, ...]] = ("kill", "switchover", "partition")


@dataclass(frozen=True)
class Member:
    """One server of a cluster.

    Attributes:
        name: a word for people, such as `one`.
        url: leads to this server, whatever its role.
    """

    name: str
    url: str


class Cluster(Protocol):
    """A cluster that is up.

    Every method returns when its effect can be seen by a new client, and raises `ServerError` if
    that takes too long.
    """

    @property
    def members(self) -> Sequence[Member]:
        """All of them, those that are down too."""
        ...

    @property
    def url(self) -> str:
        """What an application is given: several hosts where drivers can do with them."""
        ...

    def primary(self) -> Member:
        """The one that takes writes; of several, the first."""
        ...

    def replicas(self) -> Sequence[Member]:
        """Those that are up and take no writes; in a multi-primary cluster, the others."""
        ...

    def kill(self, member: Member) -> None:
        """End it with SIGKILL."""
        ...

    def stop(self, member: Member) -> None:
        """End it in good order."""
        ...

    def start(self, member: Member) -> None:
        """Start it again, and wait until it follows the others."""
        ...

    def freeze(self, member: Member) -> None:
        """Stop its processes without ending them, as a cut network or a paused machine would."""
        ...

    def thaw(self, member: Member) -> None:
        """Let a frozen member go on, and wait until it follows the others."""
        ...

    def fail_over(self, fault: Fault = "kill") -> Member:
        """Take the primary away, see another member take its place, and return that one.

        Where the engine elects, this waits for its election; elsewhere it promotes. Afterwards
        `start` or, after a partition, `thaw` brings the old primary back.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class ClusterKind(Kind):
    """A kind whose servers are several.

    Attributes:
        open: starts them in an empty folder.
    """

    open: Callable[[dict[str, str], Path, Children], Cluster]


def opened_by(
    opened: Callable[[dict[str, str], Path, Children], Cluster],
) -> Callable[[dict[str, str], Path, Children], str]:
    """What `Kind.start` is for a cluster: start it and return the primary's URL.

    Args:
        opened: the kind's `open`.
    """

    def start(programs: dict[str, str], folder: Path, children: Children) -> str:
        return opened(programs, folder, children).primary().url

    return start


def take_away(cluster: Cluster, member: Member, fault: Fault) -> None:
    """Do to a primary what lets another member take its place."""
    ways = {"kill": cluster.kill, "switchover": cluster.stop, "partition": cluster.freeze}
    ways[fault](member)


def refuse_partition(fault: Fault) -> None:
    """Say that an asynchronous pair has nothing that keeps a thawed primary from taking writes.

    Raises:
        ServerError: The fault is a partition.
    """
    if fault == "partition":
        message = "nothing fences a primary here that is cut off: both members would take writes"
        raise ServerError(message)


def freeze(child: Child) -> None:
    """Stop a server's processes where they are."""
    child.send(signal.SIGSTOP)


def thaw(child: Child) -> None:
    """Let a server's processes go on."""
    child.send(signal.SIGCONT)


def poll(is_ready: Callable[[], bool], complaint: str) -> None:
    """Poll until a condition holds; an error of a server means that it doesn't hold yet.

    Raises:
        ServerError: It didn't hold in time; the message begins with `complaint`.
    """
    deadline = time.monotonic() + READY_SECONDS
    while True:
        reason = ""
        try:
            if is_ready():
                return
        except ServerError as error:
            reason = f": {error}"
        if time.monotonic() > deadline:
            message = f"{complaint} after {READY_SECONDS:.0f} s{reason}"
            raise ServerError(message)
        time.sleep(POLL_SECONDS)
