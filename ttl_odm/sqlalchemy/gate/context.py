"""The execution context of statements that passed the gate.

Compiled SQL is shared by all executions; what one execution asks for reaches it here, where
SQLAlchemy collects the bound values and is about to use the cursor. The mixin is put before
the dialect's own context class the first time that a statement with a TTL table is compiled
for it, which is before that statement's context is made.

It is on the way of every statement of the engine, so it steps aside at once for all that have
no TTL table, and does nothing after the start for those that have nothing to prepare.
"""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any

from sqlalchemy.engine.interfaces import CacheStats

from ttl_odm.sqlalchemy.policy.parameters import (
    BASE_ROW_WRITTEN,
    INCLUDE_EXPIRED,
    KEEP_LAST_MODIFIED,
    base_row_written,
    overruled,
)
from ttl_odm.sqlalchemy.time.clock import forget, monotonic, observe

if TYPE_CHECKING:
    from sqlalchemy.engine import Dialect


class GatedContext:
    """Mixed in before a dialect's own execution context, see `gate_context`."""

    compiled: Any
    root_connection: Any

    def pre_exec(self) -> None:
        """See to the database's clock, and to expired rows that are in the way."""
        compiled = self.compiled
        if getattr(compiled, "ttl_gated", False):
            if monotonic() >= self.root_connection.dialect.ttl_odm_stale_at:
                observe(self.root_connection)
            if compiled.ttl_preparation is not None:
                compiled.ttl_preparation.prepare(self)
        super().pre_exec()  # type: ignore[misc]


def _as_asked(compiled: Any, parameters: Any, execution_options: Any) -> Any:
    """The parameters, with those that give this execution what it asks for."""
    asked = [each for each in (INCLUDE_EXPIRED, KEEP_LAST_MODIFIED) if execution_options.get(each)]
    if base_row_written.get():
        asked.append(BASE_ROW_WRITTEN)
    forced = overruled(compiled, asked)
    return [{**each, **forced} for each in parameters or [{}]] if forced else parameters


def gate_context(dialect: Dialect) -> None:
    """See that statements of this dialect (that is, of its engine) run in a gated context."""
    current = dialect.execution_ctx_cls
    if not issubclass(current, GatedContext):
        forget(dialect)
        make: Any = _gated  # mypy takes a class that defines __eq__ for unhashable
        dialect.execution_ctx_cls = make(current)


@cache
def _gated(context_class: type[Any]) -> type[Any]:
    """The gated subclass of a dialect's context class."""
    init = context_class._init_compiled

    # With every argument by name, since packing and unpacking them would double what this adds
    # to each statement of the engine. (SQLAlchemy 2.0 has no `param_dict`.)
    def _init_compiled(  # noqa: PLR0913, PLR0917 (SQLAlchemy's signature)
        cls: Any,
        dialect: Any,
        connection: Any,
        dbapi_connection: Any,
        execution_options: Any,
        compiled: Any,
        parameters: Any,
        invoked_statement: Any,
        extracted_parameters: Any,
        cache_hit: Any = CacheStats.CACHING_DISABLED,
        param_dict: Any = None,
    ) -> Any:
        make = init if cls is gated else super(gated, cls)._init_compiled
        if getattr(compiled, "ttl_gated", False):
            if (
                INCLUDE_EXPIRED in execution_options
                or KEEP_LAST_MODIFIED in execution_options
                or base_row_written.get()
            ):
                parameters = _as_asked(compiled, parameters, execution_options)
            # Only the gated class looks again before the cursor is used.
            if compiled.ttl_preparation is not None or monotonic() >= dialect.ttl_odm_stale_at:
                make = super(gated, cls)._init_compiled
        if param_dict is not None:
            make = partial(make, param_dict=param_dict)
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

    name = f"Gated{context_class.__name__}"
    members = {"_init_compiled": classmethod(_init_compiled)}
    gated: Any = type(name, (GatedContext, context_class), members)
    return gated  # type: ignore[no-any-return]
