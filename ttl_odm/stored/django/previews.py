"""A change of a default that the database stores, with Django. As `sqlalchemy` does it.

This module must not know how a preview is shown.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import connections

from ttl_odm.forecast.django import count, count_lost
from ttl_odm.forecast.text import Forecast
from ttl_odm.inspection.evidence import SMALL
from ttl_odm.stored.approval import Change, NotApprovedError, PolicyPreview, keys_of
from ttl_odm.stored.django.changes import StoredDefault, change, in_transaction
from ttl_odm.stored.django.lookup import has_default

__all__ = ["NotApprovedError", "PolicyPreview", "approve_policy", "preview_policy"]

if TYPE_CHECKING:
    from ttl_odm.stored import StoredTTL


def preview_policy(
    target: Any,
    ttl: StoredTTL,
    *,
    scope: object = None,
    deep: bool = False,
    using: str | None = None,
) -> PolicyPreview:
    """Count what a change of a stored default would do; arguments as for `set_policy`.

    Args:
        target: A model.
        ttl: The planned default.
        scope: A value of `Stored.by`, for the rows that have it; None for all that have no default
            of their own.
        deep: Count all rows; otherwise more than 100,000 are estimated from a sample.
        using: The alias of the database; by default the one that the routers choose for writes.

    Raises:
        InvalidTTL: It is not a ttl, or not between `Stored.least` and `Stored.most`.
        TTLConfigurationError: The default of the target isn't stored, or not by scopes.
    """
    default = StoredDefault.of(target, scope, using)
    asked = _change(default, ttl)
    policies, binding = asked.policies(default.binding.policy), default.binding
    measured = count(
        binding, policies, default.using, rows=_rows(default), big=math.inf if deep else SMALL
    )
    label = binding.model._meta.label
    forecast = Forecast(default.name, label, policies["current"], policies["planned"], measured)
    return asked.preview(forecast, measured)


def approve_policy(  # noqa: PLR0913 (all but the first two by keyword)
    target: Any,
    ttl: StoredTTL,
    *,
    token: str,
    scope: object = None,
    by: str,
    reason: str | None = None,
    using: str | None = None,
) -> None:
    """Change a stored default to the value that a preview has shown.

    Within ``atomic()`` it is part of that transaction; otherwise it is its own.

    Args:
        target: A model.
        ttl: The new default.
        token: The token of this change's preview, signed with ``SECRET_KEY``.
        scope: As in the preview.
        by: Who changes it.
        reason: Why.
        using: The alias of the database; by default the one that the routers choose for writes.

    Raises:
        NotApprovedError: It would now expire more rows than the preview showed, the default has
            changed since, or the token belongs to another preview. Nothing is changed.
    """
    default = StoredDefault.of(target, scope, using)

    def compare() -> Change:
        asked = _change(default, ttl)
        at_most = asked.approved(token)
        lost = count_lost(
            default.binding,
            asked.policies(default.binding.policy),
            default.using,
            rows=_rows(default),
            limit=at_most + 1,
        )
        asked.check(lost, at_most)
        return asked

    # A transaction of its own: see `ttl_odm.stored.sqlalchemy.previews`.
    asked = in_transaction(default.using, compare)

    def check() -> None:
        asked.check_unchanged(default.read_locked())

    work = partial(change, default, asked.after, by=by, reason=reason, check=check)
    in_transaction(default.using, work)


def _change(default: StoredDefault, ttl: StoredTTL) -> Change:
    """What is asked for."""
    after, now = default.checked(ttl), default.read()
    where = f"{default.binding.model._meta.label}.__ttl__ = {after}"
    keys = keys_of(settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)
    has_scopes = default.stored.by is not None
    return Change(default.name, default.scope, now, after, where, keys, has_scopes)


def _rows(default: StoredDefault) -> str | None:
    """SQL for the rows that have this default, but for those with a ttl of their own."""
    connection = connections[default.using]
    table = connection.ops.quote_name(default.binding.model._meta.db_table)
    return has_default(connection, default.binding, table, default.scope)
