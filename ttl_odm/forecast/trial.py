"""What becomes of a proposal once it was tried on the rows: the numbers, and doubts. Pure.

Names say that a column is the end of a row; only its values say that 0 is none. The counting, and
the sample of a big table, are those of `ttl-odm plan`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ttl_odm.forecast.estimates import Measured
    from ttl_odm.inspection import Proposal


def tried(proposal: Proposal, measured: Measured) -> Proposal:
    """Return a proposal with what was counted by its policy, which was the planned one."""
    expired = measured.estimate("planned 0")
    early, late = measured.estimate("early"), measured.estimate("late")
    name, doubts = proposal.field.name, [text.rstrip(".") for text in measured.doubts]
    if early.rows:
        never = "NULL" if proposal.field.is_nullable else "an instant far ahead"
        doubts.append(
            f"rows with {name} in 1970 or before (0, negative numbers): {early}; if these mean "
            f"never, first set them to {never}, or they would be deleted"
        )
    if late.rows:
        doubts.append(f"rows with {name} after the year 2500, which may mean never: {late}")
    return replace(
        proposal.doubted(*doubts),
        rows=measured.rows.rows,
        looked_at=measured.sampled,
        expired=expired.rows,
        margin=expired.margin,
    )
