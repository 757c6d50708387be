"""The defaults of columns that a write leaves out.

A key that contains a default is looked up with the same SQL, in the statement that looks up all
keys of a write. That is right only if evaluating it twice gives the same value, and has no side
effects. Any other default (random numbers, sequences, functions of an application's own) counts as
a new value, which no row has yet.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import ColumnDefault, DefaultClause, String, TextClause
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import visitors
from sqlalchemy.sql.elements import ColumnClause
from sqlalchemy.sql.functions import Function, FunctionElement

from ttl_odm.sqlalchemy.rewrite.writes import as_element

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sqlalchemy import Column
    from sqlalchemy.sql.compiler import SQLCompiler

UNKNOWN: Final = object()
"""In place of a value that can't be known before the row exists."""

_STABLE: Final = frozenset(
    """
    abs ceil ceiling char_length coalesce concat concat_ws curdate current_catalog current_date
    current_role current_schema current_setting current_time current_timestamp current_user curtime
    database date date_add date_format date_part date_sub date_trunc datetime day dayofmonth
    dayofweek dayofyear extract floor format greatest hex hour ifnull iif instr isnull julianday
    last_day lcase least left length localtime localtimestamp lower lpad ltrim make_date md5 minute
    mod month now nullif quarter replace right round rpad rtrim schema second session_user sha1 sha2
    sha256 statement_timestamp strftime substr substring system_user time timestamp timezone to_char
    to_date transaction_timestamp trim trunc truncate ucase unix_timestamp unixepoch upper user
    utc_date utc_time utc_timestamp week weekday year
    and as bit case cast char convert decimal else float in interval not numeric or then varbinary
    varchar varying when
    """.split()  # noqa: SIM905 (a list of strings would be three times as long)
)
"""Functions that return the same value twice in a transaction, and other words that precede a
parenthesis in SQL. Clocks are among them: no other row has their value.
"""

_QUOTED: Final = re.compile(r"'(?:[^']|'')*'")
_CALLED: Final = re.compile(r"([\w$]+)[\"`]?\s*\(")
_NEW: Final = re.compile(r"\b(?:next\s+value|on\s+update)\b", re.IGNORECASE)
"""A sequence, or the ON UPDATE that can follow a default in MariaDB."""


def default_of(column: Column[Any], parameters: Mapping[str, object], number: int = 0) -> object:
    """Return what a row has in a column that its INSERT leaves out: a value, SQL, or `UNKNOWN`.

    Values from Python's defaults are among the parameters; the rows of one statement are numbered.
    """
    default = column.default
    if default is not None:
        sql = _repeated(default)
        name = f"{column.key}_m{number}" if number else column.key
        return parameters.get(name, UNKNOWN) if sql is UNKNOWN else sql
    if column.server_default is not None:
        return _repeated(column.server_default)
    return UNKNOWN if column is column.table.autoincrement_column else None


def with_defaults(
    row: Mapping[str, object],
    columns: Iterable[Column[Any]],
    parameters: Mapping[str, object],
    number: int = 0,
) -> Mapping[str, object]:
    """Return a row of an INSERT with the known defaults of the columns that it leaves out."""
    defaults = {
        column.key: default_of(column, parameters, number)
        for column in columns
        if column.key not in row
    }
    known = {name: value for name, value in defaults.items() if value is not UNKNOWN}
    return {**row, **known} if known else row


def onupdate_of(column: Column[Any]) -> object:
    """Return a column's ``onupdate``, for an UPDATE that doesn't set it: SQL, or `UNKNOWN`."""
    return UNKNOWN if column.onupdate is None else _repeated(column.onupdate)


def _repeated(default: Any) -> object:
    if isinstance(default, DefaultClause) and isinstance(default.arg, str):
        return _Quoted(default.arg)
    is_sql = isinstance(default, DefaultClause) or (
        isinstance(default, ColumnDefault) and default.is_clause_element
    )
    sql: Any = default.arg if is_sql else None
    if not is_sql or not all(map(_is_stable, visitors.iterate(sql))):
        return UNKNOWN  # of a trigger, an identity, a sequence
    return as_element(sql)


class _Quoted(ColumnClause[Any]):
    """A string as in the DDL of a default; PostgreSQL would take a bound 1 for text."""

    inherit_cache = True

    def __init__(self, text: str) -> None:
        super().__init__(text, is_literal=True)


@compiles(_Quoted)
def _render_quoted(element: _Quoted, compiler: SQLCompiler, **_: object) -> str:
    return compiler.render_literal_value(element.name, String())


def _is_stable(element: object) -> bool:
    if isinstance(element, FunctionElement):
        return isinstance(element, Function) and element.name.lower() in _STABLE
    if isinstance(element, TextClause) or (
        isinstance(element, ColumnClause) and element.is_literal
    ):
        text = _QUOTED.sub("", text_of(element))
        names = [name.lower() for name in _CALLED.findall(text)]
        return _STABLE.issuperset(names) and not _NEW.search(text)
    return True


def text_of(element: TextClause | ColumnClause[Any]) -> str:
    """Return the text of a text() or a literal column."""
    return element.text if isinstance(element, TextClause) else element.name
