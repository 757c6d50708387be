"""How a gated statement is executed: what comes before it, and a second try after a taken key.

The execution context puts the options of one execution (``include_expired``,
``keep_last_modified``) among the bound values, reads the database's clock once in a while, and runs
the statement's preparation. It also compiles an outdated statement again, for all further
executions. The old one stays as it is, since another thread may be running it: SQL and bound values
must come from the same compilation.

Nearly always the keys that a write takes are free, and a query for them beforehand would waste a
round trip. A write that can be tried goes first (`Trial`). If it meets a taken key, the expired
rows that have its keys are deleted, and it is sent again as it was written. Then it succeeds, or
raises the error that belongs there.

A trial must not end the transaction. On SQLite, MariaDB and MySQL a failed statement alone is
undone. On PostgreSQL it isn't, so an INSERT gets a clause to do nothing on a conflict, and its row
count shows that there was one. The clauses that follow its VALUES, there and on InnoDB, are in
`ttl_odm.dialects`. Where a trial isn't safe the keys are freed first.

On MariaDB and MySQL every other write of a table with a policy gets a second try, too. In
REPEATABLE READ, InnoDB's default, a transaction reads from the snapshot of its first read, but
writes the current rows: the lookup of expired rows in the way of a write misses a younger one, and
the write fails on it. Reading current rows would lock the gaps between them.

Only the dialect's functions that send a statement to the driver can still change its result, so
they are replaced on an engine that writes to a TTL table.

This module must not know how a statement was compiled, except for the compiler's notes on it, nor
why one is outdated.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import inf
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Update, literal_column, select
from sqlalchemy.engine.interfaces import CacheStats, ExecuteStyle
from sqlalchemy.exc import DBAPIError

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.dialects.errors import is_declined, is_restricted, is_taken
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.policy.predicate import (
    INCLUDE_EXPIRED,
    KEEP_LAST_MODIFIED,
    base_row_written,
    overruled,
)
from ttl_odm.sqlalchemy.policy.second_tables import is_migrating
from ttl_odm.sqlalchemy.rewrite.writes import uniques
from ttl_odm.sqlalchemy.time.clock import (
    UnwrappedConfigurationError,
    clock_of,
    forget,
    monotonic,
    observe,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from sqlalchemy import Connection, Executable, Insert, PoolProxiedConnection, Table
    from sqlalchemy.engine import Dialect
    from sqlalchemy.engine.default import DefaultExecutionContext
    from sqlalchemy.engine.interfaces import DBAPICursor
    from sqlalchemy.sql.compiler import SQLCompiler

    from ttl_odm.sqlalchemy.rewrite.statement_rules import Preparation

    Name = tuple[str | None, str]
    """The schema and name of a table, as the database has them."""

    Row = dict[str, object]
    Send = Callable[..., None]
    """Sends a statement to the driver: cursor, statement, parameters, context."""
    Context = DefaultExecutionContext
else:
    Context = object

_SAVEPOINT: Final = "ttl_odm_second_try"

_MOST_IN_BATCH: Final = 1024 * 1024
"""Characters and bytes in one INSERT of many rows on MariaDB and MySQL, whose servers end a
connection that sends more than `max_allowed_packet`, 16 MiB by default. The drivers'
``executemany()``, which sends such rows without the gate, has the same limit.
"""

_SEES_ALL: Final = frozenset({"READ COMMITTED", "READ UNCOMMITTED", "AUTOCOMMIT"})
"""The isolation levels in which PostgreSQL's ON CONFLICT skips every conflicting row.

In others it fails on a row that the transaction doesn't see, where a plain INSERT reports a taken
key.
"""


def gate_contexts(dialect: Dialect) -> None:
    """Ensure that gated statements of a dialect run in a gated context."""
    context_class = dialect.execution_ctx_cls  # asked once: another thread may replace it
    if not issubclass(context_class, GatedContext):
        forget(dialect)
        make: Any = _gated_context  # mypy takes a class that defines __eq__ for unhashable
        dialect.execution_ctx_cls = make(context_class)


class GatedContext(Context):
    """Mixed in before a dialect's own execution context, see `_gated_context`.

    It is put there when the first statement with a TTL table is compiled for the dialect, which is
    before that statement's context is made. Every statement of the engine passes through it, so it
    steps aside at once for statements without a TTL table, and after their start for those that
    have nothing to prepare.
    """

    ttl_trial: Trial | None = None
    ttl_batch: Any = None
    ttl_does_nothing: bool = False  # a preparation has left out everything that it would write

    def fetchall_for_returning(self, cursor: DBAPICursor) -> Sequence[object]:
        """Return the rows of a batch of an INSERT."""
        rows: Sequence[Any] = super().fetchall_for_returning(cursor)  # type: ignore[no-untyped-call]
        trial = self.ttl_trial
        return rows if trial is None else trial.complete(self, rows)

    def pre_exec(self) -> None:
        """Read the database's clock if that is due, and run the preparation."""
        compiled: Any = self.compiled
        if getattr(compiled, "ttl_gated", False):
            if monotonic() >= self.root_connection.dialect.ttl_odm_stale_at:  # type: ignore[attr-defined]
                observe(self.root_connection)
            if compiled.ttl_preparation is not None:
                compiled.ttl_preparation.prepare(self)
        super().pre_exec()  # type: ignore[no-untyped-call]


@cache
def _gated_context(context_class: type[Any]) -> type[Any]:
    """Return the gated subclass of a dialect's context class."""
    init = context_class._init_compiled  # noqa: SLF001 (a subclass's)

    # All arguments are named, and there are two calls, since packing and unpacking them would
    # double the cost for each statement of the engine. (SQLAlchemy 2.0 has no `param_dict`.)
    def _init_compiled(  # noqa: PLR0913, PLR0917 (SQLAlchemy's signature)
        cls: type[GatedContext],
        dialect: Any,
        connection: Connection,
        dbapi_connection: PoolProxiedConnection,
        execution_options: Mapping[str, object],
        compiled: Any,
        parameters: list[Row],
        invoked_statement: Executable,
        extracted_parameters: Sequence[object] | None,
        cache_hit: CacheStats = CacheStats.CACHING_DISABLED,
        param_dict: Mapping[str, object] | None = None,
    ) -> object:
        make: Any = init if cls is gated else super(gated, cls)._init_compiled
        is_gated = getattr(compiled, "ttl_gated", False)
        if is_gated and compiled.ttl_outdated:
            compiled = recompiled(compiled)
            is_gated = getattr(compiled, "ttl_gated", False)
        if is_gated:
            if compiled.ttl_migrating and not is_migrating(dialect):
                outdate(compiled)
                compiled = recompiled(compiled)
            if (
                INCLUDE_EXPIRED in execution_options
                or KEEP_LAST_MODIFIED in execution_options
                or base_row_written.get()
            ):
                parameters = overruled(compiled, parameters, execution_options)
            # Only the gated class does something before the cursor is used.
            if compiled.ttl_preparation is not None or monotonic() >= dialect.ttl_odm_stale_at:
                make = super(gated, cls)._init_compiled
        if param_dict is None:
            return make(
                dialect,
                connection,
                dbapi_connection,
                execution_options,
                compiled,
                parameters,
                invoked_statement,
                extracted_parameters,
                cache_hit,
            )
        return make(
            dialect,
            connection,
            dbapi_connection,
            execution_options,
            compiled,
            parameters,
            invoked_statement,
            extracted_parameters,
            cache_hit,
            param_dict,
        )

    name = f"Gated{context_class.__name__}"
    members = {"_init_compiled": classmethod(_init_compiled)}
    gated: Any = type(name, (GatedContext, context_class), members)
    return gated  # type: ignore[no-any-return]


def outdate(compiled: Any) -> None:
    """Let the next execution of a statement compile it again; it must run in a gated context."""
    compiled.ttl_renewed = None
    compiled.ttl_gated = compiled.ttl_outdated = True


def recompiled(compiled: Any) -> Any:
    """Return the current compilation of a statement that may be outdated.

    Raises:
        TTLConfigurationError: It can't be compiled any more.
    """
    newest: Any = compiled
    while getattr(newest, "ttl_outdated", False):
        after: Any = newest.ttl_renewed
        if after is None:
            after = newest.ttl_renewed = _compiled_again(newest)
        newest = after
    if newest is not compiled:
        compiled.ttl_renewed = newest
    return newest


def _compiled_again(compiled: Any) -> SQLCompiler:
    """Compile a statement once more; TTLConfigurationError if that fails."""
    try:
        return compiled.dialect.statement_compiler(  # type: ignore[no-any-return]
            compiled.dialect,
            compiled.statement,
            cache_key=compiled.cache_key,
            column_keys=compiled.column_keys,
            for_executemany=compiled.for_executemany,
            linting=compiled.linting,
            schema_translate_map=compiled.schema_translate_map,
        )
    except Exception as error:
        raise UnwrappedConfigurationError(
            f"This statement can't apply the policy that its table has meanwhile: {error}"
        ) from error


@dataclass(frozen=True, slots=True)
class Trial:
    """A write that goes first, and whose keys are freed only after it has met a taken one.

    Attributes:
        keys: Frees the keys.
        table: The table that it writes to.
        clause: What follows its VALUES while it is tried.
        counts: Whether missing rows show a taken key, and not an error.
        is_upsert: Whether rows may also be missing because the statement says so.
    """

    keys: Preparation
    table: Table
    clause: str = ""
    counts: bool = False
    is_upsert: bool = False

    def prepare(self, context: Any, *, current: bool = False) -> int:
        """Do nothing yet if the statement may be tried; otherwise free its keys."""
        if current:
            return self.keys.prepare(context, current=True)
        if self._fits(context):
            context.ttl_trial = self
            return 0
        context.statement = self.plain(context.statement)
        return self.keys.prepare(context)

    def as_tried(self, statement: str, returning: str) -> str:
        """Return the statement as it is tried; `returning` is its last clause."""
        if not self.clause:
            return statement
        if returning and statement.endswith(returning):
            return f"{statement.removesuffix(returning).rstrip()}{self.clause} {returning}"
        return statement + self.clause

    def plain(self, statement: str) -> str:
        """Return the statement as it was written."""
        if not self.clause:
            return statement
        before, _, after = statement.rpartition(self.clause)
        return before + after

    def send(self, send: Send, cursor: DBAPICursor, statement: str, *rest: Any) -> None:
        """Send the statement, and once more if it met a taken key that is free now."""
        context = rest[-1]
        try:
            send(cursor, statement, *rest)
        except context.dialect.loaded_dbapi.Error as error:
            if not (is_taken(error) or self.is_declined(context, error)):
                raise
            self.keys.prepare(context)  # deletes no row if a sweeper was faster: keys are free
        else:
            if not self.counts or _is_batch(context) or cursor.rowcount > 0:
                return
            if not (self.keys.prepare(context) or self._insists(context)):
                return
        send(cursor, self.plain(statement), *rest)

    def is_declined(self, context: DefaultExecutionContext, error: BaseException) -> bool:
        """Return whether an error is about the trial's clause, which must be left out then.

        After another error the database is asked about the table again: one of its keys may have
        been made deferrable.
        """
        tables = _known_tables(context.dialect)
        name = compat.place_of(context.execution_options, self.table)
        is_about_clause = bool(self.clause) and is_declined(error)
        if is_about_clause:
            tables[name] = False, inf
        else:
            tables.pop(name, None)
        return is_about_clause

    def complete(self, context: Any, rows: Sequence[Any]) -> Sequence[object]:
        """Return the rows that a batch has inserted, including those that the trial left out."""
        batch, first = context.ttl_batch
        if not self.counts or len(rows) == len(batch.batch):
            return rows
        missing = compat.missing_rows(context, batch, first, rows)
        if not (self.keys.prepare(context) or self._insists(context)):
            return rows
        completed, send = list(rows), context.dialect.do_execute.send
        statement = self.plain(context.statement)
        for part in compat.smaller_batches(context, statement, missing):
            again = compat.as_listeners_have_it(
                context, part.replaced_statement, part.replaced_parameters
            )
            send(context.cursor, *again, context)
            completed += context.cursor.fetchall()
        return completed

    def _fits(self, context: Any) -> bool:
        is_batch, connection = _is_batch(context), context.root_connection
        if context.execute_style is ExecuteStyle.EXECUTEMANY:  # it doesn't show which row failed
            return False
        if compat.sends_otherwise(context) or compat.fails_late(context):
            return False
        if self.counts:
            if self.is_upsert and (is_batch or context.compiled.effective_returning):
                return False
            if is_batch and not compat.returns_own_keys(context.compiled):
                return False
            if not clock_of(context.dialect).fails_alone and not _sees_all(
                connection, in_batches=is_batch
            ):
                return False
        return _takes_trials(context, self.table)

    def _insists(self, context: DefaultExecutionContext) -> bool:
        """Return whether a missing row has met a live one, rather than a trigger or rule."""
        return not self.is_upsert and _takes_trials(context, self.table, for_certain=True)


def keys_with_trial(
    keys: Preparation | None, write: Insert | Update, table: Table, compiler: SQLCompiler
) -> Preparation | None:
    """Return what frees a write's keys: after a trial, or before a write that isn't tried."""
    clock = clock_of(compiler.dialect)
    if keys is None or not clock.tries_inserts or compat.has_prefixes(write):
        return keys
    if isinstance(write, Update):
        return Trial(keys, table) if clock.fails_alone else keys
    is_selected = bool(compat.selected_names(write))
    is_one_row = not (is_selected or compat.value_lists(write))
    if compat.is_upsert(write):
        trial = _of_upsert(keys, table, compiler, is_one_row=is_one_row)
    elif clock.fails_alone and (is_selected or clock.on_conflict is None):
        trial = Trial(keys, table)
    elif clock.fails_alone or is_one_row:
        trial = _with_clause(keys, table, compiler)
    else:
        trial = None
    return trial or keys


def _of_upsert(
    keys: Preparation, table: Table, compiler: SQLCompiler, *, is_one_row: bool
) -> Trial | None:
    """Return the trial of an INSERT with a conflict clause of its own."""
    if compiler.dialect.name in MYSQL_FAMILY:
        return Trial(keys, table)
    # The clause names one key, so PostgreSQL fails on any other.
    names_all = clock_of(compiler.dialect).fails_alone or len(uniques(table)) == 1
    return Trial(keys, table, counts=True, is_upsert=True) if is_one_row and names_all else None


def _with_clause(keys: Preparation, table: Table, compiler: SQLCompiler) -> Trial | None:
    """Return the trial of an INSERT of values, which gets a clause."""
    clock = clock_of(compiler.dialect)
    column = next((column for column in table.primary_key if column.computed is None), None)
    if clock.on_conflict is None or column is None:
        return None
    clause = clock.on_conflict.format(column=compiler.preparer.format_column(column))
    return Trial(keys, table, f" {clause}", counts=not clock.fails_alone)


_MAX_AGE: Final = 300.0
"""Seconds for which an answer about a table is certain enough to count missing rows by."""


def _known_tables(dialect: Any) -> dict[Name, tuple[bool, float]]:
    """Return which tables of an engine accept trials, and until when that is certain."""
    try:  # on the dialect, which copies of the engine share: the cheapest lookup
        known: dict[Name, tuple[bool, float]] = dialect.ttl_odm_takes_trials
    except AttributeError:
        known = dialect.ttl_odm_takes_trials = {}
    return known


def _takes_trials(
    context: DefaultExecutionContext, table: Table, *, for_certain: bool = False
) -> bool:
    name = compat.place_of(context.execution_options, table)
    known = _known_tables(context.dialect)
    accepts, end = known.get(name, (False, 0.0))
    if not end or (for_certain and monotonic() > end):
        query = clock_of(context.dialect).takes_tried_inserts(*name)
        # A literal column, whose percent signs SQLAlchemy escapes as the driver needs it.
        question: Any = select(literal_column(f"({query})"))
        # It reads no table of the user's, so the guard for raw SQL can skip it.
        answer = context.root_connection.scalar(question, execution_options={INCLUDE_EXPIRED: True})
        accepts = bool(answer)
        if answer is not None:  # None: there is no such table, or none yet
            known[name] = accepts, monotonic() + _MAX_AGE
    return accepts


def _is_batch(context: DefaultExecutionContext) -> bool:
    return context.execute_style is ExecuteStyle.INSERTMANYVALUES


def _sees_all(connection: Connection, *, in_batches: bool) -> bool:
    """Return whether ON CONFLICT finds the same conflicts as an INSERT in this transaction.

    Without a transaction, the missing rows of a batch would come after others are committed.
    """
    if compat.isolation_level(connection) not in _SEES_ALL:
        return False
    dialect: Any = connection.dialect
    driver = connection.connection.dbapi_connection
    return not (in_batches and dialect.detect_autocommit_setting(driver))


def install_retries(dialect: Dialect) -> None:
    """Let a dialect, and so its engine, send writes again where that helps."""
    if isinstance(dialect.do_execute, _Execute):
        return
    replaced: Any = dialect  # mypy: methods can't be assigned to
    compat.replace_batches(dialect, _Batches)
    if dialect.name in MYSQL_FAMILY:
        replaced.do_execute = _ExecuteOnInnoDB(dialect.do_execute)
        replaced.do_executemany = _ExecuteMany(dialect.do_executemany)
    else:
        replaced.do_execute = _Execute(dialect.do_execute)


class _Execute:
    """Sends one statement, which may be a trial."""

    def __init__(self, send: Send) -> None:
        self.send = send

    def __call__(
        self, cursor: DBAPICursor, statement: str, parameters: object, context: Any = None
    ) -> None:
        trial: Trial | None = getattr(context, "ttl_trial", None)
        if trial is None:
            self.send(cursor, statement, parameters, context)
        else:
            trial.send(self.send, cursor, statement, parameters, context)


class _ExecuteOnInnoDB(_Execute):
    """Sends one statement, which fails as a whole."""

    def __call__(
        self, cursor: DBAPICursor, statement: str, parameters: object, context: Any = None
    ) -> None:
        compiled = getattr(context, "compiled", None)
        preparation: Preparation | None = getattr(compiled, "ttl_preparation", None)
        if preparation is None:
            self.send(cursor, statement, parameters, context)
            return
        trial: Trial | None = context.ttl_trial
        if trial is not None:
            try:
                self.send(cursor, statement, parameters, context)
            except context.dialect.loaded_dbapi.Error as error:
                if not (_is_in_the_way(error) or trial.is_declined(context, error)):
                    raise
                trial.keys.prepare(context)
                statement = trial.plain(statement)
            else:
                return
        self._send_prepared(preparation, cursor, statement, parameters, context)

    def _send_prepared(self, preparation: Preparation, *call: Any) -> None:
        context = call[-1]
        try:
            self.send(*call)
        except context.dialect.loaded_dbapi.Error as error:
            if not (_is_in_the_way(error) and preparation.prepare(context, current=True)):
                raise
            self.send(*call)


class _ExecuteMany(_ExecuteOnInnoDB):
    """Sends many parameter sets, of which some may have been written when a later one fails."""

    def _send_prepared(self, preparation: Preparation, *call: Any) -> None:
        context = call[-1]
        connection = context.root_connection
        connection.exec_driver_sql(f"SAVEPOINT {_SAVEPOINT}")
        try:
            self.send(*call)
        except context.dialect.loaded_dbapi.Error as error:
            if not _is_in_the_way(error):
                raise
            try:
                connection.exec_driver_sql(f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}")
            except DBAPIError:  # autocommit: what has run stays
                raise error from None
            if not preparation.prepare(context, current=True):
                raise
            self.send(*call)


def _is_in_the_way(error: BaseException) -> bool:
    return is_taken(error) or is_restricted(error)


class _Batches:
    """Makes batches of an INSERT of several rows; a trial needs to know which one is being sent."""

    def __init__(self, deliver: Callable[..., Iterator[Any]]) -> None:
        self._deliver = deliver

    def __call__(self, *arguments: Any) -> Iterator[object]:
        context = arguments[-1]
        if not context.parameters:  # a preparation has left out all rows
            return compat.no_batches(context)
        if context.dialect.name in MYSQL_FAMILY and getattr(context.compiled, "ttl_gated", False):
            compat.limit_batches(context, arguments[3], _MOST_IN_BATCH)
        batches = self._deliver(*arguments)
        return (
            batches if getattr(context, "ttl_trial", None) is None else _tracked(batches, context)
        )


def _tracked(batches: Iterator[Any], context: Any) -> Iterator[object]:
    first = rowcount = 0
    for batch in batches:
        context.ttl_batch = (batch, first)
        yield batch
        first += len(batch.batch)
        rowcount += context.cursor.rowcount
    if not context.compiled.effective_returning:
        compat.set_rowcount(context, rowcount)
