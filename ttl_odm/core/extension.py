"""Declarations that a package above the adapters understands.

An `Extension` stands in the place of a policy, a `DefaultExtension` in the place of the default ttl
inside of a `TTL`. A `Layout` says how a table is laid out.

This module must not know which extensions there are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

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


class DefaultExtension(Packaged, ABC):
    """A default ttl that the code doesn't have; the package that it is in finds it out.

    Its module for an adapter has ``source()``.

    Attributes:
        by: The field whose values may have default ttls of their own; None where all rows have
            one.
    """

    __slots__ = ()

    by: str | None

    @property
    @abstractmethod
    def shape(self) -> Self:
        """What of it can't change while the application runs, since it is in the SQL."""

    @abstractmethod
    def by_column(self, name: str) -> Self:
        """The same by the name of the column that `by` stands for."""

    @abstractmethod
    def of_whole_table(self, declared: str, owner: str) -> TTLConfigurationError:
        """Return the error for a subclass with a default of its own in the table of its base.

        Args:
            declared: The declaration of the subclass, and that it shares a table, for the message.
            owner: The name of the class that the table is of.
        """
