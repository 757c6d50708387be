"""What a change of a stored default would do, and the token of exactly that. Pure.

Each adapter makes a `PolicyPreview`, whose token approves it. Its words are here, too: ``ttl-odm
policy`` and ``manage.py ttl_policy`` say the same.
"""

from __future__ import annotations

import hmac
import json
import re
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from ttl_odm.core.policy import TTL
from ttl_odm.errors import TTLError
from ttl_odm.forecast.parse import parse_default
from ttl_odm.forecast.text import Forecast, Paragraph
from ttl_odm.stored import DEFAULT
from ttl_odm.stored.rows import INHERIT

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from ttl_odm.core.policy import Policy
    from ttl_odm.forecast.estimates import Measured
    from ttl_odm.stored import StoredTTL
    from ttl_odm.stored.rows import PolicyChange, StoredNow, StoredPolicy

_NUMBER: Final = re.compile("[0-9]{1,18}")
_DIGITS, _KEYED_DIGITS = 10, 16
"""Of the hash in a token: without a key it guards against mistakes only."""

_PURPOSE: Final = b"ttl_odm.policy:"
"""What an application's secret is used for here, so that no other signature of it will do."""

UNCHANGED: Final = "Nothing was changed."
ITS_TOKEN: Final = "The token of this change:"  # noqa: S105 (no password)
TYPE_IT: Final = "To make the change, type its token"
"""What is shown at a terminal, and asked there."""

NOTHING: Final = (
    "No default is stored: either no model declares __ttl__ = Stored(...), or its migration, "
    "create_all() or ensure_indexes() hasn't run yet."
)


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
        after: The one that they would have; 0: none of their own, but that of all others.
        at_most: Live rows that the change may expire at once: as many as it would within the next
            hour, with those that follow them, and with the error of the estimate where a sample was
            counted.
        forecast: What of these rows expires when, by either default.
        token: What `approve_policy` accepts, once: the number of rows, and a hash of all that the
            preview is about.
        followers: How many of the `at_most` rows are in other tables, whose rows follow these.
        has_scopes: Whether values of a field may have defaults of their own.
    """

    name: str
    scope: str | None
    before: int | None
    after: int | None
    at_most: int
    forecast: Forecast
    token: str = field(kw_only=True)
    followers: int = field(default=0, kw_only=True)
    has_scopes: bool = field(default=False, kw_only=True)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "name": self.name,
            "scope": self.scope,
            "before": self.before,
            "after": self.after,
            "at_most": self.at_most,
            **({"followers": self.followers} if self.forecast.measured.has_followers else {}),
            "token": self.token,
            "forecast": self.forecast.to_dict(),
        }

    def paragraphs(self, width: int | None, deep: str) -> Iterable[Paragraph]:
        """Return what it says, in a width of so many columns; `deep` is how all are counted."""
        change = f"{said_ttl(self.before)} -> {said_ttl(self.after)}"
        yield Paragraph(f"{said_rows(self.name, self.scope, self.has_scopes)}: {change}")
        yield from self.forecast.paragraphs(width, deep)
        along = ""
        if self.followers:
            along = f", {self.followers:,} of which follow rows of {self.name}"
        yield Paragraph(
            f"Within the next hour, the change would expire at most {self.at_most:,} rows at once"
            f"{along}."
        )


@dataclass(frozen=True, slots=True)
class Change:
    """A change that is asked for with a token, of what is stored `now`.

    Attributes:
        where: Which change it is, for messages.
        keys: What its tokens are signed with, see `keys_of`.
        has_scopes: Whether values of a field may have defaults of their own.
    """

    name: str
    scope: str | None
    now: StoredNow
    after: int | None
    where: str
    keys: tuple[bytes, ...] = ()
    has_scopes: bool = False

    @property
    def before(self) -> int | None:
        """The default that the rows have."""
        return self.now.meant_by(self.now.own)

    def policies(self, policy: Policy) -> dict[str, TTL]:
        """The policy by the default as it is, and as it would be."""
        assert isinstance(policy, TTL)  # noqa: S101 (no other has a stored default)
        planned = self.now.meant_by(self.after)
        return {
            "current": policy.with_default(self.before),
            "planned": policy.with_default(planned),
        }

    def preview(self, forecast: Forecast, measured: Measured) -> PolicyPreview:
        """Return what was counted of it."""
        soon, along = measured.estimate("lost soon"), measured.followers("lost soon")
        followers = along.rows + along.margin
        most = soon.rows + soon.margin + followers
        token = self._token(most, self.keys[0] if self.keys else b"")
        about = (self.name, self.scope, self.before, self.after, most, forecast)
        return PolicyPreview(*about, token=token, followers=followers, has_scopes=self.has_scopes)

    def approved(self, token: str) -> int:
        """Return the rows that a token lets expire; raises NotApprovedError for another's."""
        number = token.partition("-")[0]
        at_most = int(number) if _NUMBER.fullmatch(number) else 0
        own = [self._token(at_most, key).encode() for key in self.keys or (b"",)]
        given = token.encode(errors="replace")
        if not any(hmac.compare_digest(given, one) for one in own):
            raise NotApprovedError(
                f"{self.where}: the token {token!r} is not for this change from {self.before}: it "
                "is for a different value, or the default has changed since the preview, by this "
                "token or otherwise. Preview it again."
            )
        return at_most

    def check(self, lost: int, at_most: int) -> None:
        """Raise NotApprovedError where it would expire more rows by now."""
        if lost > at_most:
            raise NotApprovedError(
                f"{self.where}: the change would now expire more than the {at_most:,} rows that "
                "the preview showed. Preview it again."
            )

    def check_unchanged(self, now: StoredNow) -> None:
        """Raise NotApprovedError where what is stored is not what was read of it."""
        if not now.is_as(self.now):
            raise NotApprovedError(
                f"{self.where}: the default has just been changed. Preview it again."
            )

    def _token(self, at_most: int, key: bytes) -> str:
        about = [self.name, self.scope, self.before, self.after, at_most, self.now.version]
        text = json.dumps(about).encode()
        if key:
            digest = hmac.new(key, _PURPOSE + text, sha256).hexdigest()[:_KEYED_DIGITS]
        else:
            digest = sha256(text).hexdigest()[:_DIGITS]
        return f"{at_most}-{digest}"


def keys_of(*secrets: str | bytes | None) -> tuple[bytes, ...]:
    """The secrets of an application as keys for tokens; the first makes them, all are accepted."""
    given = [secret for secret in secrets if secret]
    return tuple(one if isinstance(one, bytes) else one.encode() for one in given)


def parse_stored(text: str, where: str) -> StoredTTL:
    """Return what a stored default is to become, as it was typed: also "default"."""
    return DEFAULT if text == DEFAULT else parse_default(text, where)


def stored_lines(found: Iterable[StoredPolicy]) -> list[tuple[str, ...]]:
    """The lines of a table of stored defaults, its head first."""
    found = [*found]
    scoped = with_scopes(found)
    return [
        ("table", "rows", "default ttl", "changed", "by", "reason"),
        *(
            (
                row.name,
                said_scope(row.scope, row.name in scoped),
                said_ttl(row.ttl),
                _when(row.changed_at),
                *_who(row),
            )
            for row in found
        ),
    ]


def change_lines(found: Iterable[PolicyChange]) -> list[tuple[str, ...]]:
    """The same of their changes."""
    found = [*found]
    scoped = with_scopes(found)
    return [
        ("changed", "table", "rows", "from", "to", "by", "reason"),
        *(
            (
                _when(row.changed_at),
                row.name,
                said_scope(row.scope, row.name in scoped),
                said_ttl(row.ttl_before),
                said_ttl(row.ttl_after),
                *_who(row),
            )
            for row in found
        ),
    ]


def plain(row: StoredPolicy | PolicyChange) -> dict[str, Any]:
    """One of them as plain values, for JSON."""
    return {name: getattr(row, name) for name in row.__dataclass_fields__}


def with_scopes(rows: Iterable[StoredPolicy | PolicyChange]) -> set[str]:
    """The names of the tables of which a scope has, or had, a default of its own."""
    return {row.name for row in rows if row.scope}


def said_scope(scope: str | None, has_scopes: bool = True) -> str:  # noqa: FBT001, FBT002
    """Which rows of a table have a default; blanks at either end can be seen."""
    if scope and scope != scope.strip():
        return repr(scope)
    return scope or ("all others" if has_scopes else "all")


def said_rows(name: str, scope: str | None, has_scopes: bool) -> str:  # noqa: FBT001
    """The table, and which of its rows where scopes have defaults of their own."""
    return f"{name}, {said_scope(scope)}" if scope or has_scopes else name


def said_ttl(ttl: int | None) -> str:
    """A default as it may be typed."""
    if ttl is None:
        return "off"
    if ttl == INHERIT:
        return DEFAULT
    for unit, seconds in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if ttl > 0 and ttl % seconds == 0:
            return f"{ttl // seconds}{unit}"
    return str(ttl)


def _who(row: StoredPolicy | PolicyChange) -> tuple[str, str]:
    return row.changed_by or "-", row.reason or "-"


def _when(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}"
