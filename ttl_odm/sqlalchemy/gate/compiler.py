"""The gate: SQLAlchemy's statement compiler, with the live predicate in every statement.

The public extension ``@compiles`` passes us each SELECT, UPDATE, DELETE and INSERT together with
the compiler that is about to render it, and we give that compiler a subclass of its own class. So
there is nothing to install, no listener runs, and what the gate adds is compiled once and then
served from SQLAlchemy's statement cache.

How a table enters a statement determines where its condition goes: see `LiveRows` in
`ttl_odm.sqlalchemy.rewrite.from_clauses`. Values that change while the application runs (the
default ttl, ``include_expired``) are bound, never part of the SQL. The options of one execution are
applied to them in the execution context (`ttl_odm.sqlalchemy.gate.execution`).

No statement is compiled while a policy changes (`policy_change`): the table has half a policy then,
or none, and the statement would show expired rows, or not compile at all. Statements that were
compiled before are compiled again (`recompile`). SQLAlchemy keeps them in the cache of each engine,
of each mapper (for flushes), in one that a user passes as ``compiled_cache``, or a variable has
them. A policy in the cache keys would not help, because statements remember their keys. So the gate
records a weak reference to each statement that it compiles. Those that name the table are outdated,
wherever they are kept, and compiled again when they are executed. Statements from before the gate
was in place are found by the garbage collector: the first `ttl_odm.sqlalchemy.enable` of a process
takes a fraction of a second for that.
"""

from __future__ import annotations

import gc
import os
from collections import Counter
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from threading import Condition, Event, get_ident
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from sqlalchemy import Delete, Join, Update, and_
from sqlalchemy.sql.compiler import CompilerState, SQLCompiler

from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.gate.execution import (
    Trial,
    gate_contexts,
    install_retries,
    keys_with_trial,
    outdate,
    recompiled,
)
from ttl_odm.sqlalchemy.gate.preparations import (
    ChangedReferences,
    InnerInserts,
    SeenDefault,
    Several,
    StampedBase,
)
from ttl_odm.sqlalchemy.keys.updates import MetRows, UpdatedKeys
from ttl_odm.sqlalchemy.keys.write_keys import InsertedKeys
from ttl_odm.sqlalchemy.policy.bindings import binding_of, may_be_second, sub_binding_of
from ttl_odm.sqlalchemy.policy.predicate import Predicate, grouped, includes_expired
from ttl_odm.sqlalchemy.policy.second_tables import is_migrating
from ttl_odm.sqlalchemy.purge.statements import PurgeDelete, SweepInsert, SweepSelect, SweepUpdate
from ttl_odm.sqlalchemy.rewrite.from_clauses import (
    Assigned,
    JoinKeys,
    LiveRows,
    LiveSource,
    binding_of_source,
    statement_rule_of,
    unreadable_tables,
)
from ttl_odm.sqlalchemy.rewrite.upserts import gated_on_conflict, gated_on_duplicate_key
from ttl_odm.sqlalchemy.rewrite.writes import (
    WithoutSources,
    stamped_insert,
    stamped_update,
    targets_of,
)
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from contextlib import AbstractContextManager

    from sqlalchemy import (
        CTE,
        ClauseElement,
        ColumnElement,
        FromClause,
        Insert,
        Select,
    )
    from sqlalchemy.dialects.mysql.dml import OnDuplicateClause
    from sqlalchemy.dialects.postgresql.dml import OnConflictDoUpdate
    from sqlalchemy.engine import Dialect
    from sqlalchemy.sql.expression import CompoundSelect

    from ttl_odm.sqlalchemy.compat import Handler, Resolved
    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sqlalchemy.policy.sources import SourceColumns
    from ttl_odm.sqlalchemy.rewrite.statement_rules import Preparation

    Compiler = SQLCompiler
else:
    Compiler = object


Write = TypeVar("Write", Update, Delete)

compiled_statements: Final[WeakValueDictionary[int, SQLCompiler]] = WeakValueDictionary()
"""All statements that the gate compiled and that still exist, by their ``id()``."""

_some_are_unknown: Final = Event()
"""Set while statements may exist that were compiled before the gate was in place."""

_LONGEST_WAIT: Final = 1.0
"""Seconds that a compilation waits for a change of a policy, or a change for compilations."""


class _Mode(NamedTuple):
    """How the current statement is rendered.

    Attributes:
        including: The statement, or one around it, reads expired rows too.
        writing: It is an UPDATE or DELETE (a SELECT inside one reads).
        sweeping: It selects expired rows by a condition of its own.
        changed: The tables that it, or one around it, changes: its subqueries can't read them.
    """

    including: bool
    writing: bool
    sweeping: bool
    changed: frozenset[object] = frozenset()


class GatedCompiler(Compiler):
    """Mixed in before a dialect's own statement compiler, see `_gated`.

    A compiled statement is `ttl_gated`, and needs a `GatedContext`, if it reads or writes a TTL
    table or has a `ttl_preparation`: what must happen before it runs.
    """

    ttl_preparation: Preparation | None = None
    ttl_trial: Trial | None = None
    ttl_returning: str = ""
    ttl_gated: bool = False
    ttl_migrating: bool = False  # a second Table in it has no policy until a migration is over

    ttl_outdated: bool = False
    ttl_renewed: SQLCompiler | None = None

    ttl_mode = _Mode(including=False, writing=False, sweeping=False)

    def __str__(self) -> str:
        """Return the SQL as shown to people: without the trial's clause.

        Only our driver hook can complete a trial.
        """
        if self.ttl_outdated:
            return str(recompiled(self))
        text = super().__str__()
        return text if self.ttl_trial is None else self.ttl_trial.plain(text)

    def visit_select(self, select_stmt: Select[Any], *args: object, **kw: object) -> str:
        """Render a SELECT; the predicate is added where its body is composed."""
        # In the update half of an upsert, SQLAlchemy leaves schemas out: meant for its columns, it
        # would also reach the tables of subqueries, such as that of stored defaults.
        kw.pop("use_schema", None)
        including = self.ttl_mode.including or includes_expired(select_stmt)
        sweeping = isinstance(select_stmt, SweepSelect)
        with _mode(self, including=including, sweeping=sweeping):
            text: str = super().visit_select(select_stmt, *args, **kw)  # type: ignore[no-untyped-call]
            return text

    def visit_compound_select(self, cs: CompoundSelect[Any], *args: object, **kw: object) -> str:
        """Render a UNION or similar: each of its SELECTs passes here."""
        including = self.ttl_mode.including or includes_expired(cs)
        with _mode(self, including=including):
            text: str = super().visit_compound_select(cs, *args, **kw)  # type: ignore[no-untyped-call]
            return text

    def _compose_select_body(
        self,
        text: str,
        select: Select[Any],
        compile_state: object,
        inner_columns: object,
        froms: list[FromClause],
        *rest: object,
        **kw: object,
    ) -> str:
        # Called for every SELECT with the FROM elements that it really renders: without those
        # that are correlated to an enclosing statement.
        if not (self.ttl_mode.including or self.ttl_mode.sweeping):
            conditions = compat.where_criteria(select)
            criteria = _live_rows(self).where(froms, conditions)
            if criteria:
                select = compat.with_criteria(select, (*grouped(conditions), *criteria))
        body: str = super()._compose_select_body(  # type: ignore[no-untyped-call]
            text, select, compile_state, inner_columns, froms, *rest, **kw
        )
        return body

    def for_update_clause(self, select: Select[Any], **kw: object) -> Any:
        """Render FOR UPDATE, without tables that the gate has made optional."""
        if self.dialect.name == "postgresql":
            select = compat.locking_inner(select)
        return super().for_update_clause(select, **kw)  # type: ignore[no-untyped-call]

    def visit_join(self, join: Join, *args: object, **kw: object) -> str:
        """Render a join; the optional side of an outer join is filtered before it joins."""
        rows = _live_rows(self)
        if self.ttl_mode.including:
            pass
        elif join.full:
            left, right = rows.sealed(join.left), rows.sealed(join.right)
            if left is not join.left or right is not join.right:
                join = compat.copied(join, left=left, right=right)
        elif join.isouter:
            criteria = rows.optional(join)
            if criteria:
                assert join.onclause is not None  # noqa: S101 (every outer join has one)
                onclause = and_(*grouped((join.onclause,)), *criteria)
                join = compat.copied(join, onclause=onclause)
        text: str = super().visit_join(join, *args, **kw)  # type: ignore[no-untyped-call]
        return text

    def visit_ttl_live_source(self, source: LiveSource, **kw: object) -> str:
        """Render one side of a FULL JOIN: a subquery of its live rows under its own name."""
        criterion = self.process(source.criterion)
        inner = self.process(source.element, **kw)
        name = self.preparer.quote(source.visible_name(self._truncated_identifier))
        return f"(SELECT * FROM {inner} WHERE {criterion}) AS {name}"  # noqa: S608 - it is a compiler

    def visit_ttl_assigned(self, assigned: Assigned, **kw: object) -> str:
        """Render a value of SET in WHERE: as in the UPDATE, not as in the subquery around it."""
        update = next(one for one in reversed(self.stack) if isinstance(one["selectable"], Update))
        self.stack.append(update)
        try:
            with _mode(self, writing=True):
                return f"({self.process(assigned.element, **kw)})"
        finally:
            self.stack.pop(-1)

    def visit_update(
        self, update_stmt: Update, visiting_cte: CTE | None = None, **kw: object
    ) -> str:
        """Render an UPDATE: only live rows are matched, and their ``_ts`` is reset."""
        with _mode(self, writing=True):
            if not isinstance(update_stmt, SweepUpdate):
                statement = compat.resolved(update_stmt, self, kw)
                update_stmt = _only_live(self, update_stmt, statement)
                for target in targets_of(statement, self, is_inner=bool(self.stack)):
                    binding, sub = binding_of(target.table), sub_binding_of(target.table)
                    if binding is not None:
                        update_stmt = stamped_update(update_stmt, binding, target)
                    if sub is not None:
                        _prepare(self, StampedBase.of(sub, target))
                    # A Table of one name in two bases may have a policy and a rule.
                    if (rule := statement_rule_of(target.table)) is not None:
                        rows = _live_rows(self)
                        update_stmt, before = rule.update(update_stmt, target, rows, self.dialect)
                        _prepare(self, before)
                    if target.may_change_keys:
                        _prepare(self, ChangedReferences.of(target))
                        keys: Preparation | None = UpdatedKeys.of(target, self.dialect)
                        if not target.is_inner:
                            keys = keys_with_trial(keys, update_stmt, target.table, self)
                        _prepare(self, keys)
            return super().visit_update(update_stmt, visiting_cte=visiting_cte, **kw)

    def visit_delete(
        self, delete_stmt: Delete, visiting_cte: CTE | None = None, **kw: object
    ) -> str:
        """Render a DELETE: only live rows are matched; expired ones belong to the sweeper."""
        with _mode(self, writing=True):
            if not isinstance(delete_stmt, PurgeDelete):
                statement = compat.resolved(delete_stmt, self, kw)
                delete_stmt = _only_live(self, delete_stmt, statement)
                for target in targets_of(statement, self, is_inner=bool(self.stack)):
                    _prepare(self, ChangedReferences.of(target))
                    rule = statement_rule_of(target.table)
                    _prepare(self, None if rule is None else rule.delete(target))
            text: str = super().visit_delete(delete_stmt, visiting_cte=visiting_cte, **kw)  # type: ignore[no-untyped-call]
            return text

    def visit_insert(self, insert_stmt: Insert, *args: object, **kw: object) -> str:
        """Render an INSERT: stamped by the server; keys of expired rows are free."""
        if isinstance(insert_stmt, SweepInsert):
            text: str = super().visit_insert(insert_stmt, *args, **kw)  # type: ignore[no-untyped-call]
            return text
        emitted = insert_stmt if self.stack else compat.emitted(insert_stmt)
        table = emitted.table
        binding = _policy_of(self, table)
        if binding is not None:
            _needs_context(self)
            insert_stmt = stamped_insert(emitted, binding, self)
        rule = statement_rule_of(table)
        if rule is not None:
            insert_stmt, before = rule.insert(emitted, _live_rows(self), self.dialect)
            _prepare(self, before)
        trial = None
        if any(one is not None for one in (binding, rule, sub_binding_of(table))):
            trial = _prepare_keys(self, emitted)
        half = None if self.stack else compat.update_half(emitted)
        met = half and MetRows.of(emitted, half, self.dialect)
        if met is not None:
            _prepare(self, ChangedReferences.of(met.target, met))
            _prepare(self, UpdatedKeys.of(met.target, self.dialect, met))
        # In its batch mode, Alembic copies all rows of a table to a new one.
        copies = table.name.startswith("_alembic_tmp_")
        with _mode(self, including=self.ttl_mode.including or copies), _many_values(self, trial):
            text = super().visit_insert(insert_stmt, *args, **kw)  # type: ignore[no-untyped-call]
        self.ttl_trial = trial
        return text if trial is None else trial.as_tried(text, self.ttl_returning)

    def returning_clause(self, stmt: Any, *args: Any, **kw: Any) -> str:
        """Render RETURNING, and remember it: the VALUES of an INSERT end where it begins."""
        text = super().returning_clause(stmt, *args, **kw)
        if len(self.stack) == 1:
            self.ttl_returning = text
        return text

    def visit_on_conflict_do_update(self, on_conflict: OnConflictDoUpdate, **kw: object) -> str:
        """Render the update half of an upsert on PostgreSQL and SQLite."""
        insert: Any = self.stack[-1]["selectable"]
        on_conflict = gated_on_conflict(on_conflict, insert.table, self.dialect)
        text: str = super().visit_on_conflict_do_update(on_conflict, **kw)  # type: ignore[misc]
        return text

    def visit_on_duplicate_key_update(self, on_duplicate: OnDuplicateClause, **kw: object) -> str:
        """Render the update half of an upsert on MariaDB and MySQL."""
        insert: Any = self.current_executable
        on_duplicate = gated_on_duplicate_key(on_duplicate, insert.table, self.dialect)
        text: str = super().visit_on_duplicate_key_update(on_duplicate, **kw)  # type: ignore[misc]
        return text


def _needs_context(compiler: GatedCompiler) -> None:
    """Ensure that the statement being compiled runs in a gated context."""
    gate_contexts(compiler.dialect)
    compiler.ttl_gated = True


def _prepare(compiler: GatedCompiler, preparation: Preparation | None) -> None:
    """Let something happen just before the statement being compiled."""
    if preparation is not None:
        _needs_context(compiler)
        install_retries(compiler.dialect)
        compiler.ttl_preparation = Several.of(compiler.ttl_preparation, preparation)


def _prepare_keys(compiler: GatedCompiler, statement: Insert) -> Trial | None:
    """Let the keys of an INSERT be freed; return the trial, if that happens after it."""
    table: Any = compat.original(statement.table)
    if compiler.stack:
        _prepare(compiler, InnerInserts.of(table, compiler.dialect))
        return None
    keys: Preparation | None = InsertedKeys.of(table, compiler.dialect)
    keys = keys_with_trial(keys, statement, table, compiler)
    _prepare(compiler, keys)
    return keys if isinstance(keys, Trial) else None


def _many_values(compiler: GatedCompiler, trial: Trial | None) -> AbstractContextManager[None]:
    """Let several parameter sets become one statement that fails alone; for rendering an INSERT."""
    is_one = trial is not None and not trial.counts
    return compat.batches_without_returning(compiler) if is_one else nullcontext()


def _live_rows(compiler: GatedCompiler) -> LiveRows:
    """Return the conditions for FROM elements in the current mode of the compiler."""

    def live(binding: Binding, source: FromClause, joins: JoinKeys | None) -> ColumnElement[bool]:
        _needs_context(compiler)
        columns = binding.columns_of(source)
        if not binding.source.is_known:
            _prepare(compiler, SeenDefault(binding.source))
            binding = _of_one_scope(binding, columns, joins, compiler.dialect)
        writing = compiler.ttl_mode.writing
        predicate = Predicate(clock_of(compiler.dialect), writing=writing, overridable=not writing)
        return predicate.live(binding, columns)

    return LiveRows(
        live,
        partial(_policy_of, compiler),
        compiler.ttl_mode.changed,
        laterally=not getattr(compiler.dialect, "is_mariadb", False),
    )


def _of_one_scope(
    binding: Binding, columns: SourceColumns, joins: JoinKeys | None, dialect: Dialect
) -> Binding:
    """Return the policy of a FROM element; with a scope's default if all rows are of that scope."""
    scoping, column = binding.source.scoping, columns.discriminator
    if scoping is None or column is None or joins is None:
        return binding
    value = joins.value_of(column, partial(scoping.tells_apart, dialect=dialect))
    return binding if value is None else binding.with_source(scoping.only(value))


def _policy_of(compiler: GatedCompiler, source: FromClause) -> Binding | None:
    """Return the policy of a FROM element of the statement being compiled."""
    binding = binding_of_source(source, compiler.dialect)
    table = compat.table_of(source)
    if binding is None and may_be_second(table) and is_migrating(compiler.dialect):
        _needs_context(compiler)
        compiler.ttl_migrating = True
    return binding


def _only_live(compiler: GatedCompiler, statement: Write, resolved: Resolved) -> Write:
    """Return the statement with the predicate on its target and on its extra FROM elements."""
    changed = compiler.ttl_mode.changed | unreadable_tables(resolved, compiler.dialect)
    compiler.ttl_mode = compiler.ttl_mode._replace(changed=changed)  # until the statement ends
    criteria: list[ColumnElement[bool]] = _live_rows(compiler).where(
        resolved.sources, resolved.criteria
    )
    if not criteria:
        return statement
    rule = None if compiler.stack else statement_rule_of(resolved.sources[0])
    if rule is not None:
        criteria, before = rule.matched(criteria, resolved, compiler.dialect)
        _prepare(compiler, before)
    if isinstance(statement.table, Join):
        criteria = [WithoutSources(criterion) for criterion in criteria]
    return compat.with_criteria(statement, (*grouped(compat.where_criteria(statement)), *criteria))


@contextmanager
def _mode(
    compiler: GatedCompiler,
    *,
    including: bool = False,
    writing: bool = False,
    sweeping: bool = False,
) -> Iterator[None]:
    before = compiler.ttl_mode
    compiler.ttl_mode = _Mode(including, writing, sweeping, before.changed)
    try:
        yield
    finally:
        compiler.ttl_mode = before


@cache
def _gated(compiler_class: type) -> type:
    """Return the gated subclass of a dialect's compiler class."""
    return type(f"Gated{compiler_class.__name__}", (GatedCompiler, compiler_class), {})


class PolicyChange:
    """Keeps statements from being compiled by half of a policy while it changes.

    Any number of threads compile at once; a change waits for them, and they wait for it. No thread
    waits for longer than a second, because the other one may need a lock that the waiting thread's
    caller holds.
    """

    def __init__(self) -> None:
        """Begin without compilations or changes."""
        self._condition = Condition()
        self._compiling: Counter[int] = Counter()
        self._changing: int | None = None

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Keep other threads from changing a policy within this block."""
        thread = get_ident()
        with self._condition:
            if self._changing is not None and self._changing != thread:
                self._condition.wait_for(
                    lambda: self._changing is None or thread in self._compiling, _LONGEST_WAIT
                )
            self._compiling[thread] += 1
        try:
            yield
        finally:
            with self._condition:
                self._compiling[thread] -= 1
                if not self._compiling[thread]:
                    del self._compiling[thread]
                if self._changing is not None:
                    self._condition.notify_all()

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Keep other threads from compiling, and from changing policies, within this block."""
        thread = get_ident()
        with self._condition:
            before, self._changing = self._changing, thread
            self._condition.wait_for(lambda: self._compiling.keys() <= {thread}, _LONGEST_WAIT)
        try:
            yield
        finally:
            with self._condition:
                self._changing = before
                self._condition.notify_all()


policy_change: Final = PolicyChange()

# In a child process the other threads don't exist, so their compilations would never end.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=policy_change.__init__)  # type: ignore[misc]


class _Gateway:
    """A compile handler that makes the compiler a gated one.

    It calls the handler that it wraps, or without one does what SQLAlchemy does by default.
    """

    __slots__ = ("_handler",)

    def __init__(self, handler: Handler | None) -> None:
        self._handler = handler

    def __call__(self, element: ClauseElement, compiler: SQLCompiler, **kw: object) -> object:
        if isinstance(compiler, GatedCompiler):
            return self._visit(element, compiler, kw)
        with policy_change.compiling():
            make: Any = _gated  # mypy takes a class of Any for unhashable
            compiler.__class__ = make(type(compiler))
            compiled_statements[id(compiler)] = compiler
            return self._visit(element, compiler, kw)

    def _visit(
        self, element: ClauseElement, compiler: SQLCompiler, kw: dict[str, object]
    ) -> object:
        visit = self._handler
        if visit is None:
            return getattr(compiler, f"visit_{element.__visit_name__}")(element, **kw)
        return visit(element, compiler, **kw)


def enclose_handlers() -> None:
    """Put the gate on every statement.

    This runs when ``ttl_odm.sqlalchemy`` is imported, and again whenever a policy is declared, in
    case another package has registered handlers since. Those are kept; they run inside the gate.
    """
    if compat.wrap_handlers(_Gateway):
        _some_are_unknown.set()


def recompile(names: Collection[str]) -> None:
    """Outdate each statement that names one of these tables (without their schemas)."""
    if _some_are_unknown.is_set():
        frozen = gc.get_freeze_count()
        if frozen:  # objects that a server froze before it forked are hidden from get_objects()
            gc.unfreeze()
        try:
            for kept in gc.get_objects():
                if issubclass(type(kept), SQLCompiler):  # the __class__ of a proxy may raise
                    compiled_statements[id(kept)] = kept
        finally:
            if frozen:
                gc.freeze()
        _some_are_unknown.clear()
    for reference in compiled_statements.valuerefs():
        compiled: Any = reference()
        state = getattr(compiled, "state", None)
        if state is CompilerState.COMPILING:  # in another thread, before the change or after it
            gate_contexts(compiled.dialect)
            outdate(compiled)
        elif state is CompilerState.STRING_APPLIED and compiled.statement is not None:
            # By the text, since the other forms of a statement (joined loads, subqueries) are not
            # kept. A text that contains the name by chance is compiled to the same again.
            text, quote = compiled.string, compiled.preparer.quote
            if any(name in text or quote(name) in text for name in names):
                gate_contexts(compiled.dialect)
                outdate(compiled)
