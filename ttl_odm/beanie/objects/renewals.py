"""How `touch` of a query renews documents without loading them.

Many are renewed by ``update_many``, one by ``find_one_and_update``. The latter also returns a live
document that a condition leaves unchanged, so that the caller can distinguish it from a missing
one.

This module must not know how the gate works.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

from beanie.odm.utils.parsing import parse_obj
from beanie.odm.utils.projection import get_projection
from pymongo import ReturnDocument

from ttl_odm.beanie.objects.lifetime import (
    MILLISECOND,
    azure_error,
    is_on_azure,
    just_passed,
    own_life,
    policy_now,
)
from ttl_odm.beanie.policy.bindings import collection_of
from ttl_odm.beanie.policy.predicate import change_is, modified_within
from ttl_odm.beanie.time import formats
from ttl_odm.beanie.time.formats import stored_expr
from ttl_odm.core.lifetime import check_only_if, interval, life_seconds
from ttl_odm.core.policy import TTL, ExpireAt
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from datetime import timedelta

    from beanie import Document
    from beanie.odm.queries.find import FindMany, FindOne, FindQueryResultType

    from ttl_odm.beanie import drivers
    from ttl_odm.beanie.drivers import Session
    from ttl_odm.beanie.time.formats import Instant
    from ttl_odm.core.lifetime import OnlyIf
    from ttl_odm.core.policy import Policy


class _Renewal(NamedTuple):
    """What a touch writes: expressions by field, under conditions, by a policy."""

    policy: Policy
    fields: dict[str, object]
    conditions: list[drivers.Document]
    is_plain: bool
    """Whether the gate's own stamp and constant fields suffice."""

    @property
    def update(self) -> drivers.Document | drivers.Pipeline:
        """The update for documents that meet the conditions."""
        return {"$set": self.fields} if self.is_plain else [{"$set": self.fields}]


async def touch_many(
    query: FindMany[FindQueryResultType],
    at_most_every: float | timedelta | None,
    only_if: OnlyIf | None,
    life: float | timedelta | None,
    session: Session,
) -> int:
    """Renew the documents that a query finds; return the number of renewed documents."""
    model = query.document_model
    if query.skip_number or query.limit_number:
        raise TTLConfigurationError(
            f"{model.__name__}.find(...).touch() renews all documents that are found: leave skip "
            "and limit out."
        )
    renewal = await _renewal(model, at_most_every, only_if, life)
    query_filter = query.get_filter_query()
    if renewal.conditions:
        query_filter = {"$and": [query_filter, {"$expr": {"$and": renewal.conditions}}]}
    collection: Any = collection_of(model)  # gated, so it has more options
    result = await collection.update_many(
        query_filter,
        renewal.update,
        session=session or query.session,
        keep_last_modified=not renewal.is_plain,
        **query.pymongo_kwargs,
    )
    matched: int = result.matched_count
    return matched


async def touch_one(
    query: FindOne[FindQueryResultType],
    at_most_every: float | timedelta | None,
    only_if: OnlyIf | None,
    life: float | timedelta | None,
    session: Session,
) -> FindQueryResultType | None:
    """Renew the live document that a query finds, and return it; None if there is none."""
    model = query.document_model
    if query.fetch_links:
        raise TTLConfigurationError(
            f"{model.__name__}.find_one(...).touch() doesn't fetch links: leave fetch_links out, "
            "and call fetch_all_links() of the document."
        )
    renewal = await _renewal(model, at_most_every, only_if, life)
    update = renewal.update
    if renewal.conditions:
        update = _unless_left_alone(renewal)
    row = await collection_of(model).find_one_and_update(
        query.get_filter_query(),
        update,
        projection=get_projection(query.projection_model),
        return_document=ReturnDocument.AFTER,
        session=session or query.session,
        keep_last_modified=not renewal.is_plain or bool(renewal.conditions),
        **query.pymongo_kwargs,
    )
    if row is None:
        return None
    return cast("FindQueryResultType", parse_obj(query.projection_model, row))


def _unless_left_alone(renewal: _Renewal) -> drivers.Pipeline:
    """Return the update that changes a document only if it meets the conditions.

    MongoDB doesn't write a document that an update leaves unchanged.
    """
    policy, condition = renewal.policy, {"$and": renewal.conditions}
    fields = dict(renewal.fields)
    if not isinstance(policy, TTL):  # its field may be a path, which $mergeObjects doesn't support
        return [
            {
                "$set": {
                    path: {"$cond": [condition, new, f"${path}"]} for path, new in fields.items()
                }
            }
        ]
    if renewal.is_plain:
        fields[policy.last_modified] = stored_expr(policy, formats.server_now())
    renewed = {"$mergeObjects": ["$$ROOT", fields]}
    return [{"$replaceWith": {"$cond": [condition, renewed, "$$ROOT"]}}]


async def _renewal(
    model: type[Document],
    at_most_every: float | timedelta | None,
    only_if: OnlyIf | None,
    life: float | timedelta | None,
) -> _Renewal:
    policy, name = await policy_now(model), model.__name__
    if is_on_azure(model):
        raise azure_error(model, "touch() of a query", instead="touch the documents")
    if not isinstance(policy, TTL) and life is None:
        raise TTLConfigurationError(f"{name} documents can't be touched: {policy!r}.")
    fields: dict[str, object] = {}
    is_plain, end = True, None
    if life is not None:
        fields, end, is_plain = _with_life(policy, name, life)
    conditions = []
    if at_most_every is not None:
        if not isinstance(policy, TTL):
            raise TTLConfigurationError(
                f"{name}: at_most_every={at_most_every!r}: with {policy!r}, no field records when "
                "a document was last written; leave at_most_every out."
            )
        apart = round(interval(at_most_every) / MILLISECOND)
        conditions.append({"$not": [modified_within(policy, apart)]})
    check_only_if(only_if)
    if only_if is not None:
        conditions.append(change_is(only_if, policy, end))
    return _Renewal(policy, fields, conditions, is_plain)


def _with_life(
    policy: Policy, name: str, life: float | timedelta
) -> tuple[dict[str, object], Instant, bool]:
    """Return the fields for a new life, its end, and whether the gate's own stamp does the rest."""
    if isinstance(policy, TTL) and policy.override is not None:
        seconds = life_seconds(life, where=f"{name}.{policy.override}")
        return *own_life(policy, policy.override, seconds), bool(seconds)
    if isinstance(policy, ExpireAt):
        seconds = life_seconds(life, where=f"{name}.{policy.field}")
        end: Instant = {"$add": [formats.server_now(), seconds * 1000]}
        new = stored_expr(policy, end) if seconds else just_passed(policy)
        return {policy.field: new}, end, False
    raise TTLConfigurationError(f"{name} documents have no ttl of their own: {policy!r}.")
