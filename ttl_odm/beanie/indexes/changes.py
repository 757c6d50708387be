"""What has to be done to turn the indexes that are there into those that are wanted.

Pure: listIndexes' answer goes in, commands come out, or the reason why there can be none. Nothing
here talks to a server, and no command touches an index that is not ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ttl_odm.beanie.policy.ttl_indexes import is_ours
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ttl_odm.beanie.policy.ttl_indexes import Index

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """One command, and what it does to the indexes of these names."""

    outcome: Literal["created", "changed", "removed"]
    names: tuple[str, ...]
    command: Document


@dataclass(frozen=True, slots=True)
class Aim:
    """The indexes that a collection shall have.

    Attributes:
        collection: Its name.
        wanted: The indexes that the policy needs.
        fields: Those by whose dates documents may be deleted.
        rebuild: Whether an index of ours with another definition may be built again.
        can_change: Whether the server has collMod for expireAfterSeconds.
    """

    collection: str
    wanted: tuple[Index, ...]
    fields: tuple[str, ...]
    rebuild: bool
    can_change: bool

    def relied_on(self, existing: Sequence[Document]) -> dict[str, str]:
        """Find the user's own TTL indexes that do just what a wanted one would do.

        Args:
            existing: What listIndexes gives.

        Returns:
            Their names, by the names of the indexes that are not needed because of them.

        Raises:
            TTLConfigurationError: One of them deletes by another rule than the policy's.
        """
        found: dict[str, str] = {}
        for each in existing:
            field = next(iter(each["key"]))
            if is_ours(each["name"]) or "expireAfterSeconds" not in each:
                continue
            if field not in self.fields:
                continue
            same = [index.name for index in self.wanted if _does_the_same(each, index)]
            if not same:
                raise TTLConfigurationError(self._deletes_otherwise(each, field))
            found[same[0]] = each["name"]
        return found

    def steps(self, existing: Sequence[Document]) -> Iterator[Step]:
        """Give the commands that lead to the aim, none when it is reached.

        What must go goes first: an index of an earlier policy may delete what the new one keeps,
        while a pause in deleting harms nobody, as expired documents are out of sight anyway.

        Args:
            existing: What listIndexes gives.

        Raises:
            TTLConfigurationError: As for `relied_on`; or an index would have to be built again.
        """
        ours = {each["name"]: each for each in existing if is_ours(each["name"])}
        relied_on = self.relied_on(existing)
        wanted = {each.name: each for each in self.wanted if each.name not in relied_on}
        kept = ours.keys() & wanted.keys()
        again = {name for name in kept if _differs(ours[name], wanted[name])}
        if again and not self.rebuild:
            raise TTLConfigurationError(self._needs_rebuild(again))
        off = {name for name in kept - again if _seconds_differ(ours[name], wanted[name])}
        if not self.can_change:
            again, off = again | off, set()
        for name in sorted((ours.keys() - wanted.keys()) | again):
            yield Step("removed", (name,), {"dropIndexes": self.collection, "index": name})
        for name in sorted(off):
            change = {"name": name, "expireAfterSeconds": wanted[name].seconds}
            yield Step("changed", (name,), {"collMod": self.collection, "index": change})
        new = [each for name, each in wanted.items() if name not in ours or name in again]
        if new:  # in one command, so that the collection is read once for all of them
            documents = [each.document() for each in new]
            command = {"createIndexes": self.collection, "indexes": documents}
            yield Step("created", tuple(each.name for each in new), command)

    def in_the_way(self, existing: Sequence[Document]) -> str | None:
        """Name the index of the user's own because of which the server refuses one of ours."""
        for each in existing:
            name: str = each["name"]
            if not is_ours(name) and any(not _differs(each, index) for index in self.wanted):
                return name
        return None

    def _needs_rebuild(self, names: set[str]) -> str:
        listed = ", ".join(repr(name) for name in sorted(names))
        return (
            f"{listed} of {self.collection!r} must be built again, because the policy now needs "
            "another field or filter. That reads the whole collection: call "
            "ensure_indexes(..., rebuild=True) when it suits."
        )

    def _deletes_otherwise(self, found: Document, field: str) -> str:
        return (
            f"The TTL index {found['name']!r} of {self.collection!r} makes MongoDB delete "
            f"documents {found['expireAfterSeconds']} s after {field!r}, which is not what the "
            "policy says, and ttl_odm never touches indexes that it did not make. Drop it, in "
            "MongoDB and in Settings.indexes, or declare a policy that says the same."
        )


def _differs(found: Document, index: Index) -> bool:
    """Say whether more than a number of seconds is different."""
    return (
        dict(found["key"]) != {index.field: 1}
        or found.get("partialFilterExpression") != index.filter
        or (index.seconds is None and "expireAfterSeconds" in found)
    )


def _seconds_differ(found: Document, index: Index) -> bool:
    return bool(found.get("expireAfterSeconds") != index.seconds)


def _does_the_same(found: Document, index: Index) -> bool:
    return (
        index.is_on_every_document
        and index.seconds is not None
        and "partialFilterExpression" not in found
        and list(found["key"]) == [index.field]
        and found["expireAfterSeconds"] == index.seconds
    )
