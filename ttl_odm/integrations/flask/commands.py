"""``flask ttl ...``: what an operator asks of the databases of an application.

The commands are those of ``ttl-odm``, by its own functions. Where there are several databases, each
speaks for itself, under its name. They print without rich.
"""

from __future__ import annotations

import math
import sys
import threading
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import click
from flask import current_app
from flask.cli import AppGroup

from ttl_odm.cli.application import Application, Target, in_loop, select, unknown
from ttl_odm.cli.check import check_application, check_options
from ttl_odm.cli.errors import UsageError, printable, readable_errors
from ttl_odm.cli.options import json_option, selection_options, sweep_option
from ttl_odm.cli.output import PlainOutput, echo, json_text, printable_report
from ttl_odm.cli.pause import set_paused
from ttl_odm.cli.plan import forecast_target, policy_options
from ttl_odm.cli.status import snapshot_of
from ttl_odm.inspection.evidence import SMALL
from ttl_odm.integrations.flask.sweepers import EXTENSION, INTERVAL_KEY, bind_name
from ttl_odm.stored.approval import plain
from ttl_odm.stored.cli import prompts
from ttl_odm.sweeper import stop_on_signals
from ttl_odm.sweeper.command_line import (
    NOTHING_DELETED,
    Status,
    can_ask,
    question,
    status_of,
    terminal_width,
)
from ttl_odm.sweeper.findings import findings_dict, github_annotations, have_failed, lines_of
from ttl_odm.sweeper.snapshot import RESUMED, format_snapshot, paused_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ttl_odm.integrations.flask.sweepers import AppTTL
    from ttl_odm.sweeper import Sweeper

INTERVAL: Final = 60.0
"""Seconds between sweeps of ``flask ttl run``, unless the option or the setting overrides it."""

commands = AppGroup("ttl", help="Delete expired rows, and see which sweeper is at work.")


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
    databases = _databases(models, excepted)
    if can_ask() and not (dry_run or yes) and not _is_confirmed(databases, **options):
        click.echo(NOTHING_DELETED, err=True)
        return
    sweepers = _sweepers(databases, is_counting=dry_run, **options)
    reports = []
    with stop_on_signals(*sweepers.values()):
        for bind, sweeper in sweepers.items():
            reports.append(sweeper.run_once())
            _print_title(bind, sweepers)
            click.echo(printable_report(reports[-1]))
    raise SystemExit(status_of(*reports))


def _is_confirmed(databases: dict[str | None, Application], **options: Any) -> bool:
    """Ask once whether to delete the expired rows of all databases, if there are any."""
    counters, counts = _sweepers(databases, is_counting=True, **options), {}
    with stop_on_signals(*counters.values()):
        for bind, counter in counters.items():
            counts[bind] = counter.run_once()
    due = [databases[bind].due_rows(count, options["max_rows"]) for bind, count in counts.items()]
    asked = question(due, counts.values())
    if asked is None:
        return True
    for bind, count in counts.items():
        _print_title(bind, databases, err=True)
        click.echo(printable_report(count), err=True)
    return click.confirm(asked, err=True)


@commands.command()
@selection_options
@click.option(
    "--interval",
    type=click.FloatRange(min=0, min_open=True),
    help=f"Seconds between sweeps (default: {INTERVAL_KEY}, or {INTERVAL:.0f}).",
)
def run(models: list[str], excepted: list[str], interval: float | None) -> None:
    """Sweep at intervals until SIGTERM or Ctrl-C."""
    seconds = interval or _app_ttl().interval or INTERVAL
    has_own = current_app.config.get("TTL_ON_REPORT")
    told: dict[str, Any] = {} if has_own else {"on_report": click.echo}
    sweepers = _sweepers(_databases(models, excepted), **told)
    failures: list[Exception] = []

    def sweep_on(sweeper: Sweeper) -> None:
        try:
            sweeper.run_forever(interval=seconds)
        except Exception as error:  # noqa: BLE001 (raised below, when all have come to their end)
            failures.append(error)
            for other in sweepers.values():
                other.stop()

    # The second Ctrl-C interrupts the one here, and must find no other that the process waits for.
    here, *others = sweepers.values()
    threads = [threading.Thread(target=sweep_on, args=(one,), daemon=True) for one in others]
    with stop_on_signals(*sweepers.values()):
        for thread in threads:
            thread.start()
        sweep_on(here)
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]


@commands.command()
@selection_options
@json_option
def status(models: list[str], excepted: list[str], *, as_json: bool) -> None:
    """Show live and expired rows, the lease, and the last sweep; see `ttl-odm status`."""
    databases = _databases(models, excepted)
    has_problems = False
    for bind, application in databases.items():
        snapshot = in_loop(partial(snapshot_of, application))
        has_problems |= snapshot.has_problems
        if as_json:
            echo(json_text(snapshot.to_dict()))
            continue
        _print_title(bind, databases)
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
    as_json: bool,
    **options: Any,
) -> None:
    """Compare the databases with the declarations and suggest fixes; see `ttl-odm check`."""
    databases = _databases(models, excepted)
    has_failed = False
    for bind, application in databases.items():
        findings = in_loop(partial(check_application, application, program=_typed, **options))
        has_failed |= have_failed(findings, strict=strict)
        checked, annotated = len(application.all_targets()), github_annotations(findings)
        if as_json:
            echo(json_text({"database": application.database, **findings_dict(findings, checked)}))
        elif annotated is not None:
            echo(annotated)
        else:
            _print_title(bind, databases)
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
    databases = _databases()
    for bind, application in databases.items():
        state = in_loop(partial(set_paused, application, paused=paused))
        _print_title(bind, databases)
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
    application, target = _target(_databases(), model)
    most = math.inf if deep else SMALL
    forecast = in_loop(lambda: forecast_target(application, target, default_ttl, policy, most))
    for said in forecast.paragraphs(terminal_width(sys.stdout), " --deep counts all."):
        click.echo(printable(str(said)))


@commands.group()
def policy() -> None:
    """Show and change default ttls stored in the database (Stored)."""


@policy.command(help=prompts.SHOW)
@prompts.targets_argument
@json_option
def show(targets: Sequence[str], *, as_json: bool) -> None:
    """Show the stored defaults."""
    _show(targets, prompts.POLICIES, as_json=as_json)


@policy.command(help=prompts.HISTORY)
@prompts.targets_argument
@json_option
def history(targets: Sequence[str], *, as_json: bool) -> None:
    """Show their changes."""
    _show(targets, prompts.CHANGES, as_json=as_json)


@policy.command("set", help=prompts.SET, context_settings=prompts.SETTINGS)
@prompts.change_arguments
@prompts.change_options
def set_(model: str, change: Sequence[str], *, as_json: bool, **options: Any) -> None:
    """Change one; its token is signed with the application's secret key."""
    found = _target(_databases(), model)
    prompts.change_default(
        lambda: nullcontext(found),
        PlainOutput(as_json=as_json),
        model,
        change,
        secret=current_app.secret_key,
        **options,
    )


def _show(names: Sequence[str], view: prompts.View, *, as_json: bool) -> None:
    """Print what is stored in each database; as JSON in one list, with the bind keys."""
    databases, output = _databases(), PlainOutput(as_json=as_json)
    named = [_target(databases, name) for name in names]
    rows: dict[str | None, list[Any]] = {}
    for bind, application in databases.items():
        targets = [target for owner, target in named if owner is application]
        if targets or (not names and not application.is_store):
            rows[bind] = in_loop(partial(prompts.read, application, targets, view))
    if as_json:
        output.json(
            [
                {"bind": bind_name(bind), **plain(row)}
                for bind, found in rows.items()
                for row in found
            ]
        )
        return
    if not any(rows.values()):
        prompts.show(output, [], view)
    for bind, found in rows.items():
        if found:
            _print_title(bind, databases)
            prompts.show(output, found, view)


def _app_ttl() -> AppTTL:
    app_ttl: AppTTL = current_app.extensions[EXTENSION]
    return app_ttl


def _databases(
    models: Sequence[str] = (), excepted: Sequence[str] = ()
) -> dict[str | None, Application]:
    """The databases that have something of what was selected, by their bind keys."""
    with readable_errors():
        every = _app_ttl().applications()
    if not every:
        raise click.ClickException(
            "No model has a TTL: declare __ttl__ on one or enable() it, and import its module "
            "where the app is created."
        )
    selected = select([*every.values()], models, excepted)
    return {
        bind: application
        for bind, application in zip(every, selected, strict=True)
        if application.is_store or application.targets
    }


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


def _target(databases: dict[str | None, Application], model: str) -> tuple[Application, Target]:
    every = list(databases.values())
    fitting = [
        (application, target) for application in every for target in application.named(model)
    ]
    if len(fitting) > 1:
        raise UsageError(f"MODEL {model!r}: several models have that name; give the table's name.")
    if not fitting:
        raise unknown([target for app in every for target in app.targets], "MODEL", model)
    return fitting[0]


def _typed(name: str) -> str:
    """What is typed for a command of ours."""
    return f"flask ttl {name}"


def _print_title(bind: str | None, databases: dict[str | None, Any], *, err: bool = False) -> None:
    if len(databases) > 1:
        click.echo(f"{bind_name(bind)}:", err=err)
