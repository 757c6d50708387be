"""What may be another each time a statement runs, though its SQL is the same.

The default ttl, which its owner may declare anew at any moment, and the two ways around the
contract: `include_expired` and ``keep_last_modified``. All are bound values, so that SQLAlchemy's
statement cache, which knows no execution options, keeps one entry whatever happens to them. What
one execution alone asks for is passed to it as parameters of these names, see `overruled` and
`ttl_odm.sqlalchemy.gate.execution`.

`include_expired` exists as a loader option too: that one is part of the cache key, takes the
predicate out of the SQL, and travels with the loaded objects into their lazy loads.

This module must not know tables or columns.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from sqlalchemy import BigInteger, BindParameter, Boolean
from sqlalchemy.orm import UserDefinedOption

from ttl_odm.core.declaration import UNREAD, DeclaredTTL
from ttl_odm.core.policy import TTL, Policy
from ttl_odm.core.values import FOREVER, NEVER, OFF
from ttl_odm.errors import InvalidTTL, TTLConfigurationError
from ttl_odm.sqlalchemy.compat import all_options
from ttl_odm.sqlalchemy.time.clock import UnwrappedConfigurationError, UnwrappedInvalidTTL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sqlalchemy.sql.compiler import SQLCompiler

    Row = dict[str, object]

INCLUDE_EXPIRED: Final = "include_expired"
KEEP_LAST_MODIFIED: Final = "keep_last_modified"
"""The execution options, which reach every kind of statement."""

BASE_ROW_WRITTEN: Final = "ttl_odm_base_row_written"
"""Stands beside the execution options as what overrules the seconds of a write."""

base_row_written: ContextVar[bool] = ContextVar("ttl_odm_base_row_written", default=False)
"""True while a flush writes sub-tables of rows that it has just written at the root.

Their lifetime was judged and set there; the flush may have let them expire.
"""


done_by_flush: ContextVar[set[object] | None] = ContextVar("ttl_odm_done_by_flush", default=None)
"""What preparations have done once for the flush at hand; None outside of one."""


class IncludeExpired(UserDefinedOption):
    """The loader option behind `include_expired`."""

    propagate_to_loaders = True

    # Without it SQLAlchemy leaves the option out of the key, and the statement would share its
    # cached SQL with the same statement that has no such option.
    _is_has_cache_key = True

    def _gen_cache_key(self, *_: object) -> tuple[type[IncludeExpired]]:
        return (IncludeExpired,)


_OPTION: Final = IncludeExpired()


def include_expired() -> IncludeExpired:
    """Read expired rows too: ``select(Model).options(include_expired())``.

    This covers the whole statement and everything lazily loaded from its results. It affects reads
    only: UPDATE and DELETE never see an expired row.
    """
    return _OPTION


def includes_expired(statement: Any) -> bool:
    """Whether a SELECT carries the option."""
    return any(isinstance(option, IncludeExpired) for option in all_options(statement))


class LifetimeSeconds(NamedTuple):
    """What a default ttl means, in seconds.

    Attributes:
        inherited_age: The age at which an inheriting row expires; `FOREVER` for never, `OFF`
            while TTL is off.
        inherited_life: The same as an instant is made of it; None for never.
        own_slack: How long a row's own ttl is overlooked: `OFF` while TTL is off.
        own_life: What is added to a row's own ttl: nothing; None while TTL is off.
        max_age: The age since its creation at which any row expires; `OFF` for none.
        max_life: The same as an instant is made of it; None for none.
    """

    inherited_age: int
    inherited_life: int | None
    own_slack: int
    own_life: int | None
    max_age: int
    max_life: int | None

    @classmethod
    def of(cls, default: int | None, longest: int | None = None) -> LifetimeSeconds:
        """For a default (None: TTL off, -1: never by default, or seconds) and a longest life."""
        if default is None:
            return cls(OFF, None, OFF, None, OFF, None)
        max_age = OFF if longest is None else longest
        if default == NEVER:
            return cls(FOREVER, None, 0, 0, max_age, longest)
        return cls(default, default, 0, 0, max_age, longest)


@contextmanager
def _unwrapped() -> Iterator[None]:
    """Let the errors of a declaration rise as they are."""
    try:
        yield
    except InvalidTTL as error:
        raise UnwrappedInvalidTTL(str(error)) from None
    except TTLConfigurationError as error:
        raise UnwrappedConfigurationError(str(error)) from None


Part = Literal["inherited_age", "inherited_life", "own_slack", "own_life", "max_age", "max_life"]
"""A field of `LifetimeSeconds`."""


class DefaultTTL(DeclaredTTL):
    """The default ttl as its owner declares it at this moment, and what that means in SQL.

    Its errors rise through SQLAlchemy as they are, out of a statement that runs. `declared` is what
    was read last (`UNREAD` where that asks a function, to be read each time), `lifetime` its
    meaning.
    """

    def __init__(self, owner: Any, bound: Policy) -> None:
        """Read the declaration now, so that no statement has to while it stays the same."""
        super().__init__(owner, bound)
        self._longest = bound.max_lifetime if isinstance(bound, TTL) else None
        self._default: int | None = None
        self.lifetime = LifetimeSeconds.of(None)
        self.declared: object = UNREAD
        policy = self.policy
        if not isinstance(policy, TTL) or policy.is_fixed:  # functions are asked by statements
            self.read()

    def read(self) -> None:
        """Look what the owner declares; raises as calling the default does."""
        if getattr(self.owner, "__ttl__", None) is self.declared:
            return
        with _unwrapped():
            self._default = super().__call__()
        self.lifetime = LifetimeSeconds.of(self._default, self._longest)
        self.declared = self.seen if self.is_fixed else UNREAD

    def retire(self) -> None:
        """Stay with what the owner declares now: it is about to get another policy.

        Statements that run meanwhile were compiled for this one, and end by it.
        """
        declared = getattr(self.owner, "__ttl__", None)
        self._read = lambda: declared

    def check(self) -> None:
        """Raise as `read` does for a declaration that no statement can follow."""
        with _unwrapped():
            self.policy  # noqa: B018 (reads it)

    def __call__(self) -> int | None:
        """The default: ``None`` (TTL off), -1 (never by default) or seconds."""
        self.read()
        return self._default


class KindTTL(DefaultTTL):
    """The default ttl of one kind of rows (what the column `TTL.by` holds)."""

    def __init__(self, owner: Any, bound: TTL, kind: object) -> None:
        self._kind = kind
        super().__init__(owner, bound)

    def _default_of(self, policy: Policy) -> int | None:
        assert isinstance(policy, TTL)  # noqa: S101 (others have no kinds)
        return policy.default_of(self._kind)


class SecondsParameter(BindParameter[Any]):
    """Seconds that hang on a default ttl, asked for at each execution.

    They are a part of its `LifetimeSeconds`; `OFF` in an execution that asks for `overruled_by`.
    """

    inherit_cache = True

    def __init__(self, default: DefaultTTL, part: Part, overruled_by: str) -> None:
        self._default = default
        self._part = part
        self.overruled_by = overruled_by
        super().__init__(part, None, unique=True, type_=BigInteger())

    @property
    def value(self) -> Any:
        """The seconds at this moment; SQLAlchemy reads them whenever the statement runs."""
        default = self._default
        # All that a read costs beside its SQL is here: hence no call while nothing has changed.
        if getattr(default.owner, "__ttl__", None) is not default.declared:
            default.read()
        return getattr(default.lifetime, self._part)

    @value.setter
    def value(self, value: object) -> None:
        """SQLAlchemy's constructor sets one."""


class KeepFlag(BindParameter[Any]):
    """True when the statement runs with ``keep_last_modified``."""

    inherit_cache = True
    overruled_by = KEEP_LAST_MODIFIED

    def __init__(self) -> None:
        super().__init__("ttl_keep", False, unique=True, type_=Boolean())  # noqa: FBT003 (SQLAlchemy's signature)


def overruled(
    compiled: SQLCompiler, parameters: list[Row], execution_options: Mapping[str, object]
) -> list[Row]:
    """The parameters, with those that give this execution what it asks for."""
    options = (INCLUDE_EXPIRED, KEEP_LAST_MODIFIED)
    asked = {option for option in options if execution_options.get(option)}
    if base_row_written.get():
        asked.add(BASE_ROW_WRITTEN)
    forced = {
        name: isinstance(parameter, KeepFlag) or OFF
        for parameter, name in compiled.bind_names.items()
        if getattr(parameter, "overruled_by", None) in asked
    }
    return [{**row, **forced} for row in parameters or [{}]] if forced else parameters
