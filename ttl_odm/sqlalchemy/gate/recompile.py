"""Statements that were compiled before a policy came to a table, or went: compiled again.

What the gate adds is part of compiled SQL, and SQLAlchemy keeps that: in the cache of each engine,
of each mapper (for flushes), in one that a user passes as ``compiled_cache``, or in a variable. A
policy in the cache keys would not do, for statements remember their keys. So the gate notes each
statement that is compiled, by a weak reference. Those that name the table are outdated, wherever
they are kept, and compiled again when they are executed (`ttl_odm.sqlalchemy.gate.execution`). What
was compiled before the gate was there, the garbage collector knows: the first
`ttl_odm.sqlalchemy.enable` of a process asks it, which takes a fraction of a second.

This module must not know what a policy is.
"""

from __future__ import annotations

import gc
from threading import Event
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from sqlalchemy.sql.compiler import CompilerState, SQLCompiler

from ttl_odm.sqlalchemy.gate.execution import gate_contexts, outdate

if TYPE_CHECKING:
    from collections.abc import Collection


compiled_statements: Final[WeakValueDictionary[int, SQLCompiler]] = WeakValueDictionary()
"""Every statement that the gate compiled and that is still kept somewhere, by its ``id()``."""

some_are_unknown: Final = Event()
"""Set while statements may be kept that were compiled before the gate was there."""


def recompile(names: Collection[str]) -> None:
    """Outdate each statement that names one of these tables (without their schemas)."""
    if some_are_unknown.is_set():
        frozen = gc.get_freeze_count()
        if frozen:  # what a server froze before it forked is hidden from get_objects()
            gc.unfreeze()
        try:
            for kept in gc.get_objects():
                if issubclass(type(kept), SQLCompiler):  # the __class__ of a proxy may raise
                    compiled_statements[id(kept)] = kept
        finally:
            if frozen:
                gc.freeze()
        some_are_unknown.clear()
    for reference in compiled_statements.valuerefs():
        compiled: Any = reference()
        state = getattr(compiled, "state", None)
        if state is CompilerState.COMPILING:  # by another thread, before the change or after it
            gate_contexts(compiled.dialect)
            outdate(compiled)
        elif state is CompilerState.STRING_APPLIED and compiled.statement is not None:
            # By the text, since what else a statement became (joined loads, subqueries) is not
            # kept. A text that has the name by chance is compiled again to what it was.
            text, quote = compiled.string, compiled.preparer.quote
            if any(name in text or quote(name) in text for name in names):
                gate_contexts(compiled.dialect)
                outdate(compiled)
