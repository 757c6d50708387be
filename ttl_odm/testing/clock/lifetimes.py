"""How long a row lives that is written now: what the adapters of the test clock say alike."""

from __future__ import annotations

from datetime import timedelta

from ttl_odm.core import expiry
from ttl_odm.errors import TTLError


def life(name: str, default: int | None, own: int | None) -> timedelta:
    """The lifetime by a default ttl and a row's own.

    Raises:
        TTLError: It never ends.
    """
    seconds = expiry.effective_ttl(default, own)
    if seconds is None:
        raise TTLError(
            f"TTLClock.expiring({name}): it lives for ever (default ttl {default!r}, ttl {own!r})."
        )
    return timedelta(seconds=seconds)


def not_counted_from_writing(name: str, field: str) -> TTLError:
    """The error for a row whose end a field of its own decides."""
    return TTLError(
        f"TTLClock.expiring({name}): it expires by what its field {field!r} holds, whenever it is "
        "written; set that field."
    )
