"""A change of a default that the database stores: what it would do, and the token that lets it be.

A preview counts what a change would expire, and has a token of exactly that: which default, what it
was, what it would be, and how many rows it may expire at once. `approve_policy` makes the change
that a token is of, and none that has become another since.

This module must not know how a preview is shown.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

from ttl_odm.forecast import sql
from ttl_odm.forecast.text import Forecast
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
    target: Any,
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
    asked = _change(connection, default, ttl, secret)
    policies = asked.policies(default.binding.default.policy)
    measured = sql.count(
        connection,
        default.binding.table,
        policies,
        big=math.inf if deep else SMALL,
        rows=default.rows,
    )
    forecast = Forecast(
        default.name, default.binding.name, policies["current"], policies["planned"], measured
    )
    return asked.preview(forecast, measured)


def approve_policy(  # noqa: PLR0913 (all but the first three by keyword)
    connection: Connection,
    target: Any,
    ttl: StoredTTL,
    *,
    token: str,
    scope: object = None,
    by: str,
    reason: str | None = None,
    secret: str | bytes | None = None,
) -> None:
    """Make the change of a stored default that a preview has shown.

    If the connection is in a transaction, the change is part of that; otherwise it is its own.

    Args:
        connection: A connection; with an AsyncConnection, call ``run_sync(approve_policy, ...)``.
        target: A model or a Table.
        ttl: The new default.
        token: The token of this change's preview.
        scope: As in the preview.
        by: Who changes it.
        reason: Why.
        secret: As in the preview.

    Raises:
        NotApprovedError: It would now expire more rows than the preview showed, the default has
            changed since, or the token belongs to another preview. Nothing is changed.
    """
    default = StoredDefault.of(target, scope, connection.dialect)

    def compare() -> Change:
        asked = _change(connection, default, ttl, secret)
        at_most = asked.approved(token)
        lost = sql.count_lost(
            connection,
            default.binding.table,
            asked.policies(default.binding.default.policy),
            rows=default.rows,
            limit=at_most + 1,
        )
        asked.check(lost, at_most)
        return asked

    # In a transaction of its own: what has only read keeps others waiting at SERIALIZABLE, or may
    # not write any more on SQLite. The change compares again what it has locked.
    asked = in_transaction(connection, compare)

    def check() -> None:
        asked.check_unchanged(default.read_locked(connection))

    work = partial(change, connection, default, asked.after, by=by, reason=reason, check=check)
    in_transaction(connection, work)


def _change(
    connection: Connection, default: StoredDefault, ttl: StoredTTL, secret: str | bytes | None
) -> Change:
    """What is asked for."""
    after, now = default.checked(ttl), default.read(connection)
    where = f"{default.binding.name}.__ttl__ = {after}"
    has_scopes = default.stored.by is not None
    return Change(default.name, default.scope, now, after, where, keys_of(secret), has_scopes)
