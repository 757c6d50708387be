"""How a database hides expired rows from readers outside Python: a view, or row-level security.

Both hold the gate's predicate as text, with the default ttl in it.

The view of a table's live rows is called TABLE_live unless a migration names it. It has all columns
of the table, and ``expires_at``. A note in it identifies it as ours, whatever its name: a comment,
or, on databases that store no comment on a view, a condition that is always true.

Rows can be written through the view as far as the database itself allows: PostgreSQL and MariaDB
accept every statement, MySQL no INSERT, since a column of the view is computed. On SQLite, triggers
carry out the writes. There is no CHECK OPTION: a write may let a row expire.

Row-level security is PostgreSQL's. It hides expired rows from users who may not delete them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from sqlalchemy import text

from ttl_odm.alembic.target_schema import TargetSchema
from ttl_odm.dialects.family import as_value
from ttl_odm.dialects.postgresql import block, relation
from ttl_odm.live_views.alembic.catalogue import NOTE, note

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ttl_odm.alembic.steps import Steps
    from ttl_odm.dialects import Family

EXPIRES_AT: Final = "expires_at"


class LiveView(ABC):
    """The view of one table's live rows."""

    def __init__(self, steps: Steps[Family], existing: str, name: str | None) -> None:
        """Take the table and the view's names.

        Args:
            steps: The migration of the table.
            existing: The name of the view that the database has; empty if it has none.
            name: The name that the migration gives; None for the existing or the usual one.
        """
        self._steps = steps
        self._target = steps.target
        self._table = steps.table
        self._existing = existing
        self._plain = name or self._existing or steps.target.name_of("", "live")
        self._name = self._quoted(self._plain)

    def put(self) -> None:
        """Create the view, or replace our existing one; never replace a foreign view."""
        if self._existing not in ("", self._plain):
            self.drop()
        self._put()

    @abstractmethod
    def _put(self) -> None: ...

    def drop(self) -> None:
        """Drop the existing view."""
        name = self._quoted(self._existing) if self._existing else self._name
        if self._steps.is_there(bool(self._existing)):
            self._steps.run.briefly([f"DROP VIEW IF EXISTS {name}"])

    @property
    def _is_replaced(self) -> bool:
        """Whether a view of this name is ours; a script assumes so."""
        return self._steps.run.offline or self._existing == self._plain

    @property
    def _create(self) -> str:
        return "CREATE OR REPLACE" if self._is_replaced else "CREATE"

    def _quoted(self, name: str) -> str:
        return f"{self._steps.schema}{self._steps.quote(name)}"

    @property
    def _computes(self) -> bool:
        """Whether the view computes ``expires_at``, because the table has no such column."""
        return EXPIRES_AT not in {name.lower() for name in self._steps.existing.columns}

    def _select(self, columns: str = "", further: str = "") -> str:
        """Return a SELECT of live rows; of all columns, unless some are specified."""
        steps, target = self._steps, self._target
        if not columns:
            computed = f", {self._computed}" if self._computes else ""
            columns = f"{self._table}.*{computed}"
        live = target.live(steps.dialect, steps.existing.columns)
        return f"SELECT {columns} FROM {self._table} WHERE ({live}){further}"

    @property
    def _computed(self) -> str:
        steps = self._steps
        expires_at = self._target.expires_at(steps.dialect, steps.existing.columns)
        return f"{steps.family.as_date(expires_at)} AS {EXPIRES_AT}"


class _OnPostgreSQL(LiveView):
    """A security barrier: no function of a reader's can see hidden rows."""

    def _put(self) -> None:
        steps, quote = self._steps, self._steps.quote
        before: Sequence[str] = ()  # the columns of the view that is replaced
        if self._is_replaced and not steps.run.offline:
            view = {"view": relation(self._target.table.schema, self._plain)}
            before = steps.run.connection.execute(_COLUMNS, view).scalars().all()
        # A column that was renamed in the table has its former name in the view. Both have their
        # columns in the order in which the table got them.
        now = [name for name in steps.existing.columns if name != EXPIRES_AT]
        pairs = zip((name for name in before if name != EXPIRES_AT), now, strict=False)
        renamed = {old: new for old, new in pairs if old not in now and new not in before}
        renames = [
            f"ALTER TABLE {self._name} RENAME COLUMN {quote(old)} TO {quote(new)}"
            for old, new in renamed.items()
        ]
        columns = self._columns([renamed.get(name, name) for name in before]) if before else ""
        head = f"{self._create} VIEW {self._name} WITH (security_barrier) AS"
        comment = f"COMMENT ON VIEW {self._name} IS '{NOTE}{self._target.noted}'"
        steps.run.briefly([*renames, f"{head} {self._select(columns)}", comment])

    def _columns(self, before: Sequence[str]) -> str:
        """The existing view's columns, followed by columns that the table has got since.

        In this order the view can be replaced and keeps its grants: PostgreSQL would reject a new
        column among the old ones.
        """
        steps = self._steps
        now = [*steps.existing.columns, *([EXPIRES_AT] if self._computes else [])]
        names = [*before, *(name for name in now if name not in before)]
        return ", ".join(
            self._computed
            if name == EXPIRES_AT and self._computes
            else f"{self._table}.{steps.quote(name)}"
            for name in names
        )


_COLUMNS: Final = text(
    "SELECT attname FROM pg_attribute WHERE attrelid = CAST(:view AS regclass) "
    "AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
)


class _OnMySQL(LiveView):
    """MariaDB's and MySQL's view, which checks the reader's rights, not its creator's."""

    def _put(self) -> None:
        # The note: a comment would be lost, and a condition of constants costs nothing per row.
        select = self._select(further=f" AND '{note(self._target)}' <> ''")
        head = f"{self._create} ALGORITHM = MERGE SQL SECURITY INVOKER VIEW {self._name} AS"
        self._steps.run.briefly([f"{head} {select}"])


class _OnSQLite(LiveView):
    """SQLite's view, which takes no writes by itself: triggers carry them out.

    It names the table without the schema, which is only what a session calls an attached file.
    """

    def __init__(self, steps: Steps[Family], existing: str, name: str | None) -> None:
        """See `LiveView`."""
        super().__init__(steps, existing, name)
        self._target = TargetSchema.of(steps.target.table.name, steps.target.policy, None)
        self._table = self._target.quoted(steps.dialect)

    def _put(self) -> None:
        runner = self._steps.run
        drop = [f"DROP VIEW {self._name}"] if self._is_replaced else []
        comment = f" /* {note(self._target)} */"
        view = f"CREATE VIEW {self._name} AS {self._select(further=comment)}"
        statements = [*drop, view, *self._triggers()]

        def put() -> None:
            runner.at_once("BEGIN IMMEDIATE")
            try:
                for sql in statements:
                    runner.at_once(sql)
            except BaseException:
                runner.at_once("ROLLBACK")
                raise
            runner.at_once("COMMIT")

        runner.patiently(put, "the file")

    def _triggers(self) -> list[str]:
        """Return a trigger for each kind of write; without a key, rows can only be inserted."""
        steps = self._steps
        pragma = f"PRAGMA {steps.schema}table_xinfo({steps.quote(self._target.table.name)})"
        columns = [
            (steps.quote(name), default, key)
            for _, name, _, _, default, key, hidden in steps.run.connection.exec_driver_sql(pragma)
            if not hidden  # as generated columns are
        ]
        table = self._table
        names = ", ".join(name for name, _, _ in columns)
        # A column that the INSERT leaves out is NULL here, and gets its default.
        values = ", ".join(
            f"NEW.{name}" if default is None else f"COALESCE(NEW.{name}, ({default}))"
            for name, default, _ in columns
        )
        changes = ", ".join(f"{name} = NEW.{name}" for name, _, _ in columns)
        same_row = " AND ".join(f"{name} IS OLD.{name}" for name, _, key in columns if key)
        writes = [("insert", f"INSERT INTO {table} ({names}) VALUES ({values})")]
        if same_row:
            writes.append(("update", f"UPDATE {table} SET {changes} WHERE {same_row}"))
            writes.append(("delete", f"DELETE FROM {table} WHERE {same_row}"))
        return [self._trigger(kind, write) for kind, write in writes]

    def _trigger(self, kind: str, write: str) -> str:
        steps = self._steps
        name = steps.quote(self._target.name_of("tg_", f"live_{kind}"))
        view = steps.quote(self._plain)
        refuse = ""
        if self._computes and kind != "delete":
            before = "NULL" if kind == "insert" else f"OLD.{EXPIRES_AT}"
            refuse = (
                f"SELECT RAISE(ABORT, '{EXPIRES_AT} is computed') "
                f"WHERE NEW.{EXPIRES_AT} IS NOT {before}; "
            )
        head = f"CREATE TRIGGER {steps.schema}{name} INSTEAD OF {kind.upper()} ON {view}"
        return f"{head} BEGIN {refuse}{write}; END"


_VIEWS: Final[Mapping[str, type[LiveView]]] = {
    "postgresql": _OnPostgreSQL,
    "mysql": _OnMySQL,
    "sqlite": _OnSQLite,
}


def live_view(steps: Steps[Family], existing: str, name: str | None) -> LiveView:
    """Return the view of a table on its database; see `LiveView` for the arguments."""
    return _VIEWS[steps.family.family](steps, existing, name)


class RowSecurity:
    """The row-level security policies of one table of PostgreSQL."""

    def __init__(self, steps: Steps[Family]) -> None:
        """Take the table, and quote the policies' names."""
        self._steps = steps
        target = steps.target
        self._hiding = steps.quote(target.name_of("rls_", "ttl_live"))
        passing = target.name_of("rls_", "ttl_all")
        self._passing = steps.quote(passing)
        self._passing_name = steps.literal(passing)
        self._oid = f"{as_value(steps.table)}::regclass"

    def drop(self) -> None:
        """Drop the policies, and disable row-level security unless the table has others."""
        run, table = self._steps.run, self._steps.table
        inner = (
            f"IF EXISTS (SELECT 1 FROM pg_policy WHERE polrelid = {self._oid} "
            f"AND polname = {self._passing_name}) THEN "
            f"DROP POLICY {self._passing} ON {table}; "
            f"IF NOT EXISTS (SELECT 1 FROM pg_policy WHERE polrelid = {self._oid}) THEN "
            f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY; END IF; END IF"
        )
        run.briefly([f"DROP POLICY IF EXISTS {self._hiding} ON {table}", _do_block(inner)])

    def put(self) -> None:
        """Create the policies: users without the right to DELETE see live rows only.

        Users with that right are the application and the sweeper, which have to see expired rows:
        the gate deletes them where their keys are needed, and the sweeper purges them. The right is
        read in a sub-select, once for each statement and not for each row.
        """
        steps, table = self._steps, self._steps.table
        target = steps.target
        live = target.live(steps.dialect, steps.existing.columns)
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
                _do_block(inner),
                (
                    f"CREATE POLICY {self._hiding} ON {table} AS RESTRICTIVE FOR SELECT "
                    f"USING ({may_delete} OR {live})"
                ),
                f"COMMENT ON POLICY {self._hiding} ON {table} IS '{NOTE}{target.noted}'",
            ]
        )


def _do_block(inner: str) -> str:
    """Return statements of PL/pgSQL as one statement of SQL."""
    return block(f" BEGIN {inner}; END ", "rls")
