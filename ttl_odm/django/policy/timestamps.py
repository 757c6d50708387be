"""Columns that must not be a ``TIMESTAMP`` in sessions whose clocks change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ttl_odm.django.policy.rules import all_rules_below
from ttl_odm.django.time.timestamps import check_session

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

    from ttl_odm.django.policy.bindings import Binding


def check_timestamps(binding: Binding, connection: BaseDatabaseWrapper) -> None:
    """Check the columns by which rows are judged and told apart, also below by rules.

    Raises:
        TTLConfigurationError: See `ttl_odm.django.time.timestamps.check_session`.
    """
    below = (rule.model for rule in all_rules_below(binding.model))
    for model in (binding.model, *below):
        meta: Any = model._meta
        fields = [*getattr(meta, "pk_fields", [meta.pk])]
        if model is binding.model:
            fields.append(binding.stamp)
        check_session(connection, meta.db_table, {str(field.column) for field in fields})
