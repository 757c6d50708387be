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
    from sqlglot import Token

READING: Final = {"SELECT", "WITH", "VALUES", "TABLE", "(", "COPY"}
WRITING: Final = {"INSERT", "UPDATE", "DELETE", "MERGE"}
_OF_QUERIES: Final = {"SELECT", "FROM", "JOIN", "TABLE", "USING"}
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
class Words:
    """A text and its tokens."""

    text: str
    tokens: list[Token]
    hidden: str | None
    parser: str

    @classmethod
    def of(cls, text: str, parser: str) -> Words:
        """Take a text apart; raises `sqlglot.errors.TokenError`."""
        word = text.split(maxsplit=1)[:1]
        if word and word[0].upper() == "REPLACE":  # which the tokenizer doesn't look behind
            text = text.replace(word[0], "INSERT ", 1)
        hides = parser == "mysql" and any(mark in text for mark in _HIDDEN)
        tokens = list(Dialect.get_or_raise(parser or None).tokenize(text))
        return cls(
            text,
            tokens,
            "it contains a comment that the database executes" if hides else None,
            parser,
        )

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
        return bool(self.tokens) and word_of(self.tokens[0]) in {*READING, *WRITING} - {"("}

    @property
    def may_name_tables(self) -> bool:
        """Whether a piece of a statement has a query in it."""
        return any(word_of(token) in _OF_QUERIES for token in self.tokens)


def word_of(token: Token) -> str:
    """A word in upper case; empty for a quoted name and for text."""
    kind = token.token_type
    is_quoted = kind is TokenType.IDENTIFIER or kind.name.endswith("STRING")
    return "" if is_quoted else token.text.upper()
