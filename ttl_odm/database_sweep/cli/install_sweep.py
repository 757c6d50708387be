"""``ttl-odm install-sweep``, which lets the database delete expired rows itself."""

from __future__ import annotations

import importlib.util
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ttl_odm.cli.application import Application, in_loop, unknown
from ttl_odm.cli.connect import connect
from ttl_odm.cli.errors import FailedError, UsageError, in_one_line
from ttl_odm.cli.output import Output
from ttl_odm.cli.source import Source, app_options
from ttl_odm.errors import TTLError
from ttl_odm.sweeper.command_line import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection

    from ttl_odm.cli.application import Target
    from ttl_odm.database_sweep.alembic.installation import Options


@click.command("install-sweep")
@click.argument("models", metavar="[MODEL]...", nargs=-1)
@app_options
@click.option(
    "--print", "is_printed", is_flag=True, help="Print the SQL without changing anything."
)
@click.option("--remove", is_flag=True, help="Remove the jobs, but keep the indexes.")
@click.option(
    "--window",
    metavar="HOURS",
    help="Work only during these hours, such as 01:00-05:00, or 'always'.",
)
@click.option("--timezone", metavar="ZONE", help="The window's time zone (default: UTC).")
@click.option(
    "--max-fraction",
    type=float,
    help="Delete nothing if more than this share of the rows has expired; 1 disables this.",
)
def command(
    source: Source, models: Sequence[str], *, is_printed: bool, remove: bool, **settings: Any
) -> None:
    """Let the database itself delete expired rows of all models, or of the given ones.

    Creates a procedure and an EVENT (MariaDB, MySQL) or a job of pg_cron (PostgreSQL), or replaces
    those that exist, as op.alter_ttl(..., sweep="database") does in a migration. The default ttl is
    written into the procedure, unless it is stored: run it again after the default has changed. The
    window and the fuse stay as they are if they are not given.

    Exit status: 0 done, 1 a model can't be swept by its database, 2 usage error.
    """
    options: Options = {key: value for key, value in settings.items() if value is not None}  # type: ignore[assignment]
    if is_printed and remove:
        raise UsageError("--print and --remove can't be used together.")
    if options and remove:
        raise UsageError("--remove can't be combined with other options.")
    output = Output(as_json=False)

    async def work() -> bool:
        async with connect(source) as app:
            if app.is_store or app.is_mongodb or app.engine.dialect.name == "sqlite":
                raise UsageError("install-sweep is for MariaDB, MySQL and PostgreSQL.")
            if importlib.util.find_spec("alembic") is None:
                raise FailedError("install-sweep needs Alembic: pip install 'ttl-odm[cli,alembic]'")
            is_done = True
            for target in _chosen(app, models):
                step = partial(
                    _run, target=target, is_printed=is_printed, remove=remove, options=options
                )
                is_done &= await _report(app, step, output, is_printed=is_printed)
            return is_done

    if not in_loop(work):
        raise SystemExit(Status.FAILED)


def _chosen(app: Application, models: Sequence[str]) -> list[Target]:
    chosen = [*app.targets] if not models else []
    for name in models:
        targets = app.named(name)
        if not targets:
            raise unknown(app.targets, "MODEL", name)
        chosen += targets
    return chosen


async def _report(
    app: Application, step: Callable[[Connection], str], output: Output, *, is_printed: bool
) -> bool:
    """Run a step and print its text, or its error; return whether it succeeded."""
    try:
        text = await app.ask(step)
    except TTLError as error:
        output.line(in_one_line(error), style="bold red")
        return False
    if is_printed:
        output.code(text)
    else:
        output.line(text)
    return True


def _run(
    connection: Connection, target: Target, *, is_printed: bool, remove: bool, options: Options
) -> str:
    """Install, remove or print the job of a table; return the text for the terminal."""
    from ttl_odm.database_sweep.alembic import installation  # noqa: PLC0415 (needs the extra)
    from ttl_odm.sqlalchemy.policy.bindings import binding_of  # noqa: PLC0415 (needs the extra)

    binding = binding_of(target.entity)
    assert binding is not None  # noqa: S101 (targets have policies)
    if is_printed:
        statements = installation.job_statements(connection, binding, **options)
        return _script(statements, connection.dialect.name)
    if remove:
        is_removed = installation.remove_job(connection, binding)
        return f"{target.name}: {'removed' if is_removed else 'there is no job'}"
    installation.install_job(connection, binding, **options)
    return f"{target.name}: the database deletes its expired rows"


def _script(statements: Sequence[str], dialect: str) -> str:
    """Return a script for the database's client; its delimiter doesn't occur in procedures."""
    if dialect == "postgresql":
        return "".join(f"{statement.rstrip(';')};\n" for statement in statements)
    body = "".join(f"{statement} //\n" for statement in statements)
    return f"DELIMITER //\n{body}DELIMITER ;\n"
