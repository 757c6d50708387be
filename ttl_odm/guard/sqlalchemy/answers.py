"""What an engine may do with raw SQL that leaks, and what it then says."""

from __future__ import annotations

from typing import Literal

from sqlalchemy.exc import DontWrapMixin

from ttl_odm.errors import TTLError

Answer = Literal["off", "warn", "raise", "rewrite"]
"""What becomes of raw SQL that leaks."""


class RawSQLError(TTLError, DontWrapMixin):
    """Raw SQL names a TTL table without a condition, or can't be checked; it was not sent."""


class RawSQLWarning(UserWarning):
    """Raw SQL names a TTL table without a condition, or can't be checked; it was sent."""
