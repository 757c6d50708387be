"""Collections whose documents follow others: the rule, the way to the parent, what can't be.

A `Following` takes the place of a `Binding` in the `Registry` of a client: the documents have no
stamp, no default and no sweep of their own. The parent's class may be declared later, so the links
to it are looked up when they are first needed.

Several classes may share a collection: by `UnionDoc`, `is_root` or the same `Settings.name`. As the
documents live by their parents only, those of a class that knows no parent would be orphans.

This module must not know what is done to filters, pipelines or documents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, get_args, get_origin

from beanie import Document
from beanie.exceptions import CollectionWasNotInitialized

from ttl_odm.beanie.gate.collection_rules import CollectionRule
from ttl_odm.beanie.policy.bindings import (
    collection_of,
    declaration,
    is_same_class,
    registry_of,
    subclasses_of,
)
from ttl_odm.beanie.policy.rules import Links, all_rules_below, rules_below
from ttl_odm.beanie.policy.ttl_indexes import Index, is_ours
from ttl_odm.combinations import combination
from ttl_odm.core.policy import TTL
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ttl_odm.beanie import drivers
    from ttl_odm.beanie.drivers import Backend, Collection
    from ttl_odm.beanie.policy.bindings import Registry
    from ttl_odm.follows import Follows

_MANY: Final = (list, set, tuple, frozenset)

_INDEX: Final = "__ttl_follows"

_NOTHING: Final = object()

_OPTIONS: Final = {
    "__ttl_archive__": "ttl_archive",
    "__ttl_on_purged__": "ttl_on_purged",
    "__ttl_partition__": "ttl_partition",
    "__ttl_purge__": "ttl_purge",
    "__ttl_sweep__": "ttl_sweep",
}
"""Options without an effect on followers: the attribute of a class, and of its ``Settings``."""


class Following(CollectionRule):
    """The rule of a collection whose documents live while their parents do.

    `cached` is a cache with one entry, (input, result), for callers that compute the same at each
    read. They choose both.
    """

    def __init__(  # noqa: PLR0913, PLR0917 (a `Rule` and its declaration)
        self,
        model: type[Document],
        declared: Follows,
        backend: Backend,
        registry: Registry,
        database: str,
        collection: str,
    ) -> None:
        """Remember the declaration; the parent may be declared later."""
        super().__init__(model, backend, registry, database, collection)
        self.cached: tuple[object, Any] | None = None
        self._declared = declared
        self._links: Links | None = None
        self._others: list[type[Document]] = []

    @property
    def declared(self) -> Follows:
        """The declaration of its class."""
        return self._declared

    def share(self, model: type[Document]) -> None:
        """Add a class with the same declaration that shares the collection."""
        if model not in self._others:
            self._others.append(model)
            self._links = None

    @property
    def models(self) -> tuple[type[Document], ...]:
        """The classes of these documents."""
        return self.model, *self._others

    @property
    def links(self) -> Links:
        """The parent, and the paths that lead to it.

        Raises:
            TTLConfigurationError: They lead nowhere, or to a class that can't be followed.
        """
        if self._links is None:
            links = self._find_links(self.model)
            self._check_parent(links)
            for other in self._others:
                if self._find_links(other) != links:
                    raise TTLConfigurationError(
                        f"{self.model.__name__} and {other.__name__} share the collection "
                        f"{self.collection!r}, so they must follow the same parent by the same "
                        f"fields, but {self.declared!r} means a different parent, or different "
                        f"fields, for {other.__name__}."
                    )
            self._links = links
        return self._links

    @property
    def above(self) -> Following | None:
        """The rule of the parent; None if it has its own lifetime."""
        parent = self.parent
        return parent if isinstance(parent, Following) else None

    # Finding the parent

    def _find_links(self, model: type[Document]) -> Links:
        declared = self.declared
        if not isinstance(declared.parent, str):
            pairs = [
                (self._own(model, own), _stored(declared.parent, of)) for own, of in declared.on
            ]
            return Links(declared.parent, self._collection_of(declared.parent), tuple(pairs))
        name = declared.parent
        link = (model.get_link_fields() or {}).get(name)
        if link is None:
            raise self._refusal(
                f"{name!r} is not a Link of it; for a plain field name the parent: "
                f"Follows(Parent, on={{{name!r}: 'id'}})"
            )
        if getattr(link.link_type, "name", "") not in ("DIRECT", "OPTIONAL_DIRECT"):
            raise self._refusal(f"{name!r} is not a Link to one document; name a field that is")
        parent = link.document_class
        return Links(parent, self._collection_of(parent), ((self._own(model, name), "_id"),))

    def _own(self, model: type[Document], name: str) -> str:
        """Return the path of a field that leads to the parent: of a link, its id."""
        check_field(model, name, f"{model.__name__}.__ttl__ = {self.declared!r}")
        path = _stored(model, name)
        info = model.model_fields.get(name)
        return f"{path}.$id" if info is not None and is_link(info.annotation) else path

    def _collection_of(self, parent: type) -> str:
        settings = getattr(parent, "_document_settings", None)
        if settings is None or settings.name is None:
            raise self._refusal(
                f"{parent.__name__} has no collection yet; pass it to init_beanie(), too"
            )
        return str(settings.name)

    def _check_parent(self, links: Links) -> None:
        name = links.parent.__name__
        binding = self.registry.find(*self._place_of_root(links))
        if binding is None:
            raise self._refusal(
                f"{name} has no lifetime in the same database; declare __ttl__ on it, and pass it "
                "to init_beanie(), too"
            )
        if not binding.source.is_known:
            raise self._refused_with(
                "stored", binding.model.__name__, declared=repr(binding.declared.stored)
            )
        if binding.is_time_series:
            raise self._refusal(
                f"{binding.model.__name__} has a time-series collection, from which MongoDB "
                "deletes whole buckets; follow another class"
            )
        if binding.purge == "native" and not self.enforced_by_others:
            raise self._refused_with("database_sweep", binding.model.__name__)
        if self.declared.renews and not isinstance(binding.declared, TTL):
            raise self._refusal(
                f"{binding.model.__name__} documents expire at a date of their own, which no "
                "write renews; leave renews out"
            )

    def _place_of_root(self, links: Links) -> tuple[str, str]:
        """Return the database and collection at the end of the parents, which follows nothing."""
        chain: list[Following] = [self]
        place = (self.database, links.collection)
        while isinstance(above := self.registry.entry(*place), Following):
            if above in chain:
                names = [rule.model.__name__ for rule in [*chain[chain.index(above) :], above]]
                raise self._refusal(
                    "documents can't follow themselves, or each other in a cycle "
                    f"({' -> '.join(names)}); declare a lifetime on {names[0]}, as in __ttl__ = "
                    "3600: links between documents don't keep them from being swept"
                )
            chain.append(above)
            place = (self.database, above._find_links(above.model).collection)
        return place

    def _refused_with(self, capability: str, owner: str, **names: str) -> TTLConfigurationError:
        """Return the error for a parent with a capability that parents can't have."""
        line = combination("beanie", "followed", capability)
        reason = line.reason_for(model=owner, **names)
        return self._refusal(f"{reason}; {line.instead_for(model=owner)}")

    def _refusal(self, why: str) -> TTLConfigurationError:
        return TTLConfigurationError(f"{self.model.__name__}.__ttl__ = {self.declared!r}: {why}.")


def followers_of(collection: Collection) -> list[Following]:
    """Return the rules of the collections that follow a collection directly."""
    return [rule for rule in rules_below(collection) if isinstance(rule, Following)]


def all_followers(collection: Collection) -> list[Following]:
    """Return the rules of all collections that follow one, directly or not, parents first."""
    return [rule for rule in all_rules_below(collection) if isinstance(rule, Following)]


def check_field(model: type[Document], name: str, where: str) -> None:
    """Reject a field that a class doesn't have, or that holds several values.

    Raises:
        TTLConfigurationError: It is one of these.
    """
    info = model.model_fields.get(name)
    if info is None:
        if "." in name or name in {_stored(model, known) for known in model.model_fields}:
            return
        raise TTLConfigurationError(
            f"{where}: {model.__name__} has no field {name!r}; it has "
            f"{', '.join(map(repr, sorted(model.model_fields)))}."
        )
    if _holds_many(info.annotation):
        raise TTLConfigurationError(
            f"{where}: {name!r} holds several values, but a document has one parent; name a field "
            "with one value."
        )


def is_link(annotation: object) -> bool:
    """Say whether a field's type is Beanie's Link."""
    origin = get_origin(annotation) or annotation
    named = getattr(origin, "__name__", "") in ("Link", "BackLink")
    return named or any(is_link(part) for part in get_args(annotation))


def _holds_many(annotation: object) -> bool:
    if (get_origin(annotation) or annotation) in _MANY:
        return True
    if is_link(get_origin(annotation)):
        return False
    return any(_holds_many(part) for part in get_args(annotation))


def _stored(model: type[Document], name: str) -> str:
    """Return the path at which a field is stored."""
    info = model.model_fields.get(name)
    return name if info is None else str(info.alias or name)


def check_options(model: type[Document]) -> None:
    """Reject options without an effect: followers are deleted with their parents.

    Called when a class is declared and when its documents are removed, since an archive may be
    declared in between.

    Raises:
        TTLConfigurationError: One of these options is declared.
    """
    for name, setting in _OPTIONS.items():
        settings = (getattr(base.__dict__.get("Settings"), setting, None) for base in model.__mro__)
        value = getattr(model, name, None) or next(filter(None, settings), None)
        if value is not None:
            line = combination("beanie", "follows", "archive")  # the same text for all of them
            fix = line.instead_for(name=name, model=model.__name__)
            raise TTLConfigurationError(
                f"{model.__name__}.{name} = {value!r}: {line.reason}; {fix}."
            )


class LinkIndex(Index):
    """An index on the paths that lead to a parent."""

    __slots__ = ()

    def is_served_by(self, existing: drivers.Document) -> bool:
        """Say whether an index of the application finds documents as well."""
        return leads_to(existing, (self.field, *self.more))


def link_index(paths: Sequence[str]) -> LinkIndex:
    """Return the index by which documents are found that follow another one.

    It is sparse, since no lookup is for null, and because MongoDB then allows an index of the
    application on the same fields, which Beanie may create later.
    """
    field, *more = paths
    return LinkIndex(_INDEX, field, None, None, more=tuple(more), sparse=True)


def leads_to(existing: drivers.Document, paths: Sequence[str]) -> bool:
    """Say whether an index that listIndexes returned finds documents by the values of fields."""
    first = dict([*existing["key"].items()][: len(paths)])
    is_usable = all(
        direction == "hashed" or isinstance(direction, (int, float)) for direction in first.values()
    )
    is_partial = not existing.keys().isdisjoint(("partialFilterExpression", "hidden"))
    # An index of the application may have another collation than the collection.
    has_collation = "collation" in existing and not is_ours(existing["name"])
    return first.keys() == {*paths} and is_usable and not is_partial and not has_collation


# Classes that share a collection


def check_same_kind(
    first: tuple[type, object], second: tuple[type, object], collection: str
) -> None:
    """Reject a collection that has both documents with a lifetime and followers.

    Args:
        first: A class and its declaration.
        second: Another class and its declaration.
        collection: The name of the collection.

    Raises:
        TTLConfigurationError: The second class isn't just the first one, declared again.
    """
    if not is_same_class(first[0], second[0]):
        raise TTLConfigurationError(
            f"{first[0].__name__} and {second[0].__name__} share the collection {collection!r}, so "
            "all of its documents must have a lifetime, or follow one parent, but they declare "
            f"{first[1]!r} and {second[1]!r}."
        )


def check_orphans_of(following: Following, model: type) -> None:
    """Reject a class without a policy whose documents would be orphans in a collection.

    Raises:
        TTLConfigurationError: They would be hidden and deleted.
    """
    if _hides_orphans(following):
        _reject_orphans(following, model)


def check_orphans(following: Following) -> None:
    """Reject all classes without a policy whose documents would be orphans in a collection.

    Raises:
        TTLConfigurationError: There is such a class.
    """
    if not _hides_orphans(following):
        return
    for model in subclasses_of(Document):
        if declaration(model, default=_NOTHING) is _NOTHING and _is_in(model, following):
            _reject_orphans(following, model)


def _hides_orphans(following: Following) -> bool:
    return following.declared.orphan == "expired" and not following.enforced_by_others


def _is_in(model: type[Document], following: Following) -> bool:
    try:
        collection = collection_of(model)
        database = collection.database
    except (CollectionWasNotInitialized, AttributeError):  # not passed to init_beanie() yet
        return False
    place = database.name, collection.name
    is_same_client = registry_of(database.client) is following.registry
    return is_same_client and place == (following.database, following.collection)


def _reject_orphans(following: Following, model: type) -> None:
    follower = following.model
    if is_same_class(follower, model):  # of a notebook's cell that ran again
        return
    raise TTLConfigurationError(
        f"{model.__name__} declares no __ttl__, but shares the collection "
        f"{following.collection!r} with {follower.__name__}, whose documents expire if they have "
        f"no parent ({following.declared!r}): documents of {model.__name__} would be hidden at "
        f"once, and deleted by the next sweep. Declare __ttl__ = Follows(...) on {model.__name__}, "
        "too, or give it a collection of its own."
    )
