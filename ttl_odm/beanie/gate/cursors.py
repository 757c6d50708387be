"""What a find sends, and how the documents in a cursor's buffer are judged.

Two kinds of documents are judged in Python, by the driver's estimate of the server's clock:

- Documents in a cursor's buffer. The server sent live documents, but a slow reader reaches them
  later, so each is judged again before it is returned.
- The results of plain finds. There the predicate makes the find a quarter to a half slower, so the
  server only omits documents that have certainly expired by the default (`Lifetime.coarse`), and
  the core's rule judges the others. If the server has to decide (for a limit, a skip, a projection
  without the deciding fields, documents of another class), the predicate is sent.

The judge is an upper bound of the clock: in doubt a document counts as expired, at most a round
trip early. `Lifetime.strip` removes the fields that were fetched only to judge by. Results of a
pipeline that creates other documents are not judged.

This module must not know which driver is used.
"""

# ruff: noqa: A002 - `filter` is the drivers' own name for it

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeGuard, TypeVar

from ttl_odm.beanie.policy.predicate import deciding_fields, end_of, never_expires
from ttl_odm.beanie.policy.ttl_indexes import EXPIRY
from ttl_odm.beanie.rewrite import filters
from ttl_odm.beanie.rewrite.filters import has_expr, is_inclusive, mentions
from ttl_odm.beanie.rewrite.pipelines import keeps
from ttl_odm.core.expiry import is_expired
from ttl_odm.core.policy import TTL
from ttl_odm.core.values import NEVER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from pymongo.asynchronous.cursor import AsyncCursor

    from ttl_odm.beanie.drivers import Document, Filter, Method, Projection, Result
    from ttl_odm.beanie.gate.handle import Handle
    from ttl_odm.core.policy import Policy

    Keys: TypeAlias = Callable[[], Awaitable[list[object]]]

Row = TypeVar("Row", bound=Mapping[str, Any])


class Judging(Protocol):
    """How the documents of one cursor are judged; a `Lifetime` if they have a policy."""

    @property
    def handle(self) -> Handle:
        """The collection."""
        ...

    def is_over(self, document: object) -> bool:
        """Return whether a document has expired by now."""
        ...

    def strip(self, document: Result) -> Result:
        """Return the document without the fields that were fetched only to judge it."""
        ...

    def listed(self, documents: Sequence[Document], *, is_judged: bool) -> list[Document]:
        """Return the live ones, stripped; `is_judged` if the server has just judged them."""
        ...


@dataclass(frozen=True, slots=True)
class Lifetime:
    """How the documents of one cursor are judged, by a policy.

    Attributes:
        handle: The collection.
        fields: The deciding fields; none if documents can't be judged.
        hidden: The fields that are fetched but not shown.
        computes: Whether the projection has expressions, which may fail on expired documents.
    """

    handle: Handle
    fields: tuple[str, ...]
    hidden: tuple[str, ...]
    computes: bool = False

    def is_over(self, document: object) -> bool:
        """Return whether a document has expired by now."""
        clock = self.handle.registry.clock
        if not self.fields or not clock.is_known or not isinstance(document, Mapping):
            return False
        policy = self.handle.policy_over((document,))
        if policy is None:
            return False
        return next(_inheriting_first((document,), policy, clock.at_most()), None) is None

    def decides(self, filter: Filter) -> bool:
        """Return whether documents may be fetched first and judged in Python."""
        may_fail = self.computes or has_expr(filter)
        return bool(self.fields) and self.handle.gives_plain_documents and not may_fail

    def strip(self, document: Result) -> Result:
        """Return the document without hidden fields."""
        if self.hidden and isinstance(document, MutableMapping):
            for field in self.hidden:
                document.pop(field, None)
        return document

    def listed(self, documents: Sequence[Document], *, is_judged: bool) -> list[Document]:
        """Return the live ones, stripped; `is_judged` if the server has just judged them."""
        living, clock = documents, self.handle.registry.clock
        if not is_judged and self.fields and clock.is_known:
            policy = self.handle.policy_over(documents)
            if policy is not None:
                living = list(_inheriting_first(documents, policy, clock.at_most()))
        if self.hidden and documents and isinstance(documents[0], MutableMapping):
            for field in self.hidden:
                for document in living:
                    document.pop(field, None)
        return living if isinstance(living, list) else list(living)

    def coarse(self, filter: Filter, *, exact: bool, collated: bool) -> Filter | None:
        """Return a filter that omits only certainly expired documents, if that suffices.

        None if the server has to decide, or if that is better and possible (`exact`). `collated`
        tells whether the find has a collation.
        """
        scopes = self.handle.scopes_in(filter, collated=collated)
        policy = self.handle.policy_of(scopes)
        if policy is None or not self.decides(filter):
            return None
        defaults = _defaults_of(policy, scopes)
        if not isinstance(policy, TTL) or len(defaults) != 1:
            return None if exact else filter
        (default,) = defaults
        if default is None or default == NEVER:
            return filter
        field = policy.last_modified
        before = self.handle.registry.clock.reached() - timedelta(seconds=default)
        # An array of dates isn't a date, and an array of scopes isn't a scope.
        expired: Filter = {field: {"$lte": before}, f"{field}.0": {"$exists": False}}
        if policy.by is not None:
            expired = {**expired, f"{policy.by}.0": {"$exists": False}}
        if policy.override is not None:
            expired = {policy.override: None, **expired}
        return {**filter, "$nor": [*filter.get("$nor", ()), expired]}


@dataclass(frozen=True, slots=True)
class Sent:
    """A find's filter, as the user wrote it and with the predicate.

    While the default has yet to be read (`is_open`), `exact` is a filter that matches nothing.
    """

    filter: Filter
    exact: Filter
    is_open: bool = False

    @classmethod
    def of(cls, handle: Handle, filter: object, *, expired: bool) -> Sent:
        """Return the filters of a find that will be sent later."""
        asked = handle.filter_for(filter, expired=True)
        if expired:
            return cls(asked, asked)
        if handle.unread_defaults():
            return cls(asked, filters.matching_nothing(asked), is_open=True)
        return cls(asked, filters.live_filter(asked, handle.policy))

    def on(self, clone: AsyncCursor[Document]) -> Sent:
        """Return the filters of a clone of PyMongo's cursor, which has a copy of the filter."""
        return replace(self, exact=clone._spec)

    def where(self, spec: Filter) -> Sent:
        """Return the filters after a cursor's ``where`` has made `spec` of the exact one."""
        return replace(self, filter={**self.filter, "$where": spec["$where"]}, exact=spec)

    def completed(self, handle: Handle, *, collated: bool) -> Sent:
        """Return the filters with the predicate of this moment, if they are open."""
        if not self.is_open:
            return self
        exact = handle.filter_for(self.filter, expired=False, collated=collated)
        return Sent(self.filter, exact)

    @property
    def includes_expired(self) -> bool:
        """Whether there is no predicate."""
        return self.exact == self.filter


@asynccontextmanager
async def coarsely(
    cursor: AsyncCursor[Document],
    lifetime: Judging,
    sent: Sent | None,
    keys: Keys,
    *,
    judges: bool = True,
) -> AsyncIterator[bool]:
    """Send a find with the coarse filter, if its results can be judged in Python.

    Yields whether they have to be. Without `judges` the server has to decide. The cursor is
    PyMongo's, synchronous or not, before it has sent its command. MongoDB accepts no ``$expr`` with
    a positional projection; if the server has to decide then, the `keys` are found first. (Under a
    collation, an expired document may have an equal one.)
    """
    spec, skip = cursor._spec, cursor._skip
    if sent is None or spec is not sent.exact or not isinstance(lifetime, Lifetime):
        yield False
        return
    collated = cursor._collation is not None
    sent = sent.completed(lifetime.handle, collated=collated)
    is_positional = filters.is_positional(cursor._projection)
    is_paged = cursor._limit or skip or cursor._return_key
    coarse = None
    if judges and not is_paged:
        coarse = lifetime.coarse(sent.filter, exact=not is_positional, collated=collated)
    is_judged = coarse is None
    try:
        cursor._spec = sent.exact if coarse is None else coarse
        if coarse is None and not sent.includes_expired:
            if is_positional:
                cursor._spec, cursor._skip = filters.with_keys(sent.filter, await keys()), 0
                is_judged = False
            else:
                order: Any = cursor._ordering or ()
                cursor._spec = lifetime.handle.ranged(sent.exact, order)
        yield not is_judged
    finally:
        cursor._spec, cursor._skip = spec, skip


def asked_by(cursor: AsyncCursor[Document], sent: Sent | None) -> Document:
    """Return a find's options as arguments of a collection's ``distinct``.

    The driver's own method would lose ``include_expired``, and Motor's would send the predicate
    with $$NOW, which ``distinct`` doesn't support. The cursor is PyMongo's, synchronous or not.
    """
    options = {"maxTimeMS": cursor._max_time_ms, "collation": cursor._collation}
    asked = {name: value for name, value in options.items() if value is not None}
    if cursor._comment:
        asked["comment"] = cursor._comment
    expired = sent is not None and sent.includes_expired
    own = sent.filter if sent is not None and cursor._spec is sent.exact else cursor._spec
    return {"filter": own, "session": cursor._session, "include_expired": expired, **asked}


def ask_alike(clone: AsyncCursor[Document], cursor: AsyncCursor[Document]) -> None:
    """Make a clone of a cursor send the same command."""
    own = vars(cursor).get("_query_class")
    if own is not None:
        clone._query_class = own


# The drivers' classes for cursors have no common base in all releases.
_AnyCursor: Any = object


class JudgingCursor(_AnyCursor):  # type: ignore[misc]
    """The common part of both drivers' cursors, which omits expired documents.

    It comes before the driver's class in the MRO. `_read` runs the driver's methods that may send a
    command.
    """

    _lifetime: Judging | None = None
    _sent: Sent | None = None
    _batches = 0
    _is_coarse = False
    _explain = False  # PyMongo's own; the server then answers with its plan

    async def next(self) -> Document:
        """Return the next live document."""
        while True:
            document: Document = await self._read(super().next)
            if self._lifetime is None or self._explain:
                return document
            if not self._lifetime.is_over(document):
                return self._lifetime.strip(document)

    async def __anext__(self) -> Document:
        return await self.next()

    async def _listed(self, length: int | None) -> list[Document]:
        """Return live documents, as the drivers' `to_list` would."""
        lifetime = self._lifetime
        living: list[Document] = []
        while True:
            rest = None if length is None else length - len(living)
            batches = self._batches
            documents: list[Document] = await self._read(super().to_list, rest)
            if lifetime is None:
                return documents
            is_judged = batches == 0 and self._batches == 1 and not self._is_coarse
            living += lifetime.listed(documents, is_judged=is_judged)
            if length is None or len(living) >= length or not documents:
                return living

    def _read(self, method: Method[Result], *args: object) -> Awaitable[Result]:
        return method(*args)


def _is_simple(policy: Policy) -> TypeGuard[TTL]:
    """Return whether one comparison can judge most documents."""
    return (
        isinstance(policy, TTL)
        and (policy.by is None or "." not in policy.by)
        and len(policy.kinds) <= filters.FEW_VALUES
        and all(type(kind) in filters.PLAIN_VALUES for kind, _ in policy.kinds)  # no enumerations
        and policy.unit is None
        and policy.max_lifetime is None
        and "." not in policy.last_modified
    )


def _defaults_of(policy: Policy, scopes: Sequence[object] | None) -> set[int | None]:
    """Return the defaults of documents in these scopes; none if a comparison can't judge them."""
    if not _is_simple(policy):
        return set()
    if policy.by is None:
        return {policy.default}
    return set() if scopes is None else {policy.default_of(scope) for scope in scopes}


def _inheriting_first(documents: Sequence[Row], policy: Policy, now: datetime) -> Iterator[Row]:
    """Yield the live documents; it is fast for those that inherit the default."""
    if not _is_simple(policy):
        for document in documents:
            end = end_of(document, policy)
            if end is None or not is_expired(end, now):
                yield document
        return
    last_modified, override, by = policy.last_modified, policy.override, policy.by or ""
    # A document whose date is not after the oldest has expired.
    oldest_of_others = _oldest(policy.default, now)
    oldest_by_kind = {kind: _oldest(default, now) for kind, default in policy.defaults.items()}
    for document in documents:
        born, kind = document.get(last_modified), document.get(by) if oldest_by_kind else None
        inherits = override is None or document.get(override) is None
        if type(born) is datetime and inherits and type(kind) in filters.PLAIN_OR_NONE:
            oldest = oldest_by_kind.get(kind, oldest_of_others)
            if oldest is None or born > oldest[born.tzinfo is None]:
                yield document
            continue
        end = end_of(document, policy)
        if end is None or end > now:
            yield document


def _oldest(default: int | None, now: datetime) -> tuple[datetime, datetime] | None:
    """Return the instant that a default ttl reaches back to, aware and naive; None for never."""
    if default is None or default == NEVER:
        return None
    aware = now - timedelta(seconds=default)
    return aware, aware.replace(tzinfo=None)


def for_find(
    handle: Handle, projection: Projection | None, *, expired: bool = False
) -> tuple[Lifetime, Projection | None]:
    """Return how the results of a find are judged, and the projection to send."""
    policy = handle.outline
    if policy is None:
        return Lifetime(handle, (), ()), projection
    ours = (EXPIRY,) if isinstance(policy, TTL) else ()
    fields = () if expired or never_expires(policy) else deciding_fields(policy)
    if not projection:
        return Lifetime(handle, fields, ours), projection
    asked = projection if isinstance(projection, Mapping) else dict.fromkeys(projection, 1)
    # Runs for each find. Beanie's projections are ints, and isinstance() of an ABC is slow.
    others = (value for value in asked.values() if type(value) is not int)
    computes = any(isinstance(value, Mapping) for value in others)
    if fields and all(asked.get(field) == 1 for field in fields):  # as in Beanie's own
        return Lifetime(handle, fields, (), computes), projection
    named = {str(name): value for name, value in asked.items()}  # names may be fields of Beanie's
    if is_inclusive(named):
        missing = tuple(field for field in fields if not mentions(named, field))
        if not all(field in missing or named.get(field) in (1, True) for field in fields):
            return Lifetime(handle, (), ()), projection
        shown = {**named, **dict.fromkeys(missing, 1)}
        return Lifetime(handle, fields, missing, computes), shown
    excluded = tuple(field for field in fields if mentions(named, field))
    if all(field in named for field in excluded):
        projection = {name: value for name, value in named.items() if name not in excluded} or None
    else:
        fields, excluded = (), ()
    return Lifetime(handle, fields, (*excluded, *ours), computes), projection


def for_pipeline(handle: Handle, pipeline: object, *, expired: bool = False) -> Lifetime:
    """Return how the results of a pipeline are judged."""
    policy = handle.outline
    if policy is None or not isinstance(pipeline, Sequence):
        return Lifetime(handle, (), ())
    if expired:  # the pipeline is sent unchanged
        is_whole = isinstance(policy, TTL) and all(keeps(stage, (EXPIRY,)) for stage in pipeline)
        return Lifetime(handle, (), (EXPIRY,) if is_whole else ())
    if never_expires(policy):
        return Lifetime(handle, (), ())
    fields = deciding_fields(policy)
    is_whole = all(keeps(stage, fields) for stage in pipeline)
    return Lifetime(handle, fields if is_whole else (), ())
