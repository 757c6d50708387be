"""What belongs together expires together: `Follows`, for rows that live while their parent does.

This module must not know how rows are joined, nor in which database they are.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from datetime import timedelta  # noqa: TC003 - part of what others may ask of a signature
from itertools import count
from typing import Any, Final, Literal

from ttl_odm.combinations import CAPABILITIES, combination
from ttl_odm.core.extension import Extension
from ttl_odm.core.values import short_repr, whole_seconds
from ttl_odm.errors import TTLConfigurationError

Orphan = Literal["expired", "live"]


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
        on: Pairs of a field here and the parent's field that it equals; empty where a relationship
            or a foreign key says so.
        orphan: What a row without a parent is: "expired" or "live".
        renews: Whether a write to the row restarts the lifetime of its parent.
        at_most_every: Seconds, or a timedelta of whole seconds, for which a parent that was
            written isn't written again by `renews`; None for none.
    """

    parent: Any
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
        """Check and normalise; see the class for the arguments."""
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
        """The error where it is declared and can't be."""
        line = combination("sqlalchemy", "follows", "view")
        return TTLConfigurationError(f"{where} = {self!r}: {line.reason}. {line.instead}.")

    def unchangeable(self, where: str) -> TTLConfigurationError:
        """Return the error for another declaration in its place, while the application runs."""
        return TTLConfigurationError(
            f"{where}: Follows can't be assigned, changed or removed while the application runs."
        )

    def no_own_lifetime(self, where: str) -> TTLConfigurationError:
        """Return the error for a call that needs a lifetime of the rows' own."""
        return TTLConfigurationError(
            f"{where} has no lifetime of its own: its __ttl__ is {self!r}. Set the parent's "
            "lifetime instead."
        )


_USUAL: Final = {"archive": None, "hooks": None, "partitions": None, "orm": "delete"}
"""Values of the attributes that declare a capability, where it isn't declared."""


def check_options(owner: type) -> None:
    """Refuse what a class that follows another can't have; TTLConfigurationError."""
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
    """What is said of a row that was to be put under a parent, by its table and its key."""
    name = key[0] if len(key) == 1 else key
    return f"A row of {model} can't be put under {parent} {name!r}, which has expired."


def sealing_ttl(never: Container[int]) -> int:
    """The ttl of its own with which an expired row stays expired: the least that isn't `never`."""
    return next(seconds for seconds in count(1) if seconds not in never)


def _pairs(parent: object, on: object) -> tuple[tuple[str, str], ...]:
    """Check what leads to the parent, and return the pairs of fields that are equal."""
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
