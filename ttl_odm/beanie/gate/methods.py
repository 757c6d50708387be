"""The public methods of a collection, by what the gate does with them.

`GATED` and `PASSED` list every public name of PyMongo's AsyncCollection; a test compares them with
the drivers, so that a method of a new release cannot slip by.
"""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import Any, Final

from pymongo.asynchronous.collection import AsyncCollection

GATED: Final = frozenset(
    {
        "aggregate",
        "aggregate_raw_batches",
        "bulk_write",
        "count_documents",
        "delete_many",
        "delete_one",
        "distinct",
        "estimated_document_count",
        "find",
        "find_one",
        "find_one_and_delete",
        "find_one_and_replace",
        "find_one_and_update",
        "find_raw_batches",
        "index_information",
        "insert_many",
        "insert_one",
        "replace_one",
        "update_many",
        "update_one",
        "with_options",
    }
)
"""Names that see or change documents, or give another handle on the collection."""
PASSED: Final = frozenset(
    {
        "codec_options",
        "create_index",
        "create_indexes",
        "create_search_index",
        "create_search_indexes",
        "database",
        "drop",
        "drop_index",
        "drop_indexes",
        "drop_search_index",
        "full_name",
        "list_indexes",
        "list_search_indexes",
        "name",
        "next",
        "options",
        "read_concern",
        "read_preference",
        "rename",
        "update_search_index",
        "watch",
        "write_concern",
    }
)
"""Names that are about the collection as a whole, and ``watch``, which reports what happens."""


def named(method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return a call's arguments by the names that the driver has for them."""
    if not args:
        return kwargs
    return {**dict(zip(_names(method), args, strict=False)), **kwargs}


@lru_cache(maxsize=64)
def _names(method: str) -> tuple[str, ...]:
    return tuple(inspect.signature(getattr(AsyncCollection, method)).parameters)[1:]
