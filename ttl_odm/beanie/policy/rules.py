"""The seam for documents that expire with those of another collection, by no policy of their own.

A `Rule` stands in the `Registry` of a client where other collections have their `Binding`. Each of
them leads to a parent, and in the end to a collection with a policy. `Dependents` removes such
documents before those that they belong to. Both come with an `Extension` that a class declares:
nothing of it is imported, or asked, before. What a rule makes of reads and writes is in
`ttl_odm.beanie.gate.collection_rules`.

This module must not know which extensions there are.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, cast

from beanie.exceptions import CollectionWasNotInitialized

from ttl_odm.beanie.policy.bindings import collection_of, registry_of
from ttl_odm.beanie.policy.entries import Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    import beanie

    from ttl_odm.beanie.drivers import Collection, Document, Filter, Session
    from ttl_odm.beanie.policy.bindings import Binding, Registry
    from ttl_odm.beanie.policy.commands import RawCollection
    from ttl_odm.beanie.policy.entries import Backend
    from ttl_odm.beanie.policy.ttl_indexes import Index
    from ttl_odm.core.extension import Extension
    from ttl_odm.core.policy import Policy
    from ttl_odm.errors import TTLConfigurationError, TTLError
    from ttl_odm.sweeper import BatchRequest, BatchResult, Fact, Part
    from ttl_odm.sweeper.findings import Finding

    EndOf = Callable[[beanie.Document], datetime | None]
    """Returns the end of a document in memory."""

Rejected = Literal["lifetime", "raw", "sweep", "view"]
"""What documents with a rule can't have.

Their own lifetime; a find that gives the server's bytes; a sweep of their collection alone; a view
of the live ones.
"""


class Package(Protocol):
    """The module that a declaration names for this adapter."""

    def check(self, model: type[beanie.Document], declared: Extension) -> None:
        """Check a class when it is made."""
        ...

    def check_collection(self, model: type[beanie.Document], declared: Extension) -> None:
        """Check it before Beanie makes its collection."""
        ...

    def bind(
        self,
        model: type[beanie.Document],
        declared: Extension,
        collection: Collection,
        backend: Backend,
    ) -> None:
        """Put a rule on its collection, which is gated."""
        ...


@dataclass(frozen=True, slots=True)
class Links:
    """The parent's collection, and pairs of a path here and the parent's that it equals."""

    parent: type
    collection: str
    pairs: tuple[tuple[str, str], ...]

    @property
    def own(self) -> tuple[str, ...]:
        """The paths in the documents."""
        return tuple(own for own, _ in self.pairs)

    @property
    def theirs(self) -> tuple[str, ...]:
        """The paths in the parent."""
        return tuple(theirs for _, theirs in self.pairs)


class Copy(Protocol):
    """What a document in memory knows of the stored one that it is a copy of."""

    @property
    def is_certain(self) -> bool:
        """Whether it is sure to be stored."""
        ...

    def row(self, model: type) -> dict[str, Any]:
        """Return the values that decide when it expires, by the names that MongoDB has for them."""
        ...


class Rule(Entry):
    """Documents of a collection expire with those of another; they have no fields for that.

    Attributes:
        model: The class that declares it.
        backend: Who enforces it.
        registry: The collections of the client.
        database: The name of the database, which is also the parent's.
        collection: The name of the collection.
    """

    def __init__(
        self,
        model: type[beanie.Document],
        backend: Backend,
        registry: Registry,
        database: str,
        collection: str,
    ) -> None:
        """Remember it; the parent may be declared later."""
        self.model: type[beanie.Document] = model
        self.backend = backend
        self.registry = registry
        self.database = database
        self.collection = collection

    @property
    def place(self) -> tuple[str, str]:
        """The parent's database and collection."""
        return self.database, self.links.collection

    @property
    def parent(self) -> Rule | None:
        """The rule of the parent's collection, None where that has a policy."""
        entry = self.registry.entry(*self.place)
        return entry if isinstance(entry, Rule) else None

    @property
    def root(self) -> Binding:
        """The policy that says when documents expire: that at the end of the row of parents."""
        rule = self
        while (above := rule.parent) is not None:
            rule = above
        binding = rule.registry.find(*rule.place)
        assert binding is not None  # noqa: S101 (`links` has seen it)
        return binding

    @property
    @abstractmethod
    def links(self) -> Links:
        """What leads to the parent.

        Raises:
            TTLConfigurationError: It leads nowhere, or to a class that can't be a parent.
        """

    @abstractmethod
    def check(self) -> None:
        """Check that it leads to a parent, and that no other class on the collection is harmed.

        Raises:
            TTLConfigurationError: One of them is wrong.
        """

    @abstractmethod
    def index(self) -> Index:
        """The index by which the documents of a parent are found."""

    @abstractmethod
    def rejected(self, what: Rejected, where: str) -> TTLError:
        """The error for what documents with this rule can't have, with the fix."""

    @abstractmethod
    async def remove(
        self,
        collection: Collection,
        filter: Filter,  # noqa: A002 (MongoDB's name for it)
        collation: Document | None,
        session: Session,
    ) -> int:
        """Delete what matches a filter and has expired, and is in the way of a write.

        Whatever hangs on it goes before. Returns how many documents of the collection that were.
        """

    @abstractmethod
    def end_in_memory(self, document: beanie.Document, end: EndOf) -> datetime | None:
        """The end of a document, as far as it is known in memory; None for never.

        `end` gives that of the parent.

        Raises:
            TTLError: Only the database knows it.
        """

    @abstractmethod
    async def end_of(self, document: beanie.Document, session: Session) -> datetime | None:
        """The end of a stored document, as the database has it at this moment; None for never.

        Raises:
            ExpiredError: The document has expired, or isn't there.
        """

    @abstractmethod
    async def is_gone(
        self,
        document: beanie.Document,
        session: Session,
        copy: Copy | None,
        *,
        inserts: bool = False,
    ) -> bool:
        """Whether a document that was not found has expired.

        Before an insert that is only said of the document that the copy is of.
        """


class Removed(NamedTuple):
    """The documents that went before others, by collection, and whether those were all."""

    documents: Counter[str]
    is_done: bool = True


class Checked(Protocol):
    """A collection that ``ttl-odm check`` looks at."""

    @property
    def collection(self) -> Collection:
        """The collection, gated."""
        ...

    def warning(self, code: str, message: str, fix: str) -> Finding:
        """Make a finding of what works badly."""
        ...

    def wrong_index(self, error: TTLConfigurationError, model: str) -> Finding:
        """Make a finding of an index that contradicts what a class declares."""
        ...


class Dependents(Protocol):
    """Removes documents with a rule before those that they belong to.

    It is asked only about collections that rules lead to.
    """

    @property
    def part(self) -> Part:
        """The further part of a sweep that is left to it."""
        ...

    async def remove(
        self, place: RawCollection, policy: Policy, rows: Sequence[Filter], limit: int | None
    ) -> Removed:
        """Remove what goes before documents, by their keys, as far as these have expired.

        At most so many documents. If that isn't all, those that they belong to have to stay expired
        until it is.
        """
        ...

    async def is_due(self, place: RawCollection) -> bool:
        """Whether there is something in its part."""
        ...

    def facts(self, rows: Mapping[str, int]) -> Mapping[str, Fact]:
        """Return what a dry run reports of what goes along with expired documents, by collection.

        `rows` are the numbers of documents.
        """
        ...

    async def purge(self, place: RawCollection, request: BatchRequest) -> BatchResult:
        """Purge a batch of its part."""
        ...

    async def check(self, checked: Checked) -> list[Finding]:
        """Report what `ttl-odm check` finds on them."""
        ...


dependents: Final[list[Dependents]] = []
"""Those of the extensions that classes have asked for."""


def package_of(declared: Extension) -> Package:
    """Import the package of a declaration."""
    return cast("Package", import_module(declared.package("beanie")))


def rule_of(model: type) -> Rule | None:
    """The rule of a class's collection, None where it has none, or isn't known to Beanie yet."""
    try:
        collection = collection_of(model)
    except (CollectionWasNotInitialized, AttributeError):
        return None
    return rule_on(collection)


def rule_on(collection: Collection) -> Rule | None:
    """The rule of a collection, None where it has none."""
    database = collection.database
    registry = registry_of(database.client)
    if not registry.has_rules:  # for nearly everybody that is all
        return None
    entry = registry.entry(database.name, collection.name)
    return entry if isinstance(entry, Rule) else None


def rules_below(collection: Collection) -> list[Rule]:
    """The rules whose parent is a collection."""
    database = collection.database
    registry = registry_of(database.client)
    return _rules_to(registry, (database.name, collection.name)) if registry.has_rules else []


def all_rules_below(collection: Collection) -> list[Rule]:
    """The rules that lead to a collection at whatever depth, those of parents before the others."""
    found = rules_below(collection)
    for rule in found:  # which grows
        found += _rules_to(rule.registry, (rule.database, rule.collection))
    return found


def _rules_to(registry: Registry, place: tuple[str, str]) -> list[Rule]:
    return [
        entry
        for entry in registry.entries()
        if isinstance(entry, Rule)
        and not entry.enforced_by_others
        and entry.database == place[0]
        and entry.place == place
    ]


async def remove_dependents(
    place: RawCollection, policy: Policy, rows: Sequence[Filter], limit: int | None = None
) -> Removed:
    """Remove what goes before documents of a collection, by their keys."""
    documents: Counter[str] = Counter()
    if not rules_below(place.collection):
        return Removed(documents)
    for one in dependents:
        left = None if limit is None else limit - documents.total()
        removed = await one.remove(place, policy, rows, left)
        documents += removed.documents
        if not removed.is_done:
            return Removed(documents, is_done=False)
    return Removed(documents)
