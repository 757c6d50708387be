"""Columns that must not be a ``TIMESTAMP`` in sessions whose clocks change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ttl_odm.django.policy.following import all_followers
from ttl_odm.django.time.timestamps import check_session

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

    from ttl_odm.django.policy.binding import Binding


def check_timestamps(binding: Binding, connection: BaseDatabaseWrapper) -> None:
    """Check the columns by which rows are judged and told apart, also those of followers.

    Raises:
        TTLConfigurationError: See `ttl_odm.django.time.timestamps.check_session`.
    """
    followers = (following.model for following in all_followers(binding.model))
    for model in (binding.model, *followers):
        meta: Any = model._meta
        fields = [*getattr(meta, "pk_fields", [meta.pk])]
        if model is binding.model:
            fields.append(binding.stamp)
        check_session(connection, meta.db_table, {str(field.column) for field in fields})
