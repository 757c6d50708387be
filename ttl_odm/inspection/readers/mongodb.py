"""Evidence from MongoDB: a sample of each collection's documents, its indexes, its estimated size.

Only `find`, `listCollections`, `listIndexes` and the count of the metadata are sent, each with a
time limit: the role ``read`` is enough.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from pymongo.errors import PyMongoError

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.inspection.evidence import Field, Kind, Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pymongo.collection import Collection
    from pymongo.database import Database

SAMPLE: Final = 500
_MILLISECONDS: Final = 10_000
_OURS: Final = ("ttl_odm_lease",)


def now(database: Database[Any]) -> datetime:
    """Return the server's present instant."""
    told: datetime = database.command("hello", codec_options=database.codec_options)["localTime"]
    return told


def collections(
    database: Database[Any], *, models: Mapping[str, str] | None = None
) -> Iterator[Table]:
    """Read all collections of a database, one after the other.

    Args:
        database: Of a client with ``tz_aware=True``.
        models: Names of collections to look at, and of their document classes; None for all.
    """
    for name in sorted(_names(database)):
        if models is not None and name not in models:
            continue
        model = None if models is None else models[name]
        try:
            yield _table(database[name], model)
        except PyMongoError as error:
            problem = f"can't be read: {' '.join(str(error).split())}"
            yield Table(name, model=model, is_collection=True, problem=problem)


def _names(database: Database[Any]) -> list[str]:
    # Not with a filter on the type: a user with few rights may list names only.
    listed = database.list_collections(nameOnly=True, authorizedCollections=True)
    return [
        each["name"]
        for each in listed
        if each.get("type", "collection") == "collection"
        and not each["name"].startswith("system.")
        and each["name"] not in _OURS
    ]


def _table(collection: Collection[Any], model: str | None) -> Table:
    first = list(collection.find({}, limit=SAMPLE, max_time_ms=_MILLISECONDS))
    sample = first
    if len(first) == SAMPLE:
        last = collection.find({}, limit=SAMPLE, sort=[("_id", -1)], max_time_ms=_MILLISECONDS)
        sample = [*first, *last]
    indexes = collection.index_information()
    return Table(
        collection.name,
        list(_fields(sample, indexes)),
        sample,
        collection.estimated_document_count(maxTimeMS=_MILLISECONDS),
        is_estimated=True,
        model=model,
        is_collection=True,
    )


def _fields(
    sample: Sequence[Mapping[str, Any]], indexes: Mapping[str, Mapping[str, Any]]
) -> Iterator[Field]:
    kinds: dict[str, Counter[Kind]] = {}
    for document in sample:
        for name, value in document.items():
            if value is not None:
                kinds.setdefault(name, Counter())[_kind(value)] += 1
    for name, seen in kinds.items():
        leading = [each for each in indexes.values() if each["key"][0][0] == name]
        ttls = [each["expireAfterSeconds"] for each in leading if "expireAfterSeconds" in each]
        whole = [each for each in leading if "partialFilterExpression" not in each]
        dates = [each[name] for each in sample if isinstance(each.get(name), datetime)]
        yield Field(
            name,
            Kind.AWARE if Kind.AWARE in seen else seen.most_common(1)[0][0],
            is_indexed=bool(whole),
            lowest=min(dates, default=None),
            highest=max(dates, default=None),
            ttl_seconds=int(ttls[0]) if ttls else None,
        )


def _kind(value: object) -> Kind:
    if isinstance(value, list):
        return Kind.AWARE if any(isinstance(each, datetime) for each in value) else Kind.OTHER
    if isinstance(value, datetime):
        return Kind.AWARE
    if isinstance(value, bool):
        return Kind.OTHER
    if isinstance(value, int):
        return Kind.INTEGER
    if isinstance(value, float):
        return Kind.FLOAT
    return Kind.TEXT if isinstance(value, str) else Kind.OTHER


def classes_of(given: Any) -> dict[str, str]:
    """Return the collections of document classes by name, each with the name of its class.

    Raises:
        TTLConfigurationError: Something in it is no document class.
    """
    found = {}
    for each in given if isinstance(given, (list, tuple, set)) else [given]:
        if not (isinstance(each, type) and hasattr(each, "model_fields")):
            raise TTLConfigurationError(
                f"{each!r} is no document class of Beanie's: give one, or a list of them."
            )
        settings = getattr(each, "Settings", None)  # Beanie's own need init_beanie()
        found[str(getattr(settings, "name", None) or each.__name__)] = each.__name__
    return found
