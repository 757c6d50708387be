"""The default ttl as its owner declares it at this moment.

A declaration may change while the application runs, and may be a function; a changed default acts
at once, on every row. So each adapter reads it again for every operation. The policy that was read
last is remembered with the object that was declared then. As long as the owner declares that very
object, reading costs one comparison, and `ttl_odm.core.policy` isn't run.

This module must not know where a default goes: into SQL, a filter or an object in memory.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ttl_odm.core.policy import TTL, ExpireAfter, Policy, as_policy
from ttl_odm.core.values import short_repr
from ttl_odm.errors import InvalidTTL, TTLConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

UNREAD: Final = object()
"""Stands for a declaration that has not been read yet; no owner declares this."""


def undeclared(model: type, mixin: str) -> TTLConfigurationError:
    """Return the error for a class that has a mixin, but doesn't declare how long its rows live.

    They would live for ever, unnoticed until the disk is full.
    """
    return TTLConfigurationError(
        f"{model.__name__} has {mixin}, but no __ttl__: declare how long its rows live, as in "
        "__ttl__ = 3600 (seconds), -1 (only rows with their own ttl expire), or None (TTL is "
        "off)."
    )


def unenforced(model: type, declared: object, mixin: str, *, base: str) -> TTLConfigurationError:
    """Return the error for a class that declares how long its rows live, but has no mixin.

    Nothing would enforce the declaration, so the rows would live for ever.
    """
    name = model.__name__
    return TTLConfigurationError(
        f"{name} declares {short_repr(declared)}, but has no {mixin}, so nothing would expire: "
        f"write class {name}({mixin}, {base}), or call enable({name}, ...) before its collection "
        "is set up."
    )


class DeclaredTTL:
    """How rows expire, as an owner declares it.

    Calling it returns the default ttl at this moment.

    Attributes:
        shape: What a later declaration can't change: the columns that were set up for a bound
            policy. None where any policy may follow.
        seen: The declaration that was read last.
        is_fixed: Whether that declaration has no function to call, and so always gives the same
            default.

    Args:
        owner: The class, or its substitute, whose ``__ttl__`` counts.
        bound: The policy that columns were set up for, if there are any.
        read: Returns the declaration, where it isn't the owner's ``__ttl__``.
        refine: Returns the policy that the owner makes of the declared one, if they differ.
    """

    def __init__(
        self,
        owner: Any,
        bound: Policy | None = None,
        *,
        read: Callable[[], object] | None = None,
        refine: Callable[[Policy], Policy] | None = None,
    ) -> None:
        """Remember the owner; its declaration is read when it is needed."""
        self.owner = owner
        self.shape = None if bound is None else shape_of(bound)
        self.seen: object = UNREAD
        self.is_fixed = False
        self._policy: Policy | None = None
        self._fixed: int | None = None
        self._read = read
        self._refine = refine

    @property
    def policy(self) -> Policy:
        """The policy that is declared at this moment; its functions are not called.

        Raises:
            InvalidTTL: The declaration is not a ttl.
            TTLConfigurationError: It names other columns than before.
        """
        declaration = getattr(self.owner, "__ttl__", None) if self._read is None else self._read()
        if self._policy is not None and declaration is self.seen:
            return self._policy
        policy = as_policy(declaration, where=self._where)
        is_number = policy is not declaration
        shape = self.shape
        if (
            is_number
            and isinstance(policy, TTL)
            and isinstance(shape, TTL)
            and policy.shape.stored == shape.stored
        ):
            policy = shape.with_default(policy.declared_default)
        elif shape is not None and shape_of(policy) != shape:
            raise TTLConfigurationError(
                f"{self._where} became {declaration!r}: only the default ttl can change while the "
                "application runs, not the columns, and not whether the database stores the "
                f"default (it was set up as {self.shape!r})."
            )
        self._policy = policy if self._refine is None else self._refine(policy)
        self.is_fixed = not isinstance(policy, TTL) or policy.is_fixed
        self._fixed = self._default_of(self._policy) if self.is_fixed else None
        self.seen = declaration
        return self._policy

    @property
    def settled(self) -> Policy:
        """The policy at this moment, with its functions replaced by what they return."""
        policy = self.policy
        return policy.settled if isinstance(policy, TTL) and not self.is_fixed else policy

    def __call__(self) -> int | None:
        """Return the default ttl: seconds, -1 (never by default) or None (TTL is off).

        For `ExpireAfter` these are its seconds, and for `ExpireAt` 0, since the column holds the
        instant itself.

        Raises:
            InvalidTTL: As for `policy`; or a function returned no ttl.
            TTLConfigurationError: As for `policy`; or the database stores the default.
        """
        policy = self.policy
        if self.is_fixed:
            return self._fixed
        try:
            return self._default_of(policy)
        except InvalidTTL as error:
            raise InvalidTTL(f"{self._where}: {error}") from None

    def _default_of(self, policy: Policy) -> int | None:
        if isinstance(policy, TTL):
            return policy.default
        return policy.seconds if isinstance(policy, ExpireAfter) else 0

    @property
    def _where(self) -> str:
        return f"{self.owner.__name__}.__ttl__"


def shape_of(policy: Policy) -> Policy:
    """Return the part of a policy that can't change at run time: all but the default ttl."""
    if isinstance(policy, TTL):
        return policy.shape
    return replace(policy, seconds=1) if isinstance(policy, ExpireAfter) else policy
