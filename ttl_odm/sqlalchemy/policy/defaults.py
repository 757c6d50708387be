"""The default ttl of a table, as its owner declares it at this moment."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, NamedTuple

from ttl_odm.core.policy import TTL, ExpireAfter, ExpireAt, Policy, as_policy
from ttl_odm.core.values import NEVER
from ttl_odm.errors import InvalidTTL
from ttl_odm.sqlalchemy.time.clock import FOREVER, OFF
from ttl_odm.sqlalchemy.time.column_types import UnwrappedConfigurationError, UnwrappedInvalidTTL


class LifetimeSeconds(NamedTuple):
    """What a default ttl means, in seconds.

    Attributes:
        inherited_age: the age at which an inheriting row expires; `FOREVER` for never, `OFF`
            while TTL is off.
        inherited_life: the same as an instant is made of it; None for never.
        own_slack: how long a row's own ttl is overlooked: `OFF` while TTL is off.
        own_life: what is added to a row's own ttl: nothing; None while TTL is off.
        max_age: the age since its creation at which any row expires; `OFF` for none.
        max_life: the same as an instant is made of it; None for none.
    """

    inherited_age: int
    inherited_life: int | None
    own_slack: int
    own_life: int | None
    max_age: int
    max_life: int | None

    @classmethod
    def of(cls, default: int | None, longest: int | None = None) -> LifetimeSeconds:
        """For a default: ``None`` (TTL off), -1 (never by default) or seconds.

        Args:
            default: that.
            longest: the policy's `TTL.max_lifetime`.
        """
        if default is None:
            return cls(OFF, None, OFF, None, OFF, None)
        max_age = OFF if longest is None else longest
        if default == NEVER:
            return cls(FOREVER, None, 0, 0, max_age, longest)
        return cls(default, default, 0, 0, max_age, longest)


_UNREAD: Final = object()
"""Stands for a declaration that has to be read each time: it asks a function."""


class DefaultTTL:
    """The default ttl as its owner declares it at this moment.

    For `ExpireAfter` it is the number of seconds; for `ExpireAt` 0, since the column holds the
    instant itself.

    Args:
        owner: the class whose ``__ttl__`` counts.
        columns: the policy the table was set up for; later values may change the seconds,
            not the columns.

    Attributes:
        declared: the ``__ttl__`` that was read last; another one asks for `read`.
        lives: what that means.
    """

    def __init__(self, owner: Any, columns: Policy) -> None:
        """Remember the owner; its ``__ttl__`` is read when a value is asked for."""
        self.owner = owner
        self._columns = _shape(columns)
        self._seconds: int | None = None
        self.lives = LifetimeSeconds.of(None)
        self.declared: object = _UNREAD
        if not isinstance(columns, TTL) or columns.is_fixed:
            self._remember(columns, self._of(columns))

    def __call__(self) -> int | None:
        """The default: ``None`` (TTL off), -1 (never by default) or seconds.

        Raises:
            InvalidTTL: ``__ttl__`` was set to something that isn't a ttl.
            TTLConfigurationError: ``__ttl__`` now names other columns.
        """
        self.read()
        return self._seconds

    @property
    def shape(self) -> Policy:
        """What of the declaration can't change while the application runs."""
        return self._columns

    @property
    def policy(self) -> Policy:
        """What the owner declares at this moment; raises as calling the default does."""
        return self._policy_of(getattr(self.owner, "__ttl__", None))

    def read(self) -> None:
        """Look what the owner declares; raises as calling the default does."""
        declared = getattr(self.owner, "__ttl__", None)
        if declared is self.declared:
            return
        policy = self._policy_of(declared)
        try:
            seconds = self._of(policy)
        except InvalidTTL as error:
            where = f"{self.owner.__name__}.__ttl__"
            raise UnwrappedInvalidTTL(f"{where}: {error}") from None
        is_fixed = not isinstance(policy, TTL) or policy.is_fixed
        self._remember(declared if is_fixed else _UNREAD, seconds)

    def _remember(self, declared: object, seconds: int | None) -> None:
        if seconds != self._seconds or declared is not self.declared:
            longest = self._columns.max_lifetime if isinstance(self._columns, TTL) else None
            self.lives = LifetimeSeconds.of(seconds, longest)
        self._seconds = seconds
        self.declared = declared

    def _of(self, policy: Policy) -> int | None:
        """The seconds that a policy gives these rows."""
        if isinstance(policy, TTL):
            return policy.default
        return policy.seconds if isinstance(policy, ExpireAfter) else 0

    def _policy_of(self, declared: object) -> Policy:
        where = f"{self.owner.__name__}.__ttl__"
        try:
            policy = as_policy(declared, where=where)
        except InvalidTTL as error:
            raise UnwrappedInvalidTTL(str(error)) from None
        is_policy = isinstance(declared, (TTL, ExpireAfter, ExpireAt))
        if isinstance(self._columns, TTL) and isinstance(policy, TTL) and not is_policy:
            return self._columns.with_default(policy.default)
        if _shape(policy) == self._columns:
            return policy
        raise UnwrappedConfigurationError(
            f"{where} became {declared!r}: only the default ttl can change while the "
            f"application runs, not the columns (they were set up as {self._columns!r})."
        )


class KindTTL(DefaultTTL):
    """The default ttl of one kind of rows, of a policy that tells kinds apart.

    Args:
        owner: see `DefaultTTL`.
        columns: see `DefaultTTL`.
        kind: what the column `TTL.by` holds.
    """

    def __init__(self, owner: Any, columns: TTL, kind: object) -> None:
        """Remember the kind too."""
        self._kind = kind
        super().__init__(owner, columns)

    def _of(self, policy: Policy) -> int | None:
        assert isinstance(policy, TTL)  # noqa: S101 (others have no kinds)
        return policy.default_of(self._kind)


def _shape(policy: Policy) -> Policy:
    """What of a policy can't change while the application runs."""
    if isinstance(policy, TTL):
        return policy.shape
    return replace(policy, seconds=0) if isinstance(policy, ExpireAfter) else policy
