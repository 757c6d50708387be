"""What this process has noted of a default that the database stores.

Each operation has it noted anew before it begins, or may go by what was noted shortly before
(`ttl_odm.beanie.policy.stored`). Instants here are those of this host's monotonic clock.

This module must not know how a default is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ttl_odm.errors import TTLError

if TYPE_CHECKING:
    from ttl_odm.core.policy import TTL


@dataclass(frozen=True, slots=True)
class Noted:
    """A default, asked for at an instant; operations may go by it until another."""

    default: int | None
    asked: float
    until: float


class Notes:
    """The latest of what was noted of one collection's default."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._latest: Noted | None = None
        self._policy: tuple[TTL, TTL] | None = None

    def take(self, noted: Noted) -> None:
        """Note it, unless something newer was noted."""
        if self._latest is None or noted.asked >= self._latest.asked:
            self._latest, self._policy = noted, None

    def may_be_used(self, now: float) -> bool:
        """Whether an operation that begins now may go by it."""
        return self._latest is not None and now < self._latest.until

    def is_asked_since(self, instant: float) -> bool:
        """Whether it was asked for after an instant."""
        return self._latest is not None and self._latest.asked >= instant

    def policy(self, declared: TTL, model: type) -> TTL:
        """Return the policy that a class declares, with the default that was noted.

        Raises:
            TTLError: None was.
        """
        if self._latest is None:
            raise TTLError(
                f"The default ttl of {model.__name__} isn't known: it is stored in the "
                "database, and this process has not asked it yet; read a document first."
            )
        if self._policy is None or self._policy[0] is not declared:
            self._policy = declared, declared.with_default(self._latest.default)
        return self._policy[1]
