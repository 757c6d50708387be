"""The view of a table's live rows, TABLE_live or as one calls it, for readers outside Python.

It holds the same predicate as every statement of the gate, rendered as text with the default ttl in
it, and ``expires_at`` beside the table's columns. By a note it is found again, whatever its name,
and known for ours: a comment, or where a database keeps none of a view, a condition that is always
true.

Rows are written through it as the database can by itself: PostgreSQL and MariaDB take every
statement, MySQL no INSERT, since a column of the view is computed. SQLite's triggers do it here.
There is no CHECK OPTION: who lets a row expire may.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import text

from ttl_odm.dialects.postgresql import relation
from ttl_odm.live_views.alembic.catalogue import NOTE, note

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ttl_odm.alembic.steps import Steps

EXPIRES_AT: Final = "expires_at"


class LiveView(ABC):
    """The view of one table; see the module."""

    def __init__(self, steps: Steps[Any], existing: str, name: str | None) -> None:
        """Quote the names: of the view there is, and of the one to be; None for the usual one."""
        self._steps = steps
        self._target = steps.target
        self._existing = existing
        self._plain = name or self._existing or steps.target.name_of("", "live")
        self._name = self._quoted(self._plain)

    def put(self) -> None:
        """Make it, or make anew what is there; never over a view of somebody else's."""
        if self._existing not in ("", self._plain):
            self.drop()
        self._put()

    @abstractmethod
    def _put(self) -> None: ...

    def drop(self) -> None:
        """Take off the one there is."""
        name = self._quoted(self._existing) if self._existing else self._name
        if self._steps.is_there(bool(self._existing)):
            self._steps.run.briefly([f"DROP VIEW IF EXISTS {name}"])

    @property
    def _is_replaced(self) -> bool:
        """Whether one of this name is ours; in a script nobody knows of another."""
        return self._steps.run.offline or self._existing == self._plain

    @property
    def _create(self) -> str:
        return "CREATE OR REPLACE" if self._is_replaced else "CREATE"

    def _quoted(self, name: str) -> str:
        return f"{self._steps.schema}{self._steps.quote(name)}"

    @property
    def _computes(self) -> bool:
        """Whether ``expires_at`` is the view's, and not the table's own."""
        return EXPIRES_AT not in {name.lower() for name in self._steps.existing.columns}

    def _select(self, columns: str = "", further: str = "") -> str:
        """Live rows, of all columns unless some are given."""
        steps, target = self._steps, self._target
        if not columns:
            computed = f", {self._computed}" if self._computes else ""
            columns = f"{steps.table}.*{computed}"
        live = target.live(steps.dialect, steps.existing.columns)
        return f"SELECT {columns} FROM {steps.table} WHERE ({live}){further}"

    @property
    def _computed(self) -> str:
        steps = self._steps
        expires_at = self._target.expires_at(steps.dialect, steps.existing.columns)
        return f"{steps.family.as_date(expires_at)} AS {EXPIRES_AT}"


class _OnPostgreSQL(LiveView):
    """Where it is a barrier: no function of a reader's sees what it hides."""

    def _put(self) -> None:
        head = f"{self._create} VIEW {self._name} WITH (security_barrier) AS"
        comment = f"COMMENT ON VIEW {self._name} IS '{NOTE}{self._target.noted}'"
        self._steps.run.briefly([f"{head} {self._select(self._columns)}", comment])

    @property
    def _columns(self) -> str:
        """Those of the view as it is, and then what the table has got since.

        So it is replaced, with its grants; a new column in their middle PostgreSQL would refuse.
        """
        steps = self._steps
        if steps.run.offline or not self._is_replaced:
            return ""
        view = {"view": relation(self._target.table.schema, self._plain)}
        before = steps.run.connection.execute(_COLUMNS, view).scalars().all()
        every = [*steps.existing.columns, *([EXPIRES_AT] if self._computes else [])]
        names = [*before, *(name for name in every if name not in before)]
        return ", ".join(
            self._computed
            if name == EXPIRES_AT and self._computes
            else f"{steps.table}.{steps.quote(name)}"
            for name in names
        )


_COLUMNS: Final = text(
    "SELECT attname FROM pg_attribute WHERE attrelid = CAST(:view AS regclass) "
    "AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
)


class _OnMySQL(LiveView):
    """Where it asks for the rights of who reads, not for those of who made it."""

    def _put(self) -> None:
        # A comment would be lost; a condition of constants costs no row anything.
        select = self._select(further=f" AND '{note(self._target)}' <> ''")
        head = f"{self._create} ALGORITHM = MERGE SQL SECURITY INVOKER VIEW {self._name} AS"
        self._steps.run.briefly([f"{head} {select}"])


class _OnSQLite(LiveView):
    """Where a view takes no writes, but triggers in their place do."""

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
        """One for each kind of write; none without a key, by which a row is found again."""
        steps = self._steps
        pragma = f"PRAGMA {steps.schema}table_xinfo({steps.quote(self._target.table.name)})"
        columns = [
            (steps.quote(name), default, key)
            for _, name, _, _, default, key, hidden in steps.run.connection.exec_driver_sql(pragma)
            if not hidden  # those that are generated
        ]
        table = steps.quote(self._target.table.name)
        names = ", ".join(name for name, _, _ in columns)
        # What was left out is NULL here, and stands for the default.
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


def live_view(steps: Steps[Any], existing: str, name: str | None) -> LiveView:
    """The view of a table on its database; see `LiveView`."""
    return _VIEWS[steps.family.family](steps, existing, name)
