"""What `live`, `expired` and `expires_at` say of rows that follow others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Boolean, ColumnElement, FromClause, false, func, not_, select, true
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from ttl_odm.sqlalchemy.gate.functions import expired, expires_at, live, render
from ttl_odm.sqlalchemy.policy.predicate import include_expired
from ttl_odm.sqlalchemy.time.clock import LastModified

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy.sql.compiler import SQLCompiler

    from ttl_odm.follows.sqlalchemy.following import Following
    from ttl_odm.sqlalchemy.rewrite.statement_rules import Asked


class _OfParent(FunctionElement[Any]):
    """What one of these says of the row that a row follows; otherwise what it says of an orphan."""

    inherit_cache = True

    def __init__(self, following: Following, columns: Sequence[ColumnElement[Any]]) -> None:
        super().__init__(*columns)
        self.following = following

    def at_parent(self) -> ColumnElement[Any]:
        """The expression, as a subquery of the parent's table."""
        links, own = self.following.links(), list(self.clauses)
        parent = links.parent.alias()
        pairs = zip(own, links.theirs, strict=True)
        same_row = (column == parent.c[key.key] for column, key in pairs)
        rows: Any = select(self.of(parent)).where(*same_row).options(include_expired())
        return rows.correlate(*(column.table for column in own)).scalar_subquery()  # type: ignore[no-any-return]

    def of(self, parent: FromClause) -> ColumnElement[Any]:
        """What it says of the parent."""
        return live(parent)

    def of_orphan(self) -> ColumnElement[Any]:
        """What it says of a row without one."""
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
        """What it says of the parent."""
        return expired(parent)

    def of_orphan(self) -> ColumnElement[Any]:
        """What it says of a row without one."""
        return not_(super().of_orphan())


class EndOfParent(_OfParent):
    """The instant at which the parent expires; NULL for never, and for orphans."""

    inherit_cache = True
    type = LastModified()

    def of(self, parent: FromClause) -> ColumnElement[Any]:
        """What it says of the parent."""
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
