"""What a default that isn't in code needs in the schema: `IndexedSource`.

The indexes by which MongoDB deletes have the default as a number. So whoever changes one changes
the other, in an order by which nothing is shown that may be deleted.

This module must not know which extensions there are.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from ttl_odm.beanie.policy.sources import DefaultSource

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ttl_odm.beanie.drivers import Collection
    from ttl_odm.sweeper.findings import Finding

Report = TypeVar("Report")
Ensure: TypeAlias = "Callable[..., Awaitable[Report]]"
"""What brings the indexes to what a policy needs, as `ensure_collection` does."""


class IndexedSource(DefaultSource):
    """A source that sees to it that MongoDB deletes by the default that it has."""

    @abstractmethod
    async def ensure(self, collection: Collection, ensure: Ensure[Report]) -> Report:
        """Bring the indexes to the default; where there is none yet, to what it begins with.

        Raises:
            TTLConfigurationError: The server lacks something.
            TTLError: Other clients keep changing the default.
        """

    @abstractmethod
    async def check(self, collection: Collection, name: str, model: str | None) -> list[Finding]:
        """Report what `ttl-odm check` finds on the default.

        Args:
            collection: The collection.
            name: Its name in findings.
            model: The name of its class, for the fix.
        """
