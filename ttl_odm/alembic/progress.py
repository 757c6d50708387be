"""How far an unfinished revision is with each table: the rows of ``ttl_odm_migration``.

Alembic records a revision once all of it is done. Until then, this table tells an operation that
runs again what it did before. Without it, TTL that the table already has would look like the user's
mistake, and the instant at which the lives of old rows begin would be lost. The rows, and with the
last one the table, are removed when the revision is recorded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import (
    Column,
    MetaData,
    String,
    Table,
    delete,
    func,
    insert,
    inspect,
    select,
    update,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateTable, DropTable

from ttl_odm.alembic.runner import MigrationRefusedError, Runner
from ttl_odm.sqlalchemy.purge.errors import in_short, is_passing

if TYPE_CHECKING:
    from sqlalchemy import Executable

PROGRESS_TABLE: Final = "ttl_odm_migration"


class Progress:
    """How far one operation is with one table.

    Attributes:
        since: SQL for the instant at which old rows' lives begin; None until the columns exist.
        state: "" before the operation begins, then "begun", "backfilled", "finished".
    """

    def __init__(self, runner: Runner, operation: str, table: str) -> None:
        """Read the progress. A script and a transaction have none."""
        self._runner = runner
        self._key = f"{operation} {table}"
        schema = runner.context.version_table_schema
        self._table = Table(
            PROGRESS_TABLE,
            MetaData(),
            Column("name", String(200), primary_key=True),
            Column("since", String(60)),
            Column("state", String(20), nullable=False),
            schema=schema,
        )
        self.since: str | None = None
        self.state = ""
        self._kept = not runner.offline and not runner.in_transaction
        if self._kept and inspect(runner.connection).has_table(PROGRESS_TABLE, schema=schema):
            c = self._table.c
            query = select(c.since, c.state).where(c.name == self._key)
            row = runner.connection.execute(query).one_or_none()
            if row is not None:
                self.since, self.state = row

    @property
    def resumes(self) -> bool:
        """Whether an earlier run of the same revision began the operation."""
        return bool(self.state)

    def discard(self) -> None:
        """Begin anew: what an earlier run recorded isn't true of the table."""
        self.since, self.state = None, ""

    def begin(self) -> None:
        """Record that the operation has begun, unless an earlier run did, as its first write.

        Either way, the row is removed when the revision is recorded.

        Raises:
            MigrationRefusedError: The database user may not create the table.
        """
        if not self._kept:
            return
        if not self.resumes:
            try:
                self._execute(CreateTable(self._table, if_not_exists=True))
                # Rows of an operation that was given up are no longer true.
                subject = self._key.partition(" ")[2]
                names = [f"{operation} {subject}" for operation in ("add", "alter", "drop")]
                self._execute(delete(self._table).where(self._table.c.name.in_(names)))
                self._execute(insert(self._table).values(name=self._key, state="begun"))
                self.state = "begun"
            except DBAPIError as error:
                if is_passing(error):
                    raise
                raise MigrationRefusedError(
                    f"This database user may not create table {self._table.fullname}, in which a "
                    f"migration records its progress: {in_short(error)}. Nothing was changed."
                ) from error
        context = self._runner.context
        callbacks = (*context.on_version_apply_callbacks, lambda **_: self._forget())
        context.on_version_apply_callbacks = callbacks

    def note(self, state: str, *, since: str | None = None) -> None:
        """Record how far the operation is."""
        self.state, self.since = state, since or self.since
        if self._kept:
            # In one statement, so that there is a row at every moment.
            noting = update(self._table).where(self._table.c.name == self._key)
            self._execute(noting.values(since=self.since, state=state))

    def finish(self) -> None:
        """Record that the operation is done, until the revision is recorded."""
        self.note("finished")
        # Without an env.py no revision will be recorded.
        if self._kept and self._runner.context.environment_context is None:
            self._forget()

    def _forget(self) -> None:
        schema = self._table.schema
        if not inspect(self._runner.connection).has_table(PROGRESS_TABLE, schema=schema):
            return
        self._execute(delete(self._table).where(self._table.c.name == self._key))
        if not self._runner.connection.scalar(select(func.count()).select_from(self._table)):
            self._execute(DropTable(self._table, if_exists=True))

    def _execute(self, statement: Executable) -> None:
        self._runner.connection.execute(statement)
