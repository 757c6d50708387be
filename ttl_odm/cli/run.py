"""``ttl-odm run``: sweeps at intervals until a signal, with a log and metrics."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from typing import Any, Final, TextIO

import click

from ttl_odm.cli.application import answer, in_loop
from ttl_odm.cli.connect import connect
from ttl_odm.cli.errors import printable
from ttl_odm.cli.options import Duration, selection_options, sweep_options
from ttl_odm.cli.output import echo, json_text
from ttl_odm.cli.source import Source, source_options
from ttl_odm.cli.telemetry import Listeners, Metrics, opentelemetry, prometheus
from ttl_odm.errors import TTLError
from ttl_odm.sweeper import SweepReport, stop_on_signals
from ttl_odm.sweeper.command_line import Status, report_dict, status_of
from ttl_odm.sweeper.sweeper import INTERVAL, JITTER

logger = logging.getLogger(__name__)

_WAITED: Final = frozenset({Status.LEASE, Status.STANDBY})
"""Endings of the last sweep in a process that waits in case another one fails."""


@click.command()
@source_options
@selection_options
@click.option(
    "--interval",
    type=Duration(),
    metavar="SECONDS",
    default=INTERVAL,
    show_default=True,
    help="The time between sweeps.",
)
@click.option(
    "--jitter",
    type=float,
    metavar="SHARE",
    default=JITTER,
    show_default=True,
    help="Vary the interval at random by up to this share of it.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve metrics for Prometheus on this port (0: any free port, which is logged).",
)
@click.option(
    "--metrics-host",
    metavar="ADDRESS",
    default="127.0.0.1",
    show_default=True,
    help="The address to serve metrics on.",
)
@sweep_options
def run(  # noqa: PLR0913 (click's)
    source: Source,
    models: list[str],
    excepted: list[str],
    *,
    interval: float,
    jitter: float,
    as_json: bool,
    metrics_port: int | None,
    metrics_host: str,
    otel: bool,
    **options: Any,
) -> None:
    """Sweep at intervals until SIGINT or SIGTERM.

    You can run it in any number of processes: one sweeps, the others wait for its lease to end.
    Each sweep is logged to stderr, and so is the end; with --json its report also goes to stdout,
    one line per sweep.

    Exit status: 0 after a signal, 1 the last sweep failed, 2 usage error, 3 the fuse blew in the
    last sweep, 5 the server takes no writes.
    """
    logging.basicConfig(level=logging.INFO, handlers=[log_to(sys.stderr)])

    def print_line(report: SweepReport) -> None:
        echo(json_text(report_dict(report)))

    async def work() -> tuple[SweepReport | None, bool]:
        async with connect(source) as application:
            selected = application.select(models, excepted)
            with suppress(TTLError):  # the server may come up later; the answer names its kind
                await selected.check_connection()
            metrics: list[Metrics] = []
            if metrics_port is not None:
                metrics.append(prometheus(selected.backend, metrics_host, metrics_port))
            if otel:
                metrics.append(opentelemetry(selected.backend))
            listeners = Listeners(metrics, on_report=print_line if as_json else None)
            sweeper = selected.sweeper(
                **options,
                on_progress=listeners.on_progress,
                on_report=listeners.on_report,
                on_server=listeners.on_server,
            )
            with stop_on_signals(sweeper):
                last = await answer(sweeper.run_forever(interval=interval, jitter=jitter))
            return last, sweeper.ended_at_standby(last)

    report, is_at_standby = in_loop(work)
    status = Status.DONE if report is None else status_of(report)
    if is_at_standby:
        logger.info("Ended at a standby, as configured.")
    else:
        logger.info("Stopped by a signal; the lease is free.")
        if status in _WAITED:
            status = Status.DONE
    raise SystemExit(status)


def log_to(stream: TextIO) -> logging.Handler:
    """Return a handler that writes lines."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Discreet("%(asctime)s %(levelname)s %(message)s"))
    return handler


class _Discreet(logging.Formatter):
    """Formats for a terminal: passwords and control characters in a message are hidden."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))
