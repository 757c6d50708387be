"""Facts of this package's own extensions, which reports also have as attributes.

Here, and in the list of `ttl_odm.sweeper`, public names have been promised to users; nothing else
in the sweeper names an extension. A new one needs no attribute: its facts are in ``facts``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ttl_odm.partitions.counted import PartitionsCounted
    from ttl_odm.sweeper.facts import Fact

IN_REPORTS: Final = {"partitions": None}
IN_STATUS: Final = {"partitions": None, "database_sweep": None}
"""Keys that JSON always has, null where there is no such fact."""


class ReportedFacts:
    """Attributes of a `TargetReport`."""

    __slots__ = ()

    facts: Mapping[str, Fact]

    @property
    def partitions(self) -> PartitionsCounted | None:
        """How many partitions there were when the sweep left the target.

        None if it isn't partitioned by time, or if nothing was read.
        """
        return cast("PartitionsCounted | None", self.facts.get("partitions"))

    @property
    def deleted_by_scope(self) -> Mapping[str, int]:
        """How many of the `deleted` rows were of which scope, the largest first.

        It names the 20 largest of those scopes that have a default of their own; see
        `ttl_odm.Stored.by`. The empty text stands for all others. Empty where no scope with a
        default of its own had any.
        """
        return _rows(self.facts, "deleted_by_scope")

    @property
    def due_by_scope(self) -> Mapping[str, int]:
        """The same of the `due` rows."""
        return _rows(self.facts, "due_by_scope")

    @property
    def due_followers(self) -> Mapping[str, int]:
        """Rows of other tables that follow the `due` rows, by table; counted by dry runs only.

        They would be deleted with the `due` rows.
        """
        return _rows(self.facts, "due_followers")


def rows_by_scope(facts: Mapping[str, Fact], what: str) -> Mapping[str, int]:
    """Return how many ``due`` or ``deleted`` rows there were, by scope."""
    return _rows(facts, f"{what}_by_scope")


def _rows(facts: Mapping[str, Fact], name: str) -> Mapping[str, int]:
    fact = facts.get(name)
    return {} if fact is None else cast("Mapping[str, int]", fact.to_dict())
