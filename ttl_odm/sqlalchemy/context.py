"""The execution context of statements that passed the gate.

Compiled SQL is shared by all executions; what one execution asks for reaches it here, where
SQLAlchemy collects the bound values and is about to use the cursor. The mixin is put before
the dialect's own context class the first time that a statement with a TTL table is compiled
for it, which is before that statement's context is made.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from ttl_odm.sqlalchemy.binding import including_expired, keeping_last_modified
from ttl_odm.sqlalchemy.observed import observe
from ttl_odm.sqlalchemy.options import INCLUDE_EXPIRED, KEEP_LAST_MODIFIED

if TYPE_CHECKING:
    from contextvars import ContextVar

    from sqlalchemy.engine import Dialect

_FLAGS: tuple[tuple[str, ContextVar[bool]], ...] = (
    (INCLUDE_EXPIRED, including_expired),
    (KEEP_LAST_MODIFIED, keeping_last_modified),
)


class GatedContext:
    """Mixed in before a dialect's own execution context, see `gate_context`."""

    compiled: Any
    root_connection: Any

    @classmethod
    def _init_compiled(
        cls,
        dialect: Any,
        connection: Any,
        dbapi_connection: Any,
        execution_options: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        # The values of the statement are collected in here.
        make = super()._init_compiled  # type: ignore[misc]
        flags = [flag for option, flag in _FLAGS if execution_options.get(option)]
        if not flags:  # nearly always
            return make(dialect, connection, dbapi_connection, execution_options, *args, **kwargs)
        tokens = [(flag, flag.set(True)) for flag in flags]
        try:
            return make(dialect, connection, dbapi_connection, execution_options, *args, **kwargs)
        finally:
            for flag, token in tokens:
                flag.reset(token)

    def pre_exec(self) -> None:
        """See to the database's clock, and to expired rows that are in the way."""
        compiled = self.compiled
        if getattr(compiled, "ttl_reads_clock", False):
            observe(self.root_connection)
        preparation = getattr(compiled, "ttl_preparation", None)
        if preparation is not None:
            preparation.prepare(self)
        super().pre_exec()  # type: ignore[misc]


def gate_context(dialect: Dialect) -> None:
    """See that statements of this dialect (that is, of its engine) run in a gated context."""
    current = dialect.execution_ctx_cls
    if not issubclass(current, GatedContext):
        make: Any = _gated  # mypy takes a class that defines __eq__ for unhashable
        dialect.execution_ctx_cls = make(current)


@cache
def _gated(context_class: type[Any]) -> type[Any]:
    return type(f"Gated{context_class.__name__}", (GatedContext, context_class), {})
