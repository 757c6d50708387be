"""The families of SQL databases: ours, and those that other distributions bring as entry points.

Entry points are looked up only for a dialect that isn't one of ours, because reading what is
installed takes longer than many a program runs.
"""

from __future__ import annotations

from functools import cache
from inspect import isabstract, isclass
from typing import TYPE_CHECKING, Any, Final

from ttl_odm.dialects.family import Family
from ttl_odm.dialects.mysql import MySQL
from ttl_odm.dialects.postgresql import PostgreSQL
from ttl_odm.dialects.sqlite import SQLite
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

FAMILIES: tuple[Family, ...] = (PostgreSQL(), MySQL(), SQLite())

MYSQL_FAMILY = MySQL.names

GROUP: Final = "ttl_odm.dialects"
"""The entry-point group. The name of an entry point is that of a dialect; its object is a subclass
of `Family` that takes no arguments."""

PAGE: Final = "docs/a-database-of-your-own.md"
"""The documentation of such families."""


def family_named(name: str) -> Family | None:
    """Return our family for an ORM's name of a database; None if it is not one of ours."""
    return next((family for family in FAMILIES if name in family.names), None)


@cache
def brought_family(dialect: str) -> type[Family] | None:
    """Return the family that an installed distribution brings for a dialect; None without one.

    Raises:
        TTLConfigurationError: It can't be used, or several distributions bring one.
    """
    from importlib.metadata import entry_points  # noqa: PLC0415 (10 ms that few programs need)

    points = tuple(entry_points(group=GROUP, name=dialect))
    if not points:
        return None
    if len({point.value for point in points}) > 1:
        raise TTLConfigurationError(
            f"Several packages provide a family for the dialect {dialect!r}: "
            f"{' and '.join(sorted(map(_named, points)))}. Uninstall all but one."
        )
    point = points[0]
    try:
        loaded: Any = point.load()
    except Exception as error:
        raise TTLConfigurationError(f"The {_named(point)} can't be loaded: {error!r}") from error
    flaw = _flaw(loaded, dialect)
    if flaw is not None:
        raise TTLConfigurationError(f"The {_named(point)} can't be used: {flaw}")
    family: type[Family] = loaded
    return family


def _flaw(loaded: object, dialect: str) -> str | None:
    """Return why an object can't be the family of a dialect; None if it can."""
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
