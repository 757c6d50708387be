"""Collections whose documents follow those of another: what `ttl_odm.follows` means here.

A `Following` stands in the `Registry` of a client, in the place of a `Binding`: the documents have
no stamp, no default and no sweep by themselves. The parent's class may be declared later, so what
leads to it is looked up when it is needed first.

This module must not know what is done to filters, pipelines or documents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, get_args, get_origin

from ttl_odm.beanie.gate.collection_rules import CollectionRule
from ttl_odm.beanie.policy.rules import Links, all_rules_below, rules_below
from ttl_odm.combinations import combination
from ttl_odm.core.policy import TTL
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    import beanie

    from ttl_odm.beanie.drivers import Collection
    from ttl_odm.beanie.policy.bindings import Registry
    from ttl_odm.beanie.policy.entries import Backend
    from ttl_odm.follows import Follows

_MANY: Final = (list, set, tuple, frozenset)


class Following(CollectionRule):
    """A collection whose documents live while their parents do.

    `kept` is what was made of it last, for those who make the same each time that it is read, and
    what that was made from: they say what the two are.
    """

    def __init__(  # noqa: PLR0913, PLR0917 (what it is, and where it stands)
        self,
        model: type[beanie.Document],
        declared: Follows,
        backend: Backend,
        registry: Registry,
        database: str,
        collection: str,
    ) -> None:
        """Remember the declaration; the parent may be declared later."""
        super().__init__(model, backend, registry, database, collection)
        self.kept: tuple[object, Any] | None = None
        self._declared = declared
        self._links: Links | None = None
        self._others: list[Any] = []

    @property
    def declared(self) -> Follows:
        """What its class declares."""
        return self._declared

    def share(self, model: Any) -> None:
        """Have another class on the collection, that declares the same."""
        if model not in self._others:
            self._others.append(model)
            self._links = None

    @property
    def models(self) -> tuple[Any, ...]:
        """The classes of these documents."""
        return self.model, *self._others

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
                        f"{self.collection!r}, so they must follow the same parent by the same "
                        f"fields, but {self.declared!r} means a different parent, or different "
                        f"fields, for {other.__name__}."
                    )
            self._links = links
        return self._links

    @property
    def above(self) -> Following | None:
        """What the parent follows itself, None where it has a lifetime of its own."""
        parent = self.parent
        return parent if isinstance(parent, Following) else None

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
            raise self._refusal(f"{name!r} is not a Link to one document; name a field that is")
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
                f"{parent.__name__} has no collection yet; pass it to init_beanie(), too"
            )
        return str(settings.name)

    def _check_parent(self, links: Links) -> None:
        name = links.parent.__name__
        binding = self.registry.find(*self._last_of_row(links))
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

    def _last_of_row(self, links: Links) -> tuple[str, str]:
        """Return where the parents' row ends: at a collection that follows nothing."""
        row: list[Following] = [self]
        at = (self.database, links.collection)
        while isinstance(above := self.registry.entry(*at), Following):
            if above in row:
                names = [one.model.__name__ for one in [*row[row.index(above) :], above]]
                raise self._refusal(
                    "documents can't follow themselves, or each other in a cycle "
                    f"({' -> '.join(names)}); declare a lifetime on {names[0]}, as in __ttl__ = "
                    "3600: links between documents don't keep them from being swept"
                )
            row.append(above)
            at = (self.database, above._find_links(above.model).collection)
        return at

    def _refused_with(self, capability: str, owner: str, **names: str) -> TTLConfigurationError:
        """The error for a parent with a capability that followers can't be combined with."""
        line = combination("beanie", "followed", capability)
        reason = line.reason_for(model=owner, **names)
        return self._refusal(f"{reason}; {line.instead_for(model=owner)}")

    def _refusal(self, why: str) -> TTLConfigurationError:
        return TTLConfigurationError(f"{self.model.__name__}.__ttl__ = {self.declared!r}: {why}.")


def followers_of(collection: Collection) -> list[Following]:
    """Return what follows the documents of a collection directly."""
    return [rule for rule in rules_below(collection) if isinstance(rule, Following)]


def all_followers(collection: Collection) -> list[Following]:
    """Return what follows the documents of a collection, at whatever depth."""
    return [rule for rule in all_rules_below(collection) if isinstance(rule, Following)]


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
