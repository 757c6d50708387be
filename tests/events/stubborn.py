"""A handler that fails at first, whatever the database."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ttl_odm.events import Expiry


class Stubborn:
    """A handler that raises so many times before it does its work."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.got: list[Expiry] = []

    def __call__(self, event: Expiry) -> None:
        self.got.append(event)
        if len(self.got) <= self.failures:
            raise RuntimeError(f"no {len(self.got)}")
