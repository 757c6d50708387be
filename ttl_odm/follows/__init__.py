"""`Follows`: rows that live while their parent does, so that related rows expire together.

- `sweep`: what sweeps of all adapters have in common.
- `sqlalchemy`, `beanie`, `django`: everything that one adapter needs for it.

This module must not know how rows are joined, nor in which database they are.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Mapping
from dataclasses import dataclass
from datetime import timedelta  # noqa: TC003 - signatures can be inspected
from itertools import count
from typing import Any, Final, Literal, TypeVar

from ttl_odm.combinations import CAPABILITIES, combination
from ttl_odm.core.extension import Extension
from ttl_odm.core.values import short_repr, whole_seconds
from ttl_odm.errors import TTLConfigurationError

Orphan = Literal["expired", "live"]

T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True, slots=True, init=False)
class Follows(Extension):
    """A row lives while its parent does, and has no lifetime of its own.

    For example::

        class Item(Base):
            __ttl__ = Follows("cart")  # a relationship, or a column with a foreign key

        class Message(Base):
            __ttl__ = Follows(Thread, on={"thread_id": "id"})  # columns without a foreign key

    Attributes:
        parent: The name of a many-to-one relationship, or of a column with a foreign key; or, with
            `on`, the class of the parent.
        on: Pairs of a field of this class and the parent's field that it equals; empty if `parent`
            is a name.
        orphan: What a row without a parent is: "expired" or "live".
        renews: Whether a write to the row restarts the lifetime of its parent.
        at_most_every: Seconds (a number, or a timedelta of whole seconds) after a write of the
            parent in which `renews` doesn't write it again; None to write it each time.
    """

    parent: str | type
    on: tuple[tuple[str, str], ...]
    orphan: Orphan
    renews: bool
    at_most_every: int | None

    def __init__(
        self,
        parent: str | type,
        *,
        on: Mapping[str, str] | None = None,
        orphan: Orphan = "expired",
        renews: bool = False,
        at_most_every: float | timedelta | None = None,
    ) -> None:
        """Check and normalise the arguments; see the class for them."""
        pairs = _pairs(parent, on)
        if orphan not in ("expired", "live"):
            raise _misdeclared(orphan, "orphan", "give 'expired' or 'live'")
        if not isinstance(renews, bool):
            raise _misdeclared(renews, "renews", "give True or False")
        seconds = None if at_most_every is None else whole_seconds(at_most_every, lowest=1)
        if at_most_every is not None:
            if seconds is None:
                fix = "give whole seconds, at least 1, as a number or a timedelta"
                raise _misdeclared(at_most_every, "at_most_every", fix)
            if not renews:
                fix = "also write renews=True, or leave at_most_every out"
                raise _misdeclared(at_most_every, "at_most_every", fix)
        object.__setattr__(self, "parent", parent)
        object.__setattr__(self, "on", pairs)
        object.__setattr__(self, "orphan", orphan)
        object.__setattr__(self, "renews", renews)
        object.__setattr__(self, "at_most_every", seconds)

    def misplaced(self, where: str) -> TTLConfigurationError:
        """Return the error for a declaration where there can be none."""
        line = combination("sqlalchemy", "follows", "view")
        return TTLConfigurationError(f"{where} = {self!r}: {line.reason}. {line.instead}.")

    def unchangeable(self, where: str) -> TTLConfigurationError:
        """Return the error for replacing the declaration while the application runs."""
        return TTLConfigurationError(
            f"{where}: Follows can't be assigned, changed or removed while the application runs."
        )

    def no_own_lifetime(self, where: str) -> TTLConfigurationError:
        """Return the error for a call that only rows with their own lifetime have."""
        return TTLConfigurationError(
            f"{where} has no lifetime of its own: its __ttl__ is {self!r}. Set the parent's "
            "lifetime instead."
        )


_USUAL: Final = {"archive": None, "hooks": None, "partitions": None, "orm": "delete"}
"""By capability: the value of its attribute if a class doesn't declare it."""


def check_options(owner: type) -> None:
    """Reject options that a class that follows another can't have.

    Raises:
        TTLConfigurationError: One of them is declared.
    """
    for capability, usual in _USUAL.items():
        name = CAPABILITIES[capability].attribute
        value = getattr(owner, name, usual)
        if value != usual:
            line = combination("sqlalchemy", "follows", capability)
            fix = line.instead_for(name=name)
            raise TTLConfigurationError(
                f"{owner.__name__}.{name} = {value!r}: {line.reason}. {fix}."
            )


def under_expired(model: str, parent: str, key: tuple[Any, ...]) -> str:
    """Return the message for a row that would get an expired parent with this key."""
    name = key[0] if len(key) == 1 else key
    return f"A row of {model} can't be put under {parent} {name!r}, which has expired."


def sealing_ttl(never: Container[int]) -> int:
    """Return the ttl that keeps an expired row expired: the least number not among `never`."""
    return next(seconds for seconds in count(1) if seconds not in never)


def last_parent(
    rows: T,
    parent: T,
    parent_of: Callable[[T], T | None],
    where: str,
    error: type[TTLConfigurationError] = TTLConfigurationError,
) -> T:
    """Return the table at the end of a chain of parents; it follows no other.

    Args:
        rows: The table where the chain begins.
        parent: Its parent.
        parent_of: Returns the parent of a table; None if it follows no other.
        where: The declaration, for messages.
        error: The class of the error.

    Raises:
        TTLConfigurationError: The table is its own parent, or parents follow each other in a cycle.
    """
    if parent is rows:
        raise error(
            f"{where}: rows can't follow rows of their own table; follow the table at the root."
        )
    seen = {rows}
    while (above := parent_of(parent)) is not None:
        if parent in seen:
            raise error(
                f"{where}: the parents follow each other in a cycle, so their rows would never "
                "expire; declare a lifetime on one of them."
            )
        seen.add(parent)
        parent = above
    return parent


def _pairs(parent: object, on: object) -> tuple[tuple[str, str], ...]:
    """Check what leads to the parent, and return the pairs of fields that are equal.

    Raises:
        TTLConfigurationError: `parent` or `on` is of no use, or they don't fit together.
    """
    if isinstance(parent, str):
        if not parent.strip():
            raise _misdeclared(parent, "parent", "name a relationship or a foreign key")
        if on is not None:
            fix = "leave on out, or give the parent's class as the first argument"
            raise _misdeclared(on, "on", fix)
        return ()
    if not isinstance(parent, type):
        fix = "give the name of a relationship or a foreign key, or a class and on={...}"
        raise _misdeclared(parent, "parent", fix)
    if not isinstance(on, Mapping) or not on:
        fix = "map fields of this class to the parent's, as in on={'thread_id': 'id'}"
        raise _misdeclared(on, "on", fix)
    for pair in on.items():
        if not all(isinstance(name, str) and name.strip() for name in pair):
            raise _misdeclared(dict(on), "on", "give field names as strings")
    return tuple(on.items())


def _misdeclared(value: object, name: str, fix: str) -> TTLConfigurationError:
    return TTLConfigurationError(f"Follows.{name} = {short_repr(value)}: {fix}.")
