"""How a leak of raw SQL is reported: the error, the warning, and the line that sent the SQL.

This module must not import sqlglot: `ttl_odm.sqlalchemy` exports the error and the warning.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from sqlalchemy.exc import DontWrapMixin

from ttl_odm.errors import TTLError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

Answer = Literal["off", "warn", "raise", "rewrite"]
"""How an engine answers raw SQL that leaks."""

SQL_LENGTH: Final = 300
"""The longest excerpt of a statement in a report, in characters."""

# A statement is looked at before the driver gets it, so no driver is on the stack. The last three
# are thin layers over SQLAlchemy: the line that matters is the one that called them.
_LIBRARIES: Final = {
    "sqlalchemy",
    "ttl_odm",
    "greenlet",
    "flask_sqlalchemy",
    "sqlmodel",
    "advanced_alchemy",
}


class RawSQLError(TTLError, DontWrapMixin):
    """Raw SQL names a TTL table without a condition, or can't be checked; it was not sent."""


class RawSQLWarning(UserWarning):
    """Raw SQL names a TTL table without a condition, or can't be checked; it was sent."""


def line_of_user() -> str:
    """Return the innermost line of the stack that belongs to the application, not to a library."""
    for frame in _frames():
        root = str(frame.f_globals.get("__name__", "sqlalchemy")).partition(".")[0]
        if root not in _LIBRARIES:  # (SQLAlchemy's generated functions have no module name)
            code, here = frame.f_code, Path.cwd()
            file = Path(code.co_filename)
            path = file.relative_to(here) if file.is_relative_to(here) else file
            return f"{path}:{frame.f_lineno} in {code.co_name}"
    return "(sent by no Python code)"


def _frames() -> Iterator[FrameType]:
    """Yield the stack from here outwards, through the greenlet of SQLAlchemy's asyncio."""
    frame, greenlet = inspect.currentframe(), sys.modules.get("greenlet")
    running = None if greenlet is None else greenlet.getcurrent()
    while True:
        while frame is not None:
            yield frame
            frame = frame.f_back
        running = None if running is None else running.parent
        if running is None:
            return
        frame = running.gr_frame
