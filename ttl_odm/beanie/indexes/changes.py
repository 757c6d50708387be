"""What has to be done to turn the indexes that are there into those that are wanted.

Pure: listIndexes' answer goes in, commands come out, or the reason why there can be none. Nothing
here talks to a server, and no command touches an index that is not ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ttl_odm.beanie.policy.bindings import Binding
from ttl_odm.beanie.policy.commands import BUILD
from ttl_odm.beanie.policy.ttl_indexes import (
    EXPIRY,
    date_fields,
    has_key,
    is_ours,
    wanted_indexes,
)
from ttl_odm.core.values import short_repr
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from ttl_odm.beanie.drivers import Document
    from ttl_odm.beanie.policy.entries import Entry
    from ttl_odm.beanie.policy.ttl_indexes import Index
    from ttl_odm.core.extension import Extension
    from ttl_odm.core.policy import Policy


@dataclass(frozen=True, slots=True)
class Step:
    """One command, and what it does to the indexes of these names.

    `spares`: whether MongoDB deletes nothing after it that it would have kept before.
    """

    outcome: Literal["created", "changed", "removed"]
    names: tuple[str, ...]
    command: Document
    spares: bool


@dataclass(frozen=True, slots=True)
class Aim:
    """The indexes that a collection shall have.

    `declared`: what its class declares, a policy or an extension; None where it declares nothing,
    so that nobody can say by which TTL indexes documents are deleted too early. `rebuild`: whether
    an index of ours with another definition may be built again. `can_change`: whether the server
    has collMod for expireAfterSeconds.
    """

    collection: str
    indexes: tuple[Index, ...]
    declared: Policy | Extension | None
    rebuild: bool
    can_change: bool

    def relied_on(self, existing: Sequence[Document]) -> dict[str, str]:
        """Find the user's own indexes that do just what one of ours would do.

        Gives their names by those of ours that are not needed because of them. One that deletes by
        another rule than the declared one is an error, whatever field it is on, and even while it
        is being built; as long as it is, nothing relies on it.
        """
        names: dict[str, str] = {}
        for theirs in existing:
            name = theirs["name"]
            if is_ours(name):
                continue
            served = [index.name for index in self.indexes if index.is_served_by(theirs)]
            if self.declared is not None and deletes(theirs):
                served.append(self._same_as(theirs))
            if BUILD not in theirs:
                names |= dict.fromkeys(served, str(name))
        return names

    def _same_as(self, theirs: Document) -> str:
        """Name the index of ours that deletes just what a TTL index of the user's does."""
        for index in self.indexes:
            if (
                index.is_on_every_document
                and index.seconds == theirs["expireAfterSeconds"]
                and "partialFilterExpression" not in theirs
                and list(theirs["key"]) == [index.field]
            ):
                return index.name
        raise TTLConfigurationError(
            f"The TTL index {theirs['name']!r} of {self.collection!r} makes MongoDB delete "
            f"{deleted_by(theirs)}, which contradicts {short_repr(self.declared)}, and ttl_odm "
            "never touches indexes that it did not create. Drop it, in MongoDB and in "
            "Settings.indexes, or declare a policy that matches it."
        )

    def steps(self, existing: Sequence[Document]) -> Iterator[Step]:
        """Give the commands that lead to the aim, or towards it; none when it is reached.

        Those that spare documents come first: an index of an earlier policy may delete what the new
        one keeps, while a pause in deleting harms nobody, as expired documents are out of sight
        anyway. After them MongoDB deletes only what has expired by the earlier policy and by the
        new one: that is the moment to show documents by the new one.

        An index that is being built is waited for, by creating it once more as it is: the client
        that began may be gone, and no other command but a drop is possible meanwhile. One that
        isn't needed is dropped, which ends its build, before MongoDB deletes by it. What else has
        to be done shows when no index is being built any more.
        """
        ours = {index["name"]: index for index in existing if is_ours(index["name"])}
        relied_on = self.relied_on(existing)
        needed = {index.name: index for index in self.indexes if index.name not in relied_on}
        kept = ours.keys() & needed.keys()
        again = {name for name in kept if _differs(ours[name], needed[name])}
        if not self.rebuild:
            again -= {name for name in again if not _differs(ours[name], needed[name].least)}
        if any([*ours[name]["key"]][-1] != needed[name].field for name in again):
            # `_exp` counted from that field.
            again |= {
                name for name in kept if (needed[name].field, needed[name].seconds) == (EXPIRY, 0)
            }
        if again and not self.rebuild:
            raise TTLConfigurationError(
                f"{', '.join(map(repr, sorted(again)))} of {self.collection!r} must be rebuilt, "
                "because the policy now needs a different field or filter. Rebuilding reads the "
                "whole collection: call ensure_indexes(..., rebuild=True) at a convenient time."
            )
        off = {
            name: _is_longer(ours[name], needed[name])
            for name in sorted(kept - again)
            if ours[name].get("expireAfterSeconds") != needed[name].seconds
        }
        if not self.can_change:
            again, off = again | off.keys(), {}
        doomed = (ours.keys() - needed.keys()) | again
        building = {name: index for name, index in ours.items() if BUILD in index}
        for name in sorted(doomed - building.keys()):
            yield self._removal((name,), name)
        if building:
            yield from self._build_steps(building, doomed, off)
            return
        for name, is_longer in sorted(off.items(), key=lambda change: not change[1]):
            change = {"name": name, "expireAfterSeconds": needed[name].seconds}
            command = {"collMod": self.collection, "index": change}
            yield Step("changed", (name,), command, spares=is_longer)
        new = [index for name, index in needed.items() if name not in ours or name in again]
        if new:  # in one command, so that the collection is read once for all of them
            documents = [index.document() for index in new]
            yield self._creation([index.name for index in new], documents)

    def _build_steps(
        self, building: Mapping[str, Document], doomed: AbstractSet[str], off: Collection[str]
    ) -> Iterator[Step]:
        """Give the commands that end builds or, where all of them are needed, wait for them."""
        doomed_builds = [building[name][BUILD] for name in sorted(doomed & building.keys())]
        for build in dict.fromkeys(doomed_builds):
            names = sorted(name for name, index in building.items() if index[BUILD] == build)
            yield self._removal(tuple(names), names)  # a build ends with all of its indexes
        if not doomed_builds:
            documents = [{**index} for index in building.values()]
            for document in documents:
                del document[BUILD]
            yield self._creation(building, documents, spares=any(name in off for name in building))

    def _removal(self, names: tuple[str, ...], index: str | list[str]) -> Step:
        return Step("removed", names, {"dropIndexes": self.collection, "index": index}, spares=True)

    def _creation(
        self, names: Iterable[str], documents: list[Document], *, spares: bool = False
    ) -> Step:
        command = {"createIndexes": self.collection, "indexes": documents}
        return Step("created", tuple(names), command, spares)

    def without_scope(self, existing: Sequence[Document]) -> Iterator[str]:
        """Name the indexes of ours that a sweep can do with, and that a rebuild makes better."""
        ours = {index["name"]: index for index in existing}
        for index in self.indexes:
            theirs = ours.get(index.name)
            if theirs is None or not _differs(theirs, index):
                continue
            if not _differs(theirs, index.least):
                yield index.name

    def in_the_way(self, existing: Sequence[Document]) -> str | None:
        """Name the index of the user's own because of which the server refuses one of ours."""
        for theirs in existing:
            name: str = theirs["name"]
            if is_ours(name) or BUILD in theirs:
                continue
            if any(not _differs(theirs, index) for index in self.indexes):
                return name
        return None


def check_ttl_index(theirs: Document, collection: str, entry: Entry | None) -> None:
    """Refuse a TTL index that the application is about to create, if it contradicts its classes.

    A default that isn't in code isn't known here, so that `ensure_indexes` has to compare.
    """
    if entry is None or entry.enforced_by_others:
        return
    indexes: tuple[Index, ...] = ()
    if isinstance(entry, Binding):
        if entry.source.is_known:
            indexes = wanted_indexes(entry.declared, entry.purge)
        elif next(iter(theirs["key"])) in date_fields(entry.outline):
            return
    Aim(collection, indexes, entry.declared, rebuild=False, can_change=True).relied_on([theirs])


def deletes(existing: Document) -> bool:
    """Say whether MongoDB deletes by an index: a hashed one may say so, or a 2dsphere, in vain."""
    directions = existing["key"].values()
    is_ordered = all(isinstance(direction, (int, float)) for direction in directions)
    return is_ordered and "expireAfterSeconds" in existing


def deleted_by(existing: Document) -> str:
    """Say what MongoDB deletes by a TTL index, and when."""
    condition = existing.get("partialFilterExpression")
    some = "documents" if condition is None else f"documents that match {dict(condition)!r}"
    return f"{some} {existing['expireAfterSeconds']} s after {next(iter(existing['key']))!r}"


def _is_longer(existing: Document, index: Index) -> bool:
    """Say whether MongoDB would delete later by an index than it does by one that is there."""
    before = existing.get("expireAfterSeconds")
    return before is not None and index.seconds is not None and index.seconds > before


def _differs(existing: Document, index: Index) -> bool:
    """Say whether more than a number of seconds is different."""
    return (
        not has_key(existing, index)
        or existing.get("partialFilterExpression") != index.filter
        or existing.get("sparse", False) != index.sparse
        or (index.seconds is None and "expireAfterSeconds" in existing)
    )
