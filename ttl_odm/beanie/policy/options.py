"""The two options of ttl_odm on single operations, taken out before a driver sees them.

- ``include_expired=True`` on reads: `Event.find(..., include_expired=True)`;
- ``keep_last_modified=True`` on writes whose keyword arguments reach the driver, and
  `keep_last_modified` around those whose don't (bulk writers, `Document.replace`).

This module must not know what they lead to.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_keeping: ContextVar[bool] = ContextVar("ttl_odm_keep_last_modified", default=False)


@contextmanager
def keep_last_modified() -> Iterator[None]:
    """Let the writes inside leave ``_ts`` as it is: counters of views, fix-ups in the background.

    It holds for the task that enters it, and for tasks which that one starts inside.
    """
    token = _keeping.set(True)
    try:
        yield
    finally:
        _keeping.reset(token)


def takes_keep(options: dict[str, Any]) -> bool:
    """Take ``keep_last_modified`` out of a write's options, and say what holds for the write."""
    wish: bool | None = options.pop("keep_last_modified", None)
    return _keeping.get() if wish is None else wish


def takes_expired(options: dict[str, Any]) -> bool:
    """Take ``include_expired`` out of a read's options, and say what it is."""
    return bool(options.pop("include_expired", False))
