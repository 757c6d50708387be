"""Unique indexes over some rows of a table: their conditions.

``Index("u", t.c.email, unique=True, postgresql_where=t.c.deleted_at.is_(None))`` concerns rows that
meet the condition, so a row comes into it by a change of ``deleted_at`` alone. Each dialect has an
option of its own; on others it is an index over all rows.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Boolean, Column, Null, TextClause, text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import operators, visitors
from sqlalchemy.sql.elements import BinaryExpression, BooleanClauseList, Grouping
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.visitors import InternalTraversal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Index, Table
    from sqlalchemy.sql.compiler import SQLCompiler

_IS_NULL: Final = re.compile(r"[\s(]*[\"`]?(\w+)[\"`]?\s+IS\s+NULL[\s)]*", re.IGNORECASE)
_QUOTED: Final = re.compile(r"'(?:[^']|'')*'")


class IndexCondition(FunctionElement[bool]):
    """The condition for rows to be in an index, on each dialect that has it; elsewhere, all are."""

    inherit_cache = True
    type = Boolean()
    _traverse_internals = [  # noqa: RUF012 (SQLAlchemy's)
        *FunctionElement._traverse_internals,  # noqa: SLF001 (a subclass's)
        ("dialects", InternalTraversal.dp_string),
    ]

    def __init__(self, clauses: dict[str, Any]) -> None:
        super().__init__(*clauses.values())
        self.dialects = " ".join(clauses)

    @classmethod
    def of(cls, index: Index) -> IndexCondition | None:
        """That of an index; None where it has none."""
        # By name, and not by its dialect: to ask for that would import it.
        options = {name: index.dialect_kwargs[name] for name in index.dialect_kwargs}
        clauses = {
            name.removesuffix("_where"): text(where) if isinstance(where, str) else where
            for name, where in options.items()
            if name.endswith("_where") and where is not None
        }
        return cls(clauses) if clauses else None

    def self_group(self, against: Any = None) -> Any:  # noqa: ARG002 (SQLAlchemy's signature)
        """The condition as it is, without ``= 1``: the database compares it with the index's."""
        return self

    def columns_of(self, table: Table) -> list[Column[Any]]:
        """The columns that decide whether a row is in the index."""
        names = {name for clause in self.clauses for name in _names(clause)}
        return [column for column in table.c if column.name.lower() in names]

    def nulls_of(self, table: Table) -> set[str]:
        """The keys of the columns that have to be NULL, whatever the dialect."""
        names = set.intersection(*({*_nulls(clause)} for clause in self.clauses))
        return {column.key for column in table.c if column.name.lower() in names}


@compiles(IndexCondition)
def _render(element: IndexCondition, compiler: SQLCompiler, **kw: object) -> str:
    for name, clause in zip(element.dialects.split(), element.clauses, strict=True):
        if name == compiler.dialect.name:
            # As in the index: the database has to recognise it, and knows no parameters.
            kw["literal_binds"] = True
            return f"({compiler.process(clause, **kw)})"
    return "1 = 1"


def _names(clause: Any) -> Iterator[str]:
    """The names of columns in a clause, in small letters; of text, all words."""
    for element in visitors.iterate(clause):
        if isinstance(element, Column):
            yield element.name.lower()
        elif isinstance(element, TextClause):
            yield from re.findall(r"[\w$]+", _QUOTED.sub("", element.text).lower())


def _nulls(clause: Any) -> Iterator[str]:
    """The names of columns that are NULL wherever a clause holds; perhaps not all."""
    while isinstance(clause, Grouping):
        clause = clause.element
    if isinstance(clause, TextClause):
        match = _IS_NULL.fullmatch(clause.text)
        if match is not None:
            yield match[1].lower()
    elif isinstance(clause, BooleanClauseList) and clause.operator is operators.and_:
        for part in clause.clauses:
            yield from _nulls(part)
    elif (
        isinstance(clause, BinaryExpression)
        and clause.operator is operators.is_
        and isinstance(clause.left, Column)
        and isinstance(clause.right, Null)
    ):
        yield clause.left.name.lower()
