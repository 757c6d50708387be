"""``ttl-odm check``: is the database as the declarations say, and does anybody sweep it?"""

from __future__ import annotations

import os
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from ttl_odm.cli.application import Application, Target, answer, in_loop
from ttl_odm.cli.connect import connect
from ttl_odm.cli.errors import in_one_line
from ttl_odm.cli.findings import Finding, Severity, fix_of_unreadable, overdue, print_findings
from ttl_odm.cli.options import Seconds, json_option, lease_name_option, selection_options
from ttl_odm.cli.output import Output
from ttl_odm.cli.source import Source, source_options
from ttl_odm.cli.status import lease_of
from ttl_odm.sweeper import StoreError
from ttl_odm.sweeper.command_line import Status
from ttl_odm.sweeper.text import age

if TYPE_CHECKING:
    from ttl_odm.sweeper import Due

DAY: Final = 86_400.0
_CLOCK_SECONDS: Final = 5.0
_UNSEARCHABLE: Final = ("missing-table", "missing-column")
"""What would let the question for the first expired row fail."""


@click.command()
@source_options
@selection_options
@click.option(
    "--max-age",
    type=Seconds(min=0, min_open=True),
    default=DAY,
    show_default=True,
    metavar="SECONDS",
    help="The longest that an expired row may wait, or the last sweep be ago.",
)
@click.option("--deep", is_flag=True, help="Read whole tables, however big they are.")
@click.option("--strict", is_flag=True, help="Exit with 1 on warnings too.")
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
    lease_name: str | None,
    as_json: bool,
) -> None:
    """Compare the database with the declarations, and name the fixes.

    Looks at schema, indexes, values, and when it was last swept. Each finding comes with the
    command or statement that fixes it. Changes nothing, so it may run in CI and against
    production. Within GitHub Actions findings become annotations.

    Exit status: 0 nothing or warnings only, 1 errors (or, with --strict, warnings), 2 usage.
    """

    async def work() -> tuple[int, list[Finding]]:
        async with connect(source) as application:
            selected = application.select(models, excepted)
            findings = await _of_database(selected, max_age, deep=deep)
            broken = {finding.target for finding in findings if finding.code in _UNSEARCHABLE}
            targets = selected.all_targets()
            for target in targets:
                if target.name not in broken:
                    findings += await _of_oldest(selected, target, max_age)
            findings += await _of_lease(selected, lease_name, max_age)
            findings += await _of_clock(selected)
            words = _typed(source, application.database, lease_name)
            file = _config_file()
            return len(targets), [finding.repeating(words, file) for finding in findings]

    checked, findings = in_loop(work)
    output = Output(as_json=as_json)
    if output.as_json:
        output.json({"checked": checked, "findings": [finding.to_dict() for finding in findings]})
    elif os.environ.get("GITHUB_ACTIONS") == "true":
        for finding in findings:
            output.code(finding.annotation)
    else:
        print_findings(findings, checked, output)
    severities = {finding.severity for finding in findings}
    if Severity.ERROR in severities or (strict and Severity.WARNING in severities):
        raise SystemExit(Status.FAILED)


def _config_file() -> str | None:
    """The file that was typed for this command."""
    program = click.get_current_context().find_root()
    is_typed = program.get_parameter_source("config") is click.core.ParameterSource.COMMANDLINE
    return str(program.params["config"]) if is_typed else None


def _typed(source: Source, public_url: str | None, lease_name: str | None) -> list[str]:
    """Return the options that were typed for this command, as another one takes them.

    Those of the environment and of a file hold for that one, too.
    """
    words = [*source.words]
    if source.url is not None and source.is_url_typed:
        words += ["--url", source.url if source.url == public_url else "..."]  # it has a password
    is_typed = click.get_current_context().get_parameter_source("lease_name")
    if lease_name is not None and is_typed is click.core.ParameterSource.COMMANDLINE:
        words += ["--lease-name", lease_name]
    return words


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


async def _of_lease(app: Application, name: str | None, max_age: float) -> list[Finding]:
    """See who sweeps, unless MongoDB itself deletes everything."""
    if app.is_mongodb:
        from ttl_odm.beanie.policy.binding import purge_of  # noqa: PLC0415 (needs the extra)

        if all(purge_of(target.entity) == "native" for target in app.targets):
            return []
    lease = await lease_of(app, name)
    if lease is None:
        return []
    findings = []
    if lease.paused:
        message = "the sweepers are paused"
        findings.append(Finding(Severity.WARNING, "paused", None, message, "ttl-odm resume"))
    if lease.recorded_ago is None:
        message = "no sweep has been recorded in this database"
        findings.append(Finding(Severity.WARNING, "never-swept", None, message, "ttl-odm run"))
    elif lease.recorded_ago > max_age:
        message = f"the last sweep was {age(lease.recorded_ago)} ago"
        findings.append(Finding(Severity.ERROR, "not-swept", None, message, "ttl-odm run"))
    return findings


async def _of_oldest(app: Application, target: Target, max_age: float) -> list[Finding]:
    """See for how long the first expired row has been waiting, without counting the others."""
    model = target.model or target.name
    try:
        due: Due | None = await answer(app.store().due(target.name))
    except StoreError as error:
        why = in_one_line(error)
        fix = fix_of_unreadable(why, target.name, f"ttl-odm sweep --dry-run --model {model}")
        return [Finding(Severity.ERROR, "unreadable", target.name, why, fix)]
    if due is None or due.oldest is None or due.oldest <= max_age:
        return []
    return [overdue(target.name, model, due.oldest)]


async def _of_clock(app: Application) -> list[Finding]:
    store = app.store()
    if not hasattr(store, "now"):
        return []
    before = datetime.now(timezone.utc)
    now: datetime = await answer(store.now())
    after = datetime.now(timezone.utc)
    # The answer was given at some instant between the two.
    off = max((before - now).total_seconds(), (now - after).total_seconds(), 0.0)
    if off <= _CLOCK_SECONDS:
        return []
    message = (
        f"the database's clock and this host's differ by {off:,.0f} s; expiry goes by the "
        "database's"
    )
    fix = "timedatectl set-ntp true, on the one that is wrong"
    return [Finding(Severity.WARNING, "clock", None, message, fix)]
