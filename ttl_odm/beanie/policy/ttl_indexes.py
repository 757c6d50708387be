"""The indexes by which MongoDB itself deletes expired documents, as plain values.

This module also has the expression of ``_exp``, a derived field of documents with a valid ttl of
their own. Its functions are pure; nothing here talks to a server.

A TTL index has one number of seconds for all its documents. So there are two of them: one on the
last modification, for the documents that inherit the default, and one on ``_exp``, for those with
their own ttl. A limit to all lifetimes (`TTL.max_lifetime`) needs a third index, on the date of
creation. A change of the default changes the number of the first index, and no document.

If values of a field have their own defaults (`Scoping`), that field leads the first index, so that
a sweep reads the documents of each value up to their own end. A collection may still have the
index that begins with the date (`Index.least`); a sweep then reads by the shortest default.

Three rules shape the partial filters:

- MongoDB must never delete a live document, so an index contains a document only if the filter is
  certain about it. A document that a filter can't judge (with 20.5, which is not a ttl) stays out
  and waits for the sweeper. The exception is an array of dates, which no filter can exclude.
- No query implies one of the filters by chance. Without a filter, queries without an index of
  their own would choose the index on the last modification, which is slower than a scan; and it
  would collide with an index of the application's on the same field.
- Each of `inheriting_branches` and `own_branches` implies the filter by itself. To MongoDB 6.0, a
  query that repeats the whole ``$or`` doesn't imply it, and reads the whole index.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Literal, TypeAlias

from bson import Decimal128

from ttl_odm.beanie.drivers import Document
from ttl_odm.beanie.policy.predicate import (
    deciding_fields,
    expired_expr,
    shortest_default,
)
from ttl_odm.beanie.policy.sources import outline, scope_of
from ttl_odm.core.policy import TTL, ExpireAfter, ExpireAt, Policy, default_extension
from ttl_odm.core.values import MAX_TTL, NEVER
from ttl_odm.errors import TTLConfigurationError

Expression: TypeAlias = str | Document
Purge = Literal["native", "sweeper"]

EXPIRY = "_exp"
"""The field with the instant at which a document with a valid ttl of its own expires."""

NUMBERS = ("int", "long", "double")
"""The BSON types of a ttl that may be valid."""

_OTHER_TYPES = [
    *("string", "object", "array", "binData", "undefined", "objectId", "bool", "date", "null"),
    *("regex", "dbPointer", "javascript", "symbol", "javascriptWithScope", "timestamp", "decimal"),
    *("minKey", "maxKey"),
]
# To MongoDB it equals a double's NaN, and in Python it equals itself.
_NAN = Decimal128("NaN")
_PREFIX = "__ttl_"
_EVERY_DOCUMENT: Document = {"__ttl": None}  # a field that no document has and no query names

# A default of -1 becomes the longest ttl that an index can have, 68 years, so that a change costs
# one collMod. Documents from before this instant stay out of the index; otherwise MongoDB would
# delete documents with a date such as year 1 in an adopted field under the default "never". This
# works until 2068.
_OLDEST = datetime(2000, 1, 1, tzinfo=timezone.utc)

# Later ends are not stored: Python can't read dates after the year 9999.
_LATEST = datetime(9900, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True, slots=True)
class Index:
    """An ascending index of ours, whose name begins with ``__ttl_``.

    Attributes:
        name: Its name.
        field: Its field.
        filter: The filter of a partial index, None for no filter.
        seconds: Its expireAfterSeconds; None if it deletes nothing.
        scope: A field before `field`, whose values have their own defaults.
        more: Fields after `field`; only the index of a rule has any.
        sparse: Whether it is sparse, as the index of a rule.
    """

    name: str
    field: str
    filter: Document | None
    seconds: int | None
    scope: str | None = None
    more: tuple[str, ...] = ()
    sparse: bool = False

    @property
    def key(self) -> dict[str, int]:
        """The key pattern."""
        first = () if self.scope is None else (self.scope,)
        return dict.fromkeys((*first, self.field, *self.more), 1)

    @property
    def least(self) -> Index:
        """The index without the scope, which a sweep can use too, by the shortest default."""
        return replace(self, scope=None)

    @property
    def is_on_every_document(self) -> bool:
        """Whether a document with a date in the field cannot be missing from it."""
        return self.filter is None or self.filter == _EVERY_DOCUMENT

    def is_served_by(self, existing: Document) -> bool:
        """Return whether an index of the application's, from listIndexes, can replace this one.

        TTL indexes are compared with the policy instead.
        """
        del existing
        return False

    def document(self) -> Document:
        """Return the index as createIndexes accepts it, and as listIndexes returns it."""
        index: Document = {"name": self.name, "key": self.key}
        if self.filter is not None:
            index["partialFilterExpression"] = self.filter
        if self.seconds is not None:
            index["expireAfterSeconds"] = self.seconds
        if self.sparse:
            index["sparse"] = True
        return index


def is_ours(name: str) -> bool:
    """Return whether ttl_odm manages the index with this name."""
    return name.startswith(_PREFIX)


def has_key(existing: Document, index: Index) -> bool:
    """Return whether an index from listIndexes has the same fields in the same order."""
    return [*existing["key"].items()] == [*index.key.items()]


def mongodb_indexes(policy: Policy, purge: Purge, scope: str | None = None) -> tuple[Index, ...]:
    """Return the indexes that a collection with this policy needs on MongoDB.

    `scope` is the field whose values may have their own defaults, None for none. For "sweeper" the
    indexes are the same as for "native", but without expireAfterSeconds: a sweeper finds expired
    documents by them.
    """
    check(policy)
    if policy.unit is not None:  # the sweeper walks the collection
        return ()
    if isinstance(policy, TTL):
        default = shortest_default(policy)
        if default is None:
            return ()
        matches = _any_of(inheriting_branches(policy))
        if purge == "native":
            matches = {policy.last_modified: {"$gte": _OLDEST}, **matches}
        seconds = MAX_TTL if default == NEVER else default
        first = _index("default", policy.last_modified, matches, seconds, purge)
        indexes = [replace(first, scope=scope)]
        if policy.override is not None:
            indexes.append(_index("own", EXPIRY, _any_of(own_branches(policy)), 0, purge))
        if policy.limit is not None:
            indexes.append(_index_of_dates("created", policy.limit, purge))
        return tuple(indexes)
    return (_index_of_dates("date", policy, purge),)


def documentdb_indexes(policy: Policy, purge: Purge) -> tuple[Index, ...]:
    """Return the indexes that a collection with this policy needs on documentdb.

    There a partial filter has either one condition per field, or conditions on one field only, and
    no nested conditions. So its index of inheriting documents contains only documents without any
    ttl. A sweeper walks the collection, since the server doesn't support ranges of indexes.
    """
    indexes = mongodb_indexes(policy, "native")
    if purge == "sweeper":
        return ()
    if not isinstance(policy, TTL):
        return indexes
    if len(own_branches(policy)) > 1:
        raise TTLConfigurationError(
            f"TTL(never={policy.never!r}): documentdb has no index that leaves out single "
            "numbers, so it can't delete these documents itself: declare __ttl_purge__ = "
            "'sweeper'."
        )
    simple = {policy.last_modified: {"$gte": _OLDEST}, **inheriting_branches(policy)[0]}
    return tuple(
        replace(index, filter=simple) if index.field == policy.last_modified else index
        for index in indexes
    )


def azure_indexes(policy: Policy, purge: Purge) -> tuple[Index, ...]:
    """Return the indexes that a collection with this policy needs on Azure Cosmos DB (RU).

    There the service expires documents itself: it maintains ``_ts`` (no write of ours may set it),
    reads a root-level ``ttl``, and supports a single TTL index, on ``_ts``. It has no partial
    indexes and no collMod, so for another default that index is dropped and created again. The
    service itself hides documents from their expiry on.
    """
    check(policy)
    if not isinstance(policy, TTL):
        raise TTLConfigurationError(
            f"{policy!r}: Azure Cosmos DB expires documents only by its own '_ts' and their "
            "'ttl': declare a number of seconds."
        )
    problem = None
    if purge == "sweeper":
        problem = (
            "On Azure Cosmos DB documents with a TTL expire by the service's own '_ts', which a "
            "sweeper cannot see: declare __ttl_purge__ = 'native'."
        )
    elif (policy.last_modified, policy.override) != ("_ts", "ttl"):
        problem = (
            f"TTL(last_modified={policy.last_modified!r}, override={policy.override!r}): Azure "
            "Cosmos DB always counts from '_ts' and always applies a root-level 'ttl': leave both "
            "out of the declaration."
        )
    elif policy.by is not None or policy.unit is not None or policy.limit is not None:
        problem = f"{policy!r}: Azure Cosmos DB has one default, and counts from its own '_ts'."
    elif policy.never:
        problem = (
            f"TTL(never={policy.never!r}): on Azure Cosmos DB only -1 means never: leave it out."
        )
    if problem is not None:
        raise TTLConfigurationError(problem)
    return () if policy.default is None else (Index("__ttl_default", "_ts", None, policy.default),)


def check(policy: Policy) -> None:
    """Reject a policy that no index can implement."""
    policy = outline(policy)
    expired_expr(policy)  # a policy that reads can't evaluate must not delete
    if isinstance(policy, TTL) and EXPIRY in (
        policy.last_modified,
        policy.override,
        policy.created,
    ):
        raise TTLConfigurationError(
            f"{policy!r}: ttl_odm itself uses the field {EXPIRY!r}: name another one."
        )
    for field in date_fields(policy):
        if field == "_id":
            raise TTLConfigurationError(
                f"{policy!r}: '_id' can't have a TTL index: name another date field."
            )
        if "$**" in field or not all(field.split(".")):
            raise TTLConfigurationError(
                f"{policy!r}: {field!r} is not the path of a single field, which a TTL index "
                "requires: name one field."
            )
    for field in deciding_fields(policy):
        # It is a position to filters and indexes, but a field's name to expressions.
        if any(part.isdecimal() for part in field.split(".")[1:]):
            raise TTLConfigurationError(
                f"{policy!r}: {field!r} may be a position in an array. MongoDB would delete by "
                "it, but reads can't evaluate it: name a field, or the whole array (its earliest "
                "date counts in ExpireAfter and ExpireAt)."
            )


def check_purge(policy: Policy, purge: Purge) -> None:
    """Reject a policy that MongoDB can't implement by itself, if MongoDB is to delete."""
    if purge == "sweeper":
        return
    reason = None
    if policy.unit is not None:
        reason = f"by dates, but this policy has unit={policy.unit!r}"
    elif isinstance(policy, TTL) and policy.by is not None:
        reason = f"after a fixed number of seconds, but here it depends on {policy.by!r}"
    elif default_extension(policy) is not None:
        if (scope := scope_of(policy)) is not None:
            reason = f"after a fixed number of seconds, but here it depends on {scope!r}"
    elif isinstance(policy, TTL) and not policy.is_fixed:
        reason = "after a fixed number of seconds, but here a function returns it"
    if reason is not None:
        raise TTLConfigurationError(
            f"{policy!r}: MongoDB itself deletes {reason}. Declare __ttl_purge__ = 'sweeper' (or "
            "purge='sweeper' in enable()), and run a sweeper."
        )


def date_fields(policy: Policy) -> tuple[str, ...]:
    """Return the fields by whose dates MongoDB deletes."""
    if not isinstance(policy, TTL):
        return (policy.field,)
    expiry = None if policy.override is None else EXPIRY
    fields = (policy.last_modified, expiry, policy.created)
    return tuple(field for field in fields if field is not None)


def left_to_sweeper(policy: Policy, *, is_simple: bool = False) -> tuple[str, ...]:
    """Return texts for the documents that expire but are in no TTL index.

    `is_simple` means that the indexes are those of `documentdb_indexes`.
    """
    if isinstance(policy, ExpireAt) and policy.null == "expired":
        return (f"documents without a value in {policy.field!r}",)
    if not isinstance(policy, TTL) or shortest_default(policy) in (None, NEVER):
        return ()
    old = f"documents whose {policy.last_modified!r} is before {_OLDEST:%Y-%m-%d}"
    if policy.override is None:
        return (old,)
    own = f"documents whose {policy.override!r} is "
    return (old, f"{own}not a valid ttl" if is_simple else f"{own}a fraction above 1")


def inheriting_branches(policy: TTL) -> list[Document]:
    """Return filters that together match the documents that inherit the default.

    They match no document that has a valid ttl of its own or never expires.
    """
    if policy.override is None:
        return [_EVERY_DOCUMENT]
    own, never = policy.override, sorted({NEVER, *policy.never})
    below = _gaps([number for number in never if number < 1], end={"$lt": 1})
    above = _gaps([number for number in never if number > MAX_TTL], start={"$gt": MAX_TTL})
    numbers = [{own: gap} for gap in (*below, *above)]
    return [{own: {"$in": [None, _NAN]}}, {own: {"$type": _OTHER_TYPES}}, *numbers]


def own_branches(policy: TTL) -> list[Document]:
    """Return filters that together match the documents with a valid ttl of their own.

    Documents with a fraction match too; they have no ``_exp``.
    """
    if policy.override is None:
        return []
    never = sorted(own for own in {*policy.never} if 1 <= own <= MAX_TTL)
    gaps = _gaps(never, start={"$gte": 1}, end={"$lte": MAX_TTL})
    return [{policy.override: {"$type": list(NUMBERS), **gap}} for gap in gaps]


def own_expiry(policy: TTL) -> Expression:
    """Return the expression for ``_exp``: a date if the ttl is valid, else ``$$REMOVE``."""
    if policy.override is None:
        return "$$REMOVE"
    own, last_modified = f"${policy.override}", f"${policy.last_modified}"
    dated = {"$eq": [{"$type": last_modified}, "date"]}
    branches = [  # in this order: $trunc and $toLong fail on values that are not numbers
        {"case": {"$not": [has_own_number(policy)]}, "then": "$$REMOVE"},
        {"case": {"$ne": [own, {"$trunc": [own]}]}, "then": "$$REMOVE"},
        {
            "case": {"$and": [dated, {"$lt": [last_modified, _LATEST]}]},
            "then": {"$add": [last_modified, {"$multiply": [{"$toLong": own}, 1000]}]},
        },
    ]
    return {"$switch": {"branches": branches, "default": "$$REMOVE"}}


def has_wrong_expiry(policy: TTL) -> Document:
    """Return the expression that is true for documents with a wrong ``_exp``."""
    return {"$ne": [f"${EXPIRY}", own_expiry(policy)]}


def has_own_number(policy: TTL) -> Expression:
    """Return the expression for the documents of `own_branches`, without arrays."""
    own = f"${policy.override}"
    return {
        "$and": [
            {"$in": [{"$type": own}, list(NUMBERS)]},
            {"$gte": [own, 1]},
            {"$lte": [own, MAX_TTL]},
            {"$not": [{"$in": [own, list(policy.never)]}]},
        ]
    }


def _index_of_dates(name: str, policy: ExpireAfter | ExpireAt, purge: Purge) -> Index:
    seconds = policy.seconds if isinstance(policy, ExpireAfter) else 0
    return _index(name, policy.field, _EVERY_DOCUMENT, seconds, purge)


def _index(name: str, field: str, matches: Document, seconds: int, purge: Purge) -> Index:
    if purge == "native":
        return Index(f"{_PREFIX}{name}", field, matches, seconds)
    # It has another name, because an index loses its expireAfterSeconds only by being rebuilt.
    return Index(f"{_PREFIX}sweep_{name}", field, matches, None)


def _any_of(branches: list[Document]) -> Document:
    return branches[0] if len(branches) == 1 else {"$or": branches}


def _gaps(
    points: list[int], *, start: Document | None = None, end: Document | None = None
) -> list[Document]:
    """Return the ranges between sorted points, without the points themselves."""
    starts = [start or {}, *({"$gt": point} for point in points)]
    ends = [*({"$lt": point} for point in points), end or {}]
    return [{**low, **high} for low, high in zip(starts, ends, strict=True)]
