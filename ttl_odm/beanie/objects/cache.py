"""Beanie's cache of query results (``use_cache``), bounded by what is in it.

Beanie lets a class name its query classes; ours see to it that the class's cache is one that
forgets results as soon as one of their documents has expired, and that queries which want expired
documents leave the cache alone.

This module must not know how the gate works.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from beanie.odm.cache import LRUCache
from beanie.odm.queries.find import FindMany, FindOne

from ttl_odm.beanie.gate.cursors import deciding_fields, end_of
from ttl_odm.beanie.keys import has
from ttl_odm.beanie.policy.binding import collection_of, policy_of, registry_of
from ttl_odm.beanie.rewrite.filters import never_expires
from ttl_odm.core.expiry import is_expired

if TYPE_CHECKING:
    from datetime import datetime

    from ttl_odm.core.policy import Policy


class ExpiringCache(LRUCache):
    """A cache that gives no result with an expired document.

    Args:
        cache: The one that Beanie made.
        model: The document class that it belongs to.
    """

    def __init__(self, cache: LRUCache, model: Any) -> None:
        """Take over the settings of a cache."""
        super().__init__(cache.capacity, cache.expiration_time)
        self._model = model

    def get(self, key: str) -> Any:
        """Return a result, None for a miss."""
        value = super().get(key)
        if value is not None and not self._lives(value):
            self.cache.pop(key, None)
            return None
        return value

    def set(self, key: str, value: Any) -> None:
        """Keep a result that says when it expires."""
        if self._lives(value):
            super().set(key, value)

    def _lives(self, value: Any) -> bool:
        policy = policy_of(self._model)
        if value is None or never_expires(policy):
            return True
        client = collection_of(self._model).database.client
        clock = registry_of(client).clock
        if not clock.is_known:
            return False
        now = clock.at_most()
        results = value if isinstance(value, list) else [value]
        return all(_lives(each, policy, now) for each in results)


# Beanie has two classes for this, with no common base that counts.
_AnyQuery: Any = object


class _Query(_AnyQuery):  # type: ignore[misc]
    """What both of our queries do besides; stands before Beanie's own class."""

    def __init__(self, document_model: Any) -> None:
        """Make a query; see Beanie's own."""
        super().__init__(document_model)
        _guard_cache(document_model)

    async def count(self) -> int:
        """Count what the query finds."""
        if _wants_expired(self) and not self.fetch_links:
            return await _count_expired_too(self)
        counted: int = await super().count()
        return counted


class TTLFindOne(_Query, FindOne[Any]):
    """Beanie's query for one document."""

    def find_one(self, *args: Any, **kwargs: Any) -> Any:
        """Find one document; ``include_expired=True`` finds expired ones too."""
        query = super().find_one(*args, **kwargs)
        query.ignore_cache = query.ignore_cache or _wants_expired(query)
        return query


class TTLFindMany(_Query, FindMany[Any]):
    """Beanie's query for many documents."""

    def find_many(self, *args: Any, **kwargs: Any) -> Any:
        """Find documents; ``include_expired=True`` finds expired ones too."""
        query = super().find_many(*args, **kwargs)
        query.ignore_cache = query.ignore_cache or _wants_expired(query)
        return query

    def aggregate(self, *args: Any, **kwargs: Any) -> Any:
        """Run a pipeline over what the query finds."""
        if _wants_expired(self):
            kwargs.setdefault("include_expired", True)
        query = super().aggregate(*args, **kwargs)
        query.ignore_cache = query.ignore_cache or _wants_expired(query)
        return query


async def _count_expired_too(query: Any) -> int:
    """Count as a query does that wants expired documents, which Beanie 1 would forget."""
    paging = {"limit": getattr(query, "limit_number", 0), "skip": getattr(query, "skip_number", 0)}
    options = {name: number for name, number in paging.items() if number}
    counted: int = await collection_of(query.document_model).count_documents(
        query.get_filter_query(), session=query.session, include_expired=True, **options
    )
    return counted


def _wants_expired(query: Any) -> bool:
    return bool(query.pymongo_kwargs.get("include_expired"))


def _guard_cache(model: Any) -> None:
    cache = model._cache
    if isinstance(cache, LRUCache) and not isinstance(cache, ExpiringCache):
        model._cache = ExpiringCache(cache, model)


def _lives(result: Any, policy: Policy, now: datetime) -> bool:
    if isinstance(result, Mapping):
        if not has(result, deciding_fields(policy)[0]):
            return False  # nobody can tell
        end = end_of(result, policy)
    elif hasattr(result, "expires_at"):
        end = result.expires_at
    else:
        return False
    return end is None or not is_expired(end, now)
