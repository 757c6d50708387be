"""Which commands turn a collection's indexes into the needed ones.

Pure: the reply of listIndexes goes in, and commands come out, or an error with the reason why there
can be none. Nothing here talks to a server, and no command touches an index of the application's.
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
    mongodb_indexes,
)
from ttl_odm.core.values import short_repr
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from ttl_odm.beanie.drivers import Document
    from ttl_odm.beanie.policy.bindings import Entry
    from ttl_odm.beanie.policy.ttl_indexes import Index
    from ttl_odm.core.extension import Extension
    from ttl_odm.core.policy import Policy


@dataclass(frozen=True, slots=True)
class Step:
    """One command, and what it does to the indexes of these names.

    `spares`: whether MongoDB deletes no document after it that it would have kept before it.
    """

    outcome: Literal["created", "changed", "removed"]
    names: tuple[str, ...]
    command: Document
    spares: bool


@dataclass(frozen=True, slots=True)
class Aim:
    """The indexes that a collection needs.

    Attributes:
        collection: The name of the collection.
        indexes: The indexes.
        declared: What its class declares, a policy or an extension. None if it declares nothing:
            then no TTL index of the application's contradicts it.
        rebuild: Whether an index of ours with another definition may be rebuilt.
        can_change: Whether the server can change expireAfterSeconds by collMod.
    """

    collection: str
    indexes: tuple[Index, ...]
    declared: Policy | Extension | None
    rebuild: bool
    can_change: bool

    def relied_on(self, existing: Sequence[Document]) -> dict[str, str]:
        """Find the application's indexes that replace some of ours.

        Returns their names, by the names of our indexes that aren't needed because of them. A TTL
        index that deletes by another rule than the declared one is an error, whatever its field,
        even while it is being built. Until it is built, it replaces none of ours.
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
        """Return the name of our index that deletes the same as the application's TTL index."""
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
        """Yield the commands that reach the aim, or come nearer to it; none if it is reached.

        Commands that spare documents come first: an index of an earlier policy may delete documents
        that the new one keeps, while a pause in deleting does no harm, since expired documents are
        hidden anyway. After them MongoDB deletes only documents that have expired by both policies;
        from then on, reads may go by the new one.

        To wait for an index that is being built, it is created again as it is: the client that
        started the build may be gone, and meanwhile the server accepts no other command than a
        drop. A build that isn't needed is dropped before MongoDB deletes by it. The other commands
        follow when no index is being built any more.
        """
        ours = {index["name"]: index for index in existing if is_ours(index["name"])}
        relied_on = self.relied_on(existing)
        needed = {index.name: index for index in self.indexes if index.name not in relied_on}
        kept = ours.keys() & needed.keys()
        again = {name for name in kept if _differs(ours[name], needed[name])}
        if not self.rebuild:
            again -= {name for name in again if not _differs(ours[name], needed[name].least)}
        if any([*ours[name]["key"]][-1] != needed[name].field for name in again):
            # `_exp` was counted from the old field, so its index has to be rebuilt too.
            again |= {
                name for name in kept if (needed[name].field, needed[name].seconds) == (EXPIRY, 0)
            }
        if again and not self.rebuild:
            raise TTLConfigurationError(
                f"{', '.join(map(repr, sorted(again)))} of {self.collection!r} must be rebuilt, "
                "because the policy now needs a different field or filter. Rebuilding reads the "
                "whole collection: call ensure_indexes(..., rebuild=True) at a convenient time."
            )
        changed = {
            name: _is_longer(ours[name], needed[name])
            for name in sorted(kept - again)
            if ours[name].get("expireAfterSeconds") != needed[name].seconds
        }
        if not self.can_change:
            again, changed = again | changed.keys(), {}
        doomed = (ours.keys() - needed.keys()) | again
        building = {name: index for name, index in ours.items() if BUILD in index}
        for name in sorted(doomed - building.keys()):
            yield self._removal((name,), name)
        if building:
            yield from self._build_steps(building, doomed, changed)
            return
        for name, is_longer in sorted(changed.items(), key=lambda item: not item[1]):
            change = {"name": name, "expireAfterSeconds": needed[name].seconds}
            command = {"collMod": self.collection, "index": change}
            yield Step("changed", (name,), command, spares=is_longer)
        new = [index for name, index in needed.items() if name not in ours or name in again]
        if new:  # one command, so that the server reads the collection once
            documents = [index.document() for index in new]
            yield self._creation([index.name for index in new], documents)

    def _build_steps(
        self, building: Mapping[str, Document], doomed: AbstractSet[str], changed: Collection[str]
    ) -> Iterator[Step]:
        """Yield the commands that end builds or, if all of them are needed, wait for them."""
        doomed_builds = [building[name][BUILD] for name in sorted(doomed & building.keys())]
        for build in dict.fromkeys(doomed_builds):
            names = sorted(name for name, index in building.items() if index[BUILD] == build)
            yield self._removal(tuple(names), names)  # a build ends with all of its indexes
        if not doomed_builds:
            documents = [{**index} for index in building.values()]
            for document in documents:
                del document[BUILD]
            yield self._creation(building, documents, spares=bool(building.keys() & {*changed}))

    def _removal(self, names: tuple[str, ...], index: str | list[str]) -> Step:
        return Step("removed", names, {"dropIndexes": self.collection, "index": index}, spares=True)

    def _creation(
        self, names: Iterable[str], documents: list[Document], *, spares: bool = False
    ) -> Step:
        command = {"createIndexes": self.collection, "indexes": documents}
        return Step("created", tuple(names), command, spares)

    def without_scope(self, existing: Sequence[Document]) -> Iterator[str]:
        """Yield the names of our indexes that lack the scope: sweeps can use them, but slowly."""
        ours = {index["name"]: index for index in existing}
        for index in self.indexes:
            theirs = ours.get(index.name)
            if theirs is None or not _differs(theirs, index):
                continue
            if not _differs(theirs, index.least):
                yield index.name

    def in_the_way(self, existing: Sequence[Document]) -> str | None:
        """Return the name of the application's index that makes the server reject one of ours."""
        for theirs in existing:
            name: str = theirs["name"]
            if is_ours(name) or BUILD in theirs:
                continue
            if any(not _differs(theirs, index) for index in self.indexes):
                return name
        return None


def check_ttl_index(theirs: Document, collection: str, entry: Entry | None) -> None:
    """Reject a TTL index that the application is about to create, if it contradicts its classes.

    If the default isn't in code, it is unknown here; `ensure_indexes` compares the two later.
    """
    if entry is None or entry.enforced_by_others:
        return
    indexes: tuple[Index, ...] = ()
    if isinstance(entry, Binding):
        if entry.source.is_known:
            indexes = mongodb_indexes(entry.declared, entry.purge)
        elif next(iter(theirs["key"])) in date_fields(entry.outline):
            return
    Aim(collection, indexes, entry.declared, rebuild=False, can_change=True).relied_on([theirs])


def check_clustered(options: Document, collection: str, declared: Policy | Extension) -> None:
    """Reject a clustered collection from which MongoDB deletes by the dates in ``_id``.

    That is an option of the collection, which listIndexes doesn't report.
    """
    if "clusteredIndex" in options and "expireAfterSeconds" in options:
        raise TTLConfigurationError(
            f"The option expireAfterSeconds of the clustered collection {collection!r} makes "
            f"MongoDB delete documents {options['expireAfterSeconds']} s after '_id', which "
            f"contradicts {short_repr(declared)}: switch it off by the command "
            f"{{'collMod': {collection!r}, 'expireAfterSeconds': 'off'}}."
        )


def deletes(existing: Document) -> bool:
    """Return whether MongoDB deletes by an index; in a hashed or 2dsphere index it never does."""
    directions = existing["key"].values()
    is_ordered = all(isinstance(direction, (int, float)) for direction in directions)
    return is_ordered and "expireAfterSeconds" in existing


def deleted_by(existing: Document) -> str:
    """Return a text for what MongoDB deletes by a TTL index, and when."""
    condition = existing.get("partialFilterExpression")
    some = "documents" if condition is None else f"documents that match {dict(condition)!r}"
    return f"{some} {existing['expireAfterSeconds']} s after {next(iter(existing['key']))!r}"


def _is_longer(existing: Document, index: Index) -> bool:
    """Return whether MongoDB would delete later by an index than by the existing one."""
    before = existing.get("expireAfterSeconds")
    return before is not None and index.seconds is not None and index.seconds > before


def _differs(existing: Document, index: Index) -> bool:
    """Return whether more than the number of seconds is different."""
    return (
        not has_key(existing, index)
        or existing.get("partialFilterExpression") != index.filter
        or existing.get("sparse", False) != index.sparse
        or (index.seconds is None and "expireAfterSeconds" in existing)
    )
