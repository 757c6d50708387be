"""What a batch spends its time on: a stopwatch that a store's functions needn't hand to each other.

A driver starts one around each batch (`timed`); whoever does something else than deleting for a
while says so (`phase`). All phases together are the batch, to the microsecond: what nobody claims
is "delete", so a store that says nothing is right as well.

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
"""Looking for the rows of a batch, and locking them; deleting them; copying them to an archive;
the hooks inside the transaction; its commit; the hooks after it."""

_running: ContextVar[Stopwatch | None] = ContextVar("ttl_odm_stopwatch", default=None)


class Stopwatch:
    """Counts seconds for one phase at a time."""

    def __init__(self) -> None:
        self.seconds: dict[Phase, float] = {}
        self._phase: Phase = _DEFAULT
        self._since = time.monotonic()

    def turn_to(self, phase: Phase) -> Phase:
        """Count for another phase from now on, and return the one until now."""
        before, now = self._phase, time.monotonic()
        self.seconds[before] = self.seconds.get(before, 0.0) + now - self._since
        self._phase, self._since = phase, now
        return before


_DEFAULT: Final[Phase] = "delete"


@contextmanager
def timed() -> Iterator[Stopwatch]:
    """Count what the block spends its time on."""
    watch = Stopwatch()
    token = _running.set(watch)
    try:
        yield watch
    finally:
        _running.reset(token)
        watch.turn_to(_DEFAULT)


@contextmanager
def phase(name: Phase) -> Iterator[None]:
    """Count the block for a phase, and not for the one around it; outside of a batch, nothing."""
    watch = _running.get()
    if watch is None:
        yield
        return
    before = watch.turn_to(name)
    try:
        yield
    finally:
        watch.turn_to(before)
