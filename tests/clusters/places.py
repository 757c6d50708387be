"""Where the primary and the replicas of a cluster are, as far as its clients have been told."""

from __future__ import annotations

from random import Random
from time import monotonic
from typing import TYPE_CHECKING

from tests.clusters.history import Failover

if TYPE_CHECKING:
    from collections.abc import Sequence

    from local_servers.cluster import Cluster, Fault, Member
    from tests.clusters.history import History


class Places:
    """Where the primary and the replicas are at present.

    Attributes:
        cluster: Theirs.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._random = Random(0)  # noqa: S311 (it only spreads the readers)
        self.refresh()

    def refresh(self) -> None:
        """Ask the cluster."""
        self._primary = self.cluster.primary()
        self._replicas = list(self.cluster.replicas())

    def primary(self) -> Member:
        """Who takes writes."""
        return self._primary

    def is_primary(self, name: str) -> bool:
        """Whether a member takes writes, as far as clients have been told."""
        return name == self._primary.name

    def replica(self) -> Member:
        """One of those that don't; the primary if there are none."""
        return self._random.choice(self._replicas or [self._primary])


class WatchedCluster:
    """A `Cluster` that records its failovers, and tells clients where the primary is."""

    def __init__(self, cluster: Cluster, history: History, places: Places, loses: float) -> None:
        self._cluster = cluster
        self._history = history
        self._places = places
        self._loses = loses

    @property
    def members(self) -> Sequence[Member]:
        """As in `Cluster`."""
        return self._cluster.members

    @property
    def url(self) -> str:
        """As in `Cluster`."""
        return self._cluster.url

    def primary(self) -> Member:
        """As in `Cluster`."""
        return self._cluster.primary()

    def replicas(self) -> Sequence[Member]:
        """As in `Cluster`."""
        return self._cluster.replicas()

    def kill(self, member: Member) -> None:
        """As in `Cluster`."""
        self._cluster.kill(member)

    def stop(self, member: Member) -> None:
        """As in `Cluster`."""
        self._cluster.stop(member)

    def start(self, member: Member) -> None:
        """As in `Cluster`."""
        self._cluster.start(member)
        self._places.refresh()

    def freeze(self, member: Member) -> None:
        """As in `Cluster`."""
        self._cluster.freeze(member)

    def thaw(self, member: Member) -> None:
        """As in `Cluster`."""
        self._cluster.thaw(member)
        self._places.refresh()

    def fail_over(self, fault: Fault = "kill") -> Member:
        """As in `Cluster`."""
        old, begin = self._cluster.primary(), monotonic()
        new = self._cluster.fail_over(fault)
        self._places.refresh()
        self._history.failovers.append(
            Failover(
                begin=begin,
                end=monotonic(),
                old=old.name,
                new=new.name,
                fault=fault,
                loses=self._loses if fault == "kill" else 0.0,
            )
        )
        return new
