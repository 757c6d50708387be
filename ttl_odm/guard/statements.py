"""Which statements of raw SQL read or change rows, which don't, and which can't be understood.

A guard sends only statements that it understands. A statement is parsed, or it is known not to read
or change rows of a table, or it is rejected: programs, SQL inside a string, and kinds of statements
that are not listed here. What a view, a function or a procedure reads is not visible in the SQL
that uses it.

This module must not know what a table is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from ttl_odm.dialects import MYSQL_FAMILY

# First: without sqlglot, its error says what to install.
from ttl_odm.guard.words import READING, WRITING, Words, word_of  # isort: split

import sqlglot
from sqlglot import TokenType, exp

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlglot import Token

_MODIFIERS: Final = {"LOW_PRIORITY", "HIGH_PRIORITY", "DELAYED", "QUICK", "IGNORE"}
_ROWS: Final = {*READING, *WRITING} - {"(", "COPY"}
"""How a statement inside another one begins."""

_PREFIXES: Final = {"EXPLAIN", "DESCRIBE", "DESC", "ANALYZE", "DECLARE", "SET"}
"""Words in front of a statement: EXPLAIN SELECT, DECLARE c CURSOR FOR SELECT, SET ... FOR."""

_BEFORE_FOR: Final = {"DECLARE", "SET"}
_BEFORE_TABLE: Final = {"AS", "ALL", "UNION", "EXCEPT", "INTERSECT", "DISTINCT", "FOR"}

_MAINTENANCE: Final = {
    *("ABORT", "ALTER", "ANALYSE", "ANALYZE", "ATTACH", "BEGIN", "CHANGE", "CHECK", "CHECKPOINT"),
    *("CHECKSUM", "CLOSE", "CLUSTER", "COMMENT", "COMMIT", "CREATE", "DEALLOCATE", "DESC"),
    *("DESCRIBE", "DETACH", "DISCARD", "DROP", "END", "EXPLAIN", "FETCH", "FLUSH", "GRANT"),
    *("INSTALL", "KILL", "LISTEN", "LOAD", "LOCK", "MOVE", "NOTIFY", "OPTIMIZE", "PRAGMA"),
    *("PURGE", "REASSIGN", "REFRESH", "REINDEX", "RELEASE", "RENAME", "REPAIR", "RESET"),
    *("REVOKE", "ROLLBACK", "SAVEPOINT", "SECURITY", "SET", "SHOW", "SHUTDOWN", "START", "STOP"),
    *("TRUNCATE", "UNINSTALL", "UNLISTEN", "UNLOCK", "USE", "VACUUM", "XA"),
}
"""Statements that neither read nor change rows, unless they contain a query."""

_PRIVILEGES: Final = {"GRANT", "REVOKE", "POLICY", "PUBLICATION"}
"""Statements, and their objects, in which SELECT and UPDATE are names of privileges."""

_PROGRAMS: Final = {"FUNCTION", "PROCEDURE", "TRIGGER", "EVENT", "PACKAGE", "RULE"}
_OBJECTS: Final = {
    *_PROGRAMS,
    *("TABLE", "VIEW", "INDEX", "SEQUENCE", "SCHEMA", "DATABASE", "TYPE", "ROLE", "USER"),
    *("EXTENSION", "POLICY", "PUBLICATION", "SUBSCRIPTION", "SERVER", "STATISTICS", "DOMAIN"),
}

_TRANSACTIONS: Final = {
    *("TRANSACTION", "TRAN", "WORK", "ISOLATION", "READ", "NOT", "DEFERRABLE", "DEFERRED"),
    *("IMMEDIATE", "EXCLUSIVE", "CONCURRENT"),
}
"""Words behind BEGIN that begin a transaction, not a program."""

_RUNNING_SQL: Final = {
    "postgresql": (
        r"(?:query|cursor|table|schema|database)_to_xml(?:schema|_and_xmlschema)?"
        r"|dblink\w*|crosstab\w*|connectby|ts_stat|ts_rewrite|xpath_table"
    ),
    "mysql": "execute_prepared_stmt",
    "sqlite": "eval|load_extension",
}
"""Functions that run SQL in their arguments, or read what these name; as a pattern."""

_COMPOSING: Final = {
    "postgresql": r'|u&"|\b(?:prepare|execute|do)\b',
    "mysql": r"|\b(?:prepare|execute)\b",
    "sqlite": "",
}
"""Other ways to reach a table whose name isn't in the text."""


class NotUnderstoodError(Exception):
    """A statement may read or change rows in a way that the guard can't see."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """One statement of a text, and its position."""

    text: str
    start: int


def may_compose(sql: str, dialect: str) -> bool:
    """Whether a text may reach tables that it doesn't name, by SQL that it composes.

    A quick test, right about most texts and sometimes true without reason; `chunks` and
    `check_words` look closely.
    """
    return bool(_composing(_family(dialect)).search(sql))


def check_words(words: Words, dialect: str) -> None:
    """Raise `NotUnderstoodError` if names are written by escapes, or a function runs SQL."""
    family = _family(dialect)
    if words.hidden is not None:
        raise NotUnderstoodError(words.hidden)
    for token, after in zip(words.tokens, words.tokens[1:], strict=False):
        name = token.text.lower()
        if family == "postgresql" and name == "u" and after.text == "&":
            raise NotUnderstoodError("it contains a name with escapes: U&")
        if after.token_type is TokenType.L_PAREN and _running(family).fullmatch(name):
            raise NotUnderstoodError(f"{name}() runs SQL that the guard doesn't read")
    _check_table_statements(words)


def _check_table_statements(words: Words) -> None:
    """Reject ``TABLE name`` where the installed sqlglot misreads it."""
    places = [
        (before, token)
        for before, token in zip([None, *words.tokens], words.tokens, strict=False)
        if word_of(token) == "TABLE"
    ]
    if places and not _knows_table():
        for before, _ in places:
            if before is None or before.text in "(;" or word_of(before) in _BEFORE_TABLE:
                raise NotUnderstoodError("this release of sqlglot doesn't know TABLE")


def chunks(words: Words, dialect: str) -> Iterator[Chunk]:
    """Yield the statements of a text that read or change rows.

    Raises:
        NotUnderstoodError: A statement of the text is of an unknown kind.
    """
    statement: list[Token] = []
    for token in [*words.tokens, None]:
        if token is not None and token.token_type is not TokenType.SEMICOLON:
            statement.append(token)
        elif statement:
            yield from _of_statement(words, statement, dialect)
            statement = []


def _of_statement(words: Words, statement: Sequence[Token], dialect: str) -> Iterator[Chunk]:
    first = word_of(statement[0])
    start, end = statement[0].start, statement[-1].end + 1
    if first in {*READING, *WRITING}:
        yield Chunk(_blanked(words.text, statement)[start:end], start)
        return
    # Behind some words, the tokenizer makes one string of the rest.
    rest = Words.of(words.text[statement[0].end + 1 : end], words.parser)
    inner = [word_of(token) for token in rest.tokens]
    if first == "PREPARE" and inner[:1] == ["TRANSACTION"]:
        return
    if first == "BEGIN" and ("ATOMIC" in inner or not {*inner[:1]} <= _TRANSACTIONS):
        raise NotUnderstoodError("the guard doesn't read the program in it")
    if first == "CREATE" or (first == "ALTER" and inner[:1] in (["VIEW"], ["EVENT"])):
        definition = _definition(words, statement, inner, first)
        if definition is not None:
            yield definition
            return
    if first in _PREFIXES:
        position = _query_position(rest.tokens, first)
        if position is not None:
            yield from _within(words, statement[0].end + 1 + position, end, dialect)
            return
    if first not in _MAINTENANCE:
        raise NotUnderstoodError(f"{first} is not looked into")
    if "SELECT" in inner and not {first, *inner} & _PRIVILEGES:
        raise NotUnderstoodError(f"the guard doesn't read the query in {first}")


def _definition(
    words: Words, statement: Sequence[Token], inner: Sequence[str], first: str
) -> Chunk | None:
    """Return a CREATE of a table or view by a query; None for other definitions."""
    kind = next((word for word in inner if word in _OBJECTS), "")
    if kind in _PROGRAMS:
        raise NotUnderstoodError(f"the guard doesn't read the {kind} that it defines")
    if kind not in {"TABLE", "VIEW"} or first == "ALTER":
        return None
    if "EXECUTE" in inner:
        raise NotUnderstoodError("the guard doesn't read EXECUTE")
    if "SELECT" not in inner and inner.count("TABLE") == 1:
        return None
    start, end = statement[0].start, statement[-1].end + 1
    return Chunk(words.text[start:end], start)


def _within(words: Words, start: int, end: int, dialect: str) -> Iterator[Chunk]:
    """Yield the statements in a part of the text."""
    part = Words.of(words.text[start:end], words.parser)
    for chunk in chunks(part, dialect):
        yield Chunk(chunk.text, start + chunk.start)


def _query_position(tokens: Sequence[Token], first: str) -> int | None:
    """Return where a statement about rows begins behind EXPLAIN and similar words."""
    beginnings = {*_ROWS, "EXECUTE", "CREATE"}
    if first == "ANALYZE":  # ANALYZE TABLE is a statement of its own
        beginnings.remove("TABLE")
    depth, may_begin = 0, first not in _BEFORE_FOR
    for token in tokens:
        if token.token_type is TokenType.L_PAREN:
            depth += 1
        elif token.token_type is TokenType.R_PAREN:
            depth -= 1
        elif depth == 0 and may_begin and word_of(token) in beginnings:
            return int(token.start)
        elif depth == 0 and word_of(token) == "FOR":
            may_begin = True
    return None


def _blanked(text: str, statement: Sequence[Token]) -> str:
    """Return the text with spaces in place of words that the parser doesn't know."""
    first, rest = statement[0], statement[1:]
    word = word_of(first)
    if word not in WRITING:
        return text
    if word == "UPDATE" and rest and word_of(rest[0]) == "OR":
        unknown = list(rest[:2])
    else:
        unknown = []
        for token in rest:
            if word_of(token) not in _MODIFIERS:
                break
            unknown.append(token)
    for token in unknown:
        text = text[: token.start] + " " * (token.end + 1 - token.start) + text[token.end + 1 :]
    return text


def _family(dialect: str) -> str:
    return "mysql" if dialect in MYSQL_FAMILY else dialect


@cache
def _running(family: str) -> re.Pattern[str]:
    return re.compile(_RUNNING_SQL.get(family, "(?!)"))


@cache
def _composing(family: str) -> re.Pattern[str]:
    functions = _RUNNING_SQL.get(family, "(?!)")
    return re.compile(rf"\b(?:{functions})\b{_COMPOSING.get(family, '')}", re.IGNORECASE)


@cache
def _knows_table() -> bool:
    """Whether the installed sqlglot parses ``TABLE name``, which older releases misread."""
    return isinstance(sqlglot.parse_one("TABLE a", read="postgres"), exp.Select)
