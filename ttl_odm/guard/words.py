"""The words of raw SQL, and the preparation of a text for the parser.

A parser knows neither SQLAlchemy's escapes nor a driver's parameters, and sqlglot doesn't know a
few words of MariaDB, MySQL and SQLite, or takes them for tables. They are replaced by the same
number of other characters, so that positions in the prepared text are positions in the original.

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
"""How comments begin that MariaDB and MySQL execute."""


class Marks(Enum):
    """How parameters are written."""

    NAMED = "named"
    """As in ``text()``: ``:name``, with ``\\:`` for a colon."""

    FORMAT = "format"
    """As in drivers: ``%s``, ``%(name)s``, with ``%%`` for a percent sign."""

    OTHER = "other"
    """Forms that a parser of the dialect knows: ``?``, ``$1``."""

    @classmethod
    def of_driver(cls, paramstyle: str) -> Marks:
        """Return a driver's form of parameters, by its paramstyle."""
        return cls.FORMAT if paramstyle in {"format", "pyformat"} else cls.OTHER

    def plain(self, sql: str) -> str:
        """Return the SQL, of the same length, with parameters that a parser knows."""
        if self is Marks.NAMED:
            return sql.replace(r"\:\:", "::  ").replace(r"\:", ": ")
        if self is Marks.FORMAT:
            named = re.sub(r"%\((\w+)\)s", lambda match: f":{match[1]}   ", sql)
            return named.replace("%s", ":s").replace("%%", "% ")
        return sql


@dataclass(frozen=True, slots=True)
class Words:
    """A text and its tokens.

    Attributes:
        text: The text.
        tokens: Its tokens.
        hidden: Why some of its SQL is hidden from a parser; None if none is.
        parser: sqlglot's name of the dialect.
    """

    text: str
    tokens: list[Token]
    hidden: str | None
    parser: str

    @classmethod
    def of(cls, text: str, parser: str) -> Words:
        """Split a text into tokens; raises `sqlglot.errors.TokenError`."""
        word = text.split(maxsplit=1)[:1]
        if word and word[0].upper() == "REPLACE":  # behind which the tokenizer doesn't continue
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
        """All words and quoted names, in lower case; not of comments, literals, parameters."""
        marks = {TokenType.COLON, TokenType.PARAMETER}
        return frozenset(
            token.text.lower()
            for before, token in zip([None, *self.tokens], self.tokens, strict=False)
            if token.token_type not in _UNNAMED
            if before is None or before.token_type not in marks
        )

    @property
    def begin_a_statement(self) -> bool:
        """Whether the text, a piece of a statement, is a statement in itself."""
        return bool(self.tokens) and word_of(self.tokens[0]) in {*READING, *WRITING} - {"("}

    @property
    def may_name_tables(self) -> bool:
        """Whether the text, a piece of a statement, contains a query."""
        return any(word_of(token) in _OF_QUERIES for token in self.tokens)


def word_of(token: Token) -> str:
    """Return a word in upper case; empty for a quoted name and a string."""
    kind = token.token_type
    is_quoted = kind is TokenType.IDENTIFIER or kind.name.endswith("STRING")
    return "" if is_quoted else token.text.upper()
