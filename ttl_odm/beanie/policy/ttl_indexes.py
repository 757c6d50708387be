"""The indexes by which MongoDB itself deletes what has expired, as plain values.

And the expression of ``_exp``, the derived field that a document with a valid ttl of its own
carries. Pure functions; nothing here talks to a server.

A TTL index knows one number of seconds for all its documents. So there are two of them: one on
the last modification, over the documents that inherit the default, and one on ``_exp``, over
those with a ttl of their own. A limit to all lives (`TTL.max_lifetime`) is a third one, on the date
of creation. A changed default changes the number of the first, and no document.

Where values of a field have defaults of their own (`Scoping`), that field leads the first one: a
sweep reads the documents of each up to their own end. A collection may have the one that
begins with the date (`Index.least`), and is then read by the shortest of these defaults.

Three rules shape the partial filters:

- MongoDB must never delete what still lives, so a document stands in an index only if the filter
  is certain about it. What a filter cannot say (a ttl of 20.5, which is not a ttl) stays out and
  waits for the sweeper. One thing no filter can keep out is an array of dates in the field.
- A query implies none of the filters by chance. Without a filter, the index on the last
  modification would be picked for queries that have no index of their own, and be slower than a
  scan; and it would collide with an index of the user's on the same field.
- Each of `inheriting_branches` and `own_branches` implies the filter by itself. A query that
  repeats the whole ``$or`` does not, as MongoDB 6.0 sees it: it then walks the whole index.
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
# MongoDB takes a double's for the same, and this one is equal to itself in Python.
_NAN = Decimal128("NaN")
_PREFIX = "__ttl_"
_EVERY_DOCUMENT: Document = {"__ttl": None}  # a field that no document has and no query asks for

# A default of -1 is the longest ttl that an index can have, 68 years, so that switching costs one
# collMod. Documents from before this instant stay out of the index, for otherwise a date such as
# year 1 in an adopted field would be deleted while the default is "never". Good until 2068.
_OLDEST = datetime(2000, 1, 1, tzinfo=timezone.utc)

# What lasts longer gets no expiry: Python reads no date after the year 9999.
_LATEST = datetime(9900, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True, slots=True)
class Index:
    """An index of ours on one field, ascending; its name begins with ``__ttl_``.

    With a `filter` it is partial; without `seconds` it deletes nothing. Another field leads it
    whose values have defaults of their own: `scope`. That of a rule is sparse, and on `more`
    than one field perhaps.
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
        """Its key pattern."""
        first = () if self.scope is None else (self.scope,)
        return dict.fromkeys((*first, self.field, *self.more), 1)

    @property
    def least(self) -> Index:
        """What a sweep can do with: by the shortest default of all scopes."""
        return replace(self, scope=None)

    @property
    def is_on_every_document(self) -> bool:
        """Whether a document with a date in the field cannot be missing from it."""
        return self.filter is None or self.filter == _EVERY_DOCUMENT

    def is_served_by(self, existing: Document) -> bool:
        """Say whether an index of the application's, as listIndexes gave it, serves the same finds.

        Those that MongoDB deletes by are compared with the policy instead.
        """
        del existing
        return False

    def document(self) -> Document:
        """Return it as createIndexes takes it, and as listIndexes gives it."""
        made: Document = {"name": self.name, "key": self.key}
        if self.filter is not None:
            made["partialFilterExpression"] = self.filter
        if self.seconds is not None:
            made["expireAfterSeconds"] = self.seconds
        if self.sparse:
            made["sparse"] = True
        return made


def is_ours(name: str) -> bool:
    """Say whether an index of that name is managed by ttl_odm, and nobody else's business."""
    return name.startswith(_PREFIX)


def has_key(existing: Document, index: Index) -> bool:
    """Say whether an index that listIndexes gave has the key pattern of another, in that order."""
    return [*existing["key"].items()] == [*index.key.items()]


def wanted_indexes(policy: Policy, purge: Purge, scope: str | None = None) -> tuple[Index, ...]:
    """Return the indexes that a collection with this policy needs.

    `scope` is the field whose values may have defaults of their own, None for none.

    For "sweeper" they are of the same order as for "native", but without an expireAfterSeconds: by
    them a sweeper finds what it deletes.
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
        made = [replace(first, scope=scope)]
        if policy.override is not None:
            made.append(_index("own", EXPIRY, _any_of(own_branches(policy)), 0, purge))
        if policy.limit is not None:
            made.append(_index_of_dates("created", policy.limit, purge))
        return tuple(made)
    return (_index_of_dates("date", policy, purge),)


def documentdb_indexes(policy: Policy, purge: Purge) -> tuple[Index, ...]:
    """Return the indexes that a collection with this policy needs on documentdb.

    There a partial filter has one condition for each field, or all of them on one field; no
    condition stands inside another. So documents inherit in the index's sense only if they have no
    ttl at all. A sweeper walks the collection, as the server finds nothing by ranges of indexes.
    """
    indexes = wanted_indexes(policy, "native")
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

    There the service expires documents itself: it keeps ``_ts`` (no write of ours may set it),
    reads a root-level ``ttl``, and knows a single TTL index, on ``_ts``. It has no partial indexes
    and no collMod, so another default means dropping that index and creating it again. Documents
    are out of sight from their expiry on, by the service's own doing.
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
    """Refuse a policy that no index can follow."""
    policy = outline(policy)
    expired_expr(policy)  # what cannot be read must not be deleted
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
        # A filter and an index take it for a position, an expression for a field's name.
        if any(part.isdecimal() for part in field.split(".")[1:]):
            raise TTLConfigurationError(
                f"{policy!r}: {field!r} may be a position in an array. MongoDB would delete by "
                "it, but reads can't evaluate it: name a field, or the whole array (its earliest "
                "date counts in ExpireAfter and ExpireAt)."
            )


def check_purge(policy: Policy, purge: Purge) -> None:
    """Refuse a policy that MongoDB cannot follow by itself, if it shall."""
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
    """Return the fields whose dates decide when a document goes."""
    if not isinstance(policy, TTL):
        return (policy.field,)
    expiry = None if policy.override is None else EXPIRY
    fields = (policy.last_modified, expiry, policy.created)
    return tuple(field for field in fields if field is not None)


def left_to_sweeper(policy: Policy, *, is_simple: bool = False) -> tuple[str, ...]:
    """Say what expires and is in no TTL index, for each kind of document.

    `is_simple` where the indexes are those of `documentdb_indexes`.
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
    """Return filters that together match the documents which inherit the default.

    They match no document with a valid ttl of its own, nor one that never expires.
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

    Fractions match too; they have no ``_exp``.
    """
    if policy.override is None:
        return []
    never = sorted(own for own in {*policy.never} if 1 <= own <= MAX_TTL)
    gaps = _gaps(never, start={"$gte": 1}, end={"$lte": MAX_TTL})
    return [{policy.override: {"$type": list(NUMBERS), **gap}} for gap in gaps]


def own_expiry(policy: TTL) -> Expression:
    """Return what ``_exp`` must be: a date where the ttl is valid, else ``$$REMOVE``."""
    if policy.override is None:
        return "$$REMOVE"
    own, last_modified = f"${policy.override}", f"${policy.last_modified}"
    dated = {"$eq": [{"$type": last_modified}, "date"]}
    branches = [  # one after the other: $trunc and $toLong fail on what is not a number
        {"case": {"$not": [has_own_number(policy)]}, "then": "$$REMOVE"},
        {"case": {"$ne": [own, {"$trunc": [own]}]}, "then": "$$REMOVE"},
        {
            "case": {"$and": [dated, {"$lt": [last_modified, _LATEST]}]},
            "then": {"$add": [last_modified, {"$multiply": [{"$toLong": own}, 1000]}]},
        },
    ]
    return {"$switch": {"branches": branches, "default": "$$REMOVE"}}


def has_wrong_expiry(policy: TTL) -> Document:
    """Return the expression for documents whose ``_exp`` doesn't follow from the rest of them."""
    return {"$ne": [f"${EXPIRY}", own_expiry(policy)]}


def has_own_number(policy: TTL) -> Expression:
    """Return the expression that is true for what `own_branches` match, but for arrays."""
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
    # Another name: an index loses its expireAfterSeconds only by being built again.
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
