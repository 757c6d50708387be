"""``flask ttl ...``: what an operator asks of the sweepers of an application."""

from __future__ import annotations

import textwrap
import threading
from typing import TYPE_CHECKING, Final, cast

import click
from flask import current_app
from flask.cli import AppGroup

from ttl_odm.cli.application import in_loop
from ttl_odm.cli.errors import readable_errors
from ttl_odm.cli.options import sweep_option
from ttl_odm.cli.output import aligned, printable_report
from ttl_odm.cli.plan import forecast_target, policy_options
from ttl_odm.inspection.evidence import SMALL
from ttl_odm.integrations.flask.sweepers import EXTENSION, INTERVAL_KEY, bind_name
from ttl_odm.sweeper import SweepOptions, stop_on_signals
from ttl_odm.sweeper.command_line import Status, status_of
from ttl_odm.sweeper.text import visible

if TYPE_CHECKING:
    from ttl_odm.integrations.flask.sweepers import AppTTL
    from ttl_odm.sweeper import Sweeper

INTERVAL: Final = 60.0
"""Seconds between two sweeps of ``flask ttl run``, unless the option or the key says others."""

_COUNTING: Final[SweepOptions] = {"dry_run": True, "window": None}
"""For a sweeper that only counts, at any hour."""

commands = AppGroup("ttl", help="Delete expired rows for good, and see who does it.")


@commands.command()
@sweep_option("dry_run")
@sweep_option("force")
@sweep_option("max_rows")
def sweep(*, dry_run: bool, force: bool | None, max_rows: int | None) -> None:
    """Sweep once. Ends with the statuses of `ttl-odm sweep`: 0 if all is well."""
    options = {"force": force, "max_rows": max_rows}
    chosen = {name: value for name, value in options.items() if value is not None}
    sweepers = _sweepers(cast("SweepOptions", {**(_COUNTING if dry_run else {}), **chosen}))
    reports = []
    with stop_on_signals(*sweepers.values()):
        for bind, sweeper in sweepers.items():
            reports.append(sweeper.run_once())
            _print_title(bind, sweepers)
            click.echo(printable_report(reports[-1]))
    raise SystemExit(status_of(*reports))


@commands.command()
@click.option(
    "--interval",
    type=click.FloatRange(min=0, min_open=True),
    help=f"Seconds between two sweeps ({INTERVAL_KEY}, or {INTERVAL:.0f}).",
)
def run(interval: float | None) -> None:
    """Sweep again and again, until SIGTERM or Ctrl-C."""
    seconds = interval or _app_ttl().interval or INTERVAL
    has_own = current_app.config.get("TTL_ON_REPORT")
    sweepers = _sweepers({} if has_own else {"on_report": click.echo})
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
def status() -> None:
    """See who holds the lease, and count what is due."""
    sweepers = _sweepers(_COUNTING)
    for bind, sweeper in sweepers.items():
        _print_title(bind, sweepers)
        with readable_errors():
            state = sweeper.status()
        holder = (
            f"{visible(state.holder)}, for {state.seconds_left:.0f} s more"
            if state.holder
            else "free"
        )
        click.echo(f"Lease: {holder}{'; paused' if state.paused else ''}")
        report = sweeper.run_once()
        click.echo(printable_report(report))
        if report.problems:
            raise SystemExit(Status.FAILED)


@commands.command()
@click.argument("model")
@policy_options
def plan(model: str, default_ttl: str | None, policy: str | None) -> None:
    """Forecast what of a model expires, from now to 30 days ahead.

    With --default-ttl or --policy also what that would expire. It changes nothing. Of more than
    100,000 rows a sample is taken.
    """
    application, target = _app_ttl().target(model)
    forecast = in_loop(lambda: forecast_target(application, target, default_ttl, policy, SMALL))
    click.echo(f"{forecast.title}: {forecast.rows:,} rows, {forecast.scenarios['current']}")
    click.echo(textwrap.indent(aligned(forecast.table), "  "))
    for sentence in [*forecast.sentences, forecast.note]:
        click.echo(sentence)


def _app_ttl() -> AppTTL:
    app_ttl: AppTTL = current_app.extensions[EXTENSION]
    return app_ttl


def _sweepers(options: SweepOptions) -> dict[str | None, Sweeper]:
    with readable_errors():
        sweepers = _app_ttl().sweepers(**options)
    if not sweepers:
        raise click.ClickException(
            "No model has TTL: declare __ttl__ on one, or enable() it, and import it where the app "
            "is made."
        )
    return sweepers


def _print_title(bind: str | None, sweepers: dict[str | None, Sweeper]) -> None:
    if len(sweepers) > 1:
        click.echo(f"{bind_name(bind)}:")
