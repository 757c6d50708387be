"""Previews of a change of a stored default, and the change that a preview's token approves.

`ttl_odm.stored.sqlalchemy.previews` says what a token stands for. This module must not know how a
preview is shown.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import connections

from ttl_odm.forecast.django import count, count_lost
from ttl_odm.inspection.evidence import SMALL
from ttl_odm.stored.approval import Change, NotApprovedError, PolicyPreview, keys_of
from ttl_odm.stored.django.changes import StoredDefault, change, in_transaction
from ttl_odm.stored.django.lookup import has_default

__all__ = ["NotApprovedError", "PolicyPreview", "approve_policy", "preview_policy"]

if TYPE_CHECKING:
    from django.db.models import Model

    from ttl_odm.stored import StoredTTL


def preview_policy(
    target: type[Model],
    ttl: StoredTTL,
    *,
    scope: object = None,
    deep: bool = False,
    using: str | None = None,
) -> PolicyPreview:
    """Preview the effect of changing a stored default; arguments as for `set_policy`.

    Args:
        target: A model.
        ttl: The planned default.
        scope: A value of `Stored.by`, for the rows that have it; None for all rows without their
            own default.
        deep: Count all rows; otherwise tables of more than 100,000 rows are sampled.
        using: The alias of the database; by default the one that the routers choose for writes.

    Raises:
        InvalidTTL: It is not a ttl, or not between `Stored.least` and `Stored.most`.
        TTLConfigurationError: The default of the target isn't stored, or not by scopes.
    """
    default = StoredDefault.of(target, scope, using)
    planned = _change(default, ttl)
    policies = planned.policies(default.binding.policy)
    big = math.inf if deep else SMALL
    measured = count(default.binding, policies, default.using, rows=_rows(default), big=big)
    return planned.preview(policies, measured)


def approve_policy(  # noqa: PLR0913 (all but the first two by keyword)
    target: type[Model],
    ttl: StoredTTL,
    *,
    token: str,
    scope: object = None,
    by: str,
    reason: str | None = None,
    using: str | None = None,
) -> None:
    """Make the change of a stored default that a preview has shown.

    Within ``atomic()`` the change is part of that transaction; otherwise it has one of its own.

    Args:
        target: A model.
        ttl: The new default.
        token: The token of this change's preview, signed with ``SECRET_KEY``.
        scope: See `preview_policy`.
        by: Who changes it.
        reason: Why.
        using: The alias of the database; by default the one that the routers choose for writes.

    Raises:
        NotApprovedError: It would now expire more rows than the preview showed, the default has
            changed since, or the token belongs to another preview. Nothing is changed.
    """
    default = StoredDefault.of(target, scope, using)

    def compare() -> Change:
        planned = _change(default, ttl)
        at_most = planned.approved(token)
        lost = count_lost(
            default.binding,
            planned.policies(default.binding.policy),
            default.using,
            rows=_rows(default),
            limit=at_most + 1,
        )
        planned.check(lost, at_most)
        return planned

    # In a transaction of its own: `ttl_odm.stored.sqlalchemy.previews` says why.
    approved = in_transaction(default.using, compare)

    def check() -> None:
        approved.check_unchanged(default.read_locked())

    work = partial(change, default, approved.after, by=by, reason=reason, check=check)
    in_transaction(default.using, work)


def _change(default: StoredDefault, ttl: StoredTTL) -> Change:
    after = default.checked(ttl)
    keys = keys_of(settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)
    return Change(default, default.read(), after, keys)


def _rows(default: StoredDefault) -> str | None:
    """SQL for the rows that have a default; it doesn't exclude rows with their own ttl."""
    connection = connections[default.using]
    table = connection.ops.quote_name(default.binding.model._meta.db_table)
    return has_default(connection, default.binding, table, default.scope)
