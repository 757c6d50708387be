"""``manage.py ttl_sweep``: delete expired rows, once or repeatedly."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from django.core.management import CommandError

from ttl_odm.django.management.options import (
    NO_MODELS,
    TTLCommand,
    add_option,
    add_selection,
    stores,
)
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper import Sweeper, SweepReport, stop_on_signals
from ttl_odm.sweeper.command_line import (
    NOTHING_DELETED,
    SWEEP_OPTIONS,
    Status,
    can_ask,
    count_options,
    due_rows,
    question,
    report_dict,
    report_text,
    status_of,
)
from ttl_odm.sweeper.options import check_interval
from ttl_odm.sweeper.sweeper import JITTER

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Mapping

    from ttl_odm.django.sweep.store import DjangoStore
    from ttl_odm.sweeper import SweepOptions


class Command(TTLCommand):
    """Delete expired rows in small batches."""

    help = (
        "Delete all expired rows in small batches. On a terminal it counts the rows first and asks "
        "for confirmation. Exit status: 0 done, 1 a target failed, 2 usage error, 3 the fuse blew, "
        "4 another sweeper holds the lease, 5 the server takes no writes."
    )

    _is_typed = False
    """Whether it runs from a command line; with `call_command` there is no user to ask."""

    def run_from_argv(self, argv: list[str]) -> None:
        """Run from a command line."""
        self._is_typed = True
        super().run_from_argv(argv)

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the options of `ttl_odm.sweeper.SweepOptions`, under the same names."""
        add_selection(parser)
        parser.add_argument(
            "--every",
            type=float,
            metavar="SECONDS",
            help="Sweep repeatedly until a signal, with this pause between sweeps.",
        )
        for name in ("dry_run", "yes", *SWEEP_OPTIONS):
            add_option(parser, name)

    def handle(self, **options: Any) -> None:
        """Sweep one database after the other."""
        sweep_options: Any = {
            name: options[name] for name in ("dry_run", *SWEEP_OPTIONS) if options[name] is not None
        }
        every: float | None = options["every"]
        chosen = stores(options, deletes=True)
        try:
            sweepers = {alias: Sweeper(store, **sweep_options) for alias, store in chosen.items()}
            if every is not None:
                check_interval(every, JITTER)
        except TTLConfigurationError as error:
            raise CommandError(str(error), returncode=Status.USAGE) from error
        if not sweepers:
            self.stderr.write(NO_MODELS)
            return
        if every is not None and len(sweepers) > 1:
            raise CommandError(
                "--every sweeps a single database: give --database, and run the command once for "
                "each database.",
                returncode=Status.USAGE,
            )
        if self._asks(options) and not self._is_confirmed(chosen, sweep_options):
            self.stderr.write(NOTHING_DELETED, style_func=str)
            return
        reports = _swept(sweepers, every)
        form = _json if options["as_json"] else _text
        for alias, report in reports.items():
            self.stdout.write(form(alias, report))
        ends_itself = every is None or any(
            sweepers[alias].ended_at_standby(report) for alias, report in reports.items()
        )
        status = status_of(*reports.values()) if ends_itself else Status.DONE
        if status:
            raise SystemExit(status)

    def _asks(self, options: Mapping[str, object]) -> bool:
        is_watched = self._is_typed and not options["as_json"] and options["every"] is None
        return is_watched and not options["yes"] and not options["dry_run"] and can_ask()

    def _is_confirmed(self, chosen: Mapping[str, DjangoStore], options: SweepOptions) -> bool:
        """Ask once whether to delete the expired rows of all databases, if there are any."""
        counters = {
            alias: Sweeper(store, **count_options(options)) for alias, store in chosen.items()
        }
        with stop_on_signals(*counters.values()):
            counts = {alias: counter.run_once() for alias, counter in counters.items()}
        try:
            due = [due_rows(count, options.get("max_rows")) for count in counts.values()]
            text = question(due, counts.values())
            if text is None:
                return True
            for alias, count in counts.items():
                self.stderr.write(_text(alias, count), style_func=str)
            self.stderr.write(f"{text} [y/N]: ", style_func=str, ending="")
            self.stderr.flush()
            return input().strip().lower() in {"y", "yes"}
        except (EOFError, KeyboardInterrupt):
            self.stderr.write("\nAborted!", style_func=str)
            raise SystemExit(Status.FAILED) from None


def _swept(sweepers: Mapping[str, Sweeper], every: float | None) -> dict[str, SweepReport]:
    """Sweep, and return the last report of each database."""
    reports: dict[str, SweepReport] = {}
    with stop_on_signals(*sweepers.values()):
        for alias, sweeper in sweepers.items():
            if every is None:
                reports[alias] = sweeper.run_once()
            elif (last := sweeper.run_forever(interval=every)) is not None:
                reports[alias] = last
    return reports


def _text(alias: str, report: SweepReport) -> str:
    return f"{alias}: {report_text(report)}"


def _json(alias: str, report: SweepReport) -> str:
    return json.dumps({"database": alias, **report_dict(report)})
