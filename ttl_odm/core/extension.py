"""`Extension`: a ``__ttl__`` that a package above the adapters understands.

This module must not know which extensions there are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ttl_odm.errors import TTLConfigurationError


class Extension(ABC):
    """A declaration that isn't a lifetime by itself; the package that it is in binds it."""

    __slots__ = ()

    @classmethod
    def package(cls, adapter: str) -> str:
        """Return the name of the module that has ``bind()`` for an adapter."""
        return f"{cls.__module__}.{adapter}"

    @abstractmethod
    def misplaced(self, where: str) -> TTLConfigurationError:
        """Return the error for a place where it can't be declared."""
