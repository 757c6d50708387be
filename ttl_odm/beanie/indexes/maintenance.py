"""What is done to the collections of document classes: `ensure_indexes`, and the two for strays.

Thin: each looks up the collection and the policy of a class, and hands them to `indexes` or
`strays`, which know no Beanie.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from beanie.exceptions import CollectionWasNotInitialized

from ttl_odm.beanie.indexes import ensure as indexes
from ttl_odm.beanie.indexes import strays
from ttl_odm.beanie.policy.binding import collection_of, registry_of
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from ttl_odm.beanie.indexes.ensure import IndexReport
    from ttl_odm.beanie.indexes.strays import StrayReport
    from ttl_odm.beanie.policy.binding import Binding
    from ttl_odm.beanie.policy.commands import Collection


async def ensure_indexes(
    model: Any, *models: Any, rebuild: bool = False, guard: bool | None = None
) -> tuple[IndexReport, ...]:
    """Bring the TTL indexes of document classes to what their policies need.

    Does nothing where all is well, may run in many processes at once, and never touches an index
    or a validator that it did not make. Classes whose ``__ttl__`` is None, or that have none any
    more, lose theirs.

    Args:
        model: A document class that `init_beanie` has seen.
        models: More of them; those that share a collection count once.
        rebuild: Whether an index that needs another field or filter may be dropped and built
            again, which reads the whole collection.
        guard: True to have the server refuse writes of other programs after which MongoDB would
            delete a document too early; False to end that; None to leave it as it is.

    Returns:
        What was done, for each collection.

    Raises:
        TTLConfigurationError: A collection cannot have such indexes, an index or validator of the
            application's own is in the way, a rebuild is needed and was not allowed, or documents
            have to be repaired first. Collections before that one are done.
        TTLError: Others kept changing the same indexes.
    """
    collections = {each.full_name: each for each in map(_collection_of, (model, *models))}
    reports = []
    for each in collections.values():
        binding = _binding_of(each)
        ensure = partial(indexes.ensure_collection, each, rebuild=rebuild, guard=guard)
        if binding is None:
            reports.append(await ensure(None))
        else:
            purge, backend = binding.purge, binding.backend
            reports.append(await ensure(binding.policy, purge=purge, backend=backend))
    return tuple(reports)


async def find_strays(model: Any) -> StrayReport:
    """Count the documents that other programs have left in a state of their own.

    Reads the whole collection, expired documents too.

    Args:
        model: A document class with a policy that `init_beanie` has seen.

    Raises:
        TTLConfigurationError: It has no policy.
    """
    collection = _collection_of(model)
    binding = _policy_needed(model, collection)
    return await strays.find_in(collection, binding.policy, purge=binding.purge)


async def repair_strays(model: Any) -> int:
    """Make ``_exp``, by which MongoDB deletes, follow from ``_ts`` and ``ttl`` again.

    In short batches; it may be interrupted and begun again. Nothing else is changed, and last
    modifications stay.

    Args:
        model: A document class with a policy that `init_beanie` has seen.

    Returns:
        How many documents were changed.

    Raises:
        TTLConfigurationError: It has no policy.
        WriteError: A validator of the collection refused a document.
    """
    collection = _collection_of(model)
    return await strays.repair_in(collection, _policy_needed(model, collection).policy)


def _collection_of(model: Any) -> Collection:
    try:
        found: Collection = collection_of(model)
    except CollectionWasNotInitialized as error:
        message = f"{model.__name__} has no collection yet: call init_beanie() first."
        raise TTLConfigurationError(message) from error
    return found


def _binding_of(collection: Collection) -> Binding | None:
    database = collection.database
    return registry_of(database.client).find(database.name, collection.name)


def _policy_needed(model: Any, collection: Collection) -> Binding:
    binding = _binding_of(collection)
    if binding is None or binding.backend != "mongodb":
        message = f"{model.__name__} has no policy that ttl_odm enforces, so it has no strays."
        raise TTLConfigurationError(message)
    return binding
