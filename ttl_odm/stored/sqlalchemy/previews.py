"""Previews of a change of a stored default, and the change that a preview's token approves.

A preview counts what a change would expire. Its token stands for exactly that: the default, its old
and new value, and how many rows the change may expire at once. `approve_policy` makes the change
only if all this still holds.

This module must not know how a preview is shown.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

from ttl_odm.forecast import sql
from ttl_odm.inspection.evidence import SMALL
from ttl_odm.stored.approval import Change, NotApprovedError, PolicyPreview, keys_of
from ttl_odm.stored.sqlalchemy.changes import change, in_transaction
from ttl_odm.stored.sqlalchemy.stored_default import StoredDefault

__all__ = ["NotApprovedError", "PolicyPreview", "approve_policy", "preview_policy"]

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from ttl_odm.stored import StoredTTL


def preview_policy(  # noqa: PLR0913 (all but the first three by keyword)
    connection: Connection,
    target: object,
    ttl: StoredTTL,
    *,
    scope: object = None,
    deep: bool = False,
    secret: str | bytes | None = None,
) -> PolicyPreview:
    """Preview the effect of changing a stored default; arguments as for `set_policy`.

    Args:
        connection: A connection; with an AsyncConnection, call ``run_sync(preview_policy, ...)``.
            It is only used to read.
        target: A model or a Table.
        ttl: The planned default.
        scope: A value of `Stored.by`, for the rows that have it; None for all rows without their
            own default.
        deep: Count all rows; otherwise tables of more than 100,000 rows are sampled.
        secret: A secret of the application's server, with which the token is signed: then only a
            preview can make one.

    Raises:
        InvalidTTL: It is not a ttl, or not between `Stored.least` and `Stored.most`.
        TTLConfigurationError: The default of the target isn't stored, or not by scopes.
    """
    default = StoredDefault.of(target, scope, connection.dialect)
    planned = _change(connection, default, ttl, secret)
    policies = planned.policies(default.binding.default.policy)
    measured = sql.count(
        connection,
        default.binding.table,
        policies,
        big=math.inf if deep else SMALL,
        rows=default.rows,
    )
    return planned.preview(policies, measured)


def approve_policy(  # noqa: PLR0913 (all but the first three by keyword)
    connection: Connection,
    target: object,
    ttl: StoredTTL,
    *,
    token: str,
    scope: object = None,
    by: str,
    reason: str | None = None,
    secret: str | bytes | None = None,
) -> None:
    """Make the change of a stored default that a preview has shown.

    If the connection is in a transaction, the change is part of it; otherwise it has one of its
    own.

    Args:
        connection: A connection; with an AsyncConnection, call ``run_sync(approve_policy, ...)``.
        target: A model or a Table.
        ttl: The new default.
        token: The token of this change's preview.
        scope: See `preview_policy`.
        by: Who changes it.
        reason: Why.
        secret: See `preview_policy`.

    Raises:
        NotApprovedError: It would now expire more rows than the preview showed, the default has
            changed since, or the token belongs to another preview. Nothing is changed.
    """
    default = StoredDefault.of(target, scope, connection.dialect)

    def compare() -> Change:
        planned = _change(connection, default, ttl, secret)
        at_most = planned.approved(token)
        lost = sql.count_lost(
            connection,
            default.binding.table,
            planned.policies(default.binding.default.policy),
            rows=default.rows,
            limit=at_most + 1,
        )
        planned.check(lost, at_most)
        return planned

    # In a transaction of its own: after reading, a transaction makes others wait at SERIALIZABLE,
    # and may not write on SQLite. The change compares again once it has locked the rows.
    approved = in_transaction(connection, compare)

    def check() -> None:
        approved.check_unchanged(default.read_locked(connection))

    work = partial(change, connection, default, approved.after, by=by, reason=reason, check=check)
    in_transaction(connection, work)


def _change(
    connection: Connection, default: StoredDefault, ttl: StoredTTL, secret: str | bytes | None
) -> Change:
    after = default.checked(ttl)
    return Change(default, default.read(connection), after, keys_of(secret))
