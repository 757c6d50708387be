"""`guard`: what an engine does with raw SQL that names a TTL table and has no condition.

What needs a parser of SQL is imported when the first engine is guarded.

- `engines`: what guards an engine, by its compiler and its execution context.
- `leaks`: which tables raw SQL means, and whether it has a condition.
- `reports`: how a leak is reported: the error, the warning, the line that sent the SQL.
- `watcher`: `assert_no_leaks`, for tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from sqlalchemy import Engine

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.guard.sqlalchemy.reports import Answer
from ttl_odm.sqlalchemy import compat

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine


def guard(engine: Engine | AsyncEngine, *, raw: Answer) -> None:
    """Check the raw SQL that an engine sends, too.

    Statements that SQLAlchemy compiles from models and Tables have the predicate anyway, and cost
    nothing here. `text()`, `exec_driver_sql()`, `from_statement()`, literal columns and the
    lightweight `table()` are parsed, once for each text. A statement leaks if it names a table
    with a policy (also in a join, a subquery or a CTE) without a condition on its ``_ts``. What
    can't be understood counts as a leak: a program, SQL in a string, syntax that the parser
    doesn't know. A statement with ``include_expired`` doesn't leak. Call `guard` again to change
    ``raw``.

    Args:
        engine: An Engine or an AsyncEngine; its copies by ``execution_options()`` share the
            setting.
        raw: What to do with a leak. ``"warn"``: emit a `RawSQLWarning`, once for each text.
            ``"raise"``: raise a `RawSQLError` and send nothing. ``"rewrite"``: replace the table
            with its live rows if the statement is a plain SELECT, otherwise raise a `RawSQLError`.
            ``"off"``: do nothing.

    Raises:
        TTLConfigurationError: `engine` is not an engine, or `raw` is not one of these.
        ModuleNotFoundError: sqlglot is missing; the extra ``guard`` installs it.
    """
    if raw not in get_args(Answer):
        raise TTLConfigurationError(f'raw is "warn", "raise", "rewrite" or "off", not {raw!r}.')
    given: Any = engine
    engine = given.sync_engine if isinstance(given, compat.async_types("AsyncEngine")) else given
    if not isinstance(engine, Engine):
        raise TTLConfigurationError(
            f"guard() needs an Engine or an AsyncEngine, not {type(engine).__name__}."
        )
    from ttl_odm.guard.sqlalchemy.engines import install  # noqa: PLC0415 (needs the extra)

    install(engine, raw)
