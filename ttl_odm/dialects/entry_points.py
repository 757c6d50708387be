"""Families of databases that other distributions bring, found by entry point.

They are looked for when a dialect is met that isn't one of ours, and never before: to read what is
installed takes longer than many a program.
"""

from __future__ import annotations

from functools import cache
from inspect import isabstract, isclass
from typing import TYPE_CHECKING, Any, Final

from ttl_odm.dialects import FAMILIES
from ttl_odm.dialects.family import Family
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "ttl_odm.dialects"
"""The entry-point group. A name in it is that of a dialect; its object is a subclass of `Family`
which is made without arguments."""

PAGE: Final = "docs/a-database-of-your-own.md"
"""What to read for it."""


@cache
def brought_family(dialect: str) -> type[Family] | None:
    """The family that an installed distribution brings for a dialect; None if there is none.

    TTLConfigurationError: there is one that can't be used, or more than one.
    """
    from importlib.metadata import entry_points  # noqa: PLC0415 (10 ms that few programs need)

    found = tuple(entry_points(group=GROUP, name=dialect))
    if not found:
        return None
    if len({point.value for point in found}) > 1:
        raise TTLConfigurationError(
            f"Several packages provide a family for the dialect {dialect!r}: "
            f"{' and '.join(sorted(map(_named, found)))}. Uninstall all but one."
        )
    point = found[0]
    try:
        loaded: Any = point.load()
    except Exception as error:
        raise TTLConfigurationError(f"The {_named(point)} can't be loaded: {error!r}") from error
    flaw = _flaw(loaded, dialect)
    if flaw is not None:
        raise TTLConfigurationError(f"The {_named(point)} can't be used: {flaw}")
    family: type[Family] = loaded
    return family


def _flaw(loaded: Any, dialect: str) -> str | None:
    """What keeps an object from being the family of a dialect."""
    if not (isclass(loaded) and issubclass(loaded, Family)):
        return f"it is {loaded!r}, not a subclass of ttl_odm.dialects.Family."
    if isabstract(loaded):
        missing = ", ".join(sorted(loaded.__abstractmethods__))
        return f"{loaded.__name__} lacks what a family has to bring: {missing}."
    lacking = [name for name in ("names", "at_read", "at_write") if not hasattr(loaded, name)]
    if lacking:
        return f"{loaded.__name__} lacks what a family has to bring: {', '.join(lacking)}."
    ours = {name for family in FAMILIES for name in family.names}
    if dialect not in loaded.names or not ours.isdisjoint(loaded.names):
        return (
            f"{loaded.__name__}.names is {loaded.names!r}, but must contain {dialect!r} and no "
            "dialect that ttl_odm itself supports."
        )
    return None


def _named(point: EntryPoint) -> str:
    distribution = "" if point.dist is None else f" of {point.dist.name}"
    return f"entry point {point.name} = {point.value!r} ({GROUP}{distribution})"
