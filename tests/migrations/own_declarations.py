"""An application's own declarations, of which it tells SQLAlchemy what they mean, but not Alembic.

Their packages are this module for SQLAlchemy, and for Alembic one that doesn't exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ttl_odm import TTL
from ttl_odm.core.extension import DefaultExtension, Layout
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sqlalchemy.policy.sources import DefaultTTL, Fixed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Column

    from ttl_odm.sqlalchemy.policy.bindings import Binding

SETTINGS = {"sessions": 3600}


@dataclass(frozen=True)
class Setting(DefaultExtension):
    """A default that is among the application's settings."""

    name: str
    by: str | None = None

    @classmethod
    def package(cls, adapter: str) -> str:
        return __name__ if adapter == "sqlalchemy" else f"{__name__}.{adapter}"

    @property
    def shape(self) -> Setting:
        return self

    def by_column(self, name: str) -> Setting:
        return Setting(self.name, name)

    def of_whole_table(self, declared: str, owner: str) -> TTLConfigurationError:
        return TTLConfigurationError(f"{declared} {owner}")


@dataclass(frozen=True)
class Clustered(Layout):
    """A table that is laid out by the application's own DDL."""

    by: str

    @classmethod
    def package(cls, adapter: str) -> str:
        return __name__ if adapter == "sqlalchemy" else f"{__name__}.{adapter}"


@dataclass(frozen=True)
class ClusteredLayout:
    """See `Clustered`."""

    declared: Clustered

    def on(self, columns: Mapping[str, Column[Any]]) -> ClusteredLayout:
        assert self.declared.by in columns
        return self

    def prepare(self, where: str) -> None:
        pass

    def undo(self) -> None:
        pass


def source(binding: Binding, declared: Setting) -> Fixed:
    """Return where the default of a table comes from."""
    seconds = SETTINGS[declared.name]
    owner = type(binding.name, (), {"__ttl__": seconds})
    return Fixed(DefaultTTL(owner, TTL(seconds)), [], None)


def lay_out(binding: Binding, declared: Clustered, where: str) -> ClusteredLayout:
    """Return how a table is laid out."""
    del binding, where
    return ClusteredLayout(declared)
