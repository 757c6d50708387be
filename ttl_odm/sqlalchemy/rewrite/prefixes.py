"""Indexes of MariaDB and MySQL over the first characters of a column.

``Index("u", t.c.name, unique=True, mysql_length=10)`` lets no two rows have the same ten. On other
databases it is an index over the whole column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Boolean, Column, ColumnElement, Integer, func, literal_column
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from ttl_odm.dialects import MYSQL_FAMILY

if TYPE_CHECKING:
    from sqlalchemy import Index
    from sqlalchemy.sql.compiler import SQLCompiler


class Prefix(FunctionElement[Any]):
    """The first characters of a column, or of a value for it; elsewhere all of it."""

    inherit_cache = True

    def __init__(self, column: Column[Any], length: int) -> None:
        super().__init__(column, literal_column(str(length), Integer()))
        self.type = column.type

    def may_begin(self, column: ColumnElement[Any]) -> ColumnElement[bool]:
        """A condition that holds for columns which begin like this, and that an index answers."""
        # Trailing spaces don't count where strings are compared, but for LIKE.
        text: Any = func.rtrim(self)
        for mark in "|%_":
            text = func.replace(text, mark, f"|{mark}")
        return _WithPrefixes(column.like(func.concat(text, "%"), escape="|"))


class _WithPrefixes(FunctionElement[bool]):
    """A condition for databases with such indexes; elsewhere it says nothing."""

    inherit_cache = True
    type = Boolean()

    def self_group(self, against: Any = None) -> Any:  # noqa: ARG002 (SQLAlchemy's signature)
        """The condition as it is: SQLAlchemy would write ``= 1``, and no index would answer it."""
        return self


@compiles(Prefix)
def _render_prefix(element: Prefix, compiler: SQLCompiler, **kw: object) -> str:
    whole, length = (compiler.process(clause, **kw) for clause in element.clauses)
    return f"LEFT({whole}, {length})" if compiler.dialect.name in MYSQL_FAMILY else whole


@compiles(_WithPrefixes)
def _render_condition(element: _WithPrefixes, compiler: SQLCompiler, **kw: object) -> str:
    if compiler.dialect.name not in MYSQL_FAMILY:
        return "1 = 1"
    return f"({compiler.process(element.clauses, **kw)})"


def index_parts(index: Index) -> tuple[Any, ...]:
    """What an index is over: columns, their first characters, or expressions."""
    # By name, and not by its dialect: to ask for that would import it.
    options = {name: index.dialect_kwargs[name] for name in index.dialect_kwargs}
    length = options.get("mariadb_length") or options.get("mysql_length")
    if not length:
        return tuple(index.expressions)

    def shortened(part: Any) -> Any:
        if not isinstance(part, Column):
            return part
        characters = length.get(part.name) if isinstance(length, dict) else length
        return Prefix(part, characters) if characters else part

    return tuple(map(shortened, index.expressions))
