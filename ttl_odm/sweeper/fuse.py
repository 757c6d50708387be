"""The fuse: if far more has expired at once than is plausible, nothing is deleted.

A wrong default, a clock that jumped, a restored backup: each makes rows expire by the million, and
the sweeper would make that final. With `max_fraction` or `max_jump`, a target is counted before
anything of it is deleted. If the fuse blows, the target fails with the numbers, in every sweep
until a person has looked and passes ``force=True``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ttl_odm.errors import TTLError
from ttl_odm.sweeper.facts import of_rows
from ttl_odm.sweeper.known_facts import DueFacts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ttl_odm.sweeper.facts import RowsFact
    from ttl_odm.sweeper.store import Counted

FLOOR: Final = 1_000
"""Rows that are never too many, since small numbers exceed any ratio."""

NEEDED: Final = 3
"""Sweeps that the history must have before `max_jump` applies."""


class FuseError(DueFacts, TTLError):
    """Far more rows have expired than is plausible.

    Attributes:
        target: The target.
        due: Rows that have expired.
        allowed: The most rows that would not have blown the fuse.
        facts: What extensions say of the expired rows, by name, as in `TargetReport.facts`.
    """

    def __init__(
        self,
        message: str,
        *,
        target: str,
        due: int,
        allowed: int,
        facts: Mapping[str, RowsFact] | None = None,
    ) -> None:
        """Store the message and the numbers."""
        super().__init__(message)
        self.target = target
        self.due = due
        self.allowed = allowed
        self.facts = facts or {}


@dataclass(frozen=True, slots=True)
class Fuse:
    """How many rows may be due at once; see `SweepOptions`."""

    max_fraction: float | None = None
    max_jump: float | None = None

    def check(self, target: str, counted: Counted, past: Sequence[int]) -> None:
        """Raise a `FuseError` if too many rows are due; `past` has those of the last sweeps."""
        due = counted.due
        if self.max_fraction is not None:
            rows = max(counted.rows, due)  # an estimate may be less than was counted
            allowed = max(FLOOR, int(rows * self.max_fraction))
            if due > allowed:
                limit = f"max_fraction={self.max_fraction:g} of {rows:,} rows"
                raise self._blown(target, counted, allowed, limit)
        if self.max_jump is not None and len(past) >= NEEDED:
            most = max(past)
            allowed = max(FLOOR, int(most * self.max_jump))
            if due > allowed:
                limit = (
                    f"max_jump={self.max_jump:g} times {most:,} rows, the most that one of the "
                    f"last {len(past)} sweeps found"
                )
                raise self._blown(target, counted, allowed, limit)

    @staticmethod
    def _blown(target: str, counted: Counted, allowed: int, limit: str) -> FuseError:
        due = counted.due
        facts = {name: fact.among(due) for name, fact in of_rows(counted.facts).items()}
        brief = "; ".join(fact.brief for fact in facts.values() if fact.brief)
        whose = f" ({brief})" if brief else ""
        return FuseError(
            f"{due:,} rows have expired{whose}, more than {limit}; nothing was deleted. Was the "
            "default ttl changed, a backup restored, a clock moved? To delete them anyway, sweep "
            "once with force=True.",
            target=target,
            due=due,
            allowed=allowed,
            facts=facts,
        )
