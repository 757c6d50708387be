"""What is read of defaults that a database stores: what they are, and how they were changed.

Each adapter that stores defaults keeps them in a table, or a collection, of these names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from ttl_odm.core.scopes import OTHERS
from ttl_odm.core.values import lenient_ttl

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

POLICIES: Final = "ttl_odm_policies"
CHANGES: Final = "ttl_odm_policy_changes"

WHOLE_TABLE: Final = OTHERS
"""The scope of a table's default."""

LONGEST_SCOPE: Final = 255
"""Characters of a scope."""

INHERIT: Final = 0
"""In the place of a scope's default: it has none of its own, and its rows have all others'."""


MAY_SHARE: Final = (
    "PostgreSQL requires the right to update a column of a row in order to lock it. Grant one "
    f"that can't change a default: GRANT UPDATE (reason) ON {POLICIES} to this user."
)
"""What a user lacks who reads stored defaults, and may not lock them for a deletion."""


class StoredNow(NamedTuple):
    """What is stored for some rows: their `own` default, or `INHERIT`; and that of all others.

    Attributes:
        moments: When each was changed; None where it isn't stored.
        last: The latest change that is written down.
    """

    own: int | None
    others: int | None
    moments: tuple[str | None, ...] = ()
    last: str = ""

    @classmethod
    def of(
        cls, rows: Iterable[tuple[str, object, object]], scopes: Sequence[str], absent: int | None
    ) -> StoredNow:
        """Read the rows of a table's policies.

        Args:
            rows: The scope of each, its ttl, and when it was changed.
            scopes: That of the whole table, and behind it the one that is asked for, if any.
            absent: What `own` is if nothing is stored for that.
        """
        found = {scope: (lenient_ttl(ttl), str(at)) for scope, ttl, at in rows}
        own, _ = found.get(scopes[-1], (absent, None))
        others, _ = found.get(scopes[0], (None, None))
        return cls(own, others, tuple(found[name][1] if name in found else None for name in scopes))

    @property
    def version(self) -> str:
        """Another one after each change of either, even one back to what it was."""
        return f"{self.moments} {self.last}"

    def is_as(self, before: StoredNow) -> bool:
        """Whether it is as it was, by what is stored now."""
        return self[:3] == before[:3]

    def meant_by(self, ttl: int | None) -> int | None:
        """The default that rows have by what is, or would be, stored for them."""
        return self.others if ttl == INHERIT else ttl


@dataclass(frozen=True, slots=True)
class StoredPolicy:
    """A stored default.

    Attributes:
        name: The name of the table, with its schema if it has one, or of the collection.
        scope: A value of `Stored.by`, as text; None for the default of all other rows.
        ttl: Seconds, -1 (on, but never by default) or None (TTL is off).
        changed_at: When it was written (aware, UTC), by the database's clock.
        changed_by: Who changed it; None for the initial value.
        reason: Why, if a reason was given.
    """

    name: str
    scope: str | None
    ttl: int | None
    changed_at: datetime
    changed_by: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """A change of a stored default; see also `StoredPolicy`.

    Attributes:
        name: As in `StoredPolicy`.
        scope: As in `StoredPolicy`.
        changed_at: When it was changed.
        changed_by: Who changed it.
        ttl_before: The previous default; 0 if the scope had none of its own. None: TTL was off, or
            nothing was stored.
        ttl_after: The new default; 0 if the scope's own default was removed.
        reason: Why, if a reason was given.
    """

    name: str
    scope: str | None
    changed_at: datetime
    changed_by: str | None
    ttl_before: int | None
    ttl_after: int | None
    reason: str | None
