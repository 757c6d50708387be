"""`policy_change`: statements are compiled before a policy changes, or after it.

Meanwhile a table has half a policy, or none, and a statement that is compiled then would show
expired rows, or not compile at all.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import contextmanager
from functools import partial
from threading import Condition, get_ident
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_LONGEST_WAIT: Final = 1.0
"""Seconds."""


class PolicyChange:
    """Keeps statements from being compiled while a policy changes, half by one and half by none.

    Any number of threads compile at once; a change waits for them, and they for it. Nobody waits
    for longer than a second: the other one may hold a lock that the waiting thread's caller has.
    """

    def __init__(self) -> None:
        """Nobody is at work."""
        self._condition = Condition()
        self._compiling: Counter[int] = Counter()
        self._changing: int | None = None

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Within this block, no other thread changes a policy."""
        thread = get_ident()
        with self._condition:
            if self._changing is not None and self._changing != thread:
                is_free = partial(self._is_free, thread)
                self._condition.wait_for(is_free, _LONGEST_WAIT)
            self._compiling[thread] += 1
        try:
            yield
        finally:
            with self._condition:
                self._compiling[thread] -= 1
                if not self._compiling[thread]:
                    del self._compiling[thread]
                if self._changing is not None:
                    self._condition.notify_all()

    def _is_free(self, thread: int) -> bool:
        return self._changing is None or thread in self._compiling

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Within this block, no other thread compiles; one thread changes policies at a time."""
        thread = get_ident()
        with self._condition:
            before, self._changing = self._changing, thread
            self._condition.wait_for(lambda: self._compiling.keys() <= {thread}, _LONGEST_WAIT)
        try:
            yield
        finally:
            with self._condition:
                self._changing = before
                self._condition.notify_all()


policy_change: Final = PolicyChange()

# The other threads don't exist in a child process, so none of them would ever end there.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=policy_change.__init__)  # type: ignore[misc]
