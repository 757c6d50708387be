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
    from ttl_odm.forecast.estimates import Measured
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
        return _token(self.name, self.scope, self.before, self.after, self.at_most)

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


@dataclass(frozen=True, slots=True)
class Change:
    """A change that is asked for; `where` says which, for messages.

    The others are those of `PolicyPreview`.
    """

    name: str
    scope: str | None
    before: int | None
    after: int | None
    where: str

    def preview(self, forecast: Forecast, measured: Measured) -> PolicyPreview:
        """Return what was counted of it."""
        soon = measured.estimate("lost soon")
        most = soon.rows + soon.margin
        return PolicyPreview(self.name, self.scope, self.before, self.after, most, forecast)

    def approved(self, token: str) -> int:
        """Return the rows that a token lets expire; raises NotApprovedError for another's."""
        number = token.partition("-")[0]
        at_most = int(number) if _NUMBER.fullmatch(number) else 0
        if token != _token(self.name, self.scope, self.before, self.after, at_most):
            raise NotApprovedError(
                f"{self.where}: the token {token!r} is that of another change than from "
                f"{self.before}: of one to another value, or the default was changed since. "
                "Preview it again."
            )
        return at_most

    def check(self, lost: int, at_most: int) -> None:
        """Raise NotApprovedError where it would expire more rows by now."""
        if lost > at_most:
            raise NotApprovedError(
                f"{self.where}: by now it would expire more than the {at_most:,} rows that the "
                "preview has said. Preview it again."
            )


def _token(
    name: str, scope: str | None, before: int | None, after: int | None, at_most: int
) -> str:
    about = json.dumps([name, scope, before, after, at_most])
    return f"{at_most}-{sha256(about.encode()).hexdigest()[:_DIGITS]}"
