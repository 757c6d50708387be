"""The seam for documents that have no policy and expire with those of a parent collection.

In a client's `Registry`, their collection has a `Rule` where others have a `Binding`. Each rule
leads to a parent, and in the end to a collection with a policy. `Dependents` removes such documents
before their parents. Both come with an `Extension` that a class declares; nothing of the extension
is imported before. `ttl_odm.beanie.gate.collection_rules` has the half of a rule for reads and
writes.

This module must not know which extensions exist.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, cast

from beanie.exceptions import CollectionWasNotInitialized

from ttl_odm.beanie.policy.bindings import Entry, collection_of, registry_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    import beanie

    from ttl_odm.beanie.drivers import Backend, Collection, Document, Filter, Session
    from ttl_odm.beanie.policy.bindings import Binding, Registry
    from ttl_odm.beanie.policy.commands import RawCollection
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

These are a lifetime of their own, a find that returns the server's bytes, a sweep of their
collection alone, and a view of the live documents.
"""


class Package(Protocol):
    """The module that a declaration names for this adapter."""

    def check(self, model: type[beanie.Document], declared: Extension) -> None:
        """Check a class when it is created."""
        ...

    def check_collection(self, model: type[beanie.Document], declared: Extension) -> None:
        """Check a class before Beanie makes its collection."""
        ...

    def bind(
        self,
        model: type[beanie.Document],
        declared: Extension,
        collection: Collection,
        backend: Backend,
    ) -> None:
        """Put a rule on the class's collection, which is gated."""
        ...


@dataclass(frozen=True, slots=True)
class Links:
    """The parent's collection, and pairs of equal paths: one here, one in the parent."""

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
    """What a document in memory knows of the stored document that it is a copy of."""

    @property
    def is_certain(self) -> bool:
        """Whether the document is certainly stored."""
        ...

    def row(self, model: type) -> Mapping[str, object]:
        """Return the values that decide when the document expires, by their stored names."""
        ...


class Rule(Entry):
    """The entry of a collection whose documents expire with those of a parent collection.

    Attributes:
        model: The class that declares it.
        backend: What enforces it.
        registry: The registry of the client.
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
        """Store the arguments; the parent may be declared later."""
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
        """The rule of the parent's collection, None if it has a policy."""
        entry = self.registry.entry(*self.place)
        return entry if isinstance(entry, Rule) else None

    @property
    def root(self) -> Binding:
        """The binding of the topmost parent, whose policy decides when documents expire."""
        rule = self
        while (above := rule.parent) is not None:
            rule = above
        binding = rule.registry.find(*rule.place)
        assert binding is not None  # noqa: S101 (`links` has checked it)
        return binding

    @property
    @abstractmethod
    def links(self) -> Links:
        """The links to the parent.

        Raises:
            TTLConfigurationError: They lead nowhere, or to a class that can't be a parent.
        """

    @abstractmethod
    def check(self) -> None:
        """Check that the rule leads to a parent and harms no other class on the collection.

        Raises:
            TTLConfigurationError: It doesn't, or it harms one.
        """

    @abstractmethod
    def index(self) -> Index:
        """Return the index by which the documents of a parent are found."""

    @abstractmethod
    def rejected(self, what: Rejected, where: str) -> TTLError:
        """Return the error for what documents with this rule can't have, with the fix."""

    @abstractmethod
    async def remove(
        self,
        collection: Collection,
        filter: Filter,  # noqa: A002 (MongoDB's name for it)
        collation: Document | None,
        session: Session,
    ) -> int:
        """Delete expired documents that match a filter and block a write, after their dependents.

        Returns:
            The number of deleted documents of this collection.
        """

    @abstractmethod
    def end_in_memory(self, document: beanie.Document, end: EndOf) -> datetime | None:
        """Return the end of a document by what is in memory; None for never.

        `end` returns the end of the parent.

        Raises:
            TTLError: Only the database knows it.
        """

    @abstractmethod
    async def end_of(self, document: beanie.Document, session: Session) -> datetime | None:
        """Return the end of a stored document in the database; None for never.

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
        """Return whether a document that was not found has expired.

        Before an insert only the stored document counts that the copy was made of.
        """


class RemovedDependents(NamedTuple):
    """The numbers of removed dependents, by collection, and whether these were all."""

    documents: Counter[str]
    is_done: bool = True


class Checked(Protocol):
    """A collection that ``ttl-odm check`` looks at."""

    @property
    def collection(self) -> Collection:
        """The collection, gated."""
        ...

    def warning(self, code: str, message: str, fix: str) -> Finding:
        """Return a finding about something that works badly."""
        ...

    def wrong_index(self, error: TTLConfigurationError, model: str) -> Finding:
        """Return a finding about an index that contradicts what a class declares."""
        ...


class Dependents(Protocol):
    """Removes documents with a rule before their parents.

    It is asked only about collections that rules lead to.
    """

    @property
    def part(self) -> Part:
        """The part of a sweep that it does itself."""
        ...

    async def remove(
        self, place: RawCollection, policy: Policy, rows: Sequence[Filter], limit: int | None
    ) -> RemovedDependents:
        """Remove the dependents of documents, given by their keys, if these have expired.

        It removes at most `limit` documents. If some are left over, their parents have to stay
        expired until all are removed.
        """
        ...

    async def is_due(self, place: RawCollection) -> bool:
        """Return whether its part has documents."""
        ...

    def facts(self, rows: Mapping[str, int]) -> Mapping[str, Fact]:
        """Return what a dry run reports about dependents; `rows` counts them by collection."""
        ...

    async def purge(self, place: RawCollection, request: BatchRequest) -> BatchResult:
        """Purge a batch of its part."""
        ...

    async def check(self, checked: Checked) -> list[Finding]:
        """Return what `ttl-odm check` finds about dependents."""
        ...


dependents: Final[list[Dependents]] = []
"""The dependents of the extensions that classes have declared."""


def package_of(declared: Extension) -> Package:
    """Import the package of a declaration."""
    return cast("Package", import_module(declared.package("beanie")))


def rule_of(model: type) -> Rule | None:
    """Return the rule of a class's collection, None if it has none, or before `init_beanie`."""
    try:
        collection = collection_of(model)
    except (CollectionWasNotInitialized, AttributeError):
        return None
    return rule_on(collection)


def rule_on(collection: Collection) -> Rule | None:
    """Return the rule of a collection, None if it has none."""
    database = collection.database
    registry = registry_of(database.client)
    if not registry.has_rules:  # as in most applications
        return None
    entry = registry.entry(database.name, collection.name)
    return entry if isinstance(entry, Rule) else None


def rules_below(collection: Collection) -> list[Rule]:
    """Return the rules whose parent is this collection."""
    database = collection.database
    registry = registry_of(database.client)
    return _rules_to(registry, (database.name, collection.name)) if registry.has_rules else []


def all_rules_below(collection: Collection) -> list[Rule]:
    """Return the rules that lead to a collection at any depth, those of parents first."""
    rules = rules_below(collection)
    for rule in rules:  # grows in the loop
        rules += _rules_to(rule.registry, (rule.database, rule.collection))
    return rules


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
) -> RemovedDependents:
    """Remove the dependents of documents of a collection, given by their keys."""
    documents: Counter[str] = Counter()
    if not rules_below(place.collection):
        return RemovedDependents(documents)
    for extension in dependents:
        rest = None if limit is None else limit - documents.total()
        removed = await extension.remove(place, policy, rows, rest)
        documents += removed.documents
        if not removed.is_done:
            return RemovedDependents(documents, is_done=False)
    return RemovedDependents(documents)
