"""Declarations that packages above the adapters implement.

An `Extension` is declared in place of a policy, a `DefaultExtension` in place of the default ttl in
a `TTL`. A `Layout` determines how a table is laid out.

The values of the field `DefaultExtension.by` are called scopes. A table may have a million of them;
reports for people name only the `largest`.

This module must not know which extensions exist.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Self

    from ttl_odm.errors import TTLConfigurationError


class Packaged:
    """A declaration with a package of its own, which is imported only if a model declares it."""

    __slots__ = ()

    @classmethod
    def package(cls, adapter: str) -> str:
        """Return the name of the package with everything that an adapter needs for it."""
        return f"{cls.__module__}.{adapter}"


class Layout(Packaged):
    """How a table is laid out; the package that defines it implements the layout."""

    __slots__ = ()


class Extension(Packaged, ABC):
    """A ``__ttl__`` that isn't a lifetime by itself; the package that defines it binds it."""

    __slots__ = ()

    @abstractmethod
    def misplaced(self, where: str) -> TTLConfigurationError:
        """Return the error for a declaration (`where`) that doesn't accept it."""


class DefaultExtension(Packaged, ABC):
    """A default ttl that isn't in the code; the package that defines it determines the value.

    The module of that package for an adapter has a function ``source()``.

    Attributes:
        by: The field whose values may have default ttls of their own; None if all rows share one.
    """

    __slots__ = ()

    by: str | None

    @property
    @abstractmethod
    def shape(self) -> Self:
        """The part that can't change while the application runs, since it is in the SQL."""

    @abstractmethod
    def by_column(self, name: str) -> Self:
        """Return the same declaration with `by` replaced by the name of the column."""

    @abstractmethod
    def of_whole_table(self, declared: str, owner: str) -> TTLConfigurationError:
        """Return the error for a subclass with a default of its own in the table of its base.

        Args:
            declared: The beginning of the message: the subclass's declaration, and that it shares
                a table.
            owner: The name of the class to which the table belongs.
        """


OTHERS: Final = ""
"""In place of a scope: all rows without a default of their own."""

_NAMED: Final = 20
"""The number of scopes that a report names."""


def largest(own: Mapping[str, int], total: int, most: int = _NAMED) -> dict[str, int]:
    """Return the scopes with the most rows, the largest first, and the sum of the others.

    Args:
        own: Rows by scope, for scopes with a default of their own.
        total: Rows of all scopes.
        most: How many scopes are named.

    Returns:
        Rows by scope, with the sum of all other rows, if there are any, under `OTHERS` as the last
        item. Empty if `own` has no rows.
    """
    ranked = sorted(((-rows, scope) for scope, rows in own.items() if rows > 0 and scope))
    named = {scope: -rows for rows, scope in ranked[:most]}
    others = total - sum(named.values())
    return {**named, OTHERS: others} if named and others > 0 else named
