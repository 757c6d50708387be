"""`assert_no_leaks`: a watcher for tests that finds SQL which bypasses the gate.

Statements that SQLAlchemy compiles from models and Tables with a policy have the predicate. The
rest is raw: ``text()``, ``exec_driver_sql()``, literal columns, lightweight ``table()`` constructs
and second Tables that lack a column of the policy. The watcher checks only these, so it can't
report a statement that passed the gate, but still finds a piece of raw SQL inside one.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from textwrap import shorten
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Insert, Join, Select, TableClause, TextClause, event
from sqlalchemy.exc import UnboundExecutionError
from sqlalchemy.orm import Session, scoped_session
from sqlalchemy.sql import visitors
from sqlalchemy.sql.elements import ColumnClause

from ttl_odm.guard.sqlalchemy.leaks import (
    is_unknown,
    may_name_tables,
    meant_by,
    stamp_of,
    tables_named,
)
from ttl_odm.guard.sqlalchemy.reports import SQL_LENGTH, line_of_user
from ttl_odm.guard.tables import parse
from ttl_odm.guard.words import Marks
from ttl_odm.sqlalchemy.compat import async_types, from_elements
from ttl_odm.sqlalchemy.policy.predicate import INCLUDE_EXPIRED, includes_expired
from ttl_odm.sqlalchemy.policy.references import gated_tables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import ClauseElement, Connection, Engine, Table
    from sqlalchemy.engine import Compiled
    from sqlalchemy.engine.default import DefaultExecutionContext

    from ttl_odm.guard.tables import Kind


@dataclass(frozen=True, slots=True)
class Leak:
    """A statement that touched TTL tables without the predicate, and the line that sent it."""

    tables: tuple[str, ...]
    sql: str
    line: str

    def __str__(self) -> str:
        return f"{', '.join(self.tables)}: {shorten(self.sql, SQL_LENGTH)}\n    {self.line}"


@contextmanager
def assert_no_leaks(watched: Any) -> Iterator[list[Leak]]:
    """Fail a test whose code sends raw SQL that sees or changes expired rows.

    It needs sqlglot (``pip install 'ttl-odm[guard]'``); without it, the import fails and says so.

    Raw SQL that names the column of the last modification (``_ts``), or that runs with the
    execution option ``include_expired``, is considered deliberate. INSERTs are ignored, but not a
    SELECT inside one. A Table without a policy that has the same name as one with a policy
    (because it lacks a column, for example) counts as raw SQL, unless its ``info`` declares that
    it has no policy. Anything that bypasses SQLAlchemy (a driver's cursor, a view, a stored
    procedure) can't be detected.

    Args:
        watched: An Engine, Connection or Session, their async forms, or a scoped session. With a
            session or an engine, everything sent through the engine is watched, regardless of the
            sender.

    Yields:
        A list of the leaks so far, which grows while the body runs.

    Raises:
        AssertionError: At the end of the body, with every leak and the line it came from.
    """
    leaks: list[Leak] = []

    def look(
        _connection: Connection,
        _cursor: object,
        sql: str,
        _values: object,
        context: DefaultExecutionContext,
        _many: object,
    ) -> None:
        tables = _leaking(sql, context)
        if tables:
            leaks.append(Leak(tables, sql, line_of_user()))

    targets = _targets(watched)
    for target in targets:
        event.listen(target, "before_cursor_execute", look)
    try:
        yield leaks
    finally:
        for target in targets:
            event.remove(target, "before_cursor_execute", look)
    if leaks:
        listed = "\n".join(f"  {leak}" for leak in leaks)
        raise AssertionError(
            f"SQL that touches a TTL table without the predicate ({len(leaks)}):\n{listed}\nWrite "
            "it with the model or its Table, add a condition on _ts, or use "
            "execution_options(include_expired=True) where expired rows are wanted."
        )


def _targets(watched: Any) -> list[Engine | Connection]:
    """Return the engines or connections to listen to."""
    registries: tuple[type[Any], ...] = (scoped_session, *async_types("async_scoped_session"))
    if isinstance(watched, registries):
        watched = watched()
    # An AsyncConnection has the last two; the connection is the right one.
    for name in ("sync_session", "sync_connection", "sync_engine"):
        if getattr(watched, name, None) is not None:
            watched = getattr(watched, name)
            break
    if not isinstance(watched, Session):
        return [watched]
    binds: dict[Engine | Connection, None] = {}  # there may be one for each table
    for table in gated_tables:
        try:
            binds[watched.get_bind(clause=table)] = None
        except UnboundExecutionError:  # a table of another application
            continue
    try:
        binds[watched.get_bind()] = None
    except UnboundExecutionError:
        if not binds:
            raise
    return list(binds)


class _Raw(NamedTuple):
    """A piece of SQL that no compiler has analysed."""

    sql: str
    kind: Kind = "statement"
    marks: Marks = Marks.NAMED


def _leaking(sql: str, context: DefaultExecutionContext) -> tuple[str, ...]:
    """Return the TTL tables that a statement reads while bypassing the gate."""
    if context.execution_options.get(INCLUDE_EXPIRED):
        return ()
    dialect = context.dialect
    driver = _Raw(sql, marks=Marks.of_driver(dialect.paramstyle))
    pieces = [driver] if context.compiled is None else _raw_pieces(context.compiled)
    tables: set[Table] = set()
    for piece in pieces:
        if isinstance(piece, TableClause):
            tables.update(meant_by(tuple(piece.fullname.lower().split("."))))
        elif may_name_tables(piece.sql):
            raw = parse(piece.sql, dialect.name, piece.kind, piece.marks)
            named = tables_named(piece.sql, raw)
            tables.update(table for table in named if stamp_of(table) not in raw.names)
    return tuple(sorted({table.fullname for table in tables}))


def _raw_pieces(compiled: Compiled) -> Iterator[_Raw | TableClause]:
    """Yield the raw parts of a compiled statement, except those that `guard` has rewritten."""
    statement = compiled.statement
    if statement is None or (hasattr(statement, "_with_options") and includes_expired(statement)):
        return
    rewritten = getattr(compiled, "ttl_rewritten", ())
    # The ORM's own version contains what mappers and relationships add.
    by_orm = getattr(getattr(compiled, "compile_state", None), "statement", None)
    versions = [statement] if by_orm is None or by_orm is statement else [statement, by_orm]
    for version in versions:
        for piece in _raw_within(version):
            if (piece.sql if isinstance(piece, _Raw) else piece.fullname) not in rewritten:
                yield piece


def _raw_within(statement: ClauseElement) -> Iterator[_Raw | TableClause]:
    elements = list(visitors.iterate(statement))
    joins = [element for element in elements if isinstance(element, Join)]
    selects = [element for element in elements if isinstance(element, Select)]
    sources = {id(side) for join in joins for side in (join.left, join.right)}  # name tables
    sources |= {id(source) for select in selects for source in from_elements(select)}
    inserted = {id(element.table) for element in elements if isinstance(element, Insert)}
    for element in elements:
        if isinstance(element, TextClause):
            whole: Kind = "statement" if element is statement else "piece"
            yield _Raw(element.text, "from" if id(element) in sources else whole)
        elif isinstance(element, ColumnClause) and element.is_literal:
            yield _Raw(element.name, "piece")
        elif (
            isinstance(element, TableClause) and id(element) not in inserted and is_unknown(element)
        ):
            yield element
