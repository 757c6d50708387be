"""``enforce=`` of Alembic's operations: a view of live rows, or row-level security.

Both hold the default ttl as a number, so `op.alter_ttl` creates them again.

- `enforcement`: the view, as each database has it, and PostgreSQL's row-level security.
- `catalogue`: which of the two a database has, and for which policy.

Alembic's part of the base calls `LiveRows`; see `Aspect`.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

from ttl_odm.alembic.aspects import Aspect
from ttl_odm.alembic.runner import MigrationRefusedError
from ttl_odm.core.policy import default_extension
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.live_views.alembic.catalogue import read_names, read_notes
from ttl_odm.live_views.alembic.enforcement import RowSecurity, live_view

if TYPE_CHECKING:
    from ttl_odm.alembic.aspects import Operation
    from ttl_odm.alembic.steps import Steps
    from ttl_odm.dialects import Family
    from ttl_odm.live_views.alembic.enforcement import LiveView


class LiveRows(Aspect):
    """The view and the policies of one table."""

    def notes(self) -> set[str]:
        """Return the notes on the policies that the view and row-level security hold."""
        return set() if self.connection is None else read_notes(self.connection, self.target)

    def check(self, op: Operation, steps: Steps[Family]) -> None:
        """Reject an unknown value of ``enforce=``, or one that this database doesn't support."""
        if op.verb == "drop":
            return
        enforce, view = op.argument("enforce"), op.argument("view")
        choices = ("view", "rls", "off") if op.verb == "alter" else ("view", "rls")
        if enforce is not None and enforce not in choices:
            raise MigrationRefusedError(
                f"enforce={enforce!r}: give {' or '.join(map(repr, choices))}, or leave it out."
            )
        if view is not None and enforce != "view":
            raise MigrationRefusedError(
                f"view={view!r} names the view that enforce='view' creates."
            )
        name = steps.dialect.name
        if enforce == "rls" and name != "postgresql":
            raise MigrationRefusedError(
                f"enforce={enforce!r} is for PostgreSQL; this is {name}. Write enforce='view'."
            )
        if enforce == "view" and name == "sqlite" and steps.run.offline:
            raise MigrationRefusedError(
                "enforce='view' reads the table's columns from SQLite, which --sql can't do. Run "
                "this migration online."
            )

    def refuse(self, op: Operation, steps: Steps[Family]) -> None:
        """Reject a view or RLS policy whose condition can't be written without the models."""
        # `_existing` is read here, since later steps may put another table in the place of this.
        is_there, enforce = any(self._existing), op.argument("enforce")
        if op.verb == "drop" or enforce == "off" or not (enforce or is_there):
            return
        try:
            self.target.live(steps.dialect, steps.existing.columns)
        except TTLConfigurationError as error:
            raise MigrationRefusedError(str(error)) from error
        target = steps.target
        is_looked_up = default_extension(target.policy) is not None
        if steps.dialect.name == "sqlite" and target.table.schema is not None and is_looked_up:
            raise MigrationRefusedError(
                f"Table {target.label}: a view in an attached file of SQLite reads only that file, "
                "and the stored default is in the main one. Leave out enforce='view'."
            )

    def before(self, op: Operation, steps: Steps[Family]) -> None:
        """Drop the view or the policies with everything else, if the operation drops the TTL."""
        has_dates = self.target.dates is not None
        # For a table with dates of its own, a script assumes no view unless it is named.
        if op.verb == "drop" and not (has_dates and steps.run.offline and not op.argument("view")):
            self._drop(op, steps)

    def after(self, op: Operation, steps: Steps[Family]) -> None:
        """Create the view or the policies, drop them, or replace them with another default ttl."""
        if op.verb == "drop":
            return
        enforce, (view, has_policies) = op.argument("enforce"), self._existing
        if enforce == "off":
            self._drop(op, steps)
        if enforce == "view" or (enforce is None and view):
            self._view(op, steps).put()
        if enforce == "rls" or (enforce is None and has_policies):
            RowSecurity(steps).put()

    def _drop(self, op: Operation, steps: Steps[Family]) -> None:
        self._view(op, steps).drop()
        if steps.dialect.name == "postgresql" and steps.is_there(self._existing[1]):
            RowSecurity(steps).drop()

    def _view(self, op: Operation, steps: Steps[Family]) -> LiveView:
        return live_view(steps, self._existing[0], op.argument("view"))

    @cached_property
    def _existing(self) -> tuple[str, bool]:
        """The existing view and policies; none for a script. See `read_names`."""
        return ("", False) if self.connection is None else read_names(self.connection, self.target)


ASPECT: Final = LiveRows
