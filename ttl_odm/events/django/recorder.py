"""`Recorder`, a hook that records the events of rows in the transaction that deletes them.

And `RowEvents`: the event of a row, expired or about to expire. A model's own module may register a
handler, before Django has loaded all models.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from django.db import models

from ttl_odm.core import expiry
from ttl_odm.django.policy.bindings import binding_of, field_named
from ttl_odm.django.policy.rules import rule_of
from ttl_odm.errors import TTLConfigurationError, TTLError
from ttl_odm.events.django.outbox import TableOutbox
from ttl_odm.events.expiry import Expiry
from ttl_odm.events.outbox import Subscription
from ttl_odm.sweeper import Hook, Hooks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime, timedelta

    from ttl_odm.core import Policy
    from ttl_odm.django.policy.bindings import Binding, Model
    from ttl_odm.sweeper import Purged

_DECLARED: Final = "__ttl_on_purged__"


class RowEvents:
    """The events of one table.

    Attributes:
        binding: The policy of its rows.
        table: The name of the table.
        included: The names of the columns whose values the events have.
    """

    def __init__(self, binding: Binding) -> None:
        self.binding = binding
        self.table = binding.model._meta.db_table
        self.included: dict[str, None] = {}

    def include(self, names: Sequence[str]) -> None:
        """Add further fields to the events, by their columns."""
        binding = self.binding
        where = f"include = {list(names)!r}"
        own = (field for field in (binding.stamp, binding.own) if field is not None)
        further = (field_named(binding.model, name, where) for name in names)
        fields = (*binding.model._meta.pk_fields, *own, *further)
        self.included |= dict.fromkeys(str(field.column) for field in fields)

    def event(
        self,
        key: Sequence[object],
        row: Mapping[str, object],
        end: datetime,
        before: timedelta | None = None,
    ) -> Expiry:
        """Return the event of a row, given by columns; with `before` it is a warning."""
        began = row[str(self.binding.stamp.column)]
        return Expiry.of(
            self.table,
            key,
            {name: row[name] for name in self.included},
            last_modified=expiry.instant_of(self.binding.policy, began),
            expires_at=end,
            before=before,
        )


class Recorder(RowEvents):
    """Records the events of one table; a hook that runs in the deleting transaction."""

    def __call__(self, purged: Purged) -> None:
        """Record the events of a batch."""
        using = purged.transaction.alias
        events = self._events(using, purged)
        TableOutbox(using).record(events, purged.as_of, Subscription(self.table))

    def _events(self, using: str, purged: Purged) -> Iterator[Expiry]:
        assert purged.rows is not None  # noqa: S101 (the hook asks for them)
        binding = self.binding
        policies: dict[object, Policy | None] = {}
        for key, row in zip(purged.keys, purged.rows, strict=True):
            scope = None if binding.scope is None else row[str(binding.scope.column)]
            if scope not in policies:
                policies[scope] = self._policy(using, row)
            policy = policies[scope]
            began = row[str(binding.stamp.column)]
            own = None if binding.own is None else row[str(binding.own.column)]
            end = None if policy is None else expiry.expires_at(policy, instant=began, own=own)
            # Not after its deletion, whatever is known of its default.
            yield self.event(key, row, purged.as_of if end is None else min(end, purged.as_of))

    def _policy(self, using: str, row: Mapping[str, object]) -> Policy | None:
        """The policy by which a row has expired; None if only the database knows that."""
        model, source = self.binding.model, self.binding.source
        if source.is_known:
            return self.binding.default.settled
        fields = model._meta.concrete_fields
        values = [row[str(field.column)] for field in fields]
        try:
            obj = model.from_db(using, [field.attname for field in fields], values)
            return source.policy_of(obj, using, None)
        except TTLError:
            return None


def record(target: object, include: Sequence[str]) -> str:
    """Add a recorder to a model's hooks, unless it has one; see `record_expired`."""
    binding = binding_with_events(target)
    known = recorder_of(binding.model)
    recorder = known or Recorder(binding)
    recorder.include(include)
    if known is None:
        hooks = Hooks.of(getattr(binding.model, _DECLARED, None))
        declared = [*(hook for _, hook in hooks.entries), Hook(recorder, rows=True)]
        setattr(binding.model, _DECLARED, declared)
    return binding.model._meta.db_table


def recorder_of(model: Model) -> Recorder | None:
    """Return the recorder among a model's hooks; None if there is none."""
    hooks = Hooks.of(getattr(model, _DECLARED, None))
    return next((hook.call for _, hook in hooks.entries if isinstance(hook.call, Recorder)), None)


def binding_with_events(target: object) -> Binding:
    """Return the policy of a model whose rows can have events.

    Raises:
        TTLConfigurationError: The target is something else.
    """
    if not (isinstance(target, type) and issubclass(target, models.Model)):
        raise TTLConfigurationError(f"{target!r} can't have events: give a model.")
    meta = target._meta
    if rule_of(target) is not None:
        raise TTLConfigurationError(
            f"{meta.label} can't have events: its rows follow their parent, and are deleted with "
            "it, by a DELETE. Handle the events of the parent."
        )
    binding = binding_of(target)
    if binding is None:
        raise TTLConfigurationError(
            f"{meta.label} has no TTL, so its rows never expire: declare __ttl__ on the model. If "
            "TTL_ODM_POLICIES names it, do this in AppConfig.ready(), of an app below "
            '"ttl_odm.django".'
        )
    return binding
