"""Evidence from MongoDB: a sample of each collection's documents, its indexes, its estimated size.

It sends only `find`, `listCollections`, `listIndexes` and a count from the metadata, each with a
time limit. The role ``read`` is enough.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from bson import DatetimeMS, DBRef
from pymongo.errors import PyMongoError

from ttl_odm.beanie.policy.bindings import declaration
from ttl_odm.beanie.policy.commands import first_batch
from ttl_odm.core.policy import TTL, ExpireAfter, ExpireAt
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.inspection.evidence import Field, Kind, Table, TTLIndex, module_of
from ttl_odm.sweeper.units import misread_lifetimes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pymongo.collection import Collection
    from pymongo.database import Database

    from ttl_odm.beanie.drivers import Collection as AsyncCollection
    from ttl_odm.core.policy import Policy
    from ttl_odm.sweeper.units import Misread

SAMPLE: Final = 500
"""Documents from the beginning of a collection, and as many from its end."""
_MILLISECONDS: Final = 10_000
_OURS: Final = ("ttl_odm_lease",)
_OUR_INDEXES: Final = "__ttl_"
_KINDS: Final[Sequence[tuple[type, Kind]]] = (
    (datetime, Kind.AWARE),
    (bool, Kind.OTHER),  # before int, of which it is a subclass
    (int, Kind.INTEGER),
    (float, Kind.FLOAT),
    (str, Kind.TEXT),
)


def now(database: Database[Any]) -> datetime:
    """Return the server's present instant."""
    instant = database.command("hello", codec_options=database.codec_options)["localTime"]
    if isinstance(instant, datetime):
        return instant
    # Azure's gateway to DocumentDB returns a number.
    return DatetimeMS(instant).as_datetime(database.codec_options)


def collections(
    database: Database[Any], *, models: Mapping[str, type] | None = None
) -> list[Table]:
    """Read all collections, or those of document classes; needs a client with ``tz_aware=True``."""
    tables = []
    # Without a filter on the type: a user with few rights may only list names.
    listed = database.list_collections(nameOnly=True, authorizedCollections=True)
    for name in sorted(
        collection["name"]
        for collection in listed
        if collection.get("type", "collection") == "collection"
    ):
        if name.startswith("system.") or name in _OURS:
            continue
        try:
            tables.append(_table(database[name]))
        except PyMongoError as error:
            problem = f"can't be read: {' '.join(str(error).split())}"
            tables.append(Table(name, is_collection=True, problem=problem))
    references = _references(tables)
    tables = [replace(table, references=references.get(table.name, ())) for table in tables]
    if models is None:
        return tables
    return [_of_class(table, models[table.name]) for table in tables if table.name in models]


def _of_class(table: Table, model: type) -> Table:
    declared = declaration(model)
    return replace(
        table,
        model=model.__name__,
        module=module_of(model),
        has_policy=table.has_policy or declared is not None,
        policy=declared if isinstance(declared, (TTL, ExpireAfter, ExpireAt)) else None,
    )


def _references(tables: Sequence[Table]) -> Mapping[str, list[str]]:
    """Return the fields with links to each collection, according to the samples."""
    references: dict[str, dict[str, None]] = {}
    for table in tables:
        for document in table.sample:
            for name, value in document.items():
                for item in value if isinstance(value, list) else [value]:
                    if isinstance(item, DBRef):
                        references.setdefault(item.collection, {})[f"{table.name}.{name}"] = None
    return {name: sorted(fields) for name, fields in references.items()}


def _table(collection: Collection[Any]) -> Table:
    sample = list(collection.find({}, limit=SAMPLE, max_time_ms=_MILLISECONDS))
    if len(sample) == SAMPLE:
        last = collection.find({}, limit=SAMPLE, sort=[("_id", -1)], max_time_ms=_MILLISECONDS)
        sample += last
    kinds: dict[str, Counter[Kind]] = {}
    for document in sample:
        for name, value in document.items():
            if value is not None:
                kinds.setdefault(name, Counter())[_kind(value)] += 1
    indexes, fields = collection.index_information(), []
    for name, seen in kinds.items():
        ordered = (name, 1), (name, -1)  # other kinds have no order, and can't be TTL indexes
        leading = [index for index in indexes.values() if index["key"][0] in ordered]
        whole = [index for index in leading if "partialFilterExpression" not in index]
        ttls = [index["expireAfterSeconds"] for index in whole if "expireAfterSeconds" in index]
        dates = [document[name] for document in sample if isinstance(document.get(name), datetime)]
        field = Field(
            name,
            Kind.AWARE if Kind.AWARE in seen else seen.most_common(1)[0][0],
            is_indexed=bool(whole),
            lowest=min(dates, default=None),
            highest=max(dates, default=None),
            ttl_seconds=int(ttls[0]) if ttls else None,
            is_sampled=len(sample) >= SAMPLE,
        )
        fields.append(field)
    return Table(
        collection.name,
        fields,
        sample,
        collection.estimated_document_count(maxTimeMS=_MILLISECONDS),
        is_estimated=True,
        is_collection=True,
        has_policy=any(name.startswith(_OUR_INDEXES) for name in indexes),
        ttl_indexes=[
            _ttl_index(name, index)
            for name, index in indexes.items()
            if "expireAfterSeconds" in index and index["key"][0][1] in (1, -1)
        ],
    )


def _ttl_index(name: str, index: Mapping[str, Any]) -> TTLIndex:
    field, condition = index["key"][0][0], index.get("partialFilterExpression")
    some = "documents" if condition is None else f"documents that match {dict(condition)!r}"
    deletes = f"{some} {index['expireAfterSeconds']:,} s after {field}"
    return TTLIndex(name, field, deletes, is_partial=condition is not None)


def _kind(value: object) -> Kind:
    """Return the kind of a value; a list with a date counts as a date."""
    if isinstance(value, list):
        return Kind.AWARE if any(isinstance(item, datetime) for item in value) else Kind.OTHER
    for type_, kind in _KINDS:
        if isinstance(value, type_):
            return kind
    return Kind.OTHER


def classes_of(target: object) -> dict[str, type]:
    """Return document classes by the names of their collections."""
    classes = {}
    for model in target if isinstance(target, (list, tuple, set)) else [target]:
        if not (isinstance(model, type) and hasattr(model, "model_fields")):
            raise TTLConfigurationError(
                f"{model!r} is not a Beanie document class: give one, or a list of them."
            )
        settings = getattr(model, "Settings", None)  # Beanie's own need init_beanie()
        classes[str(getattr(settings, "name", None) or model.__name__)] = model
    return classes


async def misread(collection: AsyncCollection, policy: Policy) -> Misread | None:
    """Return what is wrong with the documents' own ttls; None if nothing seems to be.

    It reads that field of the first and the last documents by ``_id``. Instants are dates, which
    have no unit.

    Args:
        collection: PyMongo's asynchronous one or Motor's, gated or not.
        policy: The collection's policy.
    """
    if not isinstance(policy, TTL) or policy.override is None:
        return None
    documents: dict[str, object] = {}
    for direction in (1, -1):
        # A command bypasses the gate, so expired documents count.
        command = {
            "find": collection.name,
            "sort": {"_id": direction},
            "limit": SAMPLE,
            "batchSize": SAMPLE,
            "projection": {policy.override: 1},
            "maxTimeMS": _MILLISECONDS,
        }
        for document in await first_batch(collection, command):
            documents[repr(document["_id"])] = _value(document, policy.override)
    lifetimes = [value for value in documents.values() if value not in policy.never]
    return misread_lifetimes(policy.override, lifetimes)


def _value(document: object, path: str) -> object:
    value = document
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value
