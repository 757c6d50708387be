"""``manage.py ttl_sweep``: delete the rows that have expired, once or for ever."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from django.core.management import BaseCommand, CommandError

from ttl_odm.django.management.options import NO_MODELS, add_option, add_selection, stores
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper import Sweeper, SweepReport, stop_on_signals
from ttl_odm.sweeper.command_line import LIMITS, Status, report_text, status_of
from ttl_odm.sweeper.options import check_interval
from ttl_odm.sweeper.sweeper import JITTER

if TYPE_CHECKING:
    from argparse import ArgumentParser


class Command(BaseCommand):
    """Delete the rows that have expired, in small batches."""

    help = (
        "Delete all expired rows in small batches. Exit status: 0 done, 1 a target failed, 2 usage "
        "error, 3 the fuse blew, 4 another sweeper holds the lease."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add what `ttl_odm.sweeper.SweepOptions` has, under the same names."""
        add_selection(parser)
        parser.add_argument(
            "--every",
            type=float,
            metavar="SECONDS",
            help="Sweep repeatedly until a signal, with this pause between sweeps.",
        )
        for name in ("dry_run", *LIMITS):
            add_option(parser, name)

    def handle(self, **options: Any) -> None:
        """Sweep one database after the other."""
        sweep_options: Any = {
            name: options[name] for name in ("dry_run", *LIMITS) if options[name] is not None
        }
        every: float | None = options["every"]
        try:
            sweepers = {
                alias: Sweeper(store, **sweep_options) for alias, store in stores(options).items()
            }
            if every is not None:
                check_interval(every, JITTER)
        except TTLConfigurationError as error:
            raise CommandError(str(error), returncode=Status.USAGE) from error
        if not sweepers:
            self.stderr.write(NO_MODELS)
            return
        if every is not None and len(sweepers) > 1:
            raise CommandError(
                "--every sweeps one database: give --database, and run the command once for each.",
                returncode=Status.USAGE,
            )
        reports: dict[str, SweepReport] = {}
        with stop_on_signals(*sweepers.values()):
            for alias, sweeper in sweepers.items():
                if every is None:
                    reports[alias] = sweeper.run_once()
                elif (last := sweeper.run_forever(interval=every)) is not None:
                    reports[alias] = last
        for alias, report in reports.items():
            self.stdout.write(
                json.dumps({"database": alias, **report.to_dict()})
                if options["as_json"]
                else f"{alias}: {report_text(report)}"
            )
        status = status_of(*reports.values()) if every is None else Status.DONE
        if status:
            raise SystemExit(status)
