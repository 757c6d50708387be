"""The words of raw SQL: what is done with a text before it is parsed, at its own length.

A parser knows neither SQLAlchemy's escapes nor a driver's parameters, and a few words of MariaDB,
MySQL and SQLite are unknown to sqlglot, or taken for tables. They are replaced by as many other
characters, so that positions in what is parsed are positions in what was written.

This module must not know what a table is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

try:
    from sqlglot import Dialect, TokenType
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "Raw SQL is read with sqlglot; install it with: pip install 'ttl-odm[guard]'",
        name=missing.name,
    ) from missing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlglot import Token

_READING: Final = {"SELECT", "WITH", "VALUES", "TABLE", "(", "COPY"}
_WRITING: Final = {"INSERT", "UPDATE", "DELETE", "MERGE"}
_OF_QUERIES: Final = {"SELECT", "FROM", "JOIN", "TABLE", "USING"}
_MODIFIERS: Final = {"LOW_PRIORITY", "HIGH_PRIORITY", "DELAYED", "QUICK", "IGNORE"}
_UNNAMED: Final = {TokenType.STRING, TokenType.NUMBER}
_HIDDEN: Final = ("/*!", "/*M!")
"""How comments begin that MariaDB and MySQL carry out."""


class Marks(Enum):
    """How parameters are written."""

    NAMED = "named"
    """As in ``text()``: ``:name``, and ``\\:`` for a colon."""

    FORMAT = "format"
    """As drivers take them: ``%s``, ``%(name)s``, and ``%%`` for a percent sign."""

    OTHER = "other"
    """Such as a parser of the dialect knows: ``?``, ``$1``."""

    @classmethod
    def of_driver(cls, paramstyle: str) -> Marks:
        """What a driver takes, by its paramstyle."""
        return cls.FORMAT if paramstyle in {"format", "pyformat"} else cls.OTHER

    def plain(self, sql: str) -> str:
        """The SQL with parameters that a parser knows, at its own length."""
        if self is Marks.NAMED:
            return sql.replace(r"\:\:", "::  ").replace(r"\:", ": ")
        if self is Marks.FORMAT:
            named = re.sub(r"%\((\w+)\)s", lambda match: f":{match[1]}   ", sql)
            return named.replace("%s", ":s").replace("%%", "% ")
        return sql


@dataclass(frozen=True, slots=True)
class Chunk:
    """One statement of several, and where it begins."""

    text: str
    start: int


@dataclass(frozen=True, slots=True)
class Words:
    """A text and its tokens."""

    text: str
    tokens: list[Token]
    hidden: str | None

    @classmethod
    def of(cls, text: str, parser: str) -> Words:
        """Take a text apart; raises `sqlglot.errors.TokenError`."""
        word = text.split(maxsplit=1)[:1]
        if word and word[0].upper() == "REPLACE":  # which the tokenizer doesn't look behind
            text = text.replace(word[0], "INSERT ", 1)
        hides = parser == "mysql" and any(mark in text for mark in _HIDDEN)
        tokens = list(Dialect.get_or_raise(parser or None).tokenize(text))
        return cls(text, tokens, "a comment in it is carried out" if hides else None)

    @property
    def names(self) -> frozenset[str]:
        """Every word and quoted name, in lower case; not in comments, literals, parameters."""
        marks = {TokenType.COLON, TokenType.PARAMETER}
        return frozenset(
            token.text.lower()
            for before, token in zip([None, *self.tokens], self.tokens, strict=False)
            if token.token_type not in _UNNAMED
            if before is None or before.token_type not in marks
        )

    @property
    def begin_a_statement(self) -> bool:
        """Whether a text that is a piece of a statement is one in itself."""
        return bool(self.tokens) and _word(self.tokens[0]) in {*_READING, *_WRITING} - {"("}

    @property
    def may_name_tables(self) -> bool:
        """Whether a piece of a statement has a query in it."""
        return any(_word(token) in _OF_QUERIES for token in self.tokens)


def chunks(words: Words) -> Iterator[Chunk]:
    """The statements of a text that read or change rows.

    What else is in it (SET, SHOW, PRAGMA, BEGIN, DDL) is nobody's business here.
    """
    statement: list[Token] = []
    for token in [*words.tokens, None]:
        if token is not None and token.token_type is not TokenType.SEMICOLON:
            statement.append(token)
        elif statement:
            if _is_about_rows(statement):
                start, end = statement[0].start, statement[-1].end + 1
                text = _blanked(words.text, statement)[start:end]
                yield Chunk(text, start)
            statement = []


def _is_about_rows(statement: list[Token]) -> bool:
    first, *others = map(_word, statement)
    if first == "CREATE":  # TABLE ... AS SELECT
        return "TABLE" in others[:3] and "AS" in others and "SELECT" in others
    return first in _READING or first in _WRITING


def _blanked(text: str, statement: list[Token]) -> str:
    """The text, in which words that the parser doesn't know are other ones of their length."""
    first, rest = statement[0], statement[1:]
    word = _word(first)
    if word not in _WRITING:
        return text
    if word == "UPDATE" and rest and _word(rest[0]) == "OR":
        unknown = rest[:2]
    else:
        unknown = []
        for token in rest:
            if _word(token) not in _MODIFIERS:
                break
            unknown.append(token)
    for token in unknown:
        text = text[: token.start] + " " * (token.end + 1 - token.start) + text[token.end + 1 :]
    return text


def _word(token: Token) -> str:
    return "" if token.token_type is TokenType.IDENTIFIER else token.text.upper()
