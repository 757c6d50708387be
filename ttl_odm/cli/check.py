"""``ttl-odm check``: compares the database with the declarations, and looks for recent sweeps.

With ``--replica URL`` it also compares the clocks of replicas with their primary's. ``flask ttl
check`` calls `check_application` and `check_replicas` too.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from ttl_odm.cli.application import Application, answer, in_loop
from ttl_odm.cli.connect import connect, database_of
from ttl_odm.cli.errors import UsageError, in_one_line
from ttl_odm.cli.options import (
    Seconds,
    json_option,
    lease_name_option,
    selection_options,
    sweep_option,
)
from ttl_odm.cli.output import Output
from ttl_odm.cli.source import Source, source_options
from ttl_odm.cli.urls import public_url
from ttl_odm.sweeper.command_line import Status
from ttl_odm.sweeper.findings import (
    MAX_AGE,
    Finding,
    Severity,
    findings_dict,
    github_annotations,
    have_failed,
    lines_of,
    look_after,
    of_replica,
    searchable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ttl_odm.sweeper.command_line import Program

_STYLES: Final = {
    Severity.ERROR: "bold red",
    Severity.WARNING: "yellow",
    Severity.SKIPPED: "dim",
    None: "",
}


def check_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add ``--max-age``, ``--deep``, ``--strict`` and ``--replica``."""
    max_age = sweep_option(
        "max_age", type=Seconds(min=0, min_open=True), default=MAX_AGE, show_default=True
    )
    deep, strict = (sweep_option(name, default=False) for name in ("deep", "strict"))
    return max_age(deep(strict(sweep_option("replica", "replicas")(command))))


@click.command()
@source_options
@selection_options
@check_options
@lease_name_option
@json_option
def check(  # noqa: PLR0913 (click's)
    source: Source,
    models: list[str],
    excepted: list[str],
    *,
    max_age: float,
    deep: bool,
    strict: bool,
    replicas: Sequence[str],
    lease_name: str | None,
    as_json: bool,
) -> None:
    """Compare the database with the declarations and suggest fixes.

    Checks the schema, the indexes, the values, and when the last sweep was. Each finding comes
    with the command or statement that fixes it. It changes nothing, so it is safe to run in CI and
    against production. In GitHub Actions the findings become annotations.

    Exit status: 0 no findings or only warnings, 1 errors (with --strict also warnings), 2 usage
    error.
    """
    program = source.program(lease_name)

    async def work() -> tuple[int, list[Finding]]:
        async with connect(source) as application:
            selected = application.select(models, excepted)
            findings = await check_application(
                selected, max_age=max_age, deep=deep, program=program, lease_name=lease_name
            )
            findings += await check_replicas(selected, replicas)
            return len(selected.all_targets()), findings

    checked, findings = in_loop(work)
    output, annotated = Output(as_json=as_json), github_annotations(findings)
    if output.as_json:
        output.json(findings_dict(findings, checked))
    elif annotated is not None:
        output.code(annotated)
    else:
        for line in lines_of(findings, checked):
            style = "cyan" if line.mark else _STYLES[line.severity]
            output.line(line.text, indent=line.indent, mark=line.mark, style=style)
    if have_failed(findings, strict=strict):
        raise SystemExit(Status.FAILED)


async def check_application(
    app: Application,
    *,
    max_age: float,
    deep: bool,
    program: Program,
    lease_name: str | None = None,
) -> list[Finding]:
    """Return what is wrong with a database, its declarations, or its sweeps.

    Args:
        app: The application to check.
        max_age: Seconds that an expired row may wait, and that may pass after a sweep.
        deep: Whether to read whole tables, regardless of their size.
        program: Returns the command line for the name of a command that fixes something.
        lease_name: The name of the lease; None for the application's own.
    """
    findings = await _of_database(app, max_age, deep=deep)
    targets = {target.name: target.model or target.name for target in app.all_targets()}
    sweeper, store = app.sweeper(lease_name=lease_name), app.store()
    plan = look_after(
        searchable(targets, findings),
        sweeper.lease_name if await _needs_sweeper(app) else None,
        max_age,
        in_one_line,
        is_clocked=hasattr(store, "now"),
    )
    findings += await answer(sweeper.carry_out(plan))
    return [finding.for_program(program) for finding in findings]


async def _of_database(app: Application, max_age: float, *, deep: bool) -> list[Finding]:
    await app.check_connection()
    if app.is_store:
        return []
    if app.is_mongodb:
        from ttl_odm.cli import checks_mongodb  # noqa: PLC0415 (needs the extra)

        return await checks_mongodb.check(app.engine, app.targets, deep=deep)
    from ttl_odm.cli import checks_sql  # noqa: PLC0415 (needs the extra)

    look = partial(checks_sql.check, targets=app.targets, max_age=max_age, deep=deep)
    return await app.ask(look)


async def _needs_sweeper(app: Application) -> bool:
    """Whether some expired rows stay unless a sweeper deletes them."""
    if app.is_store:
        return True
    if not app.is_mongodb:
        from ttl_odm.cli import checks_sql  # noqa: PLC0415 (needs the extra)

        return await app.ask(partial(checks_sql.needs_sweeper, targets=app.targets))
    from ttl_odm.beanie.policy.bindings import purge_of  # noqa: PLC0415 (needs the extra)

    return not all(purge_of(target.entity) == "native" for target in app.targets)


async def check_replicas(app: Application, replicas: Sequence[str]) -> list[Finding]:
    """Compare the clocks of replicas with the primary's, which is read before and after each.

    A replica whose clock differs hides rows earlier or later than its primary.

    Args:
        app: The application, connected to the primary.
        replicas: The URLs of the replicas.
    """
    store, findings = app.store(), []
    for url in replicas:
        async with AsyncExitStack() as stack:
            replica = (await database_of(url, stack)).store()
            if app.is_store or type(replica).__module__ != type(store).__module__:
                raise UsageError(f"--replica {public_url(url)}: it isn't of the database's kind.")
            server = await answer(replica.server())  # connects before the clocks are read
            before = await answer(store.now())
            now = await answer(replica.now())
            after = await answer(store.now())
        findings += of_replica(public_url(url), now, (before, after), server)
    return findings
