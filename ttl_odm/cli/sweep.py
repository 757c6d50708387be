"""``ttl-odm sweep``: one sweep; on a terminal it is counted first, confirmed, and shown."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from ttl_odm.cli.application import Application, answer, in_loop
from ttl_odm.cli.connect import connect
from ttl_odm.cli.options import selection_options, sweep_option, sweep_options
from ttl_odm.cli.output import Output, printable_report
from ttl_odm.cli.progress import ProgressDisplay
from ttl_odm.cli.source import Source, source_options
from ttl_odm.cli.telemetry import Listeners, opentelemetry
from ttl_odm.sweeper import SweepReport, stop_on_signals
from ttl_odm.sweeper.command_line import (
    NOTHING_DELETED,
    Status,
    can_ask,
    is_terminal,
    question,
    report_dict,
    status_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


@click.command()
@source_options
@selection_options
@sweep_option("dry_run")
@sweep_option("yes")
@sweep_options
def sweep(source: Source, models: list[str], excepted: list[str], **options: Any) -> None:
    """Delete all expired rows once, in small batches.

    On a terminal it counts the rows, asks for confirmation, and shows a progress bar; otherwise
    it starts right away. On SIGINT (Ctrl-C) or SIGTERM it finishes the current batch and stops.

    Exit status: 0 done, 1 a target failed, 2 usage error, 3 the fuse blew, 4 another sweeper holds
    the lease, 5 the server takes no writes.
    """

    async def work() -> SweepReport | None:
        async with connect(source) as application:
            selected = application.select(models, excepted)
            await selected.check_connection()
            return await _sweep(selected, **options)

    report = in_loop(work)
    if report is None:
        click.echo(NOTHING_DELETED, err=True)
        raise SystemExit(Status.DONE)
    output = Output(as_json=options["as_json"])
    if output.as_json:
        output.json(report_dict(report))
    else:
        output.code(printable_report(report))
    raise SystemExit(status_of(report))


async def _sweep(
    app: Application, *, dry_run: bool, yes: bool | None, as_json: bool, otel: bool, **options: Any
) -> SweepReport | None:
    if dry_run:
        return await _counted(app, **options)
    due: Mapping[str, int] = {}
    if is_terminal(sys.stderr) and not as_json:
        counted = await _counted(app, **options)
        due = app.due_rows(counted, options["max_rows"])
        prompt = question([due], [counted])
        if prompt and can_ask() and not yes:
            click.echo(printable_report(counted), err=True)
            if not click.confirm(prompt, err=True):
                return None
    with ProgressDisplay(due, quiet=as_json) as display:
        listeners = Listeners([opentelemetry(app.backend)] if otel else [], on_progress=display)
        sweeper = app.sweeper(
            **options, on_progress=listeners.on_progress, on_server=listeners.on_server
        )
        with stop_on_signals(sweeper):
            report = await answer(sweeper.run_once())
        listeners.on_report(report)
        return report


async def _counted(app: Application, **options: Any) -> SweepReport:
    counter = app.counter(**options)
    with stop_on_signals(counter):
        return await answer(counter.run_once())
