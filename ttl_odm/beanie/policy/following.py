"""Collections whose documents follow those of another: what `ttl_odm.follows` means here.

A `Following` stands in the `Registry` of a client, in the place of a `Binding`: the documents have
no stamp, no default and no sweep by themselves. The parent's class may be declared later, so what
leads to it is looked up when it is needed first.

This module must not know what is done to filters, pipelines or documents.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, get_args, get_origin

from ttl_odm.core.policy import TTL
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from ttl_odm.core.policy import Policy
    from ttl_odm.follows import Follows

_MANY: Final = (list, set, tuple, frozenset)


class Root(Protocol):
    """What is asked of the policy at the end of a row of parents: a `Binding`."""

    model: type
    is_stored: bool

    @property
    def policy(self) -> Policy:
        """How its documents expire at this moment."""
        ...

    @property
    def declared(self) -> Policy:
        """The same, as the class declares it."""
        ...

    @property
    def is_time_series(self) -> bool:
        """Whether the collection is a time series."""
        ...

    @property
    def purge(self) -> str:
        """Who deletes what has expired."""
        ...


class Places(Protocol):
    """What is asked of a client's collections: a `Registry`."""

    def find(self, database: str, collection: str) -> Root | None:
        """Return a collection's policy."""
        ...

    def following(self, database: str, collection: str) -> Following | None:
        """Return what its documents follow."""
        ...


@dataclass(frozen=True, slots=True)
class Links:
    """The parent's collection, and pairs of a path here and the parent's that it equals."""

    parent: type
    collection: str
    pairs: tuple[tuple[str, str], ...]

    @property
    def own(self) -> tuple[str, ...]:
        """The paths in documents that follow."""
        return tuple(own for own, _ in self.pairs)

    @property
    def theirs(self) -> tuple[str, ...]:
        """The paths in the parent."""
        return tuple(theirs for _, theirs in self.pairs)


@dataclass(slots=True, eq=False)
class Following:
    """A collection whose documents live while their parents do.

    `kept` is what was made of it last, for those who make the same each time that it is read, and
    what that was made from: they say what the two are.
    """

    model: Any
    declared: Follows
    backend: str
    registry: Places
    database: str
    collection: str
    kept: tuple[object, Any] | None = field(default=None, init=False, repr=False, compare=False)
    _links: Links | None = field(default=None, init=False)
    _others: list[Any] = field(default_factory=list, init=False)

    def share(self, model: Any) -> None:
        """Have another class on the collection, that declares the same."""
        if model not in self._others:
            self._others.append(model)
            self._links = None

    @property
    def enforced_by_others(self) -> bool:
        """Whether nobody enforces it: in a migration."""
        return self.backend == "migrations"

    @property
    def links(self) -> Links:
        """What leads to the parent.

        Raises:
            TTLConfigurationError: It leads nowhere, or to a class that can't be followed.
        """
        if self._links is None:
            links = self._find_links(self.model)
            self._check_parent(links)
            for other in self._others:
                if self._find_links(other) != links:
                    raise TTLConfigurationError(
                        f"{self.model.__name__} and {other.__name__} share the collection "
                        f"{self.collection!r}, so they follow one parent by the same fields, but "
                        f"{self.declared!r} leads to another one, or by others, from "
                        f"{other.__name__}."
                    )
            self._links = links
        return self._links

    @property
    def place(self) -> tuple[str, str]:
        """The parent's database and collection."""
        return self.database, self.links.collection

    @property
    def parent(self) -> Following | None:
        """What the parent follows itself, None where it has a lifetime of its own."""
        return self.registry.following(*self.place)

    @property
    def root(self) -> Root:
        """The policy that says when documents expire: of the last one in the row of parents."""
        following = self
        while (above := following.parent) is not None:
            following = above
        binding = self.registry.find(*following.place)
        assert binding is not None  # noqa: S101 (`links` has seen it)
        return binding

    # Finding the parent

    def _find_links(self, model: Any) -> Links:
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
            raise self._refusal(f"{name!r} is not a Link to one document; name one that is")
        parent = link.document_class
        return Links(parent, self._collection_of(parent), ((self._own(model, name), "_id"),))

    def _own(self, model: Any, name: str) -> str:
        check_field(model, name, f"{model.__name__}.__ttl__ = {self.declared!r}")
        path = _stored(model, name)
        info = model.model_fields.get(name)
        return f"{path}.$id" if info is not None and is_link(info.annotation) else path

    def _collection_of(self, parent: Any) -> str:
        settings = getattr(parent, "_document_settings", None)
        if settings is None or settings.name is None:
            raise self._refusal(
                f"{parent.__name__} has no collection yet; give it to init_beanie(), too"
            )
        return str(settings.name)

    def _check_parent(self, links: Links) -> None:
        name = links.parent.__name__
        binding = self.registry.find(*self._last_of_row(links))
        if binding is None:
            raise self._refusal(
                f"{name} has no lifetime in the same database; declare __ttl__ on it, and give it "
                "to init_beanie(), too"
            )
        if binding.is_stored:
            raise self._refusal(
                f"the default of {binding.model.__name__} is stored in the database "
                f"({binding.declared.stored!r}), which followers can't go by; declare seconds on it"
            )
        if binding.is_time_series:
            raise self._refusal(
                f"{binding.model.__name__} has a time-series collection, of which MongoDB deletes "
                "whole buckets; follow another class"
            )
        if binding.purge == "native" and not self.enforced_by_others:
            owner = binding.model.__name__
            raise self._refusal(
                f"MongoDB would delete {owner} documents before those that follow them; declare "
                f"__ttl_purge__ = 'sweeper' on {owner}, and run a sweeper"
            )
        if self.declared.renews and not isinstance(binding.declared, TTL):
            raise self._refusal(
                f"{binding.model.__name__} documents end at a date of their own, which no write "
                "renews; leave renews out"
            )

    def _last_of_row(self, links: Links) -> tuple[str, str]:
        """Return where the parents' row ends: at a collection that follows nothing."""
        row: list[Following] = [self]
        at = (self.database, links.collection)
        while (above := self.registry.following(*at)) is not None:
            if above in row:
                names = [one.model.__name__ for one in [*row[row.index(above) :], above]]
                raise self._refusal(
                    f"documents can't follow themselves, or each other in a ring "
                    f"({' -> '.join(names)}); declare a lifetime on {names[0]}, as in __ttl__ = "
                    "3600: links among documents keep none from being swept"
                )
            row.append(above)
            at = (self.database, above._find_links(above.model).collection)
        return at

    def _refusal(self, why: str) -> TTLConfigurationError:
        return TTLConfigurationError(f"{self.model.__name__}.__ttl__ = {self.declared!r}: {why}.")


def check_field(model: Any, name: str, where: str) -> None:
    """Refuse a field that a class doesn't have, or that holds several values."""
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


def _stored(model: Any, name: str) -> str:
    """Return the path at which a field is stored."""
    info = model.model_fields.get(name)
    return name if info is None else str(info.alias or name)
