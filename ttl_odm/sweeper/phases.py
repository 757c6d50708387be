"""How long each phase of a batch takes: a stopwatch that a store's functions needn't pass around.

A driver starts one for each batch (`timed`), and a store names its phases (`phase`). The phases add
up to the whole batch: time that has no name counts as "delete", so a store may name none.

This module must not know any database, nor who reads the times.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

Phase: TypeAlias = Literal["find", "delete", "archive", "hook", "commit", "after_commit"]
"""Find and lock the rows of a batch; delete them; copy them to an archive; hooks inside the
transaction; its commit; hooks after it."""

_running: ContextVar[Stopwatch | None] = ContextVar("ttl_odm_stopwatch", default=None)


class Stopwatch:
    """Seconds by phase, of which one runs at a time."""

    def __init__(self) -> None:
        self.seconds: dict[Phase, float] = {}
        self._phase: Phase = _DEFAULT
        self._since = time.monotonic()

    def turn_to(self, phase: Phase) -> Phase:
        """Start another phase, and return the previous one."""
        before, now = self._phase, time.monotonic()
        self.seconds[before] = self.seconds.get(before, 0.0) + now - self._since
        self._phase, self._since = phase, now
        return before


_DEFAULT: Final[Phase] = "delete"


@contextmanager
def timed() -> Iterator[Stopwatch]:
    """Time the phases of the block."""
    watch = Stopwatch()
    token = _running.set(watch)
    try:
        yield watch
    finally:
        _running.reset(token)
        watch.turn_to(_DEFAULT)


@contextmanager
def phase(name: Phase) -> Iterator[None]:
    """Count the block for this phase, not for the one around it; no effect outside a batch."""
    watch = _running.get()
    if watch is None:
        yield
        return
    before = watch.turn_to(name)
    try:
        yield
    finally:
        watch.turn_to(before)
