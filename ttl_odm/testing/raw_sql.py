"""Which tables a piece of raw SQL reads, as far as its words tell.

No parser of SQL: it knows where a name is that of a table (after FROM, JOIN, UPDATE, USING and
the commas between them) and where it is a column, an alias or a function. That is enough to
tell ``SELECT tokens FROM users`` from ``SELECT name FROM tokens``. It knows nothing of policies
or of SQLAlchemy.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_COMMENTS: Final = r"--[^\n]*|/\*.*?\*/"
_DOLLARS: Final = r"\$(?P<tag>\w*)\$.*?\$(?P=tag)\$"
_ESCAPED: Final = r"'(?:[^'\\]|\\.|'')*'"
_PLAIN: Final = r"'(?:[^']|'')*'"
_PARAMETERS: Final = r"(?<!:):\w+|%\(\w+\)s"
_PART: Final = r"""(?:"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\]|[\w$]+)"""
_NAME: Final = rf"(?P<name>{_PART}(?:\s*\.\s*{_PART})*)"
_MARK: Final = r"(?P<mark>[(),;])"


def _tokens(*nothing: str) -> re.Pattern[str]:
    # What comes first wins: a name in a comment or in a literal is no name.
    return re.compile("|".join((*nothing, _NAME, _MARK)), re.DOTALL)


# A backslash escapes a quote in MySQL's literals and in PostgreSQL's E'...', but not in others.
_STANDARD: Final = _tokens(_COMMENTS, _DOLLARS, r"(?<!\w)[eE]" + _ESCAPED, _PLAIN, _PARAMETERS)
_MYSQL: Final = _tokens(_COMMENTS, r"\#[^\n]*", _ESCAPED, _PARAMETERS)

_TABLES_FOLLOW: Final = {"FROM", "JOIN", "STRAIGHT_JOIN", "UPDATE", "USING"}
_TABLES_END: Final = {
    "SELECT", "WHERE", "SET", "GROUP", "ORDER", "HAVING", "WINDOW", "LIMIT", "OFFSET", "FETCH",
    "UNION", "EXCEPT", "INTERSECT", "RETURNING", "VALUES",
}  # fmt: skip
_BEFORE_A_TABLE: Final = {
    "ONLY", "LATERAL", "LOW_PRIORITY", "QUICK", "IGNORE", "OR", "REPLACE", "ROLLBACK", "ABORT",
    "FAIL",
}  # fmt: skip
_NO_TABLES_AFTER: Final = {("DISTINCT", "FROM"), ("KEY", "UPDATE")}
"""``IS DISTINCT FROM x`` and ``ON DUPLICATE KEY UPDATE x`` name columns."""


@dataclass(slots=True)
class _Level:
    """What is between two parentheses.

    Attributes:
        statement: It has a SELECT or DELETE, so its FROM is no part of ``EXTRACT(x FROM y)``.
        listing: A comma is followed by another table.
        is_next: The next name is that of a table.
    """

    statement: bool
    listing: bool
    is_next: bool


def names_in(sql: str, *, mysql: bool = False) -> set[str]:
    """Every word and quoted name in SQL, in lower case; not in comments, literals, parameters."""
    names = (match["name"] for match in _matches(sql, mysql=mysql))
    return {part for name in names if name is not None for part in _parts(name)}


def tables_in(sql: str, *, mysql: bool = False, from_clause: bool = False) -> set[tuple[str, ...]]:
    """The tables that a piece of SQL reads, updates or deletes from; not those it inserts into.

    Each has its qualifiers before it, in lower case. In a from clause tables are named at once.
    """
    levels = [_Level(statement=True, listing=from_clause, is_next=from_clause)]
    tables: set[tuple[str, ...]] = set()
    previous = ""
    for match in _matches(sql, mysql=mysql):
        level, name, mark = levels[-1], match["name"], match["mark"]
        if name is None:
            _punctuation(mark, levels, previous)
            previous = mark
            continue
        word = name.upper()
        if word in _TABLES_FOLLOW:
            if (previous, word) not in _NO_TABLES_AFTER and (level.statement or word != "FROM"):
                level.listing = level.is_next = True
        elif word in _TABLES_END:
            level.listing = level.is_next = False
            level.statement = level.statement or word == "SELECT"
        elif level.is_next and word not in _BEFORE_A_TABLE:
            tables.add(_parts(name))
            level.is_next = False
        elif word == "DELETE":
            level.statement = True
        previous = word
    return tables


def _punctuation(mark: str, levels: list[_Level], previous: str) -> None:
    level = levels[-1]
    if mark == "(":
        # FROM (a JOIN b), but not JOIN b USING (column).
        is_next = level.is_next and previous != "USING"
        levels.append(_Level(statement=False, listing=is_next, is_next=is_next))
        level.is_next = False
    elif mark == ")" and len(levels) > 1:
        levels.pop()
    elif mark == ",":
        level.is_next = level.listing
    elif mark == ";":
        levels[:] = [_Level(statement=True, listing=False, is_next=False)]


def _matches(sql: str, *, mysql: bool) -> Iterator[re.Match[str]]:
    for match in (_MYSQL if mysql else _STANDARD).finditer(sql):
        if match["name"] is not None or match["mark"] is not None:
            yield match


def _parts(name: str) -> tuple[str, ...]:
    parts = (match[0] for match in re.finditer(_PART, name))
    return tuple(part.strip('"`[]').lower() for part in parts)
