"""`Expiry`, the event of a row, and its form as JSON.

This module must not know any database.
"""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time, timedelta, timezone
from enum import Enum
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Kind: TypeAlias = Literal["expired", "expiring"]
"""What happened, or is about to."""

EXPIRED: Final = "expired"
EXPIRING: Final = "expiring"

_ID_LENGTH: Final = 32


@dataclass(frozen=True, slots=True)
class Expiry:
    """A row that has expired and is deleted, or one that is about to expire.

    Its values have the form of JSON: an instant is text such as ``2026-01-31T12:00:00+00:00``, a
    UUID or a decimal number is text, bytes are Base64.

    Attributes:
        id: The same for each delivery of this event, and for no other event: an idempotency key.
        table: The table of the row.
        key: The primary key of the row.
        row: The values of the row by column: its key, the columns of the policy, and the columns of
            ``include``.
        last_modified: The instant from which its life was counted (aware, UTC); None if the
            policy's column held none.
        expires_at: The instant at which it expired, or will expire (aware, UTC).
        kind: What happened: ``"expired"``, or ``"expiring"`` for a warning.
        before: How long before that instant a warning is given; None for ``"expired"``.
        delivery: The number of this delivery to this consumer, from 1; 0 if it isn't a delivery.
    """

    id: str
    table: str
    key: tuple[Any, ...]
    row: Mapping[str, Any] = field(hash=False)
    last_modified: datetime | None
    expires_at: datetime
    kind: Kind = EXPIRED
    before: timedelta | None = None
    delivery: int = 0

    @classmethod
    def of(  # noqa: PLR0913 (a row has as many properties)
        cls,
        table: str,
        key: Sequence[object],
        row: Mapping[str, object],
        *,
        last_modified: datetime | None,
        expires_at: datetime,
        before: timedelta | None = None,
    ) -> Expiry:
        """Make the event of a row; its id differs for each life of the row's key.

        With `before` it is a warning. After its end was moved, a life has another warning.
        """
        kind: Kind = EXPIRED if before is None else EXPIRING
        plain = tuple(as_json(key))
        parts = [table, plain, as_json(last_modified), kind]
        if before is not None:
            parts += [as_json(expires_at), before.total_seconds()]
        elif last_modified is None:  # each such row is a life of its own
            parts.append(as_json(expires_at))
        digest = sha256(json.dumps(parts).encode()).hexdigest()[:_ID_LENGTH]
        return cls(digest, table, plain, as_json(row), last_modified, expires_at, kind, before)

    def delivered(self, number: int) -> Expiry:
        """Return a copy with the number of a delivery."""
        return replace(self, delivery=number)

    def to_dict(self) -> dict[str, Any]:
        """Return the values for ``json.dumps()``."""
        return {
            "id": self.id,
            "table": self.table,
            "key": list(self.key),
            "row": dict(self.row),
            "last_modified": as_json(self.last_modified),
            "expires_at": as_json(self.expires_at),
            "kind": self.kind,
            "before": as_json(self.before),
            "delivery": self.delivery,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Expiry:
        """Return the event of which `to_dict` returned the values; for a task that gets them.

        Raises:
            KeyError: One of the values is missing.
        """
        began, before = values["last_modified"], values["before"]
        return cls(
            values["id"],
            values["table"],
            tuple(values["key"]),
            dict(values["row"]),
            None if began is None else datetime.fromisoformat(began),
            datetime.fromisoformat(values["expires_at"]),
            values["kind"],
            None if before is None else timedelta(seconds=before),
            values["delivery"],
        )


def as_json(value: object) -> Any:
    """Return the form of a value in JSON; text if JSON has none for it."""
    return json.loads(json.dumps(value, default=_plain), parse_constant=str)


def _plain(value: object) -> object:
    """Return the form of a value of a type that JSON doesn't know."""
    match value:
        case datetime():
            return (value if value.tzinfo is None else value.astimezone(timezone.utc)).isoformat()
        case date() | time():
            return value.isoformat()
        case bytes() | bytearray() | memoryview():
            return b64encode(value).decode()
        case set() | frozenset():
            return sorted(value, key=str)
        case Enum():
            return value.value
    return value.total_seconds() if isinstance(value, timedelta) else str(value)
