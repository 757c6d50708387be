"""What writes carry to restart a document's lifetime: ``_ts``, and ``_exp`` with it.

Pure functions. The server's clock stamps where possible (``$currentDate``, ``$$NOW``); inserts
carry the driver's estimate of the server's time. Values of the user's for ``_ts`` and ``_exp`` are
removed.

``_exp`` is ``_ts`` plus a valid own ttl. MongoDB deletes by it
(`ttl_odm.beanie.policy.ttl_indexes`), and sweepers find documents by it. By an outdated ``_exp``
MongoDB would delete a live document, so a write that can't compute it removes it. An update is
sent as a pipeline, which can compute it, if its operators allow that (`operators`).

This module must not know drivers or callers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeAlias

from bson import Timestamp

from ttl_odm.beanie.policy.bindings import expires_itself
from ttl_odm.beanie.policy.predicate import deciding_fields
from ttl_odm.beanie.policy.ttl_indexes import EXPIRY, own_expiry
from ttl_odm.beanie.rewrite.filters import mentions
from ttl_odm.beanie.rewrite.operators import as_stages
from ttl_odm.beanie.time import formats
from ttl_odm.beanie.time.formats import check_duration, stored, stored_expr
from ttl_odm.core.expiry import instant_of, own_ttl
from ttl_odm.core.policy import TTL
from ttl_odm.core.values import NEVER, row_ttl
from ttl_odm.errors import InvalidTTL, TTLConfigurationError

if TYPE_CHECKING:
    from ttl_odm.beanie.drivers import Backend, Document, Filter, Pipeline
    from ttl_odm.beanie.time.formats import Instant
    from ttl_odm.core.policy import Policy

Update: TypeAlias = "Filter | Sequence[Filter]"

_SETS: Final = ("$set", "$setOnInsert")
_EMPTY: Final = Timestamp(0, 0)


@dataclass(frozen=True, slots=True)
class Stamping:
    """How writes to one collection are stamped.

    On Azure Cosmos DB the service stamps, so `stamps` is false and values are only checked.
    """

    policy: TTL
    stamps: bool
    keeps: bool = False
    """Whether existing documents keep their last modification and their own ttl."""

    @property
    def keeps_expiry(self) -> bool:
        """Whether ``_exp`` is maintained."""
        return self.stamps and self.policy.override is not None and self.policy.unit is None

    @property
    def needs_now(self) -> bool:
        """Whether updates need the instant as a value, since no operator stamps in a unit."""
        return self.policy.unit is not None

    def insert(self, document: Filter, now: datetime | None, *, keep: bool) -> Document:
        """Return the document to insert; in strict mode its own ttl must be valid.

        `now` is the server's clock in whole milliseconds, None if nothing is stamped. With `keep`,
        a last modification in the document stays.
        """
        keep = keep or self.keeps
        self._check_keep(keep=keep)
        self._check(document)
        stamped = {key: value for key, value in document.items() if key != EXPIRY}
        field = self.policy.last_modified
        if now is None:
            stamped.pop(field, None)
        elif not (keep and instant_of(self.policy, stamped.get(field)) is not None):
            stamped[field] = stored(self.policy, now)
        if self.keeps_expiry:
            seconds = own_ttl(self.policy, stamped.get(self.policy.override or ""))
            if seconds not in (None, NEVER):
                with suppress(OverflowError):  # after the year 9999, which is never
                    stamped[EXPIRY] = stamped[field] + timedelta(seconds=seconds)
        return stamped

    def update(
        self, update: Update, *, keep: bool, inserts: bool = False, now: datetime | None = None
    ) -> Update:
        """Return the update to send; in strict mode it must not set an invalid ttl.

        `now` is an instant that the server has reached, if `needs_now`; `inserts` is for an upsert
        that can only insert.
        """
        self._check_keep(keep=keep)
        keep = (keep or self.keeps) and not inserts
        if not update or not isinstance(update, (Mapping, list)):
            return update  # the driver reports what is wrong
        if not isinstance(update, Mapping):
            for stage in update:
                self._check_stage(stage)
            return [*update, *self.stages(keep=keep)]
        if not all(key.startswith("$") and isinstance(update[key], Mapping) for key in update):
            return update  # the driver or the server reports what is wrong
        self._check_operators(update)
        cleaned = {operator: self._without_ours(operator, update[operator]) for operator in update}
        cleaned = {operator: fields for operator, fields in cleaned.items() if fields}
        if cleaned.keys() == {"$setOnInsert"} and not inserts:
            return cleaned  # it changes nothing, so it resets nothing
        return self._stamped(cleaned, keep=keep, inserts=inserts, now=now)

    def _stamped(
        self, cleaned: Document, *, keep: bool, inserts: bool, now: datetime | None
    ) -> Update:
        """Return operators with the stamps, or the stages that do the same."""
        stages = None
        has_stale_expiry = self.keeps_expiry and (not keep or self._moves_end(cleaned))
        if has_stale_expiry:
            stages = as_stages(cleaned, guard=EXPIRY, inserts=inserts)
        if stages is not None:
            return [*stages, *self.stages(keep=keep)]
        field, operators = self.policy.last_modified, dict(cleaned)
        if not keep and self.stamps and now is not None:
            operators["$set"] = {**operators.get("$set", {}), field: stored(self.policy, now)}
        elif not keep and self.stamps:
            operators["$currentDate"] = {**operators.get("$currentDate", {}), field: True}
        if has_stale_expiry:
            operators["$unset"] = {**operators.get("$unset", {}), EXPIRY: ""}
        return operators or {"$set": {}}

    def replacement(
        self, document: Filter, *, keep: bool, inserts: bool = False, now: datetime | None = None
    ) -> Pipeline:
        """Return the update that has the effect of replacing by the document.

        `now` is an instant that the server has reached. Empty timestamps get it as their value,
        because a pipeline doesn't fill them in, and not every server has ``$$CLUSTER_TIME``.
        """
        self._check(document)
        field = self.policy.last_modified
        ours = (field, EXPIRY)
        fields = {key: value for key, value in document.items() if str(key) not in ours}
        if now is not None:
            filled = Timestamp(int(now.timestamp()), 1)
            fields |= dict.fromkeys(empty_timestamps(fields), filled)
        keep = (keep or self.keeps) and not inserts
        kept = {field: f"${field}" if keep else self._now}
        own = self.policy.override
        if self.keeps and own is not None and own not in fields:
            kept[own] = f"${own}"
        stages: Pipeline = [{"$replaceWith": {"$mergeObjects": [{"$literal": fields}, kept]}}]
        return stages + self._expiry_stages()

    def stages(self, *, keep: bool) -> Pipeline:
        """Return the last stages of a pipeline that writes."""
        if not self.stamps:
            return []
        stamp: Pipeline = [] if keep else [{"$set": {self.policy.last_modified: self._now}}]
        return stamp + self._expiry_stages()

    @property
    def _now(self) -> Instant:
        return stored_expr(self.policy, formats.server_now())

    def _expiry_stages(self) -> Pipeline:
        return [{"$set": {EXPIRY: own_expiry(self.policy)}}] if self.keeps_expiry else []

    def _moves_end(self, update: Document) -> bool:
        """Return whether an update may change a field that ``_exp`` is computed from."""
        names = [*chain(*update.values(), update.get("$rename", {}).values())]
        return any(mentions(names, path) for path in deciding_fields(self.policy))

    def _touches_ttl(self, update: Document) -> bool:
        own = self.policy.override
        return any(
            own in (str(name), str(target) if operator == "$rename" else None)
            for operator, fields in update.items()
            for name, target in fields.items()
        )

    def _without_ours(self, operator: str, fields: Filter) -> Document:
        ours = (self.policy.last_modified, EXPIRY)

        def is_ours(path: object) -> bool:
            name = str(path)  # a field of Beanie's would equal everything
            return name.partition(".")[0] in ours or name in ours

        return {
            name: value
            for name, value in fields.items()
            if not is_ours(name) and not (operator == "$rename" and is_ours(value))
        }

    def _check_keep(self, *, keep: bool) -> None:
        if keep and not self.stamps:
            raise TTLConfigurationError(
                "keep_last_modified is not available on Azure Cosmos DB, which stamps every write "
                "itself: leave it out."
            )

    def _check(self, document: Filter) -> None:
        """Reject -1 second as an own ttl, and in strict mode any invalid ttl."""
        own = self.policy.override
        if own is None or own not in document:
            return
        check_duration(document[own], own)
        if self.policy.values == "strict":
            row_ttl(document[own], where=own)

    def _check_operators(self, update: Filter) -> None:
        own, is_strict = self.policy.override, self.policy.values == "strict"
        if own is None:
            return
        for operator, fields in update.items():
            if operator in _SETS:
                self._check(fields)
            elif is_strict and operator != "$unset" and self._touches_ttl({operator: fields}):
                raise InvalidTTL(_unchecked(own, operator))

    def _check_stage(self, stage: Filter) -> None:
        own = self.policy.override
        if own is None:
            return
        for operator in ("$set", "$addFields"):
            value = stage.get(operator, {}).get(own)
            if isinstance(value, Mapping) and "$literal" in value:
                value = value["$literal"]
            check_duration(value, own)
            if self.policy.values != "strict":
                continue
            if isinstance(value, str) and value.startswith("$"):
                raise InvalidTTL(_unchecked(own, operator))
            row_ttl(value, where=own)


@lru_cache(maxsize=256)
def stamping_of(policy: Policy, backend: Backend) -> Stamping | None:
    """Return how writes are stamped, None if the policy reads dates that the user sets."""
    if not isinstance(policy, TTL):
        return None
    return Stamping(policy, not expires_itself(backend), keeps=backend == "migrations")


def empty_timestamps(document: object) -> list[str]:
    """Return the fields that MongoDB would fill in in a document, but not in a pipeline."""
    if not isinstance(document, Mapping):
        return []
    return [
        name
        for name, value in document.items()
        if isinstance(value, Timestamp) and value == _EMPTY and name != "_id"
    ]


def _unchecked(field: str, operator: str) -> str:
    return (
        f"{operator} on {field!r} can't be checked before it is stored, but the policy has "
        "values='strict': set a number of seconds."
    )
