"""What the database makes of a key: defaults of columns that a write leaves out, generated columns.

A key of which it makes a part is looked for with the same SQL, in the statement that looks for all
keys of a write. That is right only where evaluating it twice gives the same value, and does
nothing. What isn't known to be so (random numbers, sequences, functions of an application's own) is
taken for a new value, which is in nobody's way.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    Column,
    ColumnDefault,
    DefaultClause,
    String,
    TextClause,
    false,
    select,
    union_all,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import visitors
from sqlalchemy.sql.elements import ColumnClause
from sqlalchemy.sql.functions import Function, FunctionElement

from ttl_odm.sqlalchemy.policy.parameters import include_expired
from ttl_odm.sqlalchemy.rewrite.writes import as_element

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from sqlalchemy import ColumnElement, FromClause, Select
    from sqlalchemy.sql.compiler import SQLCompiler

UNKNOWN: Final = object()
"""In place of a value that nobody knows before the row is there."""

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
"""Functions that give the same twice in a transaction (but for clocks, which tell what no other row
has), and what else SQL has before a parenthesis."""

_QUOTED: Final = re.compile(r"'(?:[^']|'')*'")
_CALLED: Final = re.compile(r"([\w$]+)[\"`]?\s*\(")
_NEW: Final = re.compile(r"\b(?:next\s+value|on\s+update)\b", re.IGNORECASE)
"""A sequence; and what MariaDB's defaults may have behind them."""


def default_of(column: Column[Any], parameters: Mapping[str, Any], number: int = 0) -> Any:
    """What a row has in a column that its INSERT leaves out: a value, SQL, or `UNKNOWN`.

    What Python's defaults gave is among the parameters; the rows of one statement have numbers.
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
    row: Mapping[str, Any],
    columns: Iterable[Column[Any]],
    parameters: Mapping[str, Any],
    number: int = 0,
) -> Mapping[str, Any]:
    """A row of an INSERT with the defaults of those of the columns that it leaves out."""
    defaults = {
        column.key: default_of(column, parameters, number)
        for column in columns
        if column.key not in row
    }
    known = {name: value for name, value in defaults.items() if value is not UNKNOWN}
    return {**row, **known} if known else row


def onupdate_of(column: Column[Any]) -> Any:
    """What a row gets in a column that its UPDATE doesn't set: SQL, or `UNKNOWN`."""
    return UNKNOWN if column.onupdate is None else _repeated(column.onupdate)


def _repeated(default: Any) -> Any:
    if isinstance(default, DefaultClause) and isinstance(default.arg, str):
        return _Quoted(default.arg)
    is_sql = isinstance(default, DefaultClause) or (
        isinstance(default, ColumnDefault) and default.is_clause_element
    )
    sql: Any = default.arg if is_sql else None
    if not is_sql or not all(map(_is_stable, visitors.iterate(sql))):
        return UNKNOWN  # a trigger's, an identity, a sequence
    return as_element(sql)


class _Quoted(ColumnClause[Any]):
    """A string as it is in the DDL of a default; PostgreSQL would take a bound 1 for a text."""

    inherit_cache = True

    def __init__(self, text: str) -> None:
        super().__init__(text, is_literal=True)


@compiles(_Quoted)
def _render_quoted(element: _Quoted, compiler: SQLCompiler, **_: object) -> str:
    return compiler.render_literal_value(element.name, String())


def _is_stable(element: Any) -> bool:
    if isinstance(element, FunctionElement):
        return isinstance(element, Function) and element.name.lower() in _STABLE
    if isinstance(element, TextClause) or (
        isinstance(element, ColumnClause) and element.is_literal
    ):
        text = _QUOTED.sub("", _text_of(element))
        names = [name.lower() for name in _CALLED.findall(text)]
        return _STABLE.issuperset(names) and not _NEW.search(text)
    return True


def with_sources(column: Column[Any], *computed: Column[Any]) -> Iterator[Column[Any]]:
    """A column, after those that it is computed from, if it is a generated one.

    They are known by their names, which may be a function's, too: so those that are `computed` from
    this one are not asked again.
    """
    if column.computed is not None:
        words: set[str] = set()
        for element in visitors.iterate(column.computed.sqltext):
            if isinstance(element, (TextClause, ColumnClause)):
                words |= _words(element)
        for other in column.table.c:
            is_new = all(other is not known for known in (column, *computed))
            if is_new and words.intersection(_words(other)):
                yield from with_sources(other, column, *computed)
    yield column


def _words(element: TextClause | ColumnClause[Any]) -> set[str]:
    return set(re.findall(r"[\w$]+", _text_of(element).lower()))


def _text_of(element: TextClause | ColumnClause[Any]) -> str:
    return element.text if isinstance(element, TextClause) else element.name


def of_new_rows(
    parts: Iterable[ColumnElement[Any]],
    generated: Iterable[Column[Any]],
    columns: Collection[Column[Any]],
    new: Select[Any],
    stored: Callable[[Any, Column[Any]], ColumnElement[Any]],
) -> Select[Any]:
    """A SELECT of parts of a key in new rows, which have these columns, and generated ones.

    What a generated column is computed by may be text, in which names of columns stand: here they
    are those of a subquery. `stored` makes of that what the column stores.
    """
    # No row of the table, but the types and collations of its columns.
    none = select(*columns).where(false()).options(include_expired())
    name = next(iter(columns)).table.name
    rows: FromClause = union_all(none, new).subquery(name)
    own = dict(zip(columns, rows.c, strict=True))
    rows, places = with_generated(rows, own, generated, stored)
    key: Any = select(*(with_values(part, places) for part in parts))
    return key.select_from(rows)  # type: ignore[no-any-return]


def with_generated(
    rows: FromClause,
    places: Mapping[Column[Any], ColumnElement[Any]],
    generated: Iterable[Column[Any]],
    stored: Callable[[Any, Column[Any]], ColumnElement[Any]],
) -> tuple[FromClause, Mapping[Column[Any], ColumnElement[Any]]]:
    """A subquery with generated columns beside the columns of another one.

    Both have the name of the table, and `places` says where the first one has columns of it: the
    text of a generated column names them; `stored` makes of that what the column stores. Returned
    is also where the new one has all of them.
    """
    for column in generated:
        computed: Any = column.computed
        made = stored(with_values(computed.sqltext, places), column).label(column.name)
        wider: Any = select(*rows.c, made).select_from(rows).subquery(column.table.name)
        places = {own: wider.corresponding_column(place) for own, place in places.items()}
        places[column] = wider.c[column.name]
        rows = wider
    return rows, places


def is_made_of(part: ColumnElement[Any], columns: Iterable[Column[Any]]) -> bool:
    """Whether one of these columns is in a part of a key."""
    return any(element is column for element in visitors.iterate(part) for column in columns)


def with_values(part: Any, values: Mapping[Column[Any], Any]) -> Any:
    """A part of a key with values or SQL in the place of columns."""

    def replaced(element: Any, **_: object) -> Any:
        return values.get(element) if isinstance(element, Column) else None

    return visitors.replacement_traverse(as_element(part), {}, replaced)
