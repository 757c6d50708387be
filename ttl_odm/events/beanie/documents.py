"""Which document classes can have events, and what the event of a document is.

This module must not know when events are recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final

from beanie import Document
from bson import DBRef
from bson.binary import UUID_SUBTYPE, Binary

from ttl_odm.beanie.policy.bindings import (
    binding_of,
    collection_name,
    declaration,
    extension_of,
)
from ttl_odm.beanie.policy.predicate import deciding_fields, value_at
from ttl_odm.core import expiry
from ttl_odm.core.policy import instant_field
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.events.expiry import Expiry

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from ttl_odm.beanie.drivers import Filter
    from ttl_odm.beanie.policy.bindings import Binding
    from ttl_odm.core import Policy

_NOTHING: Final = object()


class DocumentEvents:
    """The events of one collection.

    Attributes:
        model: The class: the root of those that share the collection.
        table: The name of the collection.
    """

    def __init__(self, model: type[Document]) -> None:
        self.model = model
        self.table = collection_name(model)
        self._included: dict[str, None] = {}

    @property
    def binding(self) -> Binding:
        """The policy of the collection."""
        binding = binding_of(self.model)
        assert binding is not None  # noqa: S101 (of a class that Beanie knows)
        return binding

    def include(self, model: type[Document], names: Sequence[str]) -> None:
        """Have the events carry further fields of a class, by their names in the collection."""
        fields: Any = model.model_fields
        stored = {name: info.alias or name for name, info in fields.items()}
        known = {**stored, **{name: name for name in stored.values()}}
        takes_all = model.model_config.get("extra") == "allow"
        missing = [name for name in names if name not in known and not takes_all]
        if missing:
            raise TTLConfigurationError(
                f"include = {list(names)!r}: {model.__name__} has no field {missing[0]!r}; it has "
                f"{', '.join(stored)}."
            )
        self._included |= dict.fromkeys(known.get(name, name) for name in names)

    def event(self, document: Filter, end: datetime, before: timedelta | None = None) -> Expiry:
        """Return the event of a document, as `readable` has it, that ends at an instant."""
        policy = self.binding.outline
        names = dict.fromkeys(("_id", *deciding_fields(policy), *self._included))
        return Expiry.of(
            self.table,
            (document["_id"],),
            {name: value_at(document, name) for name in names},
            last_modified=_began(policy, document),
            expires_at=end,
            before=before,
        )


def _began(policy: Policy, document: Filter) -> datetime | None:
    """When a document's life began; of several dates the earliest counts, as in MongoDB."""
    value = value_at(document, instant_field(policy))
    values = value if isinstance(value, list) else [value]
    instants = (expiry.instant_of(policy, one) for one in values)
    return min((instant for instant in instants if instant is not None), default=None)


def readable(value: Any) -> Any:
    """Return a value that JSON can have, where the driver's own means something else there.

    Dates are in UTC whether the driver says so or not; a link is the key of its document.
    """
    match value:
        case datetime():
            return value if value.tzinfo is not None else value.replace(tzinfo=timezone.utc)
        case Mapping():
            return {name: readable(value[name]) for name in value}
        case list():
            return [readable(one) for one in value]
        case DBRef():
            return value.id
        case Binary() if value.subtype == UUID_SUBTYPE:
            return value.as_uuid()
    return value


def model_of(target: Any) -> type[Document]:
    """Return a class that can have events."""
    if not (isinstance(target, type) and issubclass(target, Document)):
        raise TTLConfigurationError(f"{target!r} can't have events: give a Beanie document class.")
    name = target.__name__
    if declaration(target, default=_NOTHING) is _NOTHING:
        raise TTLConfigurationError(
            f"{name} has no TTL, so its documents never expire: make it a TTLMixin and declare "
            "__ttl__, or enable() it."
        )
    if extension_of(target) is not None:
        raise TTLConfigurationError(
            f"{name} can't have events: its documents follow their parent, and are deleted with "
            "it. Handle the events of the parent."
        )
    if getattr(getattr(target, "Settings", None), "union_doc", None) is not None:
        raise TTLConfigurationError(
            f"{name} can't have events: it shares the collection of a UnionDoc with classes that "
            "don't share its hooks. Give it a collection of its own, or a common base with is_root."
        )
    return target


def root_of(model: type[Document]) -> type[Document]:
    """Return the class whose hooks are called: that of `is_root`, if the class is below one."""
    roots = (base for base in model.__mro__ if _is_root(base))
    return next(roots, model)


def _is_root(base: type) -> bool:
    return getattr(base.__dict__.get("Settings"), "is_root", False) is True
