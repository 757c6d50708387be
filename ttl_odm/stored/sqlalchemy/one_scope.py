"""The one scope that a statement reads: where `tenant_id = :t` decides it, by the parameter.

A default is then looked up once for the statement, not for each row. But ``=`` may be true of a
row of another scope: MariaDB and MySQL take Acme for acme, PostgreSQL does so in a CITEXT column,
SQLite under NOCASE, and blanks behind a text don't always count. So only types count of which
equal values are the same: see `kind_of`. And what a parameter holds need not look like the column:
SQLite, MariaDB and MySQL find the rows of 7 by ``'07'`` and by 7.0, too. So `Scope` makes of it
what the column has.

This module must not know statements, nor where defaults are stored.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Literal

from sqlalchemy import (
    ColumnElement,
    Enum,
    Integer,
    Numeric,
    String,
    TypeDecorator,
    Uuid,
    cast,
)
from sqlalchemy.exc import CompileError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from ttl_odm.sqlalchemy.compat import SQLTemplate
from ttl_odm.stored.rows import LONGEST_SCOPE

if TYPE_CHECKING:
    from sqlalchemy.engine import Dialect
    from sqlalchemy.sql.compiler import SQLCompiler
    from sqlalchemy.types import TypeEngine

    SQL = ColumnElement[Any]

Kind = Literal["text", "number", "uuid"]

_NUMBERS: Final = re.compile(r"(TINY|SMALL|MEDIUM|BIG)?INT(EGER)?(\(\d+\))?( UNSIGNED)?")
"""Without ZEROFILL, by which the text of a row's 7 is 0007."""

_TEXTS: Final = re.compile(r"N?(VARCHAR|TEXT)(\(\d+\))?")
"""Without a collation of its own, and not CHAR, in which blanks behind don't count."""

_EXACT_TEXT: Final = frozenset({"postgresql", "sqlite"})
"""Where text is compared by its characters unless a collation is named."""


def kind_of(value_type: TypeEngine[Any], dialect: Dialect) -> Kind | None:
    """What the values of a type are, where the database takes only the same for equal; else None.

    The name that the type has in DDL decides, which variants for a database have their part in.
    """
    if isinstance(value_type, (Enum, TypeDecorator)):
        return None
    try:
        name = value_type.compile(dialect).upper()
    except CompileError:  # as of text without a length on MySQL
        return None
    if isinstance(value_type, Integer) and _NUMBERS.fullmatch(name):
        return "number"
    if isinstance(value_type, Uuid):
        if name == "UUID" and dialect.supports_native_uuid:
            return "uuid"
        return "text" if name == "CHAR(32)" and dialect.name == "sqlite" else None
    is_text = isinstance(value_type, String) and _TEXTS.fullmatch(name)
    return "text" if is_text and dialect.name in _EXACT_TEXT else None


class Scope(FunctionElement[str]):
    """The scope of the rows whose column equals a parameter: its text, as the column has it."""

    inherit_cache = True
    type = String()

    def __init__(self, value: SQL) -> None:
        super().__init__(value)


@compiles(Scope)
def _render_scope(element: Scope, compiler: SQLCompiler, **kw: Any) -> str:
    (value,) = element.clauses
    kind = kind_of(value.type, compiler.dialect)
    if kind == "number":
        value = _NumberText(value)
    elif kind == "uuid":
        # Of a cast to it SQLAlchemy takes MariaDB for incapable.
        value = cast(SQLTemplate("CAST({0} AS UUID)", Uuid(), value), String(LONGEST_SCOPE))
    return str(compiler.process(value, **kw))


class _NumberText(FunctionElement[str]):
    """The text of the whole number that a parameter is equal to, whatever it was sent as."""

    inherit_cache = True
    type = String()


@compiles(_NumberText)
def _render_number(element: _NumberText, compiler: SQLCompiler, **kw: Any) -> str:
    # A DECIMAL, since a number that no column holds is equal to none, and must be no error here.
    (value,) = element.clauses
    number = cast(cast(value, Numeric(_DIGITS, 0)), String(LONGEST_SCOPE))
    return str(compiler.process(number, **kw))


_DIGITS: Final = 65
"""As many as MariaDB and MySQL have."""


@compiles(_NumberText, "sqlite")
def _render_number_sqlite(element: _NumberText, compiler: SQLCompiler, **kw: Any) -> str:
    # A column of numbers has a text, too, that doesn't look like one.
    value = compiler.process(element.clauses, **kw)
    number = f"CAST(CAST({value} AS NUMERIC) AS INTEGER)"
    return f"CAST(CASE WHEN {number} = {value} THEN {number} ELSE {value} END AS VARCHAR)"
