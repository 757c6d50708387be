"""What the rows of a table follow: `Following`, a rule with the declaration it was made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ttl_odm.sqlalchemy.policy.references import rule_of
from ttl_odm.sqlalchemy.rewrite.statement_rules import StatementRule

if TYPE_CHECKING:
    from ttl_odm.follows import Follows


@dataclass(frozen=True, slots=True)
class Following(StatementRule):
    """The rule of a table whose rows live while their parents do."""

    declared: Follows


def following_of(table: object) -> Following | None:
    """What the rows of a table follow, or None where they don't."""
    rule = rule_of(table)
    return rule if isinstance(rule, Following) else None
