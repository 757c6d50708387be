"""The conditions on a row's parent: it is live, or there is none if such a row is to live."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import not_, or_

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnElement, FromClause

    from ttl_odm.follows.sqlalchemy.following import Following
    from ttl_odm.sqlalchemy.rewrite.statement_rules import Joins, Rows


def live_parent(
    rows: Rows, following: Following, source: FromClause, joins: Joins | None
) -> ColumnElement[bool] | None:
    """That the parent of a row is live, or that there is none, if such a row is to live."""
    links = following.links()
    own = [(source.c[own.key], theirs) for own, theirs in links.pairs]
    if joins is not None and joins.lead_to(links.parent, own):
        return None
    columns = [column for column, _ in own]
    if following.declared.orphan == "live":
        return under(rows, following, source, columns)
    parent = links.parent.alias()
    keys = [(column, parent.c[theirs.key]) for column, theirs in own]
    return rows.exists(source, parent, keys, rows.alone(parent))


def under(
    rows: Rows, following: Following, source: FromClause, key: Sequence[ColumnElement[Any]]
) -> ColumnElement[bool]:
    """That the parent with a key, made of a row of `source`, is live, or that there is none."""
    links = following.links()
    parent = links.parent.alias()
    keys = [(own, parent.c[theirs.key]) for own, theirs in zip(key, links.theirs, strict=True)]
    live = rows.exists(source, parent, keys, rows.alone(parent))
    has_no_key = (own.is_(None) for own in key)
    return or_(live, *has_no_key, not_(rows.exists(source, parent, keys)))
