"""Hiding expired rows from readers that don't go through Python: a view, or row-level security.

Row-level security is PostgreSQL's; of the view see `live_views`. Both hold the default ttl as a
number, so `op.alter_ttl` makes them anew. They hold the same predicate as every statement of the
gate, rendered as text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from sqlalchemy import text

from ttl_odm.alembic.errors import MigrationRefusedError
from ttl_odm.alembic.live_views import live_view
from ttl_odm.alembic.reflection import NOTE, OF_TABLE, default_of_job, defaults_of_views
from ttl_odm.dialects.family import as_value
from ttl_odm.dialects.postgresql import block

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from ttl_odm.alembic.runner import Runner
    from ttl_odm.alembic.steps import Steps
    from ttl_odm.alembic.target_schema import TargetSchema

Enforce = Literal["view", "rls"]


def refuse_unenforceable(
    enforce: str | None, view: str | None, runner: Runner, *, off: bool = False
) -> None:
    """Refuse what is not a way of enforcing, or none on this database."""
    choices = ("view", "rls", "off") if off else ("view", "rls")
    if enforce is not None and enforce not in choices:
        raise MigrationRefusedError(
            f"enforce={enforce!r}: give {' or '.join(map(repr, choices))}, or leave it out."
        )
    if view is not None and enforce != "view":
        raise MigrationRefusedError(f"view={view!r} names the view that enforce='view' creates.")
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


class Enforcement:
    """The view and the policies of one table."""

    def __init__(self, steps: Steps[Any], view: str | None) -> None:
        """Quote the names; the view's is None for the usual one, or that of the one there is."""
        self._steps = steps
        target = steps.target
        self._view = live_view(steps, view)
        self._hiding = steps.quote(target.name_of("rls_", "ttl_live"))
        passing = target.name_of("rls_", "ttl_all")
        self._passing = steps.quote(passing)
        self._passing_name = steps.literal(passing)
        self._oid = f"{as_value(steps.table)}::regclass"
        self._noted = target.noted

    @property
    def _live(self) -> str:
        return self._steps.target.live(self._steps.dialect, self._steps.existing.columns)

    def change(self, enforce: str | None) -> None:
        """Make it, or take it "off", or make anew what is there, with another default ttl."""
        existing = self._steps.existing
        if enforce == "off":
            self.drop()
        if enforce == "view" or (enforce is None and existing.view):
            self._view.put()
        if enforce == "rls" or (enforce is None and existing.policies):
            self._put_policies()

    def drop(self) -> None:
        """Take off what is there."""
        run, existing, table = self._steps.run, self._steps.existing, self._steps.table
        self._view.drop()
        if self._steps.dialect.name == "postgresql" and self._steps.is_there(existing.policies):
            inner = (
                f"IF EXISTS (SELECT 1 FROM pg_policy WHERE polrelid = {self._oid} "
                f"AND polname = {self._passing_name}) THEN "
                f"DROP POLICY {self._passing} ON {table}; "
                f"IF NOT EXISTS (SELECT 1 FROM pg_policy WHERE polrelid = {self._oid}) THEN "
                f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY; END IF; END IF"
            )
            run.briefly([f"DROP POLICY IF EXISTS {self._hiding} ON {table}", _done(inner)])

    def _put_policies(self) -> None:
        """Who may not DELETE sees live rows only; who may is the application or the sweeper.

        The gate deletes expired rows where their keys are needed, and the sweeper purges them, so
        they have to see these. Once for each statement and not for each row: a sub-select.
        """
        steps = self._steps
        table = steps.table
        may_delete = f"(SELECT has_table_privilege({self._oid}, 'DELETE'))"
        # Where row-level security is on already, its own policies say who may do what.
        inner = (
            f"IF NOT (SELECT relrowsecurity FROM pg_class WHERE oid = {self._oid}) THEN "
            f"CREATE POLICY {self._passing} ON {table} USING (true) WITH CHECK (true); "
            f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY; END IF"
        )
        steps.run.briefly(
            [
                f"DROP POLICY IF EXISTS {self._hiding} ON {table}",
                _done(inner),
                (
                    f"CREATE POLICY {self._hiding} ON {table} AS RESTRICTIVE FOR SELECT "
                    f"USING ({may_delete} OR {self._live})"
                ),
                f"COMMENT ON POLICY {self._hiding} ON {table} IS '{NOTE}{self._noted}'",
            ]
        )


def _done(inner: str) -> str:
    """Statements of PL/pgSQL as one statement of SQL."""
    return block(f" BEGIN {inner}; END ", "rls")


_ENFORCED_DEFAULTS: Final = text(
    "SELECT DISTINCT substr(d.description, length(:note) + 1) FROM pg_description d "
    "WHERE d.description LIKE :note || '%' AND d.objoid IN ("
    f"SELECT v.oid FROM pg_class t {OF_TABLE} WHERE t.oid = CAST(:table AS regclass) UNION ALL "
    "SELECT p.oid FROM pg_policy p WHERE p.polrelid = CAST(:table AS regclass))"
).bindparams(note=NOTE)


def enforced_defaults(connection: Connection, target: TargetSchema) -> set[str]:
    """Which default ttls the view, the policies and the job of a table hold, as text."""
    if connection.dialect.name != "postgresql":
        defaults = set(defaults_of_views(connection, target).values())
    else:
        names = {"table": target.plain(connection.dialect)}
        defaults = set(connection.execute(_ENFORCED_DEFAULTS, names).scalars())
    return defaults | default_of_job(connection, target)
