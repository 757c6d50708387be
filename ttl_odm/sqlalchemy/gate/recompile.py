"""Statements that were compiled before a policy came to a table, or went: compiled again.

What the gate adds is part of compiled SQL, and SQLAlchemy keeps that: in the cache of each engine,
of each mapper (for flushes), in one that a user passes as ``compiled_cache``, or in a variable. A
policy in the cache keys would not do, for statements remember their keys. So the gate notes each
statement that is compiled, by a weak reference, and those that name the table are made anew in
their place, wherever they are kept. What was compiled before the gate was there, the garbage
collector knows: the first `ttl_odm.sqlalchemy.enable` of a process asks it, which takes a fraction
of a second.

This module must not know what a policy is.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from sqlalchemy.sql.compiler import CompilerState, SQLCompiler

from ttl_odm.sqlalchemy.time.column_types import UnwrappedConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection


def recompile(names: Collection[str]) -> None:
    """Compile each statement again that names one of these tables.

    Args:
        names: of the tables, without their schemas.
    """
    if not _asked_collector:
        for each in _before_the_gate():
            note(each)
        _asked_collector.append(True)
    for reference in _noted.valuerefs():
        compiled = reference()
        if compiled is not None and _is_finished(compiled) and _names_one(compiled, names):
            _compile_again(compiled)


_noted: Final[WeakValueDictionary[int, SQLCompiler]] = WeakValueDictionary()
"""Every compiled statement of the process that is still kept somewhere, by its ``id()``."""

_asked_collector: Final[list[bool]] = []


def note(compiled: SQLCompiler) -> None:
    """Remember a statement that is being compiled, for as long as somebody keeps it."""
    _noted[id(compiled)] = compiled


def some_were_not_noted() -> None:
    """Say that statements have been compiled without the gate: `recompile` has to search again."""
    _asked_collector.clear()


def _before_the_gate() -> list[SQLCompiler]:
    frozen = gc.get_freeze_count()
    if frozen:  # what a server froze before it forked is hidden from get_objects()
        gc.unfreeze()
    try:
        # By type(): the __class__ of a proxy may raise.
        return [each for each in gc.get_objects() if issubclass(type(each), SQLCompiler)]
    finally:
        if frozen:
            gc.freeze()


def _is_finished(compiled: Any) -> bool:
    # The collector also finds what a thread is just making.
    state = getattr(compiled, "state", None)
    return state is CompilerState.STRING_APPLIED and compiled.statement is not None


def _names_one(compiled: SQLCompiler, names: Collection[str]) -> bool:
    # By the text, since what else a statement became (joined loads, subqueries) is not kept. A
    # text that has the name by chance is compiled again to what it was.
    quote = compiled.preparer.quote
    return any(name in compiled.string or quote(name) in compiled.string for name in names)


def _compile_again(compiled: Any) -> None:
    try:
        fresh = compiled.dialect.statement_compiler(
            compiled.dialect,
            compiled.statement,
            cache_key=compiled.cache_key,
            column_keys=compiled.column_keys,
            for_executemany=compiled.for_executemany,
            linting=compiled.linting,
            schema_translate_map=compiled.schema_translate_map,
        )
    except Exception as error:  # noqa: BLE001 - it is told to whoever runs the statement
        compiled.construct_params = _refusal(error)
        return
    compiled.__dict__ = fresh.__dict__
    compiled.__class__ = type(fresh)


def _refusal(error: Exception) -> Callable[..., Any]:
    # Each execution asks a compiled statement for its parameters.
    def construct_params(*_: Any, **__: Any) -> Any:
        raise UnwrappedConfigurationError(
            f"This statement can't keep the policy that was put on its table: {error}"
        ) from error

    return construct_params
