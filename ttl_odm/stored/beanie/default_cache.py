"""The cache of a stored default in this process.

Each operation reads the default into it first, or may use one that was read shortly before
(`ttl_odm.stored.beanie.lookup`). Instants here are those of this host's monotonic clock.

This module must not know how a default is read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ttl_odm.beanie.policy.sources import MOST_SCOPES, completed
from ttl_odm.core.policy import TTL
from ttl_odm.errors import TTLError
from ttl_odm.stored.rows import INHERIT

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ttl_odm.core.policy import Policy


WHOLE_COLLECTION: Final = ""
"""The scope of the default of all documents."""


@dataclass(frozen=True, slots=True)
class CachedDefault:
    """A default as it was read.

    Attributes:
        default: The default of the collection.
        read_at: When the read began.
        until: Operations that begin before this instant may use it.
        scopes: The defaults of single values of `Stored.by`.
        version: The number of changes, of any of them, so far.
    """

    default: int | None
    read_at: float
    until: float
    scopes: Mapping[object, int | None] = field(default_factory=dict)
    version: object = None

    def has_same_policy(self, other: CachedDefault) -> bool:
        """Return whether both lead to the same policy."""
        are_same = self.scopes is other.scopes or not (self.scopes or other.scopes)
        return are_same and self.default == other.default


class DefaultCache:
    """The default of one collection as it was read last.

    Attributes:
        has_no_collation: Whether the collection compares strings byte by byte, so that an equality
            distinguishes scopes; None if that isn't known.
    """

    def __init__(self) -> None:
        """Begin without a default."""
        self.has_no_collation: bool | None = None
        self._latest: CachedDefault | None = None
        self._policy: tuple[Policy, Policy] | None = None
        self._of_scopes: dict[frozenset[object], Policy] = {}

    def scopes_of(self, version: object) -> Mapping[object, int | None] | None:
        """Return the defaults of scopes, if they were read as of a version."""
        latest = self._latest
        return latest.scopes if latest is not None and latest.version == version else None

    def default_of(self, scope: object) -> int | None:
        """Return the default of a scope; that of all others if the scope has none of its own."""
        latest = self._latest
        return None if latest is None else latest.scopes.get(scope, latest.default)

    def changed(
        self, scope: object, ttl: int | None
    ) -> tuple[int | None, dict[object, int | None]]:
        """Return the collection's default, and those of scopes, as a change would make them."""
        latest = self._latest
        scopes = {} if latest is None else dict(latest.scopes)
        if scope == WHOLE_COLLECTION:
            return ttl, scopes
        return None if latest is None else latest.default, with_scope(scopes, scope, ttl)

    def take(self, default: CachedDefault) -> None:
        """Keep a default that was read, unless a newer one is kept."""
        if self._latest is None or default.read_at >= self._latest.read_at:
            if self._latest is None or not default.has_same_policy(self._latest):
                self._policy = None
            self._latest = default

    def may_be_used(self, now: float) -> bool:
        """Return whether an operation that begins now may use it."""
        return self._latest is not None and now < self._latest.until

    def was_read_since(self, instant: float) -> bool:
        """Return whether it was read after an instant."""
        return self._latest is not None and self._latest.read_at >= instant

    def policy(self, declared: Policy, model: type) -> Policy:
        """Return the policy that a class declares, with the default that was read last.

        Raises:
            TTLError: None was read yet.
        """
        if self._latest is None:
            raise TTLError(
                f"The default ttl of {model.__name__} isn't known yet: it is stored in the "
                "database, and this process hasn't read it. Read a document first."
            )
        if self._policy is None or self._policy[0] is not declared:
            latest = self._latest
            self._policy = declared, completed(declared, latest.default, latest.scopes)
            self._of_scopes.clear()
        return self._policy[1]

    def policy_of(self, declared: Policy, model: type, scopes: Collection[object]) -> Policy:
        """Return the policy of documents with one of a few scopes, or with none.

        Raises:
            TTLError: No default was read yet.
        """
        whole, latest = self.policy(declared, model), self._latest
        if latest is None or not isinstance(declared, TTL):
            return whole
        own = {scope: latest.scopes[scope] for scope in scopes if scope in latest.scopes}
        key = frozenset(own)
        if key not in self._of_scopes:
            if len(self._of_scopes) >= MOST_SCOPES:
                self._of_scopes.clear()
            differ = any(default != latest.default for default in own.values())
            self._of_scopes[key] = (
                completed(declared, latest.default, own)
                if differ
                else declared.with_default(latest.default)
            )
        return self._of_scopes[key]


def with_scope(
    scopes: Mapping[object, int | None], scope: object, ttl: int | None
) -> dict[object, int | None]:
    """Return a copy of the scopes' defaults with one of them changed, or removed (`INHERIT`)."""
    others = {other: seconds for other, seconds in scopes.items() if other != scope}
    return others if ttl == INHERIT else {**others, scope: ttl}
