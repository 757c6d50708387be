"""The execution context of a gated statement: SQLAlchemy collects its bound values, and sends it.

What one execution asks for (``include_expired``, ``keep_last_modified``) is put among the bound
values here, the database's clock is looked at once in a while, and what has to happen before the
statement does.

This module must not know how a statement was compiled, but for what the compiler notes on it.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy.engine.interfaces import CacheStats

from ttl_odm.sqlalchemy.gate.outdated import current, outdate
from ttl_odm.sqlalchemy.policy.parameters import (
    INCLUDE_EXPIRED,
    KEEP_LAST_MODIFIED,
    base_row_written,
    overruled,
)
from ttl_odm.sqlalchemy.policy.second_tables import is_migrating
from ttl_odm.sqlalchemy.time.clock import forget, monotonic, observe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection, Executable, PoolProxiedConnection
    from sqlalchemy.engine import Dialect
    from sqlalchemy.engine.default import DefaultExecutionContext

    from ttl_odm.sqlalchemy.gate.retry import Trial

    Row = dict[str, object]
    Context = DefaultExecutionContext
else:
    Context = object


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

    # With every argument by name, since packing and unpacking them would double what this adds
    # to each statement of the engine. (SQLAlchemy 2.0 has no `param_dict`.)
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
            compiled = current(compiled)
            is_gated = getattr(compiled, "ttl_gated", False)
        if is_gated:
            if compiled.ttl_migrating and not is_migrating(dialect):
                outdate(compiled)
                compiled = current(compiled)
            if (
                INCLUDE_EXPIRED in execution_options
                or KEEP_LAST_MODIFIED in execution_options
                or base_row_written.get()
            ):
                parameters = overruled(compiled, parameters, execution_options)
            # Only the gated class looks again before the cursor is used.
            if compiled.ttl_preparation is not None or monotonic() >= dialect.ttl_odm_stale_at:
                make = super(gated, cls)._init_compiled
        rest = (cache_hit,) if param_dict is None else (cache_hit, param_dict)
        return make(
            dialect,
            connection,
            dbapi_connection,
            execution_options,
            compiled,
            parameters,
            invoked_statement,
            extracted_parameters,
            *rest,
        )

    name = f"Gated{context_class.__name__}"
    members = {"_init_compiled": classmethod(_init_compiled)}
    gated: Any = type(name, (GatedContext, context_class), members)
    return gated  # type: ignore[no-any-return]
