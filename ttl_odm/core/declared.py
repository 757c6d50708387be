"""The default ttl as its owner declares it at this moment.

A declaration may change while the application runs, and may be a function; a changed default acts
at once, on every row. So each adapter reads it again for every operation. What was read last is
remembered with the declaration that it was read from: as long as that very object stands there,
that costs one comparison, and `ttl_odm.core.policy` isn't run.

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
"""Stands for a declaration that nobody has read yet; no owner declares this."""


def undeclared(model: type, mixin: str) -> TTLConfigurationError:
    """The error that a class has a mixin, but doesn't say how long its rows live.

    They would live for ever, and nobody would notice before the disk is full.
    """
    return TTLConfigurationError(
        f"{model.__name__} has {mixin}, but no __ttl__: declare how long its rows live, as in "
        "__ttl__ = 3600 (seconds), -1 (only rows with their own ttl expire), or None (TTL is "
        "off)."
    )


def unenforced(model: type, declared: object, mixin: str, *, base: str) -> TTLConfigurationError:
    """The error that a class says how long its rows live, but has no mixin to enforce it.

    They would live for ever, as above.
    """
    name = model.__name__
    return TTLConfigurationError(
        f"{name} declares {short_repr(declared)}, but has no {mixin}, so nothing would expire: "
        f"write class {name}({mixin}, {base}), or call enable({name}, ...) before its collection "
        "is set up."
    )


class DeclaredTTL:
    """How rows expire, as an owner declares it.

    Calling it gives the default ttl at this moment. What is declared later may change that, but
    not the columns, where these were set up for a bound policy: `shape` is what can't change, None
    where any policy may follow. `seen` is the declaration that was read last, and `is_fixed`
    whether it has no function to call, and so gives the same default each time.

    Args:
        owner: The class, or what stands for one, whose ``__ttl__`` counts.
        bound: The policy that columns were set up for, if there are any.
        read: What returns the declaration, where it isn't the owner's ``__ttl__``.
        refine: What the owner makes of a policy, if it isn't taken as it is.
    """

    def __init__(
        self,
        owner: Any,
        bound: Policy | None = None,
        *,
        read: Callable[[], object] | None = None,
        refine: Callable[[Policy], Policy] | None = None,
    ) -> None:
        """Remember the owner; what it declares is read when it is needed."""
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
            TTLConfigurationError: It now names other columns.
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
        """The policy at this moment, with what its functions return in their place."""
        policy = self.policy
        return policy.settled if isinstance(policy, TTL) and not self.is_fixed else policy

    def __call__(self) -> int | None:
        """Return the default ttl: seconds, -1 (never by default) or None (TTL is off).

        Of `ExpireAfter` its seconds; of `ExpireAt` 0, since the column holds the instant itself.

        Raises:
            InvalidTTL: As `policy` does; or a function returned no ttl.
            TTLConfigurationError: As `policy` does; or the database stores the default.
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
    """Return what of a policy can't change while the application runs: all but the default ttl."""
    if isinstance(policy, TTL):
        return policy.shape
    return replace(policy, seconds=1) if isinstance(policy, ExpireAfter) else policy
