"""``ttl-odm sweep`` and ``ttl-odm run``: one sweep, or one after the other until a signal."""

from __future__ import annotations

import json
import logging
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TextIO

import click

from ttl_odm.cli.application import Application, answer, app_options, in_loop, opened
from ttl_odm.cli.monitoring import Watchers, served, traced
from ttl_odm.cli.output import Output
from ttl_odm.cli.problems import without_passwords
from ttl_odm.cli.progress import Watched
from ttl_odm.errors import TTLError
from ttl_odm.sweeper import SweepReport, stop_on_signals
from ttl_odm.sweeper.statuses import Status, status_of
from ttl_odm.sweeper.sweeper import INTERVAL, JITTER

if TYPE_CHECKING:
    from collections.abc import Callable

_SECONDS: Final[dict[str, Any]] = {"type": float, "metavar": "SECONDS"}
_ROWS: Final[dict[str, Any]] = {"type": int, "metavar": "ROWS"}


def _sweep_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add what `ttl_odm.sweeper.SweepOptions` has, under the same names."""
    options: list[Any] = [
        click.option("--max-rows", **_ROWS, help="Delete so many rows at most, then end."),
        click.option("--max-seconds", **_SECONDS, help="Begin no further batch after that."),
        click.option(
            "--max-rows-per-second", type=float, metavar="ROWS", help="Don't exceed this rate."
        ),
        click.option(
            "--batch-size", **_ROWS, help="The first batch; the next ones adapt to its time."
        ),
        click.option(
            "--nice", **_SECONDS, help="Rest so long for each second of work (SQLite: 1)."
        ),
        click.option("--statement-timeout", **_SECONDS, help="For each statement of a batch."),
        click.option("--window", metavar="HH:MM-HH:MM", help="Sweep in these hours of the day."),
        click.option("--timezone", metavar="NAME", help="The time zone of --window (UTC)."),
        click.option(
            "--max-fraction",
            type=float,
            metavar="SHARE",
            help="The fuse: delete nothing of a target of which more than this share, 0 to 1, has "
            "expired.",
        ),
        click.option(
            "--max-jump",
            type=float,
            metavar="TIMES",
            help="The fuse: the same for so many times what one of the last ten sweeps found.",
        ),
        click.option(
            "--force",
            is_flag=True,
            default=None,
            help="Delete although the fuse blows, or a foreign key has no index.",
        ),
        click.option(
            "--lease/--no-lease", default=None, help="One sweeper at a time (the default)."
        ),
        lease_name_option,
        click.option(
            "--lease-duration", **_SECONDS, help="Another takes over after that from a dead one."
        ),
        click.option(
            "--otel",
            is_flag=True,
            help="Report metrics and spans to OpenTelemetry, as the variables OTEL_* say.",
        ),
        click.option("--json", "as_json", is_flag=True, help="Print reports as JSON."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def lease_name_option(command: Callable[..., None]) -> Callable[..., None]:
    """Add ``--lease-name`` to a command."""
    return click.option(
        "--lease-name", metavar="NAME", help="Sweepers of one name take turns (ttl_odm)."
    )(command)


def selection_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add ``--model`` and ``--except`` to a command."""
    command = click.option(
        "--except",
        "excepted",
        multiple=True,
        metavar="NAME",
        help="Leave this model or table out; may be repeated.",
    )(command)
    return click.option(
        "--model",
        "models",
        multiple=True,
        metavar="NAME",
        help="This model or table only; may be repeated.",
    )(command)


@click.command()
@app_options
@selection_options
@click.option("--dry-run", is_flag=True, help="Count what has expired; delete nothing.")
@click.option("--yes", "-y", is_flag=True, help="Don't ask before deleting, on a terminal.")
@_sweep_options
def sweep(app: str | None, url: str | None, **given: Any) -> None:
    """Delete the rows that have expired, in small batches, once.

    On a terminal it counts first, asks, and shows a progress bar; elsewhere it begins at once.
    SIGINT (Ctrl-C) and SIGTERM let it finish the batch at hand.

    Exit status: 0 done, 1 a target failed, 2 usage, 3 the fuse blew, 4 another sweeper has the
    lease.
    """

    async def work() -> SweepReport | None:
        async with opened(app, url) as found:
            narrowed = found.narrowed(given.pop("models"), given.pop("excepted"))
            await narrowed.check_connection()
            return await _sweep(narrowed, **given)

    report = in_loop(work)
    if report is None:
        click.echo("Nothing was deleted.", err=True)
        raise SystemExit(Status.DONE)
    output = Output(as_json=given["as_json"])
    if output.as_json:
        output.json(_clean(report))
    else:
        # What a person can do about it is an option here, not an argument.
        output.code(without_passwords(str(report)).replace("force=True", "--force"))
    raise SystemExit(status_of(report))


async def _sweep(
    app: Application, *, dry_run: bool, yes: bool, as_json: bool, otel: bool, **options: Any
) -> SweepReport | None:
    if dry_run:
        return await _counted(app, **options)
    due: dict[str, int] = {}
    if sys.stderr.isatty() and not as_json:
        counted = await _counted(app, **{**options, "force": True})
        due = {each.table: each.due for each in counted.targets if each.due is not None}
        if due and sys.stdin.isatty() and not yes and not _is_confirmed(counted, options):
            return None
    with Watched(within(due, options.get("max_rows")), quiet=as_json) as watched:
        watchers = Watchers([traced(app.backend)] if otel else [], on_progress=watched)
        sweeper = app.sweeper(**options, on_progress=watchers.on_progress)
        with stop_on_signals(sweeper):
            report = await answer(sweeper.run_once())
        watchers.on_report(report)
        return report


def within(due: dict[str, int], most: int | None) -> dict[str, int]:
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


def _is_confirmed(counted: SweepReport, options: dict[str, Any]) -> bool:
    click.echo(str(counted), err=True)
    if not counted.due:
        return True
    rows = min(counted.due, options.get("max_rows") or counted.due)
    return click.confirm(f"Delete {rows:,} rows?", err=True)


@click.command()
@app_options
@selection_options
@click.option(
    "--interval", **_SECONDS, default=INTERVAL, show_default=True, help="Between two sweeps."
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
@_sweep_options
def run(app: str | None, url: str | None, **given: Any) -> None:
    """Sweep again and again, until SIGINT or SIGTERM.

    May run in any number of processes: one sweeps, the others wait for its lease to end. Each
    sweep is logged on stderr; with --json its report goes to stdout as well, a line each.

    Exit status: 0 after a signal, 1 the last sweep failed, 2 usage, 3 the fuse blew in the last
    sweep.
    """
    logging.basicConfig(level=logging.INFO, handlers=[log_to(sys.stderr)])

    async def work() -> SweepReport | None:
        async with opened(app, url) as found:
            narrowed = found.narrowed(given.pop("models"), given.pop("excepted"))
            return await _run(narrowed, **given)

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
    with suppress(TTLError):  # it may come up later; and now it tells which database it is
        await app.check_connection()
    watchers = [] if metrics_port is None else [served(app.backend, metrics_host, metrics_port)]
    watchers += [traced(app.backend)] if otel else []
    told = Watchers(watchers, on_report=_print_line if as_json else None)
    sweeper = app.sweeper(**options, on_progress=told.on_progress, on_report=told.on_report)
    with stop_on_signals(sweeper):
        return await answer(sweeper.run_forever(interval=interval, jitter=jitter))


def log_to(stream: TextIO) -> logging.Handler:
    """Make a handler that writes lines."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Discreet("%(asctime)s %(levelname)s %(message)s"))
    return handler


class _Discreet(logging.Formatter):
    """Formats without passwords, whoever has put one into a message."""

    def format(self, record: logging.LogRecord) -> str:
        return without_passwords(super().format(record))


def _print_line(report: SweepReport) -> None:
    click.echo(json.dumps(_clean(report), ensure_ascii=False))
    sys.stdout.flush()


def _clean(report: SweepReport) -> dict[str, Any]:
    content: dict[str, Any] = report.to_dict()
    for each in (content, *content["targets"]):
        if each["error"] is not None:
            each["error"]["message"] = without_passwords(each["error"]["message"])
    return content
