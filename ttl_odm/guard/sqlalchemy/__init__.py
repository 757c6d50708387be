"""`guard`: how an engine treats raw SQL that names a TTL table without a condition.

Modules that need a parser of SQL are imported when the first engine is guarded.

- `engines`: how an engine is guarded, by its compiler and its execution context.
- `leaks`: which tables raw SQL names, and whether it has a condition on them.
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
    """Make an engine check raw SQL, too.

    Statements that SQLAlchemy compiles from models and Tables have the predicate anyway, and cost
    nothing here. `text()`, `exec_driver_sql()`, `from_statement()`, literal columns and the
    lightweight `table()` are parsed, once for each text. A statement leaks if it names a table
    with a policy (also in a join, a subquery or a CTE) without a condition on its ``_ts``. SQL that
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
    owner: Any = engine
    engine = owner.sync_engine if isinstance(owner, compat.async_types("AsyncEngine")) else owner
    if not isinstance(engine, Engine):
        raise TTLConfigurationError(
            f"guard() needs an Engine or an AsyncEngine, not {type(engine).__name__}."
        )
    from ttl_odm.guard.sqlalchemy.engines import install  # noqa: PLC0415 (needs the extra)

    install(engine, raw)
