"""`assert_no_leaks`: a watcher for tests that finds SQL which goes around the gate.

Statements that SQLAlchemy compiles from models and Tables with a policy have the predicate.
What is left is raw: ``text()``, ``exec_driver_sql()``, literal columns, lightweight ``table()``
constructs and second Tables that lack a column of the policy. Only those are looked at here, so a
statement that passed the gate can't be reported by mistake, and one that passed it with a piece
of raw SQL inside is still found.
"""

from __future__ import annotations

import inspect
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import Insert, Join, Select, Table, TableClause, TextClause, event
from sqlalchemy.exc import UnboundExecutionError
from sqlalchemy.ext.asyncio import async_scoped_session
from sqlalchemy.orm import Session, scoped_session
from sqlalchemy.sql import visitors
from sqlalchemy.sql.elements import ColumnClause

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.sqlalchemy.compat import from_elements
from ttl_odm.sqlalchemy.policy.binding import binding_of, bound_tables, sub_binding_of
from ttl_odm.sqlalchemy.policy.parameters import INCLUDE_EXPIRED, includes_expired
from ttl_odm.sqlalchemy.policy.second_tables import is_plain
from ttl_odm.testing.raw_sql import names_in, tables_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from sqlalchemy import Connection, Engine

_SQL_LENGTH: Final = 300
"""Characters of a statement that a report has."""

# A listener runs before the driver does, so no driver is on the stack. The last three are thin
# layers over SQLAlchemy: the line that matters is the one that called them.
_LIBRARIES: Final = {
    "sqlalchemy",
    "ttl_odm",
    "greenlet",
    "flask_sqlalchemy",
    "sqlmodel",
    "advanced_alchemy",
}


@dataclass(frozen=True, slots=True)
class Leak:
    """A statement that touched TTL tables without the predicate, and the line that sent it."""

    tables: tuple[str, ...]
    sql: str
    line: str

    def __str__(self) -> str:
        return f"{', '.join(self.tables)}: {shorten(self.sql, _SQL_LENGTH)}\n    {self.line}"


@contextmanager
def assert_no_leaks(watched: Any) -> Iterator[list[Leak]]:
    """Fail a test whose code sends raw SQL that sees, or changes, expired rows.

    Raw SQL that names the column of the last modification (``_ts``), or that runs with the
    execution option ``include_expired``, is taken for deliberate. INSERTs are none of its
    business, but a SELECT inside one is. A Table without a policy that has the name of one with
    a policy (it lacks a column, say) counts as raw SQL, unless its ``info`` says that it has none.
    What bypasses SQLAlchemy (a cursor of the driver, a view, a stored procedure) can't be seen.

    Args:
        watched: An Engine, Connection or Session, their async forms, or a scoped session. With
            a session or an engine, everything that is sent through the engine is watched,
            whoever sends it.

    Yields:
        The leaks so far; it grows while the body runs.

    Raises:
        AssertionError: At the end of the body, with every leak and the line it came from.
    """
    leaks: list[Leak] = []

    def look(conn: Connection, _cursor: Any, sql: str, _values: Any, context: Any, _: Any) -> None:
        tables = _leaking(sql, context, mysql=conn.dialect.name in MYSQL_FAMILY)
        if tables:
            leaks.append(Leak(tables, sql, _line_of_user()))

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
            f"SQL that touches a TTL table without the predicate ({len(leaks)}):\n{listed}\n"
            "Write it with the model or its Table, put a condition on _ts into it, or say "
            "execution_options(include_expired=True) where expired rows are wanted."
        )


def _targets(watched: Any) -> list[Engine | Connection]:
    """What to listen to."""
    if isinstance(watched, (scoped_session, async_scoped_session)):
        watched = watched()
    # An AsyncConnection has the last two, and the connection is what was asked for.
    for name in ("sync_session", "sync_connection", "sync_engine"):
        if getattr(watched, name, None) is not None:
            watched = getattr(watched, name)
            break
    if not isinstance(watched, Session):
        return [watched]
    binds: dict[Engine | Connection, None] = {}  # there may be one for each table
    for table in bound_tables:
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
    """A piece of SQL that no compiler has looked into."""

    sql: str
    from_clause: bool = False


def _leaking(sql: str, context: Any, *, mysql: bool) -> tuple[str, ...]:
    """The TTL tables that a statement reads behind the gate's back."""
    if context.execution_options.get(INCLUDE_EXPIRED):
        return ()
    pieces = [_Raw(sql)] if context.compiled is None else _raw_pieces(context.compiled)
    tables = set()
    for piece in pieces:
        names = tables_in(piece.sql, mysql=mysql, from_clause=piece.from_clause)
        for table in {table for name in names for table in _meant_by(name)}:
            sub = sub_binding_of(table)
            binding = binding_of(table) if sub is None else sub.base
            stamp = None if binding is None else binding.last_modified.name.lower()
            if stamp not in names_in(piece.sql, mysql=mysql):
                tables.add(table.fullname)
    return tuple(sorted(tables))


def _meant_by(name: tuple[str, ...]) -> list[Table]:
    """The TTL tables that SQL means by a name.

    A name without a schema is that of the table without one; where there is none, any will do:
    a search path says which, and only the database knows it.
    """
    *qualifiers, last = name
    tables = [table for table in bound_tables if table.name.lower() == last]
    schema = qualifiers[-1] if qualifiers else None
    exact = [table for table in tables if (table.schema and table.schema.lower()) == schema]
    return exact or [table for table in tables if not (table.schema and schema)]


def _raw_pieces(compiled: Any) -> Iterator[_Raw]:
    """The raw parts of a compiled statement."""
    statement = compiled.statement
    if statement is None or (hasattr(statement, "_with_options") and includes_expired(statement)):
        return
    yield from _raw_within(statement)
    # The ORM's own version of it has what mappers and relationships bring along.
    by_orm = getattr(getattr(compiled, "compile_state", None), "statement", None)
    if by_orm is not None and by_orm is not statement:
        yield from _raw_within(by_orm)


def _raw_within(statement: Any) -> Iterator[_Raw]:
    elements: list[Any] = list(visitors.iterate(statement))
    joins = [element for element in elements if isinstance(element, Join)]
    selects = [element for element in elements if isinstance(element, Select)]
    sources = {id(side) for join in joins for side in (join.left, join.right)}  # name tables
    sources |= {id(source) for select in selects for source in from_elements(select)}
    inserted = {id(element.table) for element in elements if isinstance(element, Insert)}
    for element in elements:
        if isinstance(element, TextClause):
            yield _Raw(element.text, id(element) in sources)
        elif isinstance(element, ColumnClause) and element.is_literal:
            yield _Raw(element.name)
        elif (
            isinstance(element, TableClause)
            and id(element) not in inserted
            # The gate doesn't know that it has a policy.
            and binding_of(element) is None
            and sub_binding_of(element) is None
            and not (isinstance(element, Table) and is_plain(element))
        ):
            yield _Raw('"' + element.fullname.replace(".", '"."') + '"', from_clause=True)


def _line_of_user() -> str:
    """The innermost line that is none of the libraries'."""
    for frame in _frames():
        root = str(frame.f_globals.get("__name__", "sqlalchemy")).partition(".")[0]
        if root not in _LIBRARIES:  # (SQLAlchemy's generated functions have no module name)
            code, here = frame.f_code, Path.cwd()
            file = Path(code.co_filename)
            path = file.relative_to(here) if file.is_relative_to(here) else file
            return f"{path}:{frame.f_lineno} in {code.co_name}"
    return "(sent by no Python code)"


def _frames() -> Iterator[FrameType]:
    """The stack from here outwards, through the greenlet that SQLAlchemy's asyncio runs in."""
    frame, greenlet = inspect.currentframe(), sys.modules.get("greenlet")
    running = None if greenlet is None else greenlet.getcurrent()
    while True:
        while frame is not None:
            yield frame
            frame = frame.f_back
        running = None if running is None else running.parent
        if running is None:
            return
        frame = running.gr_frame
