"""``ttl-odm sweep``: one sweep, which is counted, confirmed and watched on a terminal."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bars

from ttl_odm.cli import bars
from ttl_odm.cli.application import Application, answer, in_loop
from ttl_odm.cli.connect import connect
from ttl_odm.cli.options import selection_options, sweep_option, sweep_options
from ttl_odm.cli.output import Output, printable_report
from ttl_odm.cli.source import Source, source_options
from ttl_odm.cli.telemetry import Listeners, opentelemetry
from ttl_odm.sweeper import SweepReport, stop_on_signals, text
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
    from collections.abc import Callable, Mapping

    from rich.progress import TaskID
    from typing_extensions import Self

    from ttl_odm.sweeper import Progress

_LINE_SECONDS: Final = 10.0


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
        asked = question([due], [counted])
        if asked and can_ask() and not yes:
            click.echo(printable_report(counted), err=True)
            if not click.confirm(asked, err=True):
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


class ProgressDisplay:
    """Shows the progress of one sweep; a context manager, and a sweeper's ``on_progress``.

    On a terminal a bar, with an estimate for the targets whose expired rows were counted; elsewhere
    a line every some seconds. Both go to stderr, so that stdout has the report alone. Rates are
    those of all the time that a target has taken, as in the report.
    """

    def __init__(
        self,
        due: Mapping[str, int] | None = None,
        *,
        quiet: bool = False,
        seconds: float = _LINE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = seconds
        self._due = due or {}
        self._quiet = quiet
        console = Console(stderr=True)
        self._bars: Bars | None = None
        if console.is_terminal and not quiet:
            self._bars = Bars(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=None),
                bars.Rows(),
                bars.Rate(),
                bars.TimeLeft(),
                console=console,
                expand=True,
            )
        self._tasks: dict[str, TaskID] = {}
        self._began: dict[str, float] = {}
        self._clock = clock
        self._printed = self._last = clock()

    def __enter__(self) -> Self:
        if self._bars is not None:
            self._bars.start()
            for table in [table for table, rows in self._due.items() if rows][:1]:
                self._show(table)  # it may take long to find its first expired row
        self._last = self._clock()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def _show(self, table: str) -> TaskID:
        """The bar of a target."""
        assert self._bars is not None  # noqa: S101 (there is a terminal)
        if table not in self._tasks:
            name = text.visible(table)
            self._tasks[table] = self._bars.add_task(name, total=self._due.get(table))
        return self._tasks[table]

    def __call__(self, progress: Progress) -> None:
        """Show one more batch."""
        table = text.visible(progress.table)
        now = self._clock()
        # Targets are swept one after the other: this one since the last batch of another.
        began = self._began.setdefault(table, min(self._last, now - progress.elapsed))
        self._last = now
        if self._bars is not None:
            task, done = self._show(progress.table), progress.deleted_so_far
            self._bars.update(task, completed=done, seconds=now - began)
            return
        if self._quiet or now - self._printed < self._seconds:
            return
        self._printed = now
        rate = progress.deleted_so_far / max(now - began, 1e-9)
        click.echo(f"{table}: {progress.deleted_so_far:,} rows, {rate:,.0f}/s", err=True)
