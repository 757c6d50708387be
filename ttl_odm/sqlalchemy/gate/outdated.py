"""Statements that are out of date: compiled again when they are next executed.

The old one stays as it is, since another thread may be running it: SQL and bound values have to be
of one and the same compilation. The new one hangs on it, for all further executions.

This module must not know why a statement is out of date.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ttl_odm.sqlalchemy.time.clock import UnwrappedConfigurationError

if TYPE_CHECKING:
    from sqlalchemy.sql.compiler import SQLCompiler


def outdate(compiled: Any) -> None:
    """Let the next execution of a statement compile it again; it has to run in a gated context."""
    compiled.ttl_renewed = None
    compiled.ttl_gated = compiled.ttl_outdated = True


def current(compiled: Any) -> Any:
    """The statement as it is compiled now, in the place of one that is outdated.

    Raises:
        TTLConfigurationError: It can't be compiled any more.
    """
    newest: Any = compiled
    while getattr(newest, "ttl_outdated", False):
        after: Any = newest.ttl_renewed
        if after is None:
            after = newest.ttl_renewed = compiled_again(newest)
        newest = after
    if newest is not compiled:
        compiled.ttl_renewed = newest
    return newest


def compiled_again(compiled: Any) -> SQLCompiler:
    """Compile a statement once more; TTLConfigurationError where that can't be."""
    try:
        return compiled.dialect.statement_compiler(  # type: ignore[no-any-return]
            compiled.dialect,
            compiled.statement,
            cache_key=compiled.cache_key,
            column_keys=compiled.column_keys,
            for_executemany=compiled.for_executemany,
            linting=compiled.linting,
            schema_translate_map=compiled.schema_translate_map,
        )
    except Exception as error:
        raise UnwrappedConfigurationError(
            f"This statement can't apply the policy that its table has meanwhile: {error}"
        ) from error
