"""``enforce=`` of Alembic's operations: a view of live rows, or row-level security.

Both hold the default ttl as a number, so `op.alter_ttl` makes them anew.

- `views`: the view, as each database has it;
- `row_security`: PostgreSQL's policies;
- `catalogue`: which of both a database has, and by which policy.

`LiveRows` is what Alembic's part of the base asks; see `Aspect`.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from ttl_odm.alembic.aspects import Aspect
from ttl_odm.alembic.errors import MigrationRefusedError
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.live_views.alembic.catalogue import read_names, read_notes
from ttl_odm.live_views.alembic.row_security import RowSecurity
from ttl_odm.live_views.alembic.views import live_view

if TYPE_CHECKING:
    from ttl_odm.alembic.aspects import Operation
    from ttl_odm.alembic.runner import Runner
    from ttl_odm.alembic.steps import Steps
    from ttl_odm.live_views.alembic.views import LiveView


class LiveRows(Aspect):
    """The view and the policies of one table."""

    def notes(self) -> set[str]:
        """What both hold."""
        return set() if self.connection is None else read_notes(self.connection, self.target)

    def check(self, op: Operation, steps: Steps[Any]) -> None:
        """Refuse what is not a way of enforcing, or none on this database."""
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
        _refuse_unavailable(enforce, steps.run)

    def refuse(self, op: Operation, steps: Steps[Any]) -> None:
        """Refuse a view, or row-level security, of which nobody knows what it would hold."""
        # What there is now is what counts: later steps may have another table in its place.
        is_there, enforce = any(self._existing), op.argument("enforce")
        if op.verb == "drop" or enforce == "off":
            return
        if enforce or is_there:
            try:
                self.target.live(steps.dialect, steps.existing.columns)
            except TTLConfigurationError as error:
                raise MigrationRefusedError(str(error)) from error

    def before(self, op: Operation, steps: Steps[Any]) -> None:
        """Take it off with all else."""
        has_dates = self.target.dates is not None
        # A script of a table that has its dates is told of a view, or there is none.
        if op.verb == "drop" and not (has_dates and steps.run.offline and not op.argument("view")):
            self._drop(op, steps)

    def after(self, op: Operation, steps: Steps[Any]) -> None:
        """Make it, or take it "off", or make anew what is there, with another default ttl."""
        if op.verb == "drop":
            return
        enforce, (view, has_policies) = op.argument("enforce"), self._existing
        if enforce == "off":
            self._drop(op, steps)
        if enforce == "view" or (enforce is None and view):
            self._view(op, steps).put()
        if enforce == "rls" or (enforce is None and has_policies):
            RowSecurity(steps).put()

    def _drop(self, op: Operation, steps: Steps[Any]) -> None:
        self._view(op, steps).drop()
        if steps.dialect.name == "postgresql" and steps.is_there(self._existing[1]):
            RowSecurity(steps).drop()

    def _view(self, op: Operation, steps: Steps[Any]) -> LiveView:
        return live_view(steps, self._existing[0], op.argument("view"))

    @cached_property
    def _existing(self) -> tuple[str, bool]:
        """What there is; nothing for a script. See `read_names`."""
        return ("", False) if self.connection is None else read_names(self.connection, self.target)


def _refuse_unavailable(enforce: str | None, runner: Runner) -> None:
    name = runner.dialect.name
    if enforce == "rls" and name != "postgresql":
        raise MigrationRefusedError(
            f"enforce={enforce!r} is for PostgreSQL; this is {name}. Write enforce='view'."
        )
    if enforce == "view" and name == "sqlite" and runner.offline:
        raise MigrationRefusedError(
            "enforce='view' reads the table's columns from SQLite, which --sql can't do. Run "
            "this migration online."
        )


ASPECT: Final = LiveRows
