"""How a gated statement is executed: what goes before it, and a second try after a taken key.

In the execution context, what one execution asks for (``include_expired``,
``keep_last_modified``) is put among the bound values, the database's clock is looked at once in a
while, and what has to happen before the statement does. A statement that is out of date is compiled
again there, for all further executions. The old one stays as it is, since another thread may be
running it: SQL and bound values have to be of one and the same compilation.

Nearly always the keys that a write takes are free, so a look at them beforehand would be a round
trip for nothing. A write that can be tried goes first (`Trial`); where it meets a key that is taken
the expired rows that have its keys are deleted, and it is sent again as it was written. Then it
succeeds, or raises the error that belongs there.

A trial must not end the transaction. On SQLite, MariaDB and MySQL a statement that fails is undone
by itself. On PostgreSQL it isn't, so an INSERT is told to do nothing about a conflict, and says by
the number of its rows that there was one. What stands behind its VALUES, there and on InnoDB, is in
`ttl_odm.dialects`. Where a trial isn't safe the keys are freed first.

On MariaDB and MySQL every other write of a table with a policy gets a second try, too. In
REPEATABLE READ, InnoDB's default, a transaction reads the rows that there were when it first read,
and writes those that there are: the lookup of expired rows in the way of a write misses a younger
one, and the write fails on it. Reading the rows as they are now would lock the gaps where there are
none.

An answer can still be changed only in the dialect's functions that hand a statement to the driver;
an engine that writes to a TTL table has others in their place.

This module must not know how a statement was compiled, but for what the compiler notes on it, nor
why one is out of date.
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
from ttl_odm.dialects.errors import is_denied, is_restricted, is_taken
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.policy.parameters import (
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
    """A table's schema and name, as the database has them."""

    Row = dict[str, object]
    Send = Callable[..., None]
    """What hands a cursor, a statement, its parameters and its context to the driver."""
    Context = DefaultExecutionContext
else:
    Context = object

_SAVEPOINT: Final = "ttl_odm_second_try"

_SEES_ALL: Final = frozenset({"READ COMMITTED", "READ UNCOMMITTED", "AUTOCOMMIT"})
"""Isolation levels in which PostgreSQL's ON CONFLICT passes each row that is in the way. In others
it fails on one that the transaction doesn't see, where an INSERT says that the key is taken."""


def gate_contexts(dialect: Dialect) -> None:
    """See that statements of a dialect, if they are gated, run in a gated context."""
    context_class = dialect.execution_ctx_cls  # asked once: another thread may replace it
    if not issubclass(context_class, GatedContext):
        forget(dialect)
        make: Any = _gated_context  # mypy takes a class that defines __eq__ for unhashable
        dialect.execution_ctx_cls = make(context_class)


class GatedContext(Context):
    """Mixed in before a dialect's own execution context, see `_gated_context`.

    It is put there the first time that a statement with a TTL table is compiled for the dialect,
    which is before that statement's context is made. It is on the way of every statement of the
    engine, so it steps aside at once for all that have no TTL table, and does nothing after the
    start for those that have nothing to prepare.
    """

    ttl_trial: Trial | None = None
    ttl_batch: Any = None
    ttl_does_nothing: bool = False  # whatever it was to write was left out

    def fetchall_for_returning(self, cursor: Any) -> Any:
        """The rows of a batch that is inserted."""
        rows = super().fetchall_for_returning(cursor)  # type: ignore[no-untyped-call]
        trial = self.ttl_trial
        return rows if trial is None else trial.complete(self, rows)

    def pre_exec(self) -> None:
        """See to the database's clock, and to expired rows that are in the way."""
        compiled: Any = self.compiled
        if getattr(compiled, "ttl_gated", False):
            if monotonic() >= self.root_connection.dialect.ttl_odm_stale_at:  # type: ignore[attr-defined]
                observe(self.root_connection)
            if compiled.ttl_preparation is not None:
                compiled.ttl_preparation.prepare(self)
        super().pre_exec()  # type: ignore[no-untyped-call]


@cache
def _gated_context(context_class: type[Any]) -> type[Any]:
    """The gated subclass of a dialect's context class."""
    init = context_class._init_compiled  # noqa: SLF001 (a subclass's)

    # With every argument by name, and in two calls, since packing and unpacking them would double
    # what this adds to each statement of the engine. (SQLAlchemy 2.0 has no `param_dict`.)
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
    ) -> Any:
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
            # Only the gated class looks again before the cursor is used.
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
    """Let the next execution of a statement compile it again; it has to run in a gated context."""
    compiled.ttl_renewed = None
    compiled.ttl_gated = compiled.ttl_outdated = True


def recompiled(compiled: Any) -> Any:
    """The statement as it is compiled now, in the place of one that is outdated.

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
    """Compile a statement once more; TTLConfigurationError where that can't be."""
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
    """A write that goes first, and its keys, which are freed once it has met one that is taken.

    Attributes:
        keys: What frees them.
        table: What it writes to.
        clause: What it has behind its VALUES as long as it is tried.
        counts: Whether a taken key shows by rows that are missing, and not by an error.
        is_upsert: Whether they may be missing because the statement says so.
    """

    keys: Preparation
    table: Table
    clause: str = ""
    counts: bool = False
    is_upsert: bool = False

    def prepare(self, context: Any, *, current: bool = False) -> int:
        """Free nothing yet if the statement may be tried, else its keys, as for any other write."""
        if current:
            return self.keys.prepare(context, current=True)
        if self._fits(context):
            context.ttl_trial = self
            return 0
        context.statement = self.plain(context.statement)
        return self.keys.prepare(context)

    def begun(self, statement: str, returning: str) -> str:
        """The statement as it is tried, which ends with what it returns."""
        if not self.clause:
            return statement
        if returning and statement.endswith(returning):
            return f"{statement.removesuffix(returning).rstrip()}{self.clause} {returning}"
        return statement + self.clause

    def plain(self, statement: str) -> str:
        """The statement as it was written."""
        if not self.clause:
            return statement
        before, _, after = statement.rpartition(self.clause)
        return before + after

    def send(self, send: Send, cursor: DBAPICursor, statement: str, *rest: Any) -> None:
        """Send it, and again if it met a key that is taken and is free now."""
        context = rest[-1]
        try:
            send(cursor, statement, *rest)
        except context.dialect.loaded_dbapi.Error as error:
            if not (is_taken(error) or self.is_declined(context, error)):
                raise
            self.keys.prepare(context)  # none, if a sweeper came first: they are free then
        else:
            if not self.counts or _is_batch(context) or cursor.rowcount > 0:
                return
            if not (self.keys.prepare(context) or self._insists(context)):
                return
        send(cursor, self.plain(statement), *rest)

    def is_declined(self, context: Any, error: BaseException) -> bool:
        """Whether it was the clause that an error is about, which has to go then.

        After another error the database is asked about the table anew: somebody may have made a key
        of it deferrable.
        """
        tables = _known(context.dialect)
        name = compat.place_of(context.execution_options, self.table)
        is_declined = bool(self.clause) and is_denied(error)  # an ON DUPLICATE KEY UPDATE
        if is_declined:
            tables[name] = False, inf
        else:
            tables.pop(name, None)
        return is_declined

    def complete(self, context: Any, rows: Sequence[Any]) -> Sequence[Any]:
        """The rows that a batch has inserted, with those that it had to leave out at first."""
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
        if context.execute_style is ExecuteStyle.EXECUTEMANY:  # which of them is in the way?
            return False
        if compat.sends_otherwise(context):
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

    def _insists(self, context: Any) -> bool:
        """Whether a row that is missing has met a live one, and nobody else has put it aside."""
        return not self.is_upsert and _takes_trials(context, self.table, for_certain=True)


def keys_with_trial(
    keys: Preparation | None, write: Insert | Update, table: Table, compiler: SQLCompiler
) -> Preparation | None:
    """A write's keys, which are freed after a trial; before it, where the write isn't tried."""
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
    """One for an INSERT with a clause of its own."""
    if compiler.dialect.name in MYSQL_FAMILY:
        return Trial(keys, table)
    # It names one key, so PostgreSQL fails on any other.
    names_all = clock_of(compiler.dialect).fails_alone or len(uniques(table)) == 1
    return Trial(keys, table, counts=True, is_upsert=True) if is_one_row and names_all else None


def _with_clause(keys: Preparation, table: Table, compiler: SQLCompiler) -> Trial | None:
    """One for an INSERT of values, which gets a clause."""
    clock = clock_of(compiler.dialect)
    column = next((column for column in table.primary_key if column.computed is None), None)
    if clock.on_conflict is None or column is None:
        return None
    clause = clock.on_conflict.format(column=compiler.preparer.format_column(column))
    return Trial(keys, table, f" {clause}", counts=not clock.fails_alone)


_MAX_AGE: Final = 300.0
"""Seconds after which a database is asked anew, before rows count as kept out by a key."""


def _known(dialect: Any) -> dict[Name, tuple[bool, float]]:
    """Of an engine's tables, whether they take trials, and until when that is certain."""
    try:  # on the dialect, which copies of the engine share: looking it up there costs the least
        known: dict[Name, tuple[bool, float]] = dialect.ttl_odm_takes_trials
    except AttributeError:
        known = dialect.ttl_odm_takes_trials = {}
    return known


def _takes_trials(context: Any, table: Table, *, for_certain: bool = False) -> bool:
    name = compat.place_of(context.execution_options, table)
    known = _known(context.dialect)
    takes_them, end = known.get(name, (False, 0.0))
    if not end or (for_certain and monotonic() > end):
        query = clock_of(context.dialect).takes_tried_inserts(*name)
        # A literal column, of whose percent signs SQLAlchemy knows what the driver makes.
        asked: Any = select(literal_column(f"({query})"))
        # Nothing of a table of the user's: those who watch for raw SQL needn't look at it.
        answer = context.root_connection.scalar(asked, execution_options={INCLUDE_EXPIRED: True})
        takes_them = bool(answer)
        if answer is not None:  # else there is no such table, or none yet
            known[name] = takes_them, monotonic() + _MAX_AGE
    return takes_them


def _is_batch(context: Any) -> bool:
    return context.execute_style is ExecuteStyle.INSERTMANYVALUES


def _sees_all(connection: Connection, *, in_batches: bool) -> bool:
    """Whether ON CONFLICT does as an INSERT would in the connection's transaction.

    Without a transaction, what is missing of a batch would come after what has been committed.
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
    """One statement, which may be a trial."""

    def __init__(self, send: Send) -> None:
        self.send = send

    def __call__(
        self, cursor: DBAPICursor, statement: str, parameters: Any, context: Any = None
    ) -> None:
        trial: Trial | None = getattr(context, "ttl_trial", None)
        if trial is None:
            self.send(cursor, statement, parameters, context)
        else:
            trial.send(self.send, cursor, statement, parameters, context)


class _ExecuteOnInnoDB(_Execute):
    """One statement, which fails as a whole."""

    def __call__(
        self, cursor: DBAPICursor, statement: str, parameters: Any, context: Any = None
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
        self._prepared(preparation, cursor, statement, parameters, context)

    def _prepared(self, preparation: Preparation, *call: Any) -> None:
        context = call[-1]
        try:
            self.send(*call)
        except context.dialect.loaded_dbapi.Error as error:
            if not (_is_in_the_way(error) and preparation.prepare(context, current=True)):
                raise
            self.send(*call)


class _ExecuteMany(_ExecuteOnInnoDB):
    """Drivers make several statements of it, of which some may have run when one fails."""

    def _prepared(self, preparation: Preparation, *call: Any) -> None:
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
    """What makes batches of an INSERT of several rows; a trial has to know which one is sent."""

    def __init__(self, deliver: Callable[..., Iterator[Any]]) -> None:
        self._deliver = deliver

    def __call__(self, *arguments: Any) -> Iterator[Any]:
        context = arguments[-1]
        if not context.parameters:  # all of them were left out, by a preparation
            return compat.no_batches(context)
        batches = self._deliver(*arguments)
        return batches if getattr(context, "ttl_trial", None) is None else _noted(batches, context)


def _noted(batches: Iterator[Any], context: Any) -> Iterator[Any]:
    first = rowcount = 0
    for batch in batches:
        context.ttl_batch = (batch, first)
        yield batch
        first += len(batch.batch)
        rowcount += context.cursor.rowcount
    if not context.compiled.effective_returning:
        compat.set_rowcount(context, rowcount)
