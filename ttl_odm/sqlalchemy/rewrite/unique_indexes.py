"""Uniqueness in a table, with the special indexes of each database.

``Index("u", t.c.email, unique=True, postgresql_where=t.c.deleted_at.is_(None))`` covers only rows
that meet the condition, so a change of ``deleted_at`` alone can add a row to it. Each dialect has
an option of its own; on others it is an index over all rows.

``Index("u", t.c.name, unique=True, mysql_length=10)`` of MariaDB and MySQL covers the first
characters of a column: no two rows have the same ten. On other databases it is an index over the
whole column.

With ``postgresql_nulls_not_distinct=True`` NULL is a value like others. On other databases no two
NULLs are equal.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import (
    Boolean,
    ClauseElement,
    Column,
    ColumnElement,
    Integer,
    Null,
    TextClause,
    func,
    literal_column,
    text,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import operators, visitors
from sqlalchemy.sql.elements import BinaryExpression, BooleanClauseList, Grouping
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.visitors import InternalTraversal

from ttl_odm.dialects import MYSQL_FAMILY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Index, Table, UniqueConstraint
    from sqlalchemy.sql.compiler import SQLCompiler

_IS_NULL: Final = re.compile(r"[\s(]*[\"`]?(\w+)[\"`]?\s+IS\s+NULL[\s)]*", re.IGNORECASE)
_QUOTED: Final = re.compile(r"'(?:[^']|'')*'")


class IndexCondition(FunctionElement[bool]):
    """The condition for rows to be in an index, on each dialect that has it; elsewhere all are."""

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
        """Return the condition of an index; None if it has none."""
        options = _options(index)
        clauses = {
            name.removesuffix("_where"): text(where) if isinstance(where, str) else where
            for name, where in options.items()
            if name.endswith("_where") and where is not None
        }
        return cls(clauses) if clauses else None

    def self_group(self, against: object = None) -> IndexCondition:  # noqa: ARG002 (SQLAlchemy's signature)
        """Return the condition without ``= 1``: the database compares it with the index's."""
        return self

    def columns_of(self, table: Table) -> list[Column[Any]]:
        """Return the columns that decide whether a row is in the index."""
        names = {name for clause in self.clauses for name in _names(clause)}
        return [column for column in table.c if column.name.lower() in names]

    def nulls_of(self, table: Table) -> set[str]:
        """Return the keys of the columns that must be NULL, on every dialect."""
        names = set.intersection(*({*_nulls(clause)} for clause in self.clauses))
        return {column.key for column in table.c if column.name.lower() in names}


@compiles(IndexCondition)
def _render_index_condition(element: IndexCondition, compiler: SQLCompiler, **kw: object) -> str:
    for name, clause in zip(element.dialects.split(), element.clauses, strict=True):
        if name == compiler.dialect.name:
            # As in the index, without parameters: the database has to recognise it.
            kw["literal_binds"] = True
            return f"({compiler.process(clause, **kw)})"
    return "1 = 1"


def _names(clause: ClauseElement) -> Iterator[str]:
    """Yield the names of columns in a clause, in lower case; for text, all words."""
    for element in visitors.iterate(clause):
        if isinstance(element, Column):
            yield element.name.lower()
        elif isinstance(element, TextClause):
            yield from re.findall(r"[\w$]+", _QUOTED.sub("", element.text).lower())


def _nulls(clause: object) -> Iterator[str]:
    """Yield the names of columns that are NULL wherever a clause holds; perhaps not all."""
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


class Unique(NamedTuple):
    """Columns, or expressions of columns, whose values no two rows of a table share.

    With a condition, only rows that meet it count. `equates_nulls`: on PostgreSQL, two rows with
    NULL have the same value.
    """

    parts: tuple[Any, ...]
    condition: IndexCondition | None = None
    equates_nulls: bool = False


class Prefix(FunctionElement[Any]):
    """The first characters of a column, or of a value for it; on other databases all of it."""

    inherit_cache = True

    def __init__(self, column: Column[Any], length: int) -> None:
        super().__init__(column, literal_column(str(length), Integer()))
        self.type = column.type

    def may_begin(self, column: ColumnElement[Any]) -> ColumnElement[bool]:
        """Return a condition for columns that begin like this, which an index can answer."""
        # Trailing spaces don't count in comparisons, but they do for LIKE.
        text: Any = func.rtrim(self)
        for mark in "|%_":
            text = func.replace(text, mark, f"|{mark}")
        return _WithPrefixes(column.like(func.concat(text, "%"), escape="|"))


class _WithPrefixes(FunctionElement[bool]):
    """A condition for databases with such indexes; on others it is always true."""

    inherit_cache = True
    type = Boolean()

    def self_group(self, against: object = None) -> _WithPrefixes:  # noqa: ARG002 (SQLAlchemy's signature)
        """Return the condition without ``= 1``, with which no index would answer it."""
        return self


@compiles(Prefix)
def _render_prefix(element: Prefix, compiler: SQLCompiler, **kw: object) -> str:
    whole, length = (compiler.process(clause, **kw) for clause in element.clauses)
    return f"LEFT({whole}, {length})" if compiler.dialect.name in MYSQL_FAMILY else whole


@compiles(_WithPrefixes)
def _render_with_prefixes(element: _WithPrefixes, compiler: SQLCompiler, **kw: object) -> str:
    if compiler.dialect.name not in MYSQL_FAMILY:
        return "1 = 1"
    return f"({compiler.process(element.clauses, **kw)})"


def index_parts(index: Index) -> tuple[Any, ...]:
    """Return the parts of an index: columns, their first characters, or expressions."""
    options = _options(index)
    length = options.get("mariadb_length") or options.get("mysql_length")
    if not length:
        return tuple(index.expressions)

    def shortened(part: Any) -> Any:
        if not isinstance(part, Column):
            return part
        characters = length.get(part.name) if isinstance(length, dict) else length
        return Prefix(part, characters) if characters else part

    return tuple(map(shortened, index.expressions))


def equates_nulls(unique: Index | UniqueConstraint) -> bool:
    """Return whether PostgreSQL takes NULL for a value like others in an index or a constraint."""
    return bool(_options(unique).get("postgresql_nulls_not_distinct"))


def _options(unique: Index | UniqueConstraint) -> dict[str, Any]:
    """Return the options of dialects that an index or a constraint has."""
    # By name, since asking for the options of a dialect would import it.
    return {name: unique.dialect_kwargs[name] for name in unique.dialect_kwargs}
