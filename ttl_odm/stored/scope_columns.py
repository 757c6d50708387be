"""One canonical form for each value that may have a stored default of its own.

Scopes are stored as text, and a row finds its scope by the text of its column. A scope in any other
spelling (``042`` for 42) would be stored and match no row, so an operator would wrongly believe
that a tenant is protected. An unambiguous spelling is normalised; any other is an error.

This module must not know databases or adapters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal
from uuid import UUID

from ttl_odm.core.values import short_repr
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.stored.rows import LONGEST_SCOPE

if TYPE_CHECKING:
    from typing import NoReturn

_WHOLE: Final = re.compile("[+-]?[0-9]+")
_MOST_DIGITS: Final = 40

_ASKS_FOR: Final = {"text": "text", "number": "whole numbers", "uuid": "UUIDs"}


@dataclass(frozen=True, slots=True)
class ScopeColumn:
    """The column, or field, whose values are scopes.

    Attributes:
        where: Its name for messages, such as ``Message.tenant_id``.
        kind: The kind of its values.
        longest: The most characters of a text; None for no limit.
        least: The lowest number that it holds.
        most: The highest number that it holds.
        keeps_blanks: Whether the database distinguishes texts by trailing blanks.
    """

    where: str
    kind: Literal["text", "number", "uuid"]
    longest: int | None = None
    least: int = -(2**63)
    most: int = 2**63 - 1
    keeps_blanks: bool = True

    def canonical(self, value: object) -> str | int | UUID:
        """Return a scope in the form of the column's values.

        Raises:
            TTLConfigurationError: The column can't hold the value.
        """
        if self.kind == "text":
            return self._text(value)
        if self.kind == "number":
            return self._number(value)
        return self._uuid(value)

    def _text(self, value: object) -> str:
        if not isinstance(value, str):
            self._reject(value, f"give a str, not {type(value).__name__}")
        longest = LONGEST_SCOPE if self.longest is None else min(self.longest, LONGEST_SCOPE)
        if not 1 <= len(value) <= longest:
            raise TTLConfigurationError(
                f"{self.where} = {short_repr(value)}: a scope has 1 to {longest} characters."
            )
        if "\0" in value or not is_encodable(value):
            self._reject(value, "the database can't store NUL or half of a surrogate pair")
        if value.endswith(" ") and not self.keeps_blanks:
            self._reject(
                value,
                f"this database treats it as {value.rstrip(' ')!r}, so leave out the "
                "trailing blanks",
            )
        return str(value)

    def _number(self, value: object) -> int:
        number = _whole_number(value)
        if number is None:
            kind = "this text" if isinstance(value, str) else type(value).__name__
            self._reject(value, f"give a whole number, not {kind}")
        if not self.least <= number <= self.most:
            self._reject(value, f"give a number from {self.least} to {self.most}")
        return number

    def _uuid(self, value: object) -> UUID:
        if isinstance(value, UUID):
            return value
        if not isinstance(value, str):
            self._reject(value, f"give a UUID or its text, not {type(value).__name__}")
        try:
            return UUID(value)
        except ValueError:
            self._reject(value, "give a UUID")

    def _reject(self, value: object, fix: str) -> NoReturn:
        raise TTLConfigurationError(
            f"{self.where} = {short_repr(value)}: no row can have this value, because the column "
            f"holds {_ASKS_FOR[self.kind]}; {fix}."
        )


def _whole_number(value: object) -> int | None:
    """Return an unambiguous whole number; None for True, and for text other than digits."""
    if isinstance(value, str):
        is_whole = len(value) <= _MOST_DIGITS and _WHOLE.fullmatch(value)
        return int(value) if is_whole else None
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    try:
        return int(value.__index__())  # type: ignore[attr-defined]
    except AttributeError:
        return None


def is_encodable(text: str) -> bool:
    """Return whether a text has no half of a surrogate pair, which no database stores."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
