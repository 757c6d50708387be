"""``ttl-odm sweep``: one sweep, which is counted, confirmed and watched on a terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from ttl_odm.cli.application import Application, answer, in_loop
from ttl_odm.cli.connect import connect
from ttl_odm.cli.options import app_options, selection_options, sweep_option, sweep_options
from ttl_odm.cli.output import Output, printable_report, report_dict
from ttl_odm.cli.progress import ProgressDisplay
from ttl_odm.cli.telemetry import Listeners, opentelemetry
from ttl_odm.sweeper import SweepReport, stop_on_signals
from ttl_odm.sweeper.statuses import Status, status_of

if TYPE_CHECKING:
    from collections.abc import Mapping


@click.command()
@app_options
@selection_options
@sweep_option("dry_run")
@click.option("--yes", "-y", is_flag=True, help="Don't ask before deleting, on a terminal.")
@sweep_options
def sweep(
    app: str | None, url: str | None, models: list[str], excepted: list[str], **options: Any
) -> None:
    """Delete the rows that have expired, in small batches, once.

    On a terminal it counts first, asks, and shows a progress bar; elsewhere it begins at once.
    SIGINT (Ctrl-C) and SIGTERM let it finish the batch at hand.

    Exit status: 0 done, 1 a target failed, 2 usage, 3 the fuse blew, 4 another sweeper has the
    lease.
    """

    async def work() -> SweepReport | None:
        async with connect(app, url) as application:
            selected = application.select(models, excepted)
            await selected.check_connection()
            return await _sweep(selected, **options)

    report = in_loop(work)
    if report is None:
        click.echo("Nothing was deleted.", err=True)
        raise SystemExit(Status.DONE)
    output = Output(as_json=options["as_json"])
    if output.as_json:
        output.json(report_dict(report))
    else:
        output.code(printable_report(report))
    raise SystemExit(status_of(report))


async def _sweep(
    app: Application, *, dry_run: bool, yes: bool, as_json: bool, otel: bool, **options: Any
) -> SweepReport | None:
    if dry_run:
        return await _counted(app, **options)
    due: dict[str, int] = {}
    most: int | None = options["max_rows"]
    if sys.stderr.isatty() and not as_json:
        counted = await _counted(app, **{**options, "force": True})
        due = {target.table: target.due for target in counted.targets if target.due is not None}
        if due and sys.stdin.isatty() and not yes:
            click.echo(str(counted), err=True)
            rows = min(counted.due or 0, most or counted.due or 0)
            if rows and not click.confirm(f"Delete {rows:,} rows?", err=True):
                return None
    with ProgressDisplay(within(due, most), quiet=as_json) as display:
        listeners = Listeners([opentelemetry(app.backend)] if otel else [], on_progress=display)
        sweeper = app.sweeper(**options, on_progress=listeners.on_progress)
        with stop_on_signals(sweeper):
            report = await answer(sweeper.run_once())
        listeners.on_report(report)
        return report


def within(due: Mapping[str, int], most: int | None) -> Mapping[str, int]:
    """Return how many of the due rows will go, table after table, if there is a limit."""
    if most is None:
        return due
    totals, left = {}, most
    for table, rows in due.items():
        totals[table] = min(rows, left)
        left -= totals[table]
    return totals


async def _counted(app: Application, **options: Any) -> SweepReport:
    counter = app.counter(**options)
    with stop_on_signals(counter):
        return await answer(counter.run_once())
