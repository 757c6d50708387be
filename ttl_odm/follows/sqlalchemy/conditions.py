"""Whether a row that follows another is live: the conditions on its parent.

Statements get `live_parent` and `under`. The functions `live()`, `expired()` and `expires_at()`
return the elements in `BY_PARENT`, which are compiled to subqueries of the parent's table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Boolean, ColumnElement, FromClause, false, func, not_, or_, select, true
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from ttl_odm.sqlalchemy.gate.functions import expired, expires_at, live, render
from ttl_odm.sqlalchemy.policy.predicate import include_expired
from ttl_odm.sqlalchemy.time.clock import LastModified

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy.sql.compiler import SQLCompiler

    from ttl_odm.follows.sqlalchemy.follower import Following
    from ttl_odm.sqlalchemy.rewrite.statement_rules import Asked, Joins, Rows


def live_parent(
    rows: Rows, following: Following, source: FromClause, joins: Joins | None
) -> ColumnElement[bool] | None:
    """Return the condition that a row's parent is live, or missing where orphans are live.

    None if `source` is joined to its parent, whose own condition is enough.
    """
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
    """Return the condition that the parent with a key is live, or that there is none.

    The key is computed from a row of `source`.
    """
    links = following.links()
    parent = links.parent.alias()
    keys = [(own, parent.c[theirs.key]) for own, theirs in zip(key, links.theirs, strict=True)]
    is_live = rows.exists(source, parent, keys, rows.alone(parent))
    has_no_key = (own.is_(None) for own in key)
    return or_(is_live, *has_no_key, not_(rows.exists(source, parent, keys)))


class _OfParent(FunctionElement[Any]):
    """What a public function returns for the parent of a row, or else for an orphan."""

    inherit_cache = True

    def __init__(self, following: Following, columns: Sequence[ColumnElement[Any]]) -> None:
        super().__init__(*columns)
        self.following = following

    def at_parent(self) -> ColumnElement[Any]:
        """Return the function for the parent, as a subquery of its table; NULL without a parent."""
        links, own = self.following.links(), list(self.clauses)
        parent = links.parent.alias()
        pairs = zip(own, links.theirs, strict=True)
        same_row = (column == parent.c[key.key] for column, key in pairs)
        rows: Any = select(self.of(parent)).where(*same_row).options(include_expired())
        return rows.correlate(*(column.table for column in own)).scalar_subquery()  # type: ignore[no-any-return]

    def of(self, parent: FromClause) -> ColumnElement[Any]:
        """Return the function for the parent."""
        return live(parent)

    def of_orphan(self) -> ColumnElement[Any]:
        """Return the value for a row without a parent."""
        return true() if self.following.declared.orphan == "live" else false()


class LiveByParent(_OfParent):
    """True for rows whose parent is live."""

    inherit_cache = True
    type = Boolean()


class ExpiredByParent(_OfParent):
    """True for rows whose parent is expired."""

    inherit_cache = True
    type = Boolean()

    def of(self, parent: FromClause) -> ColumnElement[Any]:
        """Return the function for the parent."""
        return expired(parent)

    def of_orphan(self) -> ColumnElement[Any]:
        """Return the value for a row without a parent."""
        return not_(super().of_orphan())


class EndOfParent(_OfParent):
    """The instant at which the parent expires; NULL for never, and for orphans."""

    inherit_cache = True
    type = LastModified()

    def of(self, parent: FromClause) -> ColumnElement[Any]:
        """Return the function for the parent."""
        return expires_at(parent)


@compiles(LiveByParent)
@compiles(ExpiredByParent)
def _render_by_parent(element: _OfParent, compiler: SQLCompiler, **kw: object) -> str:
    return render(func.coalesce(element.at_parent(), element.of_orphan()), compiler, kw)


@compiles(EndOfParent)
def _render_end_of_parent(element: EndOfParent, compiler: SQLCompiler, **kw: object) -> str:
    return render(element.at_parent(), compiler, kw)


BY_PARENT: Final[Mapping[Asked, type[_OfParent]]] = {
    "live": LiveByParent,
    "expired": ExpiredByParent,
    "expires_at": EndOfParent,
}
