"""What the last sweeps found and how fast they were, kept beside the lease: `History`.

The fuse compares with it, and ``ttl-odm status`` shows it. A target whose fuse has blown leaves no
trace in it, or the next sweep would find the new number usual.

This module must not know where it is stored.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KEPT: Final = 10
"""Sweeps that the history remembers, for each target."""


class History:
    """What the last sweeps found and did, by target."""

    def __init__(
        self,
        found: Mapping[str, Sequence[int]] | None = None,
        rates: Mapping[str, float] | None = None,
    ) -> None:
        """Take what is remembered.

        Args:
            found: Expired rows that sweeps have found, oldest first.
            rates: Rows per second of the last sweep that deleted any.
        """
        self._found = {target: list(each)[-KEPT:] for target, each in (found or {}).items()}
        self._rates = dict(rates or {})

    @classmethod
    def loads(cls, text: str) -> History:
        """Read what `dumps` wrote; what can't be read counts for nothing."""
        try:
            content: Any = json.loads(text or "{}")
            found = {
                str(target): [int(number) for number in numbers]
                for target, numbers in content["found"].items()
            }
            rates = {str(target): float(rate) for target, rate in content.get("rates", {}).items()}
        except (ValueError, TypeError, KeyError, AttributeError):
            # Another version of us wrote it, or a person did. The fuse then has to learn again.
            return cls()
        return cls(found, rates)

    def dumps(self) -> str:
        """Write it, as JSON."""
        content = {"found": self._found, "rates": self._rates}
        return json.dumps(content, separators=(",", ":"))

    def of(self, target: str) -> Sequence[int]:
        """Return what the last sweeps found in a target."""
        return self._found.get(target, [])

    def add(self, target: str, number: int) -> None:
        """Remember what one more has found, and forget the oldest beyond `KEPT`."""
        self._found[target] = [*self.of(target), number][-KEPT:]

    def rate_of(self, target: str) -> float | None:
        """Return the rows per second of the last sweep that deleted any; None for none yet."""
        return self._rates.get(target)

    def note(self, target: str, deleted: int, seconds: float) -> None:
        """Remember how fast a sweep was, if there was something to delete."""
        if deleted and seconds > 0:
            self._rates[target] = float(f"{deleted / seconds:.3g}")
