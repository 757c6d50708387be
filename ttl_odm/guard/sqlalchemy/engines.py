"""How an engine is guarded: its compiler and its execution context check raw SQL.

``text()`` is compiled like any statement, and SQLAlchemy caches the result, so the compiler checks
it once. A table is replaced with a SELECT of it, which passes the gate as any other: the gate takes
care of the predicate, ``include_expired`` and changes of the default. The context reports leaks,
because that depends on the execution's options. It also gets the driver's own SQL, which can't get
further parameters: there the SELECT contains the seconds of that moment.

This module must not know what a live row is.
"""

from __future__ import annotations

import warnings
from functools import cache, lru_cache
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Table, literal_column, select

from ttl_odm.guard.sqlalchemy.leaks import RawLeaks, is_unknown, leaks_in, leaks_of
from ttl_odm.guard.sqlalchemy.reports import (
    SQL_LENGTH,
    RawSQLError,
    RawSQLWarning,
    line_of_user,
)
from ttl_odm.guard.tables import Source, replaced
from ttl_odm.guard.words import Marks
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.gate.compiler import compiled_statements
from ttl_odm.sqlalchemy.gate.execution import outdate, recompiled
from ttl_odm.sqlalchemy.policy.bindings import bound_tables
from ttl_odm.sqlalchemy.policy.predicate import INCLUDE_EXPIRED, includes_expired
from ttl_odm.sqlalchemy.policy.references import root_of
from ttl_odm.sqlalchemy.policy.second_tables import is_migrating
from ttl_odm.sqlalchemy.rewrite.from_clauses import binding_of_source

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sqlalchemy import Connection, Engine, Select, TableClause, TextClause
    from sqlalchemy.engine import Dialect
    from sqlalchemy.engine.default import DefaultExecutionContext
    from sqlalchemy.engine.interfaces import ExecutionContext
    from sqlalchemy.sql.compiler import SQLCompiler

    from ttl_odm.guard.sqlalchemy.reports import Answer
    from ttl_odm.guard.tables import Kind

    Compiler = SQLCompiler
    Context = DefaultExecutionContext
else:
    Compiler = Context = object

_TEXTS: Final = 1024
"""Texts whose leaks an engine's guard caches."""


def install(engine: Engine, answer: Answer) -> None:
    """Guard an engine, or change its answer."""
    dialect: Any = engine.dialect
    dialect.ttl_odm_guard = Guard(dialect, answer)
    if not issubclass(dialect.statement_compiler, GuardedCompiler):
        dialect.statement_compiler = _guarded(GuardedCompiler, dialect.statement_compiler)
    if not issubclass(dialect.execution_ctx_cls, GuardedContext):
        dialect.execution_ctx_cls = _guarded(GuardedContext, dialect.execution_ctx_cls)
    engine.clear_compiled_cache()  # which may have texts compiled with another answer


@cache
def _guarded(mixin: type, base: type) -> type:
    return type(f"Guarded{base.__name__}", (mixin, base), {})


class Guard:
    """The guard of an engine; an attribute of its dialect, which the engine's copies share."""

    def __init__(self, dialect: Dialect, answer: Answer) -> None:
        self.answer = answer
        self._dialect = dialect
        self._known = lru_cache(_TEXTS)(self._leaks_in)

    def leaks_in(self, sql: str, kind: Kind, marks: Marks = Marks.NAMED) -> RawLeaks:
        """Return the leaks of a text, which are cached."""
        return self._known(sql, kind, marks, bound_tables.changes)

    def _leaks_in(self, sql: str, kind: Kind, marks: Marks, _changes: int) -> RawLeaks:
        return leaks_in(sql, self._dialect, kind, marks)

    def rewrites(self, leaks: RawLeaks) -> bool:
        """Whether the leaking tables are to be replaced, and can be."""
        return self.answer == "rewrite" and leaks.obstacle is None

    def driver_sql(self, sql: str) -> str:
        """Return the SQL to send in place of a driver's own; raise as `report` does."""
        if self.answer == "off":
            return sql
        marks = Marks.of_driver(self._dialect.paramstyle)
        leaks = self.leaks_in(sql, "statement", marks)
        if not leaks or is_migrating(self._dialect):
            return sql
        if self.rewrites(leaks):
            return _rewritten(leaks, lambda table: _written_out(table, self._dialect))
        self.report(leaks)
        return sql

    def report(self, leaks: RawLeaks) -> None:
        """Report leaks, by a warning, once for each text, or by an error."""
        if self.answer == "warn":
            if not leaks.is_reported:
                leaks.is_reported = True
                message = f"{_message(leaks)} It was sent by {line_of_user()}."
                warnings.warn(message, RawSQLWarning, stacklevel=2)
            return
        reason = ""
        if self.answer == "rewrite" and leaks.obstacle and not leaks.problem:
            reason = f" It can't be rewritten: {leaks.obstacle}."
        raise RawSQLError(_message(leaks) + reason)


def _message(leaks: RawLeaks) -> str:
    names = ", ".join(sorted({table.fullname for table in leaks.tables}))
    sql = shorten(leaks.sql, SQL_LENGTH)
    if leaks.problem is not None:
        which = f" of {names}" if names else ""
        return (
            f"Raw SQL can't be checked, because {leaks.problem}: it may see expired rows{which}: "
            f"{sql!r}. Write it with models or Tables, or as SQL that the guard can read (see "
            "docs/limits.md#what-a-guard-promises); or use "
            "execution_options(include_expired=True) if it may see expired rows."
        )
    bindings = filter(None, map(root_of, leaks.tables))
    stamps = sorted(
        {f"{binding.table.name}.{binding.last_modified.name.lower()}" for binding in bindings}
    )
    return (
        f"Raw SQL names {names} without a condition on {' and '.join(stamps)}, so it sees expired "
        f"rows: {sql!r}. Write it with the model or its Table; or add "
        "such a condition to the query that names the table; or use "
        "execution_options(include_expired=True) if you want expired rows."
    )


def _rewritten(leaks: RawLeaks, rows_of: Callable[[Table], str]) -> str:
    tables = dict(leaks.replaceable)
    return replaced(leaks.sql, list(tables), lambda source: rows_of(tables[source]))


def _live_rows(table: Table) -> Select[tuple[object]]:
    """Return a SELECT to which the gate adds the predicate."""
    return select(literal_column("*")).select_from(table)


def _written_out(table: Table, dialect: Dialect) -> str:
    """Return a subquery of a table's live rows, without parameters."""
    binding = root_of(table)
    assert binding is not None  # noqa: S101 (it leaks)
    defaults = [default() for default in binding.defaults()] if binding.source.is_known else ()
    return _with_literals(table, dialect, tuple(defaults), bound_tables.changes)


@lru_cache(_TEXTS)
def _with_literals(table: Table, dialect: Dialect, *_seconds: object) -> str:
    return f"({_live_rows(table).compile(dialect=dialect, compile_kwargs={'literal_binds': True})})"


class GuardedCompiler(Compiler):
    """Mixed in before a dialect's own statement compiler, and below the gate's."""

    ttl_raw: tuple[RawLeaks, ...] = ()
    """The raw pieces that leak and were not rewritten."""

    ttl_rewritten: tuple[str, ...] = ()
    """The raw pieces that were rewritten."""

    ttl_let_through = False
    """Whether a piece was not checked because a migration was running."""

    def visit_textclause(self, textclause: TextClause, *args: object, **kw: object) -> str:
        """Check ``text()``: a statement, an element of FROM, or a piece of another statement."""
        if not self.stack:
            compiled_statements[id(self)] = self  # for a policy that is declared later
        inner: Kind = "from" if kw.get("asfrom") else "piece"
        marked, rows = _marked(self, textclause.text, inner if self.stack else "statement")
        if rows:
            textclause = compat.copied(textclause, text=marked)
        rendered = super().visit_textclause(textclause, *args, **kw)  # type: ignore[no-untyped-call]
        return _filled(rendered, rows)

    def escape_literal_column(self, text: str) -> str:
        """Check ``literal_column()``."""
        marked, rows = _marked(self, text, "piece")
        return _filled(super().escape_literal_column(marked), rows)  # type: ignore[no-untyped-call]

    def visit_table(self, table: TableClause, **kw: object) -> str:  # type: ignore[override]
        """Check ``table()``, or a Table without the policy's columns: both are raw names."""
        rendered: str = super().visit_table(table, **kw)  # type: ignore[no-untyped-call]
        if not kw.get("asfrom") or binding_of_source(table, self.dialect) or not is_unknown(table):
            return rendered
        name = table.name.lower()
        schema = table.schema if isinstance(table, Table) else getattr(table, "schema", None)
        has_alias = kw.get("enclosing_alias") is not None
        obstacle = None
        if kw.get("iscrud"):
            obstacle = "it is not a plain SELECT"
        elif schema and not has_alias:
            obstacle = "columns are named with its schema: give it an alias"
        alias = "" if has_alias else f" AS {self.preparer.quote(table.name)}"
        names = (schema.lower(), name) if schema else (name,)
        source = Source(names, (0, len(rendered)), alias, frozenset(), obstacle)
        leaks = leaks_of(table.fullname, (source,), self.dialect)
        if not _is_to_rewrite(self, leaks):
            return rendered
        return f"{_rendered_rows(self, leaks.replaceable[0].table)}{alias}"


def _marked(compiler: GuardedCompiler, sql: str, kind: Kind) -> tuple[str, list[str]]:
    """Return the SQL with marks in place of tables, and the subqueries for the marks.

    The subqueries are compiled: they have the driver's percent signs, and must not be searched for
    parameters again.
    """
    leaks = compiler.dialect.ttl_odm_guard.leaks_in(sql, kind)  # type: ignore[attr-defined]
    rows: list[str] = []
    if not _is_to_rewrite(compiler, leaks):
        return sql, rows

    def mark(table: Table) -> str:
        rows.append(_rendered_rows(compiler, table))
        return f"\0{len(rows) - 1}\0"

    return _rewritten(leaks, mark), rows


def _filled(sql: str, rows: list[str]) -> str:
    for number, row in enumerate(rows):
        sql = sql.replace(f"\0{number}\0", row)
    return sql


def _is_to_rewrite(compiler: GuardedCompiler, leaks: RawLeaks) -> bool:
    """Whether leaking tables are to be replaced; other leaks are recorded on the compiler."""
    guard: Guard = compiler.dialect.ttl_odm_guard  # type: ignore[attr-defined]
    if not leaks or guard.answer == "off" or _is_deliberate(compiler):
        return False
    if is_migrating(compiler.dialect):
        compiler.ttl_let_through = True
        return False
    if guard.rewrites(leaks):
        compiler.ttl_rewritten += (leaks.sql,)
        return True
    compiler.ttl_raw += (leaks,)
    return False


def _is_deliberate(compiler: SQLCompiler) -> bool:
    """Whether the statement, or the part that is being compiled, includes expired rows."""
    mode = getattr(compiler, "ttl_mode", None)  # which the gate's compiler has
    if mode is not None and (mode.including or mode.sweeping):
        return True
    statement = compiler.statement
    return hasattr(statement, "_with_options") and includes_expired(statement)


def _rendered_rows(compiler: SQLCompiler, table: Table) -> str:
    """Return a subquery of a table's live rows that doesn't correlate with its surroundings."""
    compiler.stack.append(
        {"correlate_froms": set(), "asfrom_froms": set(), "selectable": _live_rows(table)}
    )
    try:
        return f"({compiler.process(compiler.stack[-1]['selectable'], asfrom=True)})"
    finally:
        compiler.stack.pop()


class GuardedContext(Context):
    """Mixed in before a dialect's execution context."""

    @classmethod
    def _init_compiled(
        cls,
        dialect: Any,
        connection: Connection,
        dbapi_connection: object,
        execution_options: Mapping[str, object],
        compiled: SQLCompiler,
        *rest: object,
        **kw: object,
    ) -> ExecutionContext:
        """Report the leaks of a compiled statement."""
        compiled = recompiled(compiled)
        if getattr(compiled, "ttl_let_through", False) and not is_migrating(dialect):
            outdate(compiled)
            compiled = recompiled(compiled)
        leaking = getattr(compiled, "ttl_raw", ())  # missing if compiled before the guard
        if leaking and not execution_options.get(INCLUDE_EXPIRED):
            for leaks in leaking:
                dialect.ttl_odm_guard.report(leaks)
        make: Callable[..., ExecutionContext] = super()._init_compiled
        return make(dialect, connection, dbapi_connection, execution_options, compiled, *rest, **kw)

    @classmethod
    def _init_statement(  # noqa: PLR0913, PLR0917 (SQLAlchemy's signature)
        cls,
        dialect: Any,
        connection: Connection,
        dbapi_connection: object,
        execution_options: Mapping[str, object],
        statement: str,
        parameters: object,
    ) -> ExecutionContext:
        """Check the driver's own SQL."""
        if not execution_options.get(INCLUDE_EXPIRED):
            statement = dialect.ttl_odm_guard.driver_sql(statement)
        make: Callable[..., ExecutionContext] = super()._init_statement
        return make(dialect, connection, dbapi_connection, execution_options, statement, parameters)
