"""Joined eager loads of tables with a policy: always outer joins.

``relationship(lazy="joined", innerjoin=True)`` promises that every row has a partner. An expired
partner doesn't exist, so an inner join would hide a live row together with it. The ORM decides on
the kind of each join when it compiles a SELECT; a policy overrules it there, so that it also joins
what is loaded further along, and a `secondary` table, as for any outer join.

Joins that a user writes (``contains_eager()``) stay as they are.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from sqlalchemy import Table
from sqlalchemy.sql import visitors

from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.policy.binding import root_binding_of
from ttl_odm.sqlalchemy.policy.rules import rule_of
from ttl_odm.sqlalchemy.policy.second_tables import may_get_policy

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import FromClause


def outer_joins(plan: Callable[..., Any]) -> Callable[..., Any]:
    """Let what plans a joined eager load plan an outer join, where rows may have expired."""

    @wraps(plan)
    def planned(loader: Any, compile_state: Any, *rest: Any) -> Any:
        result = plan(loader, compile_state, *rest)
        if any(map(_may_expire, compat.inner_joined(loader, compile_state))):
            return compat.join_outer(compile_state, result)
        return result

    return planned


def _may_expire(source: FromClause) -> bool:
    """Whether a FROM element has rows of a table with a policy, or with a rule."""
    return any(
        root_binding_of(table) is not None
        or rule_of(table) is not None
        or may_get_policy(compat.original(table))
        for table in visitors.iterate(source)
        if isinstance(table, Table)
    )
