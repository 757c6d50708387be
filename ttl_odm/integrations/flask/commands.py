"""``flask ttl ...``: the operators' commands for an application's databases.

They call the functions of the ``ttl-odm`` commands, and print without rich. For several databases
they print one result after another, under the database's name.
"""

from __future__ import annotations

import math
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import click
from flask import current_app
from flask.cli import AppGroup

from ttl_odm.cli.application import Application, Target, in_loop, select, unknown
from ttl_odm.cli.check import check_application, check_options, check_replicas
from ttl_odm.cli.errors import UsageError, printable, readable_errors
from ttl_odm.cli.extensions import Commands, is_installed
from ttl_odm.cli.options import json_option, selection_options, sweep_option
from ttl_odm.cli.output import echo, json_text, printable_report
from ttl_odm.cli.plan import forecast_target, policy_options
from ttl_odm.cli.status import set_paused, snapshot_of
from ttl_odm.inspection.evidence import SMALL
from ttl_odm.integrations.flask.sweepers import EXTENSION, INTERVAL_KEY, AppTTL, bind_name
from ttl_odm.sweeper import stop_on_signals
from ttl_odm.sweeper.command_line import (
    NOTHING_DELETED,
    Status,
    can_ask,
    escape_unencodable,
    question,
    status_of,
    terminal_width,
)
from ttl_odm.sweeper.findings import findings_dict, github_annotations, have_failed, lines_of
from ttl_odm.sweeper.snapshot import RESUMED, format_snapshot, paused_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ttl_odm.sweeper import Sweeper
    from ttl_odm.sweeper.findings import Finding

INTERVAL: Final = 60.0
"""Seconds between sweeps of ``flask ttl run``, unless the option or the setting overrides it."""

_POLICY: Final = {"policy": "ttl_odm.integrations.flask.policy"}
"""The command of the extension for stored defaults, imported only to run it."""

commands = AppGroup(
    "ttl",
    callback=escape_unencodable,
    commands=Commands(_POLICY if is_installed("ttl_odm.stored") else {}),
    help="Delete expired rows, and see which sweeper is at work.",
)


@commands.command()
@selection_options
@sweep_option("dry_run")
@sweep_option("yes")
@sweep_option("force")
@sweep_option("max_rows")
def sweep(
    models: list[str],
    excepted: list[str],
    *,
    dry_run: bool,
    yes: bool,
    **options: Any,
) -> None:
    """Delete all expired rows once.

    On a terminal it counts the rows and asks for confirmation. It exits with the same statuses as
    `ttl-odm sweep`.
    """
    databases = selected_databases(models, excepted)
    if can_ask() and not (dry_run or yes) and not _is_confirmed(databases, **options):
        click.echo(NOTHING_DELETED, err=True)
        return
    sweepers = _sweepers(databases, is_counting=dry_run, **options)
    reports = []
    with stop_on_signals(*sweepers.values()):
        for bind, sweeper in sweepers.items():
            reports.append(sweeper.run_once())
            print_title(bind, sweepers)
            click.echo(printable_report(reports[-1]))
    raise SystemExit(status_of(*reports))


def _is_confirmed(databases: dict[str | None, Application], **options: Any) -> bool:
    """Ask once whether to delete the expired rows of all databases, if there are any."""
    counters, counts = _sweepers(databases, is_counting=True, **options), {}
    with stop_on_signals(*counters.values()):
        for bind, counter in counters.items():
            counts[bind] = counter.run_once()
    due = [databases[bind].due_rows(count, options["max_rows"]) for bind, count in counts.items()]
    text = question(due, counts.values())
    if text is None:
        return True
    for bind, count in counts.items():
        print_title(bind, databases, err=True)
        click.echo(printable_report(count), err=True)
    return click.confirm(text, err=True)


@commands.command()
@selection_options
@click.option(
    "--interval",
    type=click.FloatRange(min=0, min_open=True),
    help=f"Seconds between sweeps (default: {INTERVAL_KEY}, or {INTERVAL:.0f}).",
)
def run(models: list[str], excepted: list[str], interval: float | None) -> None:
    """Sweep at intervals until SIGTERM or Ctrl-C.

    With TTL_STANDBY = "exit" it ends with status 5 when a server takes no writes.
    """
    seconds = interval or app_ttl().interval or INTERVAL
    has_callback = current_app.config.get("TTL_ON_REPORT")
    options: dict[str, Any] = {} if has_callback else {"on_report": click.echo}
    sweepers = _sweepers(selected_databases(models, excepted), **options)
    failures: list[Exception] = []
    at_standby: list[Sweeper] = []

    def sweep_on(sweeper: Sweeper) -> None:
        try:
            if sweeper.ended_at_standby(sweeper.run_forever(interval=seconds)):
                at_standby.append(sweeper)
        except Exception as error:  # noqa: BLE001 (raised below, when all have ended)
            failures.append(error)
            for other in sweepers.values():
                other.stop()

    # A second Ctrl-C interrupts the sweeper in this thread. The others are daemons, or the process
    # would still wait for them.
    here, *others = sweepers.values()
    threads = [threading.Thread(target=sweep_on, args=(other,), daemon=True) for other in others]
    with stop_on_signals(*sweepers.values()):
        for thread in threads:
            thread.start()
        sweep_on(here)
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]
    if at_standby:
        raise SystemExit(Status.STANDBY)


@commands.command()
@selection_options
@json_option
def status(models: list[str], excepted: list[str], *, as_json: bool) -> None:
    """Show live and expired rows, the lease, and the last sweep; see `ttl-odm status`."""
    databases = selected_databases(models, excepted)
    has_problems = False
    for bind, application in databases.items():
        snapshot = in_loop(partial(snapshot_of, application))
        has_problems |= snapshot.has_problems
        if as_json:
            echo(json_text(snapshot.to_dict()))
            continue
        print_title(bind, databases)
        click.echo(printable(format_snapshot(snapshot, _typed, terminal_width(sys.stdout))))
    if has_problems:
        raise SystemExit(Status.FAILED)


@commands.command()
@selection_options
@check_options
@json_option
def check(
    models: list[str],
    excepted: list[str],
    *,
    strict: bool,
    replicas: Sequence[str],
    as_json: bool,
    **options: Any,
) -> None:
    """Compare the databases with the declarations and suggest fixes; see `ttl-odm check`."""
    databases = selected_databases(models, excepted)
    if replicas and len(databases) > 1:
        raise UsageError("--replica: name the models of a single database by --model.")

    async def work(application: Application) -> list[Finding]:
        findings = await check_application(application, program=_typed, **options)
        return findings + await check_replicas(application, replicas)

    has_failed = False
    for bind, application in databases.items():
        findings = in_loop(partial(work, application))
        has_failed |= have_failed(findings, strict=strict)
        checked, annotated = len(application.all_targets()), github_annotations(findings)
        if as_json:
            echo(json_text({"database": application.database, **findings_dict(findings, checked)}))
        elif annotated is not None:
            echo(annotated)
        else:
            print_title(bind, databases)
            for line in lines_of(findings, checked):
                click.echo(printable(str(line)))
    if has_failed:
        raise SystemExit(Status.FAILED)


@commands.command()
def pause() -> None:
    """Stop all sweepers after their current batch, until flask ttl resume."""
    _set_paused(paused=True)


@commands.command()
def resume() -> None:
    """Resume the sweepers that flask ttl pause has stopped."""
    _set_paused(paused=False)


def _set_paused(*, paused: bool) -> None:
    databases = selected_databases()
    for bind, application in databases.items():
        state = in_loop(partial(set_paused, application, paused=paused))
        print_title(bind, databases)
        click.echo(paused_text(state, _typed) if paused else RESUMED)


@commands.command()
@click.argument("model")
@policy_options
@click.option("--deep", is_flag=True, help="Count all rows, regardless of how many there are.")
def plan(model: str, default_ttl: str | None, policy: str | None, *, deep: bool) -> None:
    """Forecast which rows of a model expire in the next 30 days.

    With --default-ttl or --policy it also shows the effect of that change. It changes nothing.
    Tables of more than 100,000 rows are sampled.
    """
    application, target = find_target(selected_databases(), model)
    most = math.inf if deep else SMALL
    forecast = in_loop(lambda: forecast_target(application, target, default_ttl, policy, most))
    for paragraph in forecast.paragraphs(terminal_width(sys.stdout), " --deep counts all."):
        click.echo(printable(str(paragraph)))


def _sweepers(
    databases: dict[str | None, Application], *, is_counting: bool = False, **options: Any
) -> dict[str | None, Sweeper]:
    with readable_errors():
        return {
            bind: cast(
                "Sweeper",
                app.counter(**options) if is_counting else app.sweeper(**options),
            )
            for bind, app in databases.items()
        }


def app_ttl() -> AppTTL:
    """Return the `AppTTL` of the current application."""
    sweepers: AppTTL = current_app.extensions[EXTENSION]
    return sweepers


def selected_databases(
    models: Sequence[str] = (), excepted: Sequence[str] = ()
) -> dict[str | None, Application]:
    """Return the databases with any of the selected models, by their bind keys."""
    with readable_errors():
        applications = app_ttl().applications()
    if not applications:
        raise click.ClickException(
            "No model has a TTL: declare __ttl__ on one or enable() it, and import its module "
            "where the app is created."
        )
    selected = select([*applications.values()], models, excepted)
    return {
        bind: application
        for bind, application in zip(applications, selected, strict=True)
        if application.is_store or application.targets
    }


def find_target(databases: dict[str | None, Application], model: str) -> tuple[Application, Target]:
    """Return the only target of a name, with its database.

    Raises:
        UsageError: There is none, or more than one.
    """
    applications = list(databases.values())
    matches = [
        (application, target) for application in applications for target in application.named(model)
    ]
    if len(matches) > 1:
        raise UsageError(f"MODEL {model!r}: several models have that name; give the table's name.")
    if not matches:
        raise unknown([target for app in applications for target in app.targets], "MODEL", model)
    return matches[0]


def print_title(
    bind: str | None, databases: Mapping[str | None, object], *, err: bool = False
) -> None:
    """Print the name of a database, unless it is the only one."""
    if len(databases) > 1:
        click.echo(f"{bind_name(bind)}:", err=err)


def _typed(name: str) -> str:
    """Return a command as an operator types it."""
    return f"flask ttl {name}"
