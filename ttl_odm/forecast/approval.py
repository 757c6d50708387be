"""What a change of a stored default would do, and the token that lets exactly that be.

Pure; `change` makes the change in SQL databases, `change_mongodb` in MongoDB.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from ttl_odm.errors import TTLError

if TYPE_CHECKING:
    from ttl_odm.forecast.text import Forecast

_NUMBER: Final = re.compile("[0-9]{1,18}")
_DIGITS: Final = 10
"""Of the hash in a token: it guards against slips, not against attacks."""


class NotApprovedError(TTLError):
    """A change of a stored default is not the one that was approved; nothing was changed."""


@dataclass(frozen=True, slots=True)
class PolicyPreview:
    """What a change of a stored default would do, counted before it is made.

    Attributes:
        name: The table's name, with its schema where it has one.
        scope: A value of `Stored.by`, as text; None for the default of all rows.
        before: The default that these rows have now: seconds, -1 (on, but never by default) or
            None (TTL is off).
        after: The one that they would have.
        at_most: Live rows that the change may expire at once: as many as it would within the next
            hour, with the error of the estimate where a sample was counted.
        forecast: What of these rows expires when, by either default.
        token: What `approve_policy` wants to see.
    """

    name: str
    scope: str | None
    before: int | None
    after: int | None
    at_most: int
    forecast: Forecast

    @property
    def token(self) -> str:
        """The number of rows, and a hash of all that it is about."""
        return token_of(self.name, self.scope, self.before, self.after, self.at_most)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "name": self.name,
            "scope": self.scope,
            "before": self.before,
            "after": self.after,
            "at_most": self.at_most,
            "token": self.token,
            "forecast": self.forecast.to_dict(),
        }


def token_of(
    name: str, scope: str | None, before: int | None, after: int | None, at_most: int
) -> str:
    """Return the token of a change."""
    about = json.dumps([name, scope, before, after, at_most])
    return f"{at_most}-{sha256(about.encode()).hexdigest()[:_DIGITS]}"


def at_most_of(token: str) -> int:
    """Return the number of rows that a token allows; 0 if it is none."""
    number = token.partition("-")[0]
    return int(number) if _NUMBER.fullmatch(number) else 0


def other_change(where: str, before: int | None, token: str) -> NotApprovedError:
    """Return the error for a token that is not that of the change."""
    return NotApprovedError(
        f"{where}: the token {token!r} is that of another change than from {before}: of "
        "one to another value, or the default was changed since. Preview it again."
    )


def too_many(where: str, at_most: int) -> NotApprovedError:
    """Return the error for a change that would expire more than its preview said."""
    return NotApprovedError(
        f"{where}: by now it would expire more than the {at_most:,} rows that the preview "
        "has said. Preview it again."
    )
