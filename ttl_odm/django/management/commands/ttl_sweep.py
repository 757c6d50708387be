"""``manage.py ttl_sweep``: delete the rows that have expired, once or for ever."""

from __future__ import annotations

import json
from typing import Any, Final

from django.core.management import BaseCommand, CommandError

from ttl_odm.django.commanding import add_selection, stores
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper import Sweeper, SweepReport, stop_on_signals
from ttl_odm.sweeper.statuses import Status, status_of

_NUMBERS: Final = {
    "max_rows": (int, "ROWS", "Delete so many rows at most, then end."),
    "max_seconds": (float, "SECONDS", "Begin no further batch after that."),
    "max_rows_per_second": (float, "ROWS", "Don't exceed this rate."),
    "batch_size": (int, "ROWS", "The first batch; the next ones adapt to its time."),
    "nice": (float, "SECONDS", "Rest so long for each second of work (SQLite: 1)."),
    "statement_timeout": (float, "SECONDS", "For each statement of a batch."),
    "window": (str, "HH:MM-HH:MM", "Sweep in these hours of the day."),
    "timezone": (str, "NAME", "The time zone of --window (UTC)."),
    "max_fraction": (float, "SHARE", "The fuse: at most this share of a table, 0 to 1, at once."),
    "max_jump": (float, "TIMES", "The fuse: at most so many times what the last sweeps found."),
    "lease_name": (str, "NAME", "Sweepers of one name take turns (ttl_odm)."),
    "lease_duration": (float, "SECONDS", "Another takes over after that from a dead one."),
}


class Command(BaseCommand):
    """Delete the rows that have expired, in small batches."""

    help = (
        "Delete the rows that have expired, in small batches. Exit status: 0 done, 1 a target "
        "failed, 2 usage, 3 the fuse blew, 4 another sweeper has the lease."
    )

    def add_arguments(self, parser: Any) -> None:
        """Add what `ttl_odm.sweeper.SweepOptions` has, under the same names."""
        add_selection(parser)
        parser.add_argument("--dry-run", action="store_true", help="Count; delete nothing.")
        parser.add_argument("--force", action="store_true", help="Delete although the fuse blows.")
        parser.add_argument(
            "--no-lease", action="store_false", dest="lease", help="Don't take turns with others."
        )
        parser.add_argument(
            "--every",
            type=float,
            metavar="SECONDS",
            help="Sweep again and again, so long after the end of the last one, until a signal.",
        )
        for name, (kind, metavar, text) in _NUMBERS.items():
            option = f"--{name.replace('_', '-')}"
            parser.add_argument(option, type=kind, metavar=metavar, help=text)

    def handle(self, **options: Any) -> None:
        """Sweep one database after the other."""
        given = {name: options[name] for name in _NUMBERS if options[name] is not None}
        given |= {name: options[name] for name in ("dry_run", "force", "lease")}
        try:
            sweepers = {alias: Sweeper(store, **given) for alias, store in stores(options).items()}
        except TTLConfigurationError as error:
            raise CommandError(str(error), returncode=Status.USAGE) from error
        if not sweepers:
            self.stderr.write("No model with a policy is in these databases.")
            return
        if options["every"] is not None:
            self._forever(sweepers, options)
            return
        with stop_on_signals(*sweepers.values()):
            reports = {alias: sweeper.run_once() for alias, sweeper in sweepers.items()}
        for alias, report in reports.items():
            self._print(alias, report, as_json=options["as_json"])
        status = status_of(*reports.values())
        if status:
            raise SystemExit(status)

    def _forever(self, sweepers: dict[str, Sweeper], options: dict[str, Any]) -> None:
        if len(sweepers) > 1:
            raise CommandError(
                "--every sweeps one database: give --database, and run the command once for each.",
                returncode=Status.USAGE,
            )
        ((alias, sweeper),) = sweepers.items()
        with stop_on_signals(sweeper):
            report = sweeper.run_forever(interval=options["every"])
        if report is not None:
            self._print(alias, report, as_json=options["as_json"])

    def _print(self, alias: str, report: SweepReport, *, as_json: bool) -> None:
        if as_json:
            self.stdout.write(json.dumps({"database": alias, **report.to_dict()}))
            return
        # What a person can do about it is an option here, not an argument.
        self.stdout.write(f"{alias}: {report}".replace("force=True", "--force"))
