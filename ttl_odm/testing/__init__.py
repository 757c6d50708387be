"""What tests of applications that use ttl_odm need.

Nothing here imports pytest, and importing this package imports no database library: each name
is loaded when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ttl_odm.testing.leaks import assert_no_leaks

__all__ = ["assert_no_leaks"]

_HOMES = {"assert_no_leaks": "ttl_odm.testing.leaks"}


def __getattr__(name: str) -> Any:
    """Load a public name from its module."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
