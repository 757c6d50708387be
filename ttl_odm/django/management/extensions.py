"""What extensions bring to ``ttl_check``: findings on a database, since no model tells of it.

An extension's app registers them when it is ready; so they are missed where it isn't installed.
Everything else that ``ttl_check`` reports of an extension comes with a declaration: see
`ttl_odm.django.policy.rules`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ttl_odm.django.policy.bindings import Model
    from ttl_odm.sweeper.findings import Finding


class DatabaseChecks(Protocol):
    """What an extension looks at in a database."""

    def __call__(self, models: Sequence[Model], alias: str) -> Iterable[Finding]:
        """Report what isn't as it should be; it only reads.

        Args:
            models: The models with a policy that are checked there.
            alias: The database's.
        """
        ...


database_checks: Final[list[DatabaseChecks]] = []
"""Those of the extensions whose apps are installed."""
