"""What to sweep: the collections of Beanie's document classes, in one database."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from beanie import Document

from ttl_odm.beanie.policy.binding import binding_of, collection_of
from ttl_odm.beanie.purge.modes import Mode, mode_of
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ttl_odm.beanie.policy.binding import Binding
    from ttl_odm.core.policy import Policy


@dataclass(frozen=True, slots=True)
class Target:
    """A collection to sweep.

    Attributes:
        collection: As the application has it, gated.
        binding: Its policy, as its class declares it at any moment.
    """

    collection: Any
    binding: Binding

    @property
    def name(self) -> str:
        """The collection's name."""
        return str(self.collection.name)

    @property
    def policy(self) -> Policy:
        """How documents expire, at this moment."""
        return self.binding.policy

    @property
    def mode(self) -> Mode:
        """What the class says of its expired documents."""
        return mode_of(self.binding, self.name)

    @property
    def is_walked(self) -> bool:
        """Whether the class wants the collection read, instead of its indexes.

        Raises:
            TTLConfigurationError: It wants neither.
        """
        model = self.binding.model
        declared = getattr(model, "__ttl_sweep__", "index")
        if declared not in ("index", "scan"):
            raise TTLConfigurationError(
                f"{model.__name__}.__ttl_sweep__ = {declared!r}: write 'index' or 'scan'."
            )
        return bool(declared == "scan")


def targets_of(database: Any, given: Any) -> dict[str, Target]:
    """Return the collections of what a sweeper was given, by name, in its order.

    Args:
        database: The one that the sweeper was given.
        given: A document class, or a list of them.

    Raises:
        TTLConfigurationError: Something in it is no document class, has no TTL, or is elsewhere.
    """
    found = {}
    for model in _models(given):
        target = _target_of(model)
        if target.collection.database.name != database.name:
            raise TTLConfigurationError(
                f"{model.__name__} is in the database {target.collection.database.name!r}, and "
                f"this sweeper works in {database.name!r}: give each database a sweeper."
            )
        found[target.name] = target
    return found


def _models(given: Any) -> Iterator[Any]:
    if isinstance(given, type):
        yield given
    elif isinstance(given, Iterable) and not isinstance(given, (str, bytes)):
        for each in given:
            yield from _models(each)
    else:
        raise TTLConfigurationError(
            f"{given!r} is nothing to sweep: give a document class, or a list of them."
        )


def _target_of(model: Any) -> Target:
    if not issubclass(model, Document):
        raise TTLConfigurationError(f"{model.__name__} is no document class of Beanie's.")
    binding = binding_of(model)
    if binding is None:
        raise TTLConfigurationError(
            f"{model.__name__} has no TTL, so there is nothing to sweep: make it a TTLMixin and "
            "declare __ttl__, or leave it out."
        )
    if binding.backend != "mongodb":
        raise TTLConfigurationError(
            f"{model.__name__} is on Azure Cosmos DB, which deletes expired documents by itself: "
            "no sweeper works there."
        )
    return Target(collection_of(model), binding)
