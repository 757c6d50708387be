"""Which condition a FROM element needs, by the way it enters a statement.

A table, an alias of one and a sampled table are filtered in WHERE. An inner join passes both
its sides on; the optional side of a LEFT JOIN is filtered in its ON clause, so that a left
row without a live partner stays; both sides of a FULL JOIN are sealed into subqueries.
Subqueries and CTEs need nothing: the SELECT inside them passes the gate itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy import Alias, ClauseElement, FromClause, Join, Table, TableSample
from sqlalchemy.exc import CompileError
from sqlalchemy.sql.selectable import FromGrouping

from ttl_odm.sqlalchemy.binding import Binding, binding_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sqlalchemy import ColumnElement


class LiveCriterion(Protocol):
    """Tells the condition that keeps the live rows of one bound FROM element."""

    def __call__(self, binding: Binding, source: FromClause) -> ColumnElement[bool]:
        """The condition."""
        ...


class LiveRows:
    """The conditions that a statement needs.

    Args:
        live: makes the predicate of one FROM element.
    """

    def __init__(self, live: LiveCriterion) -> None:
        """Nothing is looked at yet."""
        self._live = live

    def where(self, sources: Iterable[Any]) -> list[ColumnElement[bool]]:
        """What goes into WHERE for these FROM elements."""
        return [criterion for source in sources for criterion in self.of(source)]

    def of(self, source: Any) -> list[ColumnElement[bool]]:
        """What one FROM element asks of the clause it stands in."""
        if isinstance(source, Join):
            if source.full:
                return []
            if source.isouter:
                return self.of(source.left)
            return self.of(source.left) + self.of(source.right)
        if isinstance(source, FromGrouping):
            return self.of(source.element)
        binding = binding_of_source(source)
        return [] if binding is None else [self._live(binding, source)]

    def sealed(self, source: Any) -> Any:
        """The FROM element with every table in it replaced by its live rows."""
        if isinstance(source, Join):
            left, right = self.sealed(source.left), self.sealed(source.right)
            return source if left is source.left and right is source.right else _join(
                source, left, right
            )
        if isinstance(source, FromGrouping):
            return self.sealed(source.element)
        binding = binding_of_source(source)
        return source if binding is None else LiveSource(source, self._live(binding, source))


class LiveSource(ClauseElement):
    """The live rows of a table or alias, standing in for it under the same name."""

    __visit_name__ = "ttl_live_source"

    def __init__(self, element: FromClause, criterion: ColumnElement[bool]) -> None:
        """Keep what is sealed, and by which condition."""
        self.element = element
        self.criterion = criterion

    @property
    def _from_objects(self) -> list[FromClause]:
        return self.element._from_objects

    def self_group(self, against: Any = None) -> Any:  # noqa: ARG002 - SQLAlchemy's signature
        """Already in parentheses."""
        return self

    def visible_name(self, truncated: Callable[[str, str], str]) -> str:
        """The name under which the rest of the statement refers to the element.

        Raises:
            CompileError: the table has a schema, so columns are spelled ``schema.table.column``
                and no subquery can take that name.
        """
        if isinstance(self.element, Table) and self.element.schema:
            raise CompileError(
                f"A FULL JOIN with the TTL table {self.element.fullname!r} needs an alias: "
                f"use aliased(Model) or table.alias() for it."
            )
        name: Any = self.element.name  # type: ignore[attr-defined]
        return truncated("alias", name) if hasattr(name, "apply_map") else str(name)


def _join(source: Join, left: Any, right: Any) -> Join:
    copy = source._clone()
    copy.left, copy.right = left, right
    return copy


def binding_of_source(source: Any) -> Binding | None:
    """The policy of a table, or of the table that an alias or a sample stands for."""
    while isinstance(source, (Alias, TableSample)):
        source = source.element
    return binding_of(source)
