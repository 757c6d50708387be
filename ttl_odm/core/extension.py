"""Declarations that a package above the adapters understands: `Extension` and `Layout`.

This module must not know which extensions there are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ttl_odm.errors import TTLConfigurationError


class Packaged:
    """A declaration that is of use to those who ask for it only, with a package of its own."""

    __slots__ = ()

    @classmethod
    def package(cls, adapter: str) -> str:
        """Return the name of the package that has all that an adapter needs for it."""
        return f"{cls.__module__}.{adapter}"


class Layout(Packaged):
    """How a table is laid out; the package that it is in says what that means for its rows."""

    __slots__ = ()


class Extension(Packaged, ABC):
    """A ``__ttl__`` that isn't a lifetime by itself; the package that it is in binds it."""

    __slots__ = ()

    @abstractmethod
    def misplaced(self, where: str) -> TTLConfigurationError:
        """Return the error for a place where it can't be declared."""
