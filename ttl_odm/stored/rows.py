"""Stored defaults as adapters read them: what they are now, and how they were changed.

Each adapter keeps them in two tables, or collections, of the names below.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from ttl_odm.core.extension import OTHERS
from ttl_odm.core.values import lenient_ttl
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from ttl_odm.stored import Stored, StoredTTL

POLICIES: Final = "ttl_odm_policies"
CHANGES: Final = "ttl_odm_policy_changes"

WHOLE_TABLE: Final = OTHERS
"""The scope of a table's default."""

LONGEST_SCOPE: Final = 255
"""The most characters of a scope."""

INHERIT: Final = 0
"""In place of a scope's default: the scope has none of its own, so its rows have the table's."""

MAY_SHARE: Final = (
    "PostgreSQL requires the right to update a column of a row in order to lock it. Grant one "
    f"that can't change a default: GRANT UPDATE (reason) ON {POLICIES} to this user."
)
"""The fix for a user who may read stored defaults but not lock them for a deletion."""


class StoredNow(NamedTuple):
    """What is stored at a moment for a scope, or a table, and for all other rows.

    Attributes:
        own: The default of the scope, or `INHERIT`; or that of the table.
        others: The default of all rows whose scope has none of its own.
        moments: When each was changed; None where it isn't stored.
        last: The latest change in the history.
    """

    own: int | None
    others: int | None
    moments: tuple[str | None, ...] = ()
    last: str = ""

    @classmethod
    def of(
        cls, rows: Iterable[tuple[str, object, object]], scopes: Sequence[str], absent: int | None
    ) -> StoredNow:
        """Read the stored defaults of a table.

        Args:
            rows: The scope of each, its ttl, and when it was changed.
            scopes: `WHOLE_TABLE`, and after it the scope in question, if any.
            absent: The value of `own` if nothing is stored for it.
        """
        stored = {scope: (lenient_ttl(ttl), str(at)) for scope, ttl, at in rows}
        own, _ = stored.get(scopes[-1], (absent, None))
        others, _ = stored.get(scopes[0], (None, None))
        moments = (stored[scope][1] if scope in stored else None for scope in scopes)
        return cls(own, others, tuple(moments))

    @property
    def version(self) -> str:
        """A text that differs after each change of either, even after a change back."""
        return f"{self.moments} {self.last}"

    def is_as(self, before: StoredNow) -> bool:
        """Return whether the same is stored as before, whatever the history says."""
        return self[:3] == before[:3]

    def meant_by(self, ttl: int | None) -> int | None:
        """Return the default that rows have if a ttl, or `INHERIT`, is stored for them."""
        return self.others if ttl == INHERIT else ttl


@dataclass(frozen=True, slots=True)
class NamedDefault:
    """The default of a table, or of one of its scopes, as a caller names it.

    Attributes:
        name: The name of the table, or collection, under which the default is stored.
        label: The name of the model, for messages.
        stored: The declaration of the model.
        scope: The scope, as stored; None for the default of all other rows.
    """

    name: str
    label: str
    stored: Stored
    scope: str | None

    @property
    def scopes(self) -> list[str]:
        """The scopes whose rows are read with it: that of the table, and its own."""
        return [WHOLE_TABLE, *filter(None, [self.scope])]

    @property
    def absent(self) -> int | None:
        """The value that stands for it while nothing is stored for it."""
        return None if self.scope is None else INHERIT

    def checked(self, ttl: StoredTTL) -> int | None:
        """Normalise a new value; raises InvalidTTL if it can't have that."""
        is_of_scope = self.scope is not None
        return self.stored.checked(ttl, where=f"{self.label}.__ttl__", is_of_scope=is_of_scope)


def not_stored(label: str) -> TTLConfigurationError:
    """Return the error for a model or table whose default isn't stored."""
    return TTLConfigurationError(
        f"The default ttl of {label} isn't stored in the database: to store it, declare "
        "__ttl__ = Stored(3600)."
    )


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
        name: See `StoredPolicy`.
        scope: See `StoredPolicy`.
        changed_at: When it was changed (aware, UTC), by the database's clock.
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


RowT = TypeVar("RowT", StoredPolicy, PolicyChange)


def from_row(kind: type[RowT], row: object) -> RowT:
    """Read a `StoredPolicy` or a `PolicyChange` from a row whose attributes are its columns."""
    values = {field.name: getattr(row, field.name) for field in fields(kind)}
    return kind(**{**values, "scope": values["scope"] or None})
