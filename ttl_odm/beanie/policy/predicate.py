"""The one predicate of the MongoDB adapter: which documents are expired.

For the server, pure functions turn a policy into an aggregation expression for ``$expr``, which
reads, writes and purges all use. For a document in memory, `end_of` decides. Both agree with
`ttl_odm.core.expiry` for every value that a document may hold. Nothing here knows Beanie, PyMongo
or Motor, nor how filters are composed.

Two traps shape the expressions:

- An expression that fails on one odd document fails the whole query. So arithmetic stands only
  behind a ``$switch`` branch that has checked the type, and the seconds are subtracted from ``now``
  instead of being added to the stored date: a date near the end of int64 milliseconds would
  overflow a sum, while ``now`` never does.
- Comparisons in aggregation order values of different types instead of rejecting them (a missing
  field is less than any date). So types are checked by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, TypeAlias

from bson import DBRef, Decimal128

from ttl_odm.beanie.drivers import Document
from ttl_odm.beanie.time import formats
from ttl_odm.core.expiry import expires_at
from ttl_odm.core.policy import TTL, ExpireAfter
from ttl_odm.core.values import MAX_TTL, NEVER
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ttl_odm.beanie.drivers import Filter
    from ttl_odm.beanie.time.formats import Instant
    from ttl_odm.core.lifetime import OnlyIf
    from ttl_odm.core.policy import ExpireAt, Policy

Expression: TypeAlias = Document

_NUMBERS = ["int", "long", "double"]  # not "decimal", which is never a ttl
_FEW_KINDS = 16
_NULLS = ["null", "missing", "undefined"]
_LAST = datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=timezone.utc)
_FAR = datetime(9900, 1, 1, tzinfo=timezone.utc)
_FIRST = datetime(1, 1, 1, tzinfo=timezone.utc)
_ISO = (
    r"^(?!0000)\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])[T ]"
    r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.(\d{1,9}))?(?:Z|\+00:00)?\z"
)
"""The strings that `ttl_odm.core.instant_of` accepts as instants; the group is the fraction."""


def live_expr(policy: Policy, now: Instant | None = None) -> Expression:
    """Return the expression that is true for live documents, the opposite of `expired_expr`."""
    return {"$not": [expired_expr(policy, now)]}


def expired_expr(policy: Policy, now: Instant | None = None) -> Expression:
    """Return the expression that is true for expired documents, otherwise false.

    It fails on no document. `now` is the instant by which it judges, None for the server's clock.

    Raises:
        TTLConfigurationError: The policy makes no sense for BSON dates.
    """
    _check_bson_dates(policy)
    now = formats.server_now() if now is None else now
    if isinstance(policy, TTL):
        return _ttl_expired(policy, now)
    if isinstance(policy, ExpireAfter):
        return _date_expired(policy, now, seconds=policy.seconds, null=False)
    return _date_expired(policy, now, seconds=0, null=policy.null == "expired")


def range_of_live(policy: Policy, now: datetime) -> Document | None:
    """Return a plain condition on one field that every live document meets, None if there is none.

    Unlike an expression, it can use a range of an index. `now` is an instant that the server has
    reached. A `TTL` has no such condition: a document with an old ``_ts`` may be live by its own
    ttl, or because ``_ts`` is an array. For `ExpireAfter` and `ExpireAt` the earliest date decides,
    and values that aren't dates meet the condition.
    """
    if isinstance(policy, TTL) or policy.unit is not None or "." in policy.field:
        return None
    seconds = policy.seconds if isinstance(policy, ExpireAfter) else 0
    try:
        return {policy.field: {"$not": {"$lte": now - timedelta(seconds=seconds)}}}
    except OverflowError:
        return None


def holds_instant(policy: Policy, value: str) -> Expression:
    """Return the expression that is true if a path holds an instant in the policy's unit."""
    return _reached_or_false(policy, value, _before(_LAST, 0))


def modified_within(policy: TTL, milliseconds: int) -> Expression:
    """Return the expression that is true for documents written within the last milliseconds."""
    field = _path(policy.last_modified)
    passed = _reached_or_false(policy, field, _before(formats.server_now(), milliseconds))
    return {"$and": [holds_instant(policy, field), {"$not": [passed]}]}


def change_is(only_if: OnlyIf, policy: Policy, end: Instant | None = None) -> Expression:
    """Return the expression that is true if a change of the lifetime meets the condition.

    It means the same as `ttl_odm.core.lifetime.grants`, and is race-free in the filter of the
    change. `end` is the document's new end, apart from the policy's limit. It is None for a touch,
    which requires a `TTL`: a touch keeps the ttl, so the end moves with the last modification.
    """
    has_end = expired_expr(policy, _LAST)  # every document that ever expires has expired by then
    # An end that has reached the policy's limit stays there.
    limited = policy if isinstance(policy, TTL) else None
    limit = None if limited is None else limited.limit
    moves = has_end
    if limited is not None and limit is not None:
        moves = _ends_before(limited, limit)
    if end is None and limited is not None:
        field = _path(limited.last_modified)
        is_past = _reached_or_false(policy, field, _before(formats.server_now(), 0))
        longer, shorter = {"$and": [moves, is_past]}, {"$and": [moves, {"$not": [is_past]}]}
    else:
        longer = {"$and": [moves, expired_expr(policy, {"$subtract": [end, 1]})]}
        shorter = {"$not": [expired_expr(policy, end)]}
    no_ttl = {"$not": [has_end]}
    return {"longer": longer, "shorter": shorter, "has_ttl": has_end, "no_ttl": no_ttl}[only_if]


def _ends_before(policy: TTL, limit: ExpireAfter) -> Expression:
    """Return the expression that is true if a document ends before the limit."""
    field = _path(limit.field)
    dates = {
        "$filter": {
            "input": {"$cond": [{"$isArray": [field]}, field, [field]]},
            "cond": {"$eq": [{"$type": "$$this"}, "date"]},
        }
    }
    # Null if there is no date. The sum of a far date would overflow.
    has_limit = {"$and": [{"$ne": ["$$first", None]}, {"$lt": ["$$first", _FAR]}]}
    before = {"$add": [{"$max": ["$$first", _FIRST]}, limit.seconds * 1000 - 1]}
    return {
        "$let": {
            "vars": {"first": {"$min": dates}},
            "in": {
                "$let": {
                    "vars": {"before": {"$cond": [has_limit, before, _LAST]}},
                    "in": _ttl_expired(policy.unlimited, "$$before"),
                }
            },
        }
    }


def _ttl_expired(policy: TTL, now: Instant) -> Expression:
    if policy.by is None or not policy.kinds:
        return _expired_with(policy, policy.default, now)
    if len(policy.kinds) > _FEW_KINDS:
        return _expired_by_many_kinds(policy, policy.by, now)
    by, last_modified = _path(policy.by), _path(policy.last_modified)
    kinds: dict[int | None, list[object]] = {}
    for kind, default in policy.defaults.items():
        kinds.setdefault(default, []).append(kind)

    def by_kind(of: Callable[[Any], Expression]) -> Expression:
        branches = [_branch(_is_in(by, same), then=of(default)) for default, same in kinds.items()]
        return {"$switch": {"branches": branches, "default": of(policy.default)}}

    if {None, NEVER}.isdisjoint({*kinds, policy.default}):
        # Only for documents that inherit is the kind looked up; the server parses the rest once.
        limit = by_kind(lambda default: _before(now, default * 1000))
        return _expired_or(policy, _reached(policy, last_modified, limit), now)
    return by_kind(lambda default: _expired_with(policy, default, now))


def _is_in(field: str, kinds: list[object]) -> Expression:
    """Return the expression that is true if a path holds one of these kinds."""
    values = [{"$literal": kind} for kind in kinds]
    equals = {"$eq": [field, *values]} if len(values) == 1 else {"$in": [field, values]}
    texts = [kind for kind in kinds if isinstance(kind, str)]
    if not texts:
        return equals
    same = {"$map": {"input": {"$literal": texts}, "as": "text", "in": _is_same(field, "$$text")}}
    return {"$and": [equals, {"$or": [_is_no_text(field), {"$anyElementTrue": [same]}]}]}


def _is_same(text: object, other: object) -> Expression:
    """Return the expression that is true if two strings have the same bytes.

    Under a collation, of the operation or of the collection, strings are equal that differ.
    """
    lengths = {"$eq": [{"$strLenBytes": text}, {"$strLenBytes": other}]}
    return {"$and": [lengths, {"$eq": [{"$indexOfBytes": [text, other]}, 0]}]}


def _is_no_text(value: object) -> Expression:
    return {"$ne": [{"$type": value}, "string"]}


def _expired_by_many_kinds(policy: TTL, by: str, now: Instant) -> Expression:
    """Return `_ttl_expired` in a form for which the server finds a kind by its hash."""
    defaults, last_modified = policy.defaults, _path(policy.last_modified)
    # Number -1 is the last element, the default of all other kinds.
    every = {"$literal": [*defaults.values(), policy.default]}
    default = {"$arrayElemAt": [every, kind_number(policy, by)]}
    milliseconds = {"$multiply": [{"$toLong": "$$default"}, 1000]}
    reached = _reached(policy, last_modified, _before(now, milliseconds))
    inherited = {"$and": [{"$ne": ["$$default", NEVER]}, reached]}
    expired = {"$and": [{"$ne": ["$$default", None]}, _expired_or(policy, inherited, now)]}
    return {"$let": {"vars": {"default": default}, "in": expired}}


def kind_number(policy: TTL, by: str) -> Expression:
    """Return the expression for the number of a document's kind in `TTL.kinds`, -1 for none."""
    field, kinds = _path(by), {"$literal": [kind for kind, _ in policy.kinds]}
    number: Expression = {"$indexOfArray": [kinds, field]}  # the server finds it by its hash
    if not any(isinstance(kind, str) for kind, _ in policy.kinds):
        return number
    same = _is_same(field, {"$arrayElemAt": ["$$kinds", "$$number"]})
    is_right = {"$or": [{"$eq": ["$$number", -1]}, _is_no_text(field), same]}
    # Under a collation the first equal kind may be another one.
    is_this = {"$and": [{"$not": [_is_no_text("$$kind")]}, _is_same(field, "$$kind")]}
    each = {"$map": {"input": "$$kinds", "as": "kind", "in": is_this}}
    exact = {"$cond": [is_right, "$$number", {"$indexOfArray": [each, True]}]}
    return {"$let": {"vars": {"kinds": kinds, "number": number}, "in": exact}}


def _expired_with(policy: TTL, default: int | None, now: Instant) -> Expression:
    if default is None:
        return {"$literal": False}
    last_modified = _path(policy.last_modified)
    limit = _before(now, default * 1000)
    inherited = False if default == NEVER else _reached(policy, last_modified, limit)
    return _expired_or(policy, inherited, now)


def _expired_or(policy: TTL, inherited: bool | Expression, now: Instant) -> Expression:  # noqa: FBT001 (an expression, too)
    """Return the expression for a document's own ttl; `inherited` applies if it has none."""
    last_modified = _path(policy.last_modified)
    branches = []
    if policy.unit is None:
        branches = [_branch({"$ne": [{"$type": last_modified}, "date"]}, then=False)]
    if policy.override is not None:
        own = _path(policy.override)
        own_limit = _before(now, {"$multiply": [{"$toLong": own}, 1000]})
        is_whole = {"$eq": [own, {"$trunc": [own]}]}
        # NaN sorts below all numbers, so the first comparison keeps it out.
        is_valid = {"$and": [{"$gte": [own, 1]}, {"$lte": [own, MAX_TTL]}, is_whole]}
        branches += [
            _branch({"$not": [{"$in": [{"$type": own}, _NUMBERS]}]}, then=inherited),
            _branch({"$in": [own, [NEVER, *policy.never]]}, then=False),
            _branch(is_valid, then=_reached(policy, last_modified, own_limit)),
        ]
    if branches:
        usual: Expression = {"$switch": {"branches": branches, "default": inherited}}
    else:
        usual = inherited if isinstance(inherited, dict) else {"$literal": False}
    return usual if policy.limit is None else {"$or": [expired_expr(policy.limit, now), usual]}


def _date_expired(
    policy: ExpireAfter | ExpireAt, now: Instant, *, seconds: int, null: bool
) -> Expression:
    field, limit = _path(policy.field), _before(now, seconds * 1000)
    # The earliest date has passed when any has. ($min would be null for an array without dates,
    # and null is less than every date.)
    a_date_passed = _reached_or_false(policy, "$$this", limit)
    branches = [
        _branch({"$eq": [{"$type": field}, "date"]}, then=_passed(field, limit)),
        _branch(
            {"$isArray": [field]},
            then={"$anyElementTrue": [{"$map": {"input": field, "in": a_date_passed}}]},
        ),
        _branch({"$in": [{"$type": field}, _NULLS]}, then=null),
    ]
    otherwise = False if policy.unit is None else _reached(policy, field, limit)
    return {"$switch": {"branches": branches, "default": otherwise}}


def _reached_or_false(policy: Policy, value: str, limit: Expression) -> Expression:
    """Return what `_reached` does, but for a value of any type."""
    if policy.unit is not None:
        return _reached(policy, value, limit)
    return {"$and": [{"$eq": [{"$type": value}, "date"]}, _passed(value, limit)]}


def _reached(policy: Policy, value: str, limit: Expression) -> Expression:
    """Return the expression that is true if a value is an instant at or before the limit.

    If the policy has no unit, the value must be a date.
    """
    if policy.unit is None:
        return _passed(value, limit)
    is_date = {"$eq": [{"$type": value}, "date"]}
    if policy.unit == "iso":
        is_reached = _iso_reached(value, limit)
    else:
        in_milliseconds = {"$toLong": limit}
        in_unit = {
            "s": {"$divide": [in_milliseconds, 1000]},
            "ms": in_milliseconds,
            "us": {"$multiply": [in_milliseconds, 1000]},
        }
        passed = {
            "$and": [
                {"$gte": [value, -(2**63)]},  # NaN sorts below all numbers
                {"$lte": [value, in_unit[policy.unit]]},
            ]
        }
        is_reached = {"$cond": [{"$in": [{"$type": value}, _NUMBERS]}, passed, False]}
    return {"$cond": [is_date, {"$lte": [value, limit]}, is_reached]}


def _iso_reached(value: str, limit: Expression) -> Expression:
    day = {"$substrBytes": [value, 0, 10]}
    time = {"$substrBytes": [value, 11, 8]}
    whole = {"$dateFromString": {"dateString": {"$concat": [day, "T", time, "Z"]}, "onError": None}}
    fraction = {"$ifNull": [{"$arrayElemAt": ["$$iso.captures", 0]}, ""]}
    nanoseconds = {"$toInt": {"$substrBytes": [{"$concat": [fraction, "0" * 9]}, 0, 9]}}
    milliseconds = {"$ceil": {"$divide": [nanoseconds, 1_000_000]}}
    is_reached = {
        "$and": [
            # Some releases accept 31 February.
            {"$eq": [{"$dateToString": {"date": "$$whole", "format": "%Y-%m-%d"}}, day]},
            {"$lte": [{"$add": ["$$whole", milliseconds]}, limit]},
        ]
    }
    judged = {"$let": {"vars": {"whole": whole}, "in": is_reached}}
    match = {"$regexFind": {"input": value, "regex": _ISO}}
    is_iso = {"$let": {"vars": {"iso": match}, "in": {"$cond": ["$$iso", judged, False]}}}
    return {"$cond": [{"$eq": [{"$type": value}, "string"]}, is_iso, False]}


def _passed(date: str, limit: Expression) -> Expression:
    return {"$lte": [date, limit]}


def _before(now: Instant, milliseconds: int | Expression) -> Expression:
    return {"$subtract": [now, milliseconds]}


def _branch(case: Expression, *, then: bool | Expression) -> Expression:
    return {"case": case, "then": then}


def _path(field: str) -> str:
    if field.startswith("$"):
        raise TTLConfigurationError(
            f"{field!r} can't be a TTL field on MongoDB, where '$' starts a variable: name "
            "another field."
        )
    return f"${field}"


def _check_bson_dates(policy: Policy) -> None:
    fix = None
    if isinstance(policy, TTL):
        if policy.by is not None:
            _path(policy.by)
        for kind, _ in policy.kinds:
            if isinstance(kind, bool):
                fix = f"{kind!r} is not a kind on MongoDB: give strings or ints."
        if fix is None and policy.limit is not None and policy.unit is not None:
            fix = (
                "with max_lifetime, both fields hold dates on MongoDB: leave unit out, or "
                "max_lifetime and created."
            )
    if fix is not None:
        raise TTLConfigurationError(f"{policy!r}: {fix}")
    if policy.timezone != "UTC":
        raise TTLConfigurationError(
            f"{type(policy).__name__}.timezone = {policy.timezone!r} has no meaning on MongoDB, "
            "where dates are instants in UTC: leave it out."
        )


def shortest_default(policy: TTL) -> int | None:
    """Return the shortest default ttl of any kind of documents, in seconds.

    -1 if documents expire by ttls of their own only, None if none does.
    """
    if policy.by is None:
        return policy.default
    every = (policy.default, *policy.defaults.values())
    defaults = [default for default in every if default is not None]
    limits = (default for default in defaults if default != NEVER)
    return min(limits, default=NEVER) if defaults else None


def never_expires(policy: Policy) -> bool:
    """Return whether TTL is off."""
    return isinstance(policy, TTL) and shortest_default(policy) is None


def deciding_fields(policy: Policy) -> tuple[str, ...]:
    """Return the fields that decide when a document expires."""
    if not isinstance(policy, TTL):
        return (policy.field,)
    fields = (policy.last_modified, policy.override, policy.by, policy.created)
    return tuple(field for field in fields if field is not None)


def end_of(document: object, policy: Policy) -> datetime | None:
    """Return the instant at which a document from the driver expires, None for never."""
    if not isinstance(document, Mapping):
        return None
    if not isinstance(policy, TTL):
        return expires_at(policy, instant=value_at(document, policy.field))
    own = None if policy.override is None else value_at(document, policy.override)
    return expires_at(
        policy,
        instant=value_at(document, policy.last_modified),
        own=own,
        kind=kind_of(document, policy),
        created=None if policy.created is None else value_at(document, policy.created),
    )


def kind_of(document: Filter, policy: TTL) -> object:
    """Return the kind of a document as a value that Python compares as MongoDB does."""
    kind = None if policy.by is None else value_at(document, policy.by)
    if isinstance(kind, Decimal128):
        number = kind.to_decimal()
        return None if number.is_nan() else number  # a signaling NaN can't be compared
    return None if isinstance(kind, bool) else kind  # true is not 1


def has(document: Filter, path: str) -> bool:
    """Return whether a document, or a known part of one, has a path or at least its first field."""
    return path in document or path.partition(".")[0] in document


def value_at(document: Filter, path: str) -> object:
    """Return the value at a dotted path, a list if it leads through an array, None for none."""
    if path in document:
        return document[path]
    name, _, rest = path.partition(".")
    value = document.get(name)
    if not rest:
        return value
    if isinstance(value, list):
        parts = map(_as_mapping, value)
        return [value_at(part, rest) for part in parts if part is not None]
    inner = _as_mapping(value)
    return None if inner is None else value_at(inner, rest)


def _as_mapping(value: object) -> Filter | None:
    """Return a value that has fields, as a reference has ``$id``; None for any other value."""
    if isinstance(value, DBRef):
        fields: Document = value.as_doc()
        return fields
    return value if isinstance(value, Mapping) else None
