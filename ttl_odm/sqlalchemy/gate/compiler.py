"""The gate: SQLAlchemy's statement compiler, with the live predicate in every statement.

The public extension ``@compiles`` hands us each SELECT, UPDATE, DELETE and INSERT together
with the compiler that is about to render it; we give that compiler a subclass of its own
class. So there is nothing to install, no listener runs, and what the gate adds is compiled
once and then served from SQLAlchemy's statement cache.

Which condition goes where is decided by how a table enters the statement: see `LiveRows`.
Values that change while the application runs (the default ttl, ``include_expired``) are
bound, never part of the SQL.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Delete, Insert, Select, Update, and_
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.expression import CompoundSelect

from ttl_odm.sqlalchemy.gate.before import DeletedReferences, Preparation, Several, StampedBase
from ttl_odm.sqlalchemy.gate.context import gate_context
from ttl_odm.sqlalchemy.gate.recompile import note, some_were_not_noted
from ttl_odm.sqlalchemy.gate.retry import try_twice
from ttl_odm.sqlalchemy.keys.taken import InnerInserts, InsertedKeys, UpdatedKeys
from ttl_odm.sqlalchemy.policy.binding import binding_of, sub_binding_of
from ttl_odm.sqlalchemy.policy.parameters import includes_expired
from ttl_odm.sqlalchemy.policy.predicate import Predicate, grouped
from ttl_odm.sqlalchemy.purge.statements import SweepDelete
from ttl_odm.sqlalchemy.rewrite.from_clauses import LiveRows, LiveSource
from ttl_odm.sqlalchemy.rewrite.stamps import stamped_insert, stamped_update
from ttl_odm.sqlalchemy.rewrite.upserts import gated_on_conflict, gated_on_duplicate_key
from ttl_odm.sqlalchemy.rewrite.values import written_columns
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import ColumnElement, FromClause

    from ttl_odm.sqlalchemy.policy.binding import Binding


class _Mode(NamedTuple):
    """What the statement that is being rendered does.

    Attributes:
        including: it, or one around it, reads expired rows too.
        writing: it is an UPDATE or DELETE. (A SELECT inside one reads.)
    """

    including: bool
    writing: bool


class GatedCompiler:
    """Mixed in before a dialect's own statement compiler, see `_gated`.

    Attributes:
        ttl_preparation: on a compiled statement, what has to happen before it runs.
        ttl_gated: whether the compiled statement needs a `GatedContext`: it reads or writes a
            TTL table, or has something to prepare.
    """

    ttl_preparation: Preparation | None = None
    ttl_gated: bool = False

    _ttl_mode = _Mode(including=False, writing=False)

    def visit_select(self: Any, select_stmt: Any, **kw: Any) -> Any:
        """SELECT: the predicate is added where its body is composed."""
        including = self._ttl_mode.including or includes_expired(select_stmt)
        with _mode(self, including=including):
            return super().visit_select(select_stmt, **kw)  # type: ignore[misc]

    def visit_compound_select(self: Any, cs: Any, **kw: Any) -> Any:
        """UNION and friends: their SELECTs pass one by one."""
        including = self._ttl_mode.including or includes_expired(cs)
        with _mode(self, including=including):
            return super().visit_compound_select(cs, **kw)  # type: ignore[misc]

    def _compose_select_body(
        self: Any,
        text: str,
        select: Any,
        compile_state: Any,
        inner_columns: Any,
        froms: Any,
        *rest: Any,
    ) -> Any:
        # Every SELECT comes through here with the FROM elements that it really renders, that
        # is, without those that are correlated to an enclosing statement.
        criteria = (
            []
            if self._ttl_mode.including
            else _live_rows(self).where(froms, select._where_criteria)
        )
        if criteria:
            select = select._generate()
            select._where_criteria = (*grouped(select._where_criteria), *criteria)
        return super()._compose_select_body(  # type: ignore[misc]
            text, select, compile_state, inner_columns, froms, *rest
        )

    def visit_join(self: Any, join: Any, *args: Any, **kw: Any) -> Any:
        """Outer joins: the optional side is filtered before it joins."""
        rows = _live_rows(self)
        if self._ttl_mode.including:
            pass
        elif join.full:
            left, right = rows.sealed(join.left), rows.sealed(join.right)
            if left is not join.left or right is not join.right:
                join = join._clone()
                join.left, join.right = left, right
        elif join.isouter:
            criteria = rows.optional(join)
            if criteria:
                join = join._clone()
                join.onclause = and_(*grouped((join.onclause,)), *criteria)
        return super().visit_join(join, *args, **kw)  # type: ignore[misc]

    def visit_ttl_live_source(self: Any, source: LiveSource, **kw: Any) -> str:
        """One side of a FULL JOIN: a subquery of its live rows under its own name."""
        criterion = self.process(source.criterion)
        inner = source.element._compiler_dispatch(self, **kw)
        name = self.preparer.quote(source.visible_name(self._truncated_identifier))
        return f"(SELECT * FROM {inner} WHERE {criterion}) AS {name}"  # noqa: S608 - it is a compiler

    def visit_update(self: Any, update_stmt: Any, visiting_cte: Any = None, **kw: Any) -> Any:
        """UPDATE: only live rows are matched, and their ``_ts`` is reset."""
        with _mode(self, writing=True):
            update_stmt = _only_live(self, update_stmt, kw)
            update_stmt = stamped_update(update_stmt, self)
            if not self.stack:
                _prepare(self, _before_update(update_stmt, self))
            return super().visit_update(  # type: ignore[misc]
                update_stmt, visiting_cte=visiting_cte, **kw
            )

    def visit_delete(self: Any, delete_stmt: Any, visiting_cte: Any = None, **kw: Any) -> Any:
        """DELETE: only live rows are matched; expired ones belong to the sweeper."""
        with _mode(self, writing=True):
            if not isinstance(delete_stmt, SweepDelete):
                delete_stmt = _only_live(self, delete_stmt, kw)
                if not self.stack:
                    _prepare(self, DeletedReferences.of(delete_stmt.table))
            return super().visit_delete(  # type: ignore[misc]
                delete_stmt, visiting_cte=visiting_cte, **kw
            )

    def visit_insert(self: Any, insert_stmt: Any, *args: Any, **kw: Any) -> Any:
        """INSERT: stamped by the server; the keys of expired rows are freed just before."""
        binding = binding_of(insert_stmt.table)
        if binding is not None:
            _needs_context(self)
            insert_stmt = stamped_insert(insert_stmt, binding, self)
        freeing = InnerInserts if self.stack else InsertedKeys
        _prepare(self, freeing.of(insert_stmt.table))
        return super().visit_insert(insert_stmt, *args, **kw)  # type: ignore[misc]

    def visit_on_conflict_do_update(self: Any, on_conflict: Any, **kw: Any) -> Any:
        """An upsert's update half, on PostgreSQL and SQLite."""
        binding = binding_of(self.stack[-1]["selectable"].table)
        if binding is not None:
            predicate = Predicate(clock_of(self.dialect), writing=True)
            on_conflict = gated_on_conflict(on_conflict, binding, predicate)
        return super().visit_on_conflict_do_update(on_conflict, **kw)  # type: ignore[misc]

    def visit_on_duplicate_key_update(self: Any, on_duplicate: Any, **kw: Any) -> Any:
        """An upsert's update half, on MariaDB and MySQL."""
        binding = binding_of(self.current_executable.table)
        if binding is not None:
            predicate = Predicate(clock_of(self.dialect), writing=True)
            on_duplicate = gated_on_duplicate_key(on_duplicate, binding, predicate)
        return super().visit_on_duplicate_key_update(  # type: ignore[misc]
            on_duplicate, **kw
        )


def _needs_context(compiler: Any) -> None:
    """See that the statement which is being compiled runs in a gated context."""
    gate_context(compiler.dialect)
    compiler.ttl_gated = True


def _prepare(compiler: Any, preparation: Preparation | None) -> None:
    """Let something happen just before the statement that is being compiled."""
    if preparation is not None:
        _needs_context(compiler)
        try_twice(compiler.dialect)
        compiler.ttl_preparation = Several.of(compiler.ttl_preparation, preparation)


def _live_rows(compiler: Any) -> LiveRows:
    """The conditions for FROM elements, in the mode that the compiler is in."""

    def live(binding: Binding, source: FromClause) -> ColumnElement[bool]:
        _needs_context(compiler)
        writing = compiler._ttl_mode.writing
        predicate = Predicate(clock_of(compiler.dialect), writing=writing, overridable=not writing)
        return predicate.live(binding, binding.columns_of(source))

    return LiveRows(live)


def _only_live(compiler: Any, statement: Any, kw: dict[str, Any]) -> Any:
    """The statement with the predicate on its target and on its extra FROM elements.

    The compile state is asked first, since only it knows which tables a WHERE or a SET
    clause brings in, and which table an ORM entity stands for.
    """
    state: Any = statement._compile_state_factory(statement, compiler, **kw)
    sources = [state.statement.table, *state._extra_froms]
    criteria = _live_rows(compiler).where(sources, state.statement._where_criteria)
    if not criteria:
        return statement
    gated: Any = statement._generate()
    gated._where_criteria = (*grouped(gated._where_criteria), *criteria)
    return gated


def _before_update(statement: Any, compiler: Any) -> Preparation | None:
    binding, sub = binding_of(statement.table), sub_binding_of(statement.table)
    if binding is not None:
        return UpdatedKeys.of(statement.table, written_columns(statement, compiler))
    if sub is None:
        return None
    written = written_columns(statement, compiler)
    return Several.of(StampedBase(sub), UpdatedKeys.of(statement.table, written))


@contextmanager
def _mode(compiler: Any, *, including: bool = False, writing: bool = False) -> Iterator[None]:
    before = compiler._ttl_mode
    compiler._ttl_mode = _Mode(including, writing)
    try:
        yield
    finally:
        compiler._ttl_mode = before


@cache
def _gated(compiler_class: type[Any]) -> type[Any]:
    """The gated subclass of a dialect's compiler class."""
    return type(f"Gated{compiler_class.__name__}", (GatedCompiler, compiler_class), {})


_GATED: Any = _gated  # mypy takes a class of Any for unhashable


def install() -> None:
    """Put the gate on every statement.

    Done when ``ttl_odm.sqlalchemy`` is imported, and again whenever a policy is declared, in
    case another package has registered handlers since. Those are kept; they run inside the gate.
    """
    for construct in (Select, CompoundSelect, Update, Delete, Insert):
        if "_compiler_dispatcher" not in construct.__dict__:
            compiles(construct)(_Gateway(_visit))
        handlers = construct.__dict__["_compiler_dispatcher"].specs
        for name, handler in handlers.items():
            if not isinstance(handler, _Gateway):
                handlers[name] = _Gateway(handler)
                some_were_not_noted()


def _visit(element: Any, compiler: Any, **kw: Any) -> Any:
    return getattr(compiler, f"visit_{element.__visit_name__}")(element, **kw)


class _Gateway:
    """A compile handler that sees to it that the compiler is a gated one."""

    __slots__ = ("_handler",)

    def __init__(self, handler: Callable[..., Any]) -> None:
        self._handler = handler

    def __call__(self, element: Any, compiler: Any, **kw: Any) -> Any:
        if not isinstance(compiler, GatedCompiler):
            compiler.__class__ = _GATED(type(compiler))
            note(compiler)
        return self._handler(element, compiler, **kw)
