"""``ttl-odm run``: one sweep after the other until a signal, with a log and metrics."""

from __future__ import annotations

import json
import logging
import sys
from contextlib import suppress
from typing import Any, TextIO

import click

from ttl_odm.cli.application import Application, answer, in_loop
from ttl_odm.cli.connect import connect
from ttl_odm.cli.errors import without_passwords
from ttl_odm.cli.options import app_options, selection_options, sweep_options
from ttl_odm.cli.output import report_dict
from ttl_odm.cli.telemetry import Listeners, opentelemetry, prometheus
from ttl_odm.errors import TTLError
from ttl_odm.sweeper import SweepReport, stop_on_signals
from ttl_odm.sweeper.statuses import Status, status_of
from ttl_odm.sweeper.sweeper import INTERVAL, JITTER


@click.command()
@app_options
@selection_options
@click.option(
    "--interval",
    type=float,
    metavar="SECONDS",
    default=INTERVAL,
    show_default=True,
    help="Between two sweeps.",
)
@click.option(
    "--jitter",
    type=float,
    metavar="SHARE",
    default=JITTER,
    show_default=True,
    help="Share of the interval by which it varies at random.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve metrics for Prometheus there (0: any free one, which is logged).",
)
@click.option(
    "--metrics-host", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="And here."
)
@sweep_options
def run(
    app: str | None, url: str | None, models: list[str], excepted: list[str], **options: Any
) -> None:
    """Sweep again and again, until SIGINT or SIGTERM.

    May run in any number of processes: one sweeps, the others wait for its lease to end. Each
    sweep is logged on stderr; with --json its report goes to stdout as well, a line each.

    Exit status: 0 after a signal, 1 the last sweep failed, 2 usage, 3 the fuse blew in the last
    sweep.
    """
    logging.basicConfig(level=logging.INFO, handlers=[log_to(sys.stderr)])

    async def work() -> SweepReport | None:
        async with connect(app, url) as application:
            return await _run(application.select(models, excepted), **options)

    report = in_loop(work)
    raise SystemExit(Status.DONE if report is None else status_of(report))


async def _run(  # noqa: PLR0913 (by keyword, from the command line)
    app: Application,
    *,
    interval: float,
    jitter: float,
    as_json: bool,
    metrics_port: int | None,
    metrics_host: str,
    otel: bool,
    **options: Any,
) -> SweepReport | None:
    with suppress(TTLError):  # it may come up later; and now it says which database it is
        await app.check_connection()
    metrics = [] if metrics_port is None else [prometheus(app.backend, metrics_host, metrics_port)]
    metrics += [opentelemetry(app.backend)] if otel else []
    listeners = Listeners(metrics, on_report=_print_line if as_json else None)
    sweeper = app.sweeper(
        **options, on_progress=listeners.on_progress, on_report=listeners.on_report
    )
    with stop_on_signals(sweeper):
        return await answer(sweeper.run_forever(interval=interval, jitter=jitter))


def _print_line(report: SweepReport) -> None:
    click.echo(json.dumps(report_dict(report), ensure_ascii=False))
    sys.stdout.flush()


def log_to(stream: TextIO) -> logging.Handler:
    """Make a handler that writes lines."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Discreet("%(asctime)s %(levelname)s %(message)s"))
    return handler


class _Discreet(logging.Formatter):
    """Formats without passwords, whoever has put one into a message."""

    def format(self, record: logging.LogRecord) -> str:
        return without_passwords(super().format(record))
