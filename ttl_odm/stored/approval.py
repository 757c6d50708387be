"""The preview of a change of a stored default, and the token that approves exactly that. Pure.

Each adapter counts what a change would expire, and makes a `PolicyPreview` of the numbers, whose
token approves the change. Here are also the texts of ``ttl-odm policy`` and ``manage.py
ttl_policy``.
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
from ttl_odm.forecast.parser import parse_default
from ttl_odm.forecast.text import Forecast, Paragraph
from ttl_odm.stored import DEFAULT
from ttl_odm.stored.rows import INHERIT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from ttl_odm.core.policy import Policy
    from ttl_odm.forecast.estimates import Measured
    from ttl_odm.stored import StoredTTL
    from ttl_odm.stored.rows import NamedDefault, PolicyChange, StoredNow, StoredPolicy

_NUMBER: Final = re.compile("[0-9]{1,18}")
_DIGITS, _KEYED_DIGITS = 10, 16
"""Digits of the hash in a token; without a key it guards against mistakes only."""

_PURPOSE: Final = b"ttl_odm.policy:"
"""Separates these signatures from others that an application makes with the same secret."""

UNCHANGED: Final = "Nothing was changed."
ITS_TOKEN: Final = "The token of this change:"  # noqa: S105 (no password)
TYPE_IT: Final = "To make the change, type its token"
"""What a terminal shows before it asks for the token, and the question."""

NOTHING: Final = (
    "No default is stored: either no model declares __ttl__ = Stored(...), or its migration, "
    "create_all() or ensure_indexes() hasn't run yet."
)


class NotApprovedError(TTLError):
    """The change of a stored default isn't the approved one; nothing was changed."""


@dataclass(frozen=True, slots=True)
class PolicyPreview:
    """What a change of a stored default would do, counted before it is made.

    Attributes:
        name: The table's name, with its schema if it has one.
        scope: A value of `Stored.by`, as text; None for the default of all rows without their own.
        before: The current default of these rows: seconds, -1 (on, but never by default) or None
            (TTL is off).
        after: The planned default; 0 removes the scope's own.
        at_most: The most live rows that the change may expire at once: as many as it would expire
            within the next hour, with the rows that follow them, and with the error of the estimate
            if a sample was counted.
        forecast: How many of these rows expire when, by either default.
        token: Approves the change, once: the number of rows, and a hash of all that the preview
            shows.
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
        """Return the text of the preview.

        Args:
            width: The columns that there are; None for any number.
            deep: The sentence on how to count all rows, after the numbers of a sample.
        """
        change = f"{ttl_label(self.before)} -> {ttl_label(self.after)}"
        yield Paragraph(f"{rows_label(self.name, self.scope, self.has_scopes)}: {change}")
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
    """A change of a stored default that a caller previews, or makes with a token.

    Attributes:
        default: The default.
        now: What is stored before the change.
        after: The new value.
        keys: The keys that sign its tokens: see `keys_of`.
    """

    default: NamedDefault
    now: StoredNow
    after: int | None
    keys: tuple[bytes, ...] = ()

    @property
    def before(self) -> int | None:
        """The default that the rows have."""
        return self.now.meant_by(self.now.own)

    def policies(self, policy: Policy) -> dict[str, TTL]:
        """Return the policy with the current and with the planned default."""
        assert isinstance(policy, TTL)  # noqa: S101 (no other has a stored default)
        planned = self.now.meant_by(self.after)
        return {
            "current": policy.with_default(self.before),
            "planned": policy.with_default(planned),
        }

    def preview(self, policies: Mapping[str, Policy], measured: Measured) -> PolicyPreview:
        """Return the preview, given the policies that `policies` names, and the counts."""
        default, current, planned = self.default, policies["current"], policies["planned"]
        forecast = Forecast(default.name, default.label, current, planned, measured)
        soon, along = measured.estimate("lost soon"), measured.followers("lost soon")
        followers = along.rows + along.margin
        most = soon.rows + soon.margin + followers
        return PolicyPreview(
            default.name,
            default.scope,
            self.before,
            self.after,
            most,
            forecast,
            token=self._token(most, self.keys[0] if self.keys else b""),
            followers=followers,
            has_scopes=default.stored.by is not None,
        )

    def approved(self, token: str) -> int:
        """Return how many rows a token lets expire.

        Raises:
            NotApprovedError: It is the token of another change.
        """
        number = token.partition("-")[0]
        at_most = int(number) if _NUMBER.fullmatch(number) else 0
        own = [self._token(at_most, key).encode() for key in self.keys or (b"",)]
        if not any(hmac.compare_digest(token.encode(errors="replace"), one) for one in own):
            raise self._error(
                f"the token {token!r} is not for this change from {self.before}: it is for a "
                "different value, or the default has changed since the preview, by this token or "
                "otherwise. Preview it again."
            )
        return at_most

    def check(self, lost: int, at_most: int) -> None:
        """Raise NotApprovedError if it would expire more rows by now."""
        if lost > at_most:
            raise self._error(
                f"the change would now expire more than the {at_most:,} rows that the preview "
                "showed. Preview it again."
            )

    def check_unchanged(self, now: StoredNow) -> None:
        """Raise NotApprovedError if another value is stored than when the change began."""
        if not now.is_as(self.now):
            raise self._error("the default has just been changed. Preview it again.")

    def _error(self, problem: str) -> NotApprovedError:
        return NotApprovedError(f"{self.default.label}.__ttl__ = {self.after}: {problem}")

    def _token(self, at_most: int, key: bytes) -> str:
        default, version = self.default, self.now.version
        signed = [default.name, default.scope, self.before, self.after, at_most, version]
        text = json.dumps(signed).encode()
        if key:
            digest = hmac.new(key, _PURPOSE + text, sha256).hexdigest()[:_KEYED_DIGITS]
        else:
            digest = sha256(text).hexdigest()[:_DIGITS]
        return f"{at_most}-{digest}"


def keys_of(*secrets: str | bytes | None) -> tuple[bytes, ...]:
    """Return the secrets of an application as keys; the first signs tokens, all are accepted."""
    # Django's lazy strings aren't instances of str.
    return tuple(key if isinstance(key, bytes) else key.encode() for key in secrets if key)


def parse_stored(text: str, where: str) -> StoredTTL:
    """Parse the new value of a stored default as a person types it; "default" too."""
    return DEFAULT if text == DEFAULT else parse_default(text, where)


def stored_lines(policies: Iterable[StoredPolicy]) -> list[tuple[str, ...]]:
    """Return the lines of a table of stored defaults, its head first."""
    rows = [*policies]
    scoped = scoped_tables(rows)
    return [
        ("table", "rows", "default ttl", "changed", "by", "reason"),
        *(
            (
                row.name,
                scope_label(row.scope, row.name in scoped),
                ttl_label(row.ttl),
                _when(row.changed_at),
                *_who(row),
            )
            for row in rows
        ),
    ]


def change_lines(changes: Iterable[PolicyChange]) -> list[tuple[str, ...]]:
    """Return the lines of a table of changes, its head first."""
    rows = [*changes]
    scoped = scoped_tables(rows)
    return [
        ("changed", "table", "rows", "from", "to", "by", "reason"),
        *(
            (
                _when(row.changed_at),
                row.name,
                scope_label(row.scope, row.name in scoped),
                ttl_label(row.ttl_before),
                ttl_label(row.ttl_after),
                *_who(row),
            )
            for row in rows
        ),
    ]


def plain(row: StoredPolicy | PolicyChange) -> dict[str, Any]:
    """Return a stored default, or a change, as plain values for JSON."""
    return {name: getattr(row, name) for name in row.__dataclass_fields__}


def scoped_tables(rows: Iterable[StoredPolicy | PolicyChange]) -> set[str]:
    """Return the names of the tables in which a scope has, or had, a default of its own."""
    return {row.name for row in rows if row.scope}


def scope_label(scope: str | None, has_scopes: bool = True) -> str:  # noqa: FBT001, FBT002
    """Return the words for the rows of a scope; blanks at either end are made visible."""
    if scope and scope != scope.strip():
        return repr(scope)
    return scope or ("all others" if has_scopes else "all")


def rows_label(name: str, scope: str | None, has_scopes: bool) -> str:  # noqa: FBT001
    """Return the words for a table, and for the rows of a scope if it has scopes."""
    return f"{name}, {scope_label(scope)}" if scope or has_scopes else name


def ttl_label(ttl: int | None) -> str:
    """Return a default in the form that a person types."""
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
