"""What a write puts into the field of the last modification: the database's clock, and no other.

The gate puts a `Stamp` into every INSERT and UPDATE of a table whose policy is a `TTL`. Only these
expressions may stand there; a datetime that somebody assigned is replaced, since it is the host's.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from django.db.models.expressions import Expression

from ttl_odm.django.time import clock


class Stamp(Expression):
    """The database's instant, at the moment of the write."""

    allowed_default = True
    conditional = False

    def __init__(self, form: Any = "instant") -> None:
        """Say in which form; see `ttl_odm.django.time.clock`."""
        super().__init__()
        self.form = form

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, list[Any]]:  # noqa: ARG002
        """Render it."""
        return clock.now(connection, self.form, writing=True), []


class Unknown(Stamp):
    """Stands for what the database has stored and nobody has read since."""

    allowed_default = False


class StampAgo(Stamp):
    """An instant so many seconds before the database's now."""

    allowed_default = False

    def __init__(self, seconds: int, form: Any = "instant") -> None:
        """Say how many."""
        super().__init__(form)
        self.seconds = seconds

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, list[Any]]:  # noqa: ARG002
        """Render it."""
        return clock.ago(connection, self.form, str(self.seconds), writing=True), []


class StampUntil(Stamp):
    """An instant from which a row's own ttl leads exactly to another instant.

    ``_ts`` is the end less the seconds that are left, rounded up; `SecondsUntil` is that ttl. Both
    read the database's clock at the same statement.
    """

    allowed_default = False

    def __init__(self, end: datetime) -> None:
        """Say when; an aware datetime."""
        super().__init__()
        self.end = end.astimezone(timezone.utc)

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, list[Any]]:  # noqa: ARG002
        """Render it."""
        end, seconds = _end_and_seconds(connection, self.end)
        return f"({end} - {seconds} * {clock.family_of(connection).second})", []


class SecondsUntil(StampUntil):
    """The whole seconds from the database's now to an instant, rounded up, at least 1."""

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, list[Any]]:  # noqa: ARG002
        """Render it."""
        return _end_and_seconds(connection, self.end)[1], []


class Kept(Stamp):
    """The value that is there: the one way to write a row without resetting it."""

    allowed_default = False

    def __init__(self, column: str) -> None:
        """Name the column."""
        super().__init__()
        self.column = column

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, list[Any]]:  # noqa: ARG002
        """Render it."""
        return str(connection.ops.quote_name(self.column)), []


def _end_and_seconds(connection: Any, end: datetime) -> tuple[str, str]:
    family = clock.family_of(connection)
    instant = family.instant_literal(end)
    # Not clock_timestamp(): two columns have to agree on it.
    return instant, family.seconds_until(instant, clock.now(connection, "instant"))
