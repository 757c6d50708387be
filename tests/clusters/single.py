"""A `Cluster` of one plain server, which has no failovers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class OnlyMember:
    """As `local_servers.cluster.Member`."""

    name: str
    url: str


@dataclass(frozen=True)
class Single:
    """As much of a `Cluster` as clients need where nothing fails.

    Attributes:
        url: The server's.
    """

    url: str

    @property
    def members(self) -> Sequence[OnlyMember]:
        """As in `Cluster`."""
        return [self.primary()]

    def primary(self) -> OnlyMember:
        """As in `Cluster`."""
        return OnlyMember("only", self.url)

    def replicas(self) -> Sequence[OnlyMember]:
        """As in `Cluster`."""
        return []
