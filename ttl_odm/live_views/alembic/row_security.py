"""Row-level security, by which PostgreSQL hides expired rows from whoever may not delete them.

It holds the same predicate as every statement of the gate, rendered as text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ttl_odm.dialects.family import as_value
from ttl_odm.dialects.postgresql import block
from ttl_odm.live_views.alembic.catalogue import NOTE

if TYPE_CHECKING:
    from ttl_odm.alembic.steps import Steps


class RowSecurity:
    """The policies of one table of PostgreSQL."""

    def __init__(self, steps: Steps[Any]) -> None:
        """Quote the names."""
        self._steps = steps
        target = steps.target
        self._hiding = steps.quote(target.name_of("rls_", "ttl_live"))
        passing = target.name_of("rls_", "ttl_all")
        self._passing = steps.quote(passing)
        self._passing_name = steps.literal(passing)
        self._oid = f"{as_value(steps.table)}::regclass"
        self._noted = target.noted

    @property
    def _live(self) -> str:
        return self._steps.target.live(self._steps.dialect, self._steps.existing.columns)

    def drop(self) -> None:
        """Take them off."""
        run, table = self._steps.run, self._steps.table
        inner = (
            f"IF EXISTS (SELECT 1 FROM pg_policy WHERE polrelid = {self._oid} "
            f"AND polname = {self._passing_name}) THEN "
            f"DROP POLICY {self._passing} ON {table}; "
            f"IF NOT EXISTS (SELECT 1 FROM pg_policy WHERE polrelid = {self._oid}) THEN "
            f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY; END IF; END IF"
        )
        run.briefly([f"DROP POLICY IF EXISTS {self._hiding} ON {table}", _done(inner)])

    def put(self) -> None:
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
