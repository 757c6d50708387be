"""Facts of this package's own extensions that are also attributes of reports, and keys in JSON.

They are public names, like those at the end of `ttl_odm.sweeper`; nothing else in the sweeper names
an extension. A new extension adds none: its facts are in ``facts``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ttl_odm.partitions.facts import PartitionsCounted
    from ttl_odm.sweeper.facts import Fact

IN_REPORTS: Final = {"partitions": None}
IN_STATUS: Final = {"partitions": None, "database_sweep": None}
"""Keys that JSON always has, null without the fact."""


class _HasFacts(Protocol):
    @property
    def facts(self) -> Mapping[str, Fact]: ...


class TargetFacts:
    """Attributes of a `TargetReport`."""

    __slots__ = ()

    @property
    def partitions(self: _HasFacts) -> PartitionsCounted | None:
        """The partitions at the end of the sweep; None if there are none, or nothing was read."""
        return cast("PartitionsCounted | None", self.facts.get("partitions"))

    @property
    def deleted_by_scope(self: _HasFacts) -> Mapping[str, int]:
        """How many of the `deleted` rows were of which scope, the largest first.

        It names the 20 largest of those scopes that have a default of their own; see
        `ttl_odm.Stored.by`. The empty text stands for all others. Empty where no scope with a
        default of its own had any.
        """
        return _rows(self, "deleted_by_scope")

    @property
    def due_by_scope(self: _HasFacts) -> Mapping[str, int]:
        """How many of the `due` rows were of which scope, as in `deleted_by_scope`."""
        return _rows(self, "due_by_scope")

    @property
    def due_followers(self: _HasFacts) -> Mapping[str, int]:
        """Rows of other tables that follow the `due` rows, by table; counted by dry runs only.

        They would be deleted with the `due` rows.
        """
        return _rows(self, "due_followers")


class BatchFacts:
    """Attributes of a `Progress`."""

    __slots__ = ()

    @property
    def by_scope(self: _HasFacts) -> Mapping[str, int]:
        """How many of the `deleted` rows were of which scope; see `TargetReport.deleted_by_scope`.

        Empty where no scope has a default of its own.
        """
        return _rows(self, "deleted_by_scope")


class DueFacts:
    """Attributes of a `FuseError`."""

    __slots__ = ()

    @property
    def by_scope(self: _HasFacts) -> Mapping[str, int]:
        """How many of the expired rows are of which scope, as in `TargetReport.due_by_scope`."""
        return _rows(self, "due_by_scope")


def _rows(reported: _HasFacts, name: str) -> Mapping[str, int]:
    fact = reported.facts.get(name)
    return {} if fact is None else cast("Mapping[str, int]", fact.to_dict())
