"""Beanie's queries: their cache of results (``use_cache``), bounded by expiry, and their `touch`.

Beanie lets a class name its query classes. Ours replace the class's cache by one that drops a
result as soon as one of its documents has expired. Queries for expired documents bypass it. Results
that don't contain their expiry (projections, fetched links, aggregations) are not cached. If the
default isn't in code, the cache is used only while the default was read recently.

This module must not know how the gate works.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from beanie.odm.cache import LRUCache
from beanie.odm.queries.find import FindMany, FindOne, FindQueryResultType
from beanie.odm.utils.projection import get_projection

from ttl_odm.beanie.objects.renewals import touch_many, touch_one
from ttl_odm.beanie.policy.bindings import binding_of, collection_of, registry_of
from ttl_odm.beanie.policy.predicate import deciding_fields, end_of, has, never_expires
from ttl_odm.beanie.rewrite.pipelines import keeps
from ttl_odm.core.expiry import is_expired
from ttl_odm.errors import TTLError

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from beanie import Document
    from pymongo.results import UpdateResult

    from ttl_odm.beanie.drivers import Session
    from ttl_odm.core.lifetime import OnlyIf
    from ttl_odm.core.policy import Policy


class ExpiringCache(LRUCache):
    """A cache, in place of Beanie's, that returns no result with an expired document."""

    def __init__(self, cache: LRUCache, model: type[Document]) -> None:
        """Copy the settings of a cache."""
        super().__init__(cache.capacity, cache.expiration_time)
        self._model = model

    def get(self, key: str) -> Any:
        """Return a result, None for a miss."""
        value = super().get(key)
        if value is not None and not self._lives(value):
            self.cache.pop(key, None)
            return None
        return value

    def set(self, key: str, value: object) -> None:
        """Store a result whose expiry is known."""
        if self._lives(value):
            super().set(key, value)

    def _lives(self, value: object) -> bool:
        binding = binding_of(self._model)
        if binding is None or not binding.source.is_recent:
            return value is None
        policy = binding.policy
        if value is None or never_expires(policy):
            return True
        if not _has_expiry(self._model, policy):
            return False
        client = collection_of(self._model).database.client
        clock = registry_of(client).clock
        if not clock.is_known:
            return False
        now = clock.at_most()
        results = value if isinstance(value, list) else [value]
        return all(_lives(result, policy, now) for result in results)


# Beanie's two query classes have no useful common base.
_AnyQuery: Any = object


class _Query(_AnyQuery):  # type: ignore[misc]
    """The common part of our query classes; comes before Beanie's class in the MRO."""

    def __init__(self, document_model: type[Document]) -> None:
        """Create a query, and replace the cache of its class; see Beanie's own."""
        super().__init__(document_model)
        cache = document_model._cache
        if isinstance(cache, LRUCache) and not isinstance(cache, ExpiringCache):
            document_model._cache = ExpiringCache(cache, document_model)

    @property
    def ignore_cache(self) -> bool:
        """Whether to bypass the cache, which holds only whole documents of the class.

        A part of a document may lack its expiry, and the policies of fetched documents are unknown.
        """
        is_whole = self.projection_model is self.document_model and not self.fetch_links
        return self._ignores_cache or not is_whole or _wants_expired(self.pymongo_kwargs)

    @ignore_cache.setter
    def ignore_cache(self, value: bool) -> None:
        self._ignores_cache = value

    async def count(self) -> int:
        """Count what the query finds."""
        wants_expired = _wants_expired(self.pymongo_kwargs)
        if wants_expired and not self.fetch_links:  # Beanie 1 drops this option
            pages = {name: getattr(self, f"{name}_number", 0) for name in ("limit", "skip")}
            options = {name: number for name, number in pages.items() if number}
            return await collection_of(self.document_model).count_documents(
                self.get_filter_query(), session=self.session, include_expired=True, **options
            )
        counted: int = await super().count()
        return counted

    def update(self, *args: object, **kwargs: object) -> object:
        """Update what the query finds."""
        _reject_expired(self.pymongo_kwargs)
        return super().update(*args, **kwargs)

    def upsert(self, *args: object, **kwargs: object) -> object:
        """Update what the query finds, or insert."""
        _reject_expired(self.pymongo_kwargs)
        return super().upsert(*args, **kwargs)

    def delete(self, *args: object, **kwargs: object) -> object:
        """Delete what the query finds."""
        _reject_expired(self.pymongo_kwargs)
        return super().delete(*args, **kwargs)


if TYPE_CHECKING:

    class _Mixed:
        """An empty base: with an unknown base, checkers would know nothing about the queries."""
else:
    _Mixed = _Query


class TTLFindOne(_Mixed, FindOne[FindQueryResultType]):  # pyright: ignore[reportIncompatibleVariableOverride]
    """Beanie's query for one document."""

    async def touch(
        self,
        *,
        at_most_every: float | timedelta | None = None,
        only_if: OnlyIf | None = None,
        expire_in: float | timedelta | None = None,
        session: Session = None,
    ) -> FindQueryResultType | None:
        """Restart the document's lifetime, and return it: one ``find_one_and_update``.

        A live document that a condition leaves unchanged is returned too, without a write.

        Args:
            at_most_every: Seconds, or a timedelta; a document that was written more recently is
                left alone.
            only_if: A condition for the write, as in `ttl_odm.beanie.touch`.
            expire_in: The document's new life in whole seconds, or a timedelta of them. With zero
                or less it expires at once.
            session: The session of a transaction.

        Returns:
            The document as it is afterwards; None if no live document is found.

        Raises:
            InvalidTTL: `expire_in` isn't whole, or is over 2147483647.
            TTLConfigurationError: The policy doesn't count from the last modification or, with
                `expire_in`, gives documents no ttl of their own; or an argument is invalid. On
                Azure Cosmos DB always.
        """
        _reject_expired(self.pymongo_kwargs)
        return await touch_one(self, at_most_every, only_if, expire_in, session)

    async def replace_one(self, *args: Any, **kwargs: Any) -> UpdateResult | None:
        """Replace what the query finds."""
        _reject_expired(self.pymongo_kwargs)
        return await super().replace_one(*args, **kwargs)


class TTLFindMany(_Mixed, FindMany[FindQueryResultType]):  # pyright: ignore[reportIncompatibleVariableOverride]
    """Beanie's query for many documents."""

    async def touch(
        self,
        *,
        at_most_every: float | timedelta | None = None,
        only_if: OnlyIf | None = None,
        expire_in: float | timedelta | None = None,
        session: Session = None,
    ) -> int:
        """Restart the lifetime of the live documents that are found, by one ``update_many``.

        The arguments and errors are those of `TTLFindOne.touch`. A query with a skip or a limit
        raises a TTLConfigurationError.

        Returns:
            The number of documents that were renewed. Those that a condition leaves alone don't
            count.
        """
        _reject_expired(self.pymongo_kwargs)
        return await touch_many(self, at_most_every, only_if, expire_in, session)

    def aggregate(self, *args: Any, **kwargs: Any) -> Any:
        """Run a pipeline over what the query finds."""
        if _wants_expired(self.pymongo_kwargs):
            kwargs.setdefault("include_expired", True)
        query = super().aggregate(*args, **kwargs)
        query.ignore_cache = True  # the result may have parts of documents, and other classes
        return query


def _wants_expired(options: Mapping[str, object]) -> bool:
    return bool(options.get("include_expired"))


def _reject_expired(options: Mapping[str, object]) -> None:
    if _wants_expired(options):
        raise TTLError(
            "include_expired=True is only for reads: an expired document can't be changed or "
            "deleted."
        )


def _has_expiry(model: type[Document], policy: Policy) -> bool:
    """Return whether Beanie's projection for a class contains the deciding fields.

    Without its `ttl` a document looks like one that inherits the default.
    """
    projection = get_projection(model)
    fields = tuple({field.partition(".")[0] for field in deciding_fields(policy)})
    return projection is None or keeps({"$project": projection}, fields)


def _lives(result: object, policy: Policy, now: datetime) -> bool:
    if not isinstance(result, Mapping) or not has(result, deciding_fields(policy)[0]):
        return False  # its expiry is unknown
    end = end_of(result, policy)
    return end is None or not is_expired(end, now)
