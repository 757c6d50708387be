"""The one scope that a statement reads, if a condition such as `tenant_id = :t` decides it.

The default is then looked up once for the statement, by the parameter, and not for each row. But
``=`` may be true of a row of another scope: MariaDB and MySQL find Acme equal to acme, PostgreSQL
does so in a CITEXT column, SQLite under NOCASE, and trailing blanks don't always count. So this is
only done for types whose equal values have the same text: see `kind_of`. A parameter may also look
different from the column: SQLite, MariaDB and MySQL find the rows of 7 by ``'07'`` and by 7.0 too.
So `Scope` converts it to the column's form.

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
"""Types of whole numbers; without ZEROFILL, by which the text of a row's 7 is 0007."""

_TEXTS: Final = re.compile(r"N?(VARCHAR|TEXT)(\(\d+\))?")
"""Types of text without a collation of their own; not CHAR, whose trailing blanks don't count."""

_EXACT_TEXT: Final = frozenset({"postgresql", "sqlite"})
"""Databases that compare text by its characters, unless a collation is named."""


def kind_of(value_type: TypeEngine[Any], dialect: Dialect) -> Kind | None:
    """Return the kind of a type's values if equal ones are identical in a database; else None.

    The type's name in DDL decides, because that includes its variant for the database.
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
    """The scope of the rows whose column equals a parameter, as the text of the column's value."""

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
        # SQLAlchemy believes that MariaDB can't cast to UUID.
        value = cast(SQLTemplate("CAST({0} AS UUID)", Uuid(), value), String(LONGEST_SCOPE))
    return str(compiler.process(value, **kw))


class _NumberText(FunctionElement[str]):
    """The text of the whole number that a parameter equals, whatever its type."""

    inherit_cache = True
    type = String()


@compiles(_NumberText)
def _render_number(element: _NumberText, compiler: SQLCompiler, **kw: Any) -> str:
    # A DECIMAL: a number beyond the column's range equals no row, and must not be an error here.
    (value,) = element.clauses
    number = cast(cast(value, Numeric(_DIGITS, 0)), String(LONGEST_SCOPE))
    return str(compiler.process(number, **kw))


_DIGITS: Final = 65
"""The most digits of a DECIMAL on MariaDB and MySQL."""


@compiles(_NumberText, "sqlite")
def _render_number_sqlite(element: _NumberText, compiler: SQLCompiler, **kw: Any) -> str:
    # A column of numbers may also hold a text that isn't a number.
    value = compiler.process(element.clauses, **kw)
    number = f"CAST(CAST({value} AS NUMERIC) AS INTEGER)"
    return f"CAST(CASE WHEN {number} = {value} THEN {number} ELSE {value} END AS VARCHAR)"
