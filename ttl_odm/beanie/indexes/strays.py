"""Inconsistent documents that other programs left behind, found and fixed.

mongosh and programs in other languages may set ``ttl`` to anything, omit ``_ts``, or change either
without ``_exp``. The effect of each of these is defined (`Inconsistency`). This module counts such
documents, and corrects ``_exp``, which follows from the other two fields. It corrects nothing else:
what a program meant by a ttl of "20" can't be known.

Finding them reads the whole collection once, past the gate, so expired documents count too.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from ttl_odm.beanie.indexes.validator import too_early
from ttl_odm.beanie.policy.bindings import binding_of, collection_of
from ttl_odm.beanie.policy.commands import BY_KEY, first_batch, run
from ttl_odm.beanie.policy.predicate import holds_instant
from ttl_odm.beanie.policy.ttl_indexes import (
    EXPIRY,
    NUMBERS,
    check,
    has_own_number,
    has_wrong_expiry,
    own_expiry,
)
from ttl_odm.core.policy import TTL
from ttl_odm.core.values import NEVER
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from ttl_odm.beanie.drivers import Collection, Document
    from ttl_odm.beanie.policy.bindings import Binding
    from ttl_odm.beanie.policy.ttl_indexes import Expression, Purge
    from ttl_odm.core.policy import ExpireAfter, ExpireAt, Policy

_EXAMPLES = 5
_BATCH = 1000
_NOTHING = ["missing", "null", "undefined"]


class Inconsistency(Enum):
    """A kind of inconsistent document, and what happens to it."""

    UNDATED = "no date to count from: never expires"
    SEVERAL_DATES = "an array to count from: never expires, but MongoDB deletes by its first date"
    INVALID_TTL = "an invalid ttl: the default applies"
    TOO_EARLY = "MongoDB deletes it while it is still live"
    TOO_LATE = "expires, but MongoDB deletes it too late or never"
    IDLE = "an _exp without a valid ttl: harmless until a program sets a ttl"

    @property
    def is_repairable(self) -> bool:
        """Whether the right value follows from the document itself."""
        return self in (Inconsistency.TOO_EARLY, Inconsistency.TOO_LATE, Inconsistency.IDLE)


@dataclass(frozen=True, slots=True)
class Strays:
    """The documents of one kind.

    Attributes:
        kind: What is wrong with them.
        count: The number of such documents.
        examples: The ``_id`` of a few of them.
    """

    kind: Inconsistency
    count: int
    examples: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class StrayReport:
    """What was found in one collection.

    Attributes:
        collection: The name of the collection, with the database's.
        found: The kinds that occur; a document may be of several kinds.
    """

    collection: str
    found: tuple[Strays, ...]

    def __str__(self) -> str:
        if not self.found:
            return f"{self.collection}: no strays"
        lines = [f"{self.collection}:"]
        for strays in self.found:
            examples = ", ".join(map(repr, strays.examples))
            lines.append(f"  {strays.count:,}: {strays.kind.value} (such as {examples})")
        return "\n".join(lines)


async def find_strays(model: type) -> StrayReport:
    """Count the documents that other programs have left in an inconsistent state.

    Reads the whole collection, including expired documents.

    Args:
        model: A document class with a policy that `init_beanie` has seen.

    Raises:
        TTLConfigurationError: It has no policy.
    """
    binding = _enforced(model)
    return await find_in(collection_of(model), binding.outline, purge=binding.purge)


async def repair_strays(model: type) -> int:
    """Recompute ``_exp``, by which MongoDB deletes, from ``_ts`` and ``ttl``.

    It works in short batches, and may be interrupted and restarted. It changes nothing else, not
    even the last modification.

    Args:
        model: A document class with a policy that `init_beanie` has seen.

    Returns:
        The number of changed documents.

    Raises:
        TTLConfigurationError: It has no policy.
        WriteError: A validator of the collection rejected a document.
    """
    binding = _enforced(model)
    return await repair_in(collection_of(model), binding.outline)


def _enforced(model: type) -> Binding:
    binding = binding_of(model)
    if binding is None or binding.is_left_to_service:
        raise TTLConfigurationError(
            f"{model.__name__} has no policy that ttl_odm enforces, so it has no strays: declare "
            "__ttl__ on it, or enable() it."
        )
    return binding


async def find_in(
    collection: Collection, policy: Policy, *, purge: Purge = "native"
) -> StrayReport:
    """Count the strays of one collection; ``_exp`` matters only where MongoDB itself deletes."""
    check(policy)
    kinds = _kinds(policy, purge)
    counters = {kind.name: {"$sum": {"$cond": [is_one, 1, 0]}} for kind, is_one in kinds.items()}
    counting = {
        "aggregate": collection.name,
        "pipeline": [{"$group": {"_id": None, **counters}}],
        "cursor": {},
    }
    counts: dict[str, int] = dict(*await first_batch(collection, counting))
    strays = [
        Strays(kind, counts[kind.name], await examples(collection, is_one))
        for kind, is_one in kinds.items()
        if counts.get(kind.name)
    ]
    return StrayReport(collection.full_name, tuple(strays))


async def repair_in(collection: Collection, policy: Policy) -> int:
    """Set ``_exp`` to what follows from ``_ts`` and the document's own ttl, or remove it.

    Works in short batches by ``_id``, and may be interrupted and restarted. Last modifications
    stay. Returns the number of changed documents.
    """
    check(policy)
    if not isinstance(policy, TTL) or policy.override is None or policy.unit is not None:
        return 0
    wrong = has_wrong_expiry(policy)
    fix = [{"$set": {EXPIRY: own_expiry(policy)}}]
    changed = 0
    keys = await _next_keys(collection, wrong, {})
    while keys:
        update = {"q": {"_id": {"$in": keys}}, "u": fix, "multi": True, "hint": BY_KEY}
        reply = await run(collection, {"update": collection.name, "updates": [update]})
        changed += reply["nModified"]
        keys = await _next_keys(collection, wrong, {"_id": keys[-1]})
    return changed


async def _next_keys(collection: Collection, wrong: Expression, after: Document) -> list[object]:
    """Return the next keys of wrong documents, in their order, after a key of any type."""
    # Unlike {_id: {$gt: ...}}, the $gt of an expression is a bound of the index across types, and
    # unlike `min` it is in the stable API.
    later = [{"$gt": ["$_id", {"$literal": after["_id"]}]}] if after else []
    command: Document = {
        "find": collection.name,
        "filter": {"$expr": {"$and": [*later, wrong]}},
        "projection": {"_id": 1},
        "sort": {"_id": 1},
        "hint": BY_KEY,
        "limit": _BATCH,
        "batchSize": _BATCH,
        "singleBatch": True,
    }
    return [row["_id"] for row in await first_batch(collection, command)]


async def examples(collection: Collection, is_one: Expression) -> tuple[object, ...]:
    """Return the keys of a few documents for which an expression is true."""
    command = {
        "find": collection.name,
        "filter": {"$expr": is_one},
        "projection": {"_id": 1},
        "limit": _EXAMPLES,
        "singleBatch": True,
    }
    return tuple(row["_id"] for row in await first_batch(collection, command))


def _kinds(policy: Policy, purge: Purge) -> dict[Inconsistency, Expression]:
    if not isinstance(policy, TTL):
        return {Inconsistency.UNDATED: _has_no_date(policy)}
    kind = {"$type": f"${policy.last_modified}"}
    is_instant = holds_instant(policy, f"${policy.last_modified}")
    kinds: dict[Inconsistency, Expression] = {
        Inconsistency.UNDATED: {
            "$not": [{"$or": [{"$in": [kind, ["date", "array"]]}, is_instant]}]
        },
        Inconsistency.SEVERAL_DATES: {"$eq": [kind, "array"]},
    }
    if policy.override is not None:
        own = f"${policy.override}"
        is_whole = {"$eq": [own, {"$trunc": [own]}]}
        is_invalid = {"$not": [{"$and": [has_own_number(policy), is_whole]}]}
        branches = [  # in this order: $trunc fails on values that are not numbers
            {"case": {"$in": [{"$type": own}, _NOTHING]}, "then": False},
            {"case": {"$not": [{"$in": [{"$type": own}, list(NUMBERS)]}]}, "then": True},
            {"case": {"$in": [own, [NEVER, *policy.never]]}, "then": False},
        ]
        switch = {"$switch": {"branches": branches, "default": is_invalid}}
        kinds[Inconsistency.INVALID_TTL] = switch
    if policy.override is not None and purge == "native":
        early = too_early(policy)
        wrong = {"$and": [has_wrong_expiry(policy), {"$not": [early]}]}
        has_own = {"$eq": [{"$type": own_expiry(policy)}, "date"]}
        kinds[Inconsistency.TOO_EARLY] = early
        kinds[Inconsistency.TOO_LATE] = {"$and": [wrong, has_own]}
        kinds[Inconsistency.IDLE] = {"$and": [wrong, {"$not": [has_own]}]}
    return kinds


def _has_no_date(policy: ExpireAfter | ExpireAt) -> Expression:
    """Return the expression for values that aren't dates; the policy covers missing values."""
    field = f"${policy.field}"
    is_date = holds_instant(policy, "$$this")
    branches = [
        {"case": {"$in": [{"$type": field}, ["date", *_NOTHING]]}, "then": False},
        {
            "case": {"$isArray": [field]},
            "then": {"$not": [{"$anyElementTrue": [{"$map": {"input": field, "in": is_date}}]}]},
        },
        {"case": holds_instant(policy, field), "then": False},
    ]
    return {"$switch": {"branches": branches, "default": True}}
