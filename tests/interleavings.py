"""How long readers, writers and sweepers go on beside each other: for so many statements.

TTL_ODM_TEST_INTERLEAVINGS is how many they send together in a test (4,000): each may come between
any two of another's. A million take a quarter of an hour or more on each database.
"""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

STATEMENTS = int(os.environ.get("TTL_ODM_TEST_INTERLEAVINGS", "4000"))


class Interleavings:
    """Counts the statements of all threads until there are enough of them.

    Args:
        wanted: how many are enough.
    """

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._numbers = itertools.count(1)  # from which each thread gets one of its own
        self._sent = 0

    def note(self, *_: object) -> None:
        """Count a statement."""
        self._sent = next(self._numbers)

    def around(self, execute: Callable[..., Any], *statement: Any) -> Any:
        """Count a statement of Django's, as a wrapper of its `execute`."""
        self.note()
        return execute(*statement)

    @property
    def are_enough(self) -> bool:
        """Whether it is time to stop."""
        return self._sent >= self._wanted
