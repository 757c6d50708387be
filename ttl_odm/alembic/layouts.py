"""The seam for tables that a model, or ``partition=`` of an operation, lays out in its own way.

The package of the declaration has one for Alembic, with the functions of `LayoutMigrations`. It is
imported when there is such a declaration.

This module must not know which layouts there are.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

import ttl_odm
from ttl_odm.alembic.errors import MigrationRefusedError
from ttl_odm.core.extension import Layout
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

    from ttl_odm.alembic.reflection import ExistingSchema
    from ttl_odm.alembic.steps import Steps
    from ttl_odm.alembic.target_schema import TargetSchema
    from ttl_odm.sqlalchemy.policy.binding import Binding


class Change(Protocol):
    """How one table that is there gets its layout."""

    def refuse(self) -> None:
        """Refuse a table that can't get it; nothing was changed yet, and this only reads.

        Where the table has it already, all is well.

        Raises:
            MigrationRefusedError: With the reason, and what to do.
        """
        ...

    def make(self) -> None:
        """Give it to the table, as the last of the steps; one that has it gets what it lacks.

        The table has its columns and its indexes already.
        """
        ...


class LayoutMigrations(Protocol):
    """All that migrations ask about a kind of layout."""

    def is_made(self, declared: Layout, dialect: str) -> bool:
        """Whether it is for a migration to make it, on a database that SQLAlchemy calls so."""
        ...

    def stand_in(
        self, target: TargetSchema, existing: ExistingSchema, declared: Layout, where: str
    ) -> Binding:
        """The policy of a table that gets it.

        Raises:
            MigrationRefusedError: A table with this policy, or with such a column, can't.
        """
        ...

    def change(self, steps: Steps[Any], binding: Binding) -> Change:
        """How a table with such a policy gets it; nothing is read yet."""
        ...

    def has_it(self, connection: Connection, binding: Binding) -> bool:
        """Whether the database has the table so."""
        ...

    def tables(self, connection: Connection, binding: Binding) -> Iterator[tuple[str, str]]:
        """The schemas and names of what the database has for it, of which no model knows."""
        ...

    def written(self, declared: Layout) -> str:
        """The declaration, as it stands in a revision."""
        ...


def migrations_of(declared: Layout) -> LayoutMigrations:
    """What migrations ask about a layout."""
    return cast("LayoutMigrations", import_module(declared.package("alembic")))


def declared_by(partition: str | Layout | None) -> Layout | None:
    """What an operation declares; a text is the span.

    Raises:
        MigrationRefusedError: It is none.
    """
    if partition is None or isinstance(partition, Layout):
        return partition
    try:
        return ttl_odm.Partitions(partition)
    except TTLConfigurationError as error:
        raise MigrationRefusedError(f"partition={partition!r}: {error}") from error
