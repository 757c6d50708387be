"""Instants of the database's clock, for queries of our own: `DatabaseNow`, `Ahead`, `Cutoff`."""

from __future__ import annotations

from typing import Any

from django.db.models.expressions import Expression

from ttl_odm.django.time import clock
from ttl_odm.django.time.fields import InstantField


class DatabaseNow(Expression):
    """The database's present instant, as an aware datetime."""

    def __init__(self) -> None:
        """Read it as `InstantField` is read."""
        super().__init__(output_field=InstantField())

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, list[Any]]:  # noqa: ARG002
        """Render it."""
        return clock.now(connection, "instant", writing=True), []


class Ahead(DatabaseNow):
    """An instant so many seconds after the database's now."""

    def __init__(self, seconds: float) -> None:
        """Say how many; fractions count."""
        super().__init__()
        self.seconds = seconds

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, list[Any]]:  # noqa: ARG002
        """Render it."""
        now = clock.now(connection, "instant", writing=True)
        family = clock.family_of(connection)
        if family.per_second is None:
            return f"({now} + {self.seconds!r} * {family.second})", []
        return f"({now} + {round(self.seconds * family.per_second)})", []


class Cutoff(Expression):
    """The instant so many seconds before the database's now, in the form of a column.

    By the start of the statement: PostgreSQL searches no index for ``clock_timestamp()``.
    """

    def __init__(self, seconds: int, form: Any, output_field: Any) -> None:
        """Say how many."""
        super().__init__(output_field=output_field)
        self.seconds = seconds
        self.form = form

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, list[Any]]:  # noqa: ARG002
        """Render it."""
        return clock.ago(connection, self.form, str(self.seconds)), []
