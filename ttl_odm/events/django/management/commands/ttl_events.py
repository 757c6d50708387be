"""``manage.py ttl_events``: record and deliver events; list, retry and skip what waits."""

from __future__ import annotations

import json
from argparse import SUPPRESS
from typing import TYPE_CHECKING, Any, Final

from django.core.management import BaseCommand, CommandError
from django.db import DEFAULT_DB_ALIAS, connections

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.events import text
from ttl_odm.events.django.outbox import TableOutbox
from ttl_odm.events.worker import HIDDEN, POLL, EventWorker
from ttl_odm.sweeper import StoreError, stop_on_signals
from ttl_odm.sweeper.command_line import Status, terminal_width
from ttl_odm.sweeper.text import aligned, counted, visible

if TYPE_CHECKING:
    from argparse import ArgumentParser

_LIMIT: Final = 100


class Command(BaseCommand):
    """Run a worker; or list, retry and skip events that consumers haven't dealt with."""

    help = (
        "Record an event for each row that expires, and deliver events to their handlers, until a "
        "signal. Or show events that consumers haven't dealt with, deliver them again, or drop "
        "them. Exit status: 0 done, 1 the database didn't answer, 2 usage error."
    )
    requires_system_checks = ()  # those of ttl_odm are findings of ttl_check

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the options of the worker, and what else can be done."""
        _add_database(parser, DEFAULT_DB_ALIAS)
        parser.add_argument("--once", action="store_true", help="Sweep and deliver once, and end.")
        parser.add_argument(
            "--poll",
            type=float,
            default=POLL,
            metavar="SECONDS",
            help="The pause between two looks for expired rows and events (default: %(default)s).",
        )
        parser.add_argument(
            "--hidden",
            type=float,
            default=HIDDEN,
            metavar="SECONDS",
            help="Deliver an event again whose handler takes longer (default: %(default)s).",
        )
        actions = parser.add_subparsers(dest="action")
        what = "Show events that consumers haven't dealt with."
        listing = actions.add_parser("list", help=what, description=what)
        listing.add_argument("--dead", action="store_true", help="Only those that are dead.")
        listing.add_argument("--json", action="store_true", dest="as_json", help="Print JSON.")
        listing.add_argument(
            "--limit", type=int, default=_LIMIT, help="So many at most (default: %(default)s)."
        )
        texts = {
            "retry": "Deliver events again, at once.",
            "skip": "Don't deliver events any more, dead or not.",
        }
        for name, what in texts.items():
            action = actions.add_parser(name, help=what, description=what)
            action.add_argument("events", metavar="EVENT", nargs="*", help="The id of an event.")
            action.add_argument("--all-dead", action="store_true", help="All dead events instead.")
        for action in actions.choices.values():
            action.add_argument("--consumer", metavar="NAME", help="Only of this consumer.")
            # A default here would replace what was given before the word.
            _add_database(action, SUPPRESS)

    def handle(self, **options: Any) -> None:
        """Do it."""
        act = {"list": self._list, "retry": self._change, "skip": self._change}
        try:
            act.get(options["action"], self._work)(options)
        except TTLConfigurationError as error:
            raise CommandError(str(error), returncode=Status.USAGE) from error
        except StoreError as error:
            raise CommandError(visible(str(error)), returncode=Status.FAILED) from error

    def _work(self, options: dict[str, Any]) -> None:
        connection = connections[options["database"]]
        worker = EventWorker(connection, poll=options["poll"], hidden=options["hidden"])
        with stop_on_signals(worker):
            if not options["once"]:
                worker.run_forever()
                return
            result = worker.run_once()
        self.stdout.write(f"done: {result.done}, failed: {result.failed}, dead: {result.dead}")

    def _list(self, options: dict[str, Any]) -> None:
        outbox, dead = TableOutbox(options["database"]), options["dead"] or None
        opened = outbox.opened(options["limit"], consumer=options["consumer"], dead=dead)
        if options["as_json"]:
            self.stdout.write(json.dumps([text.open_dict(one) for one in opened]))
        elif opened:
            self.stdout.write(aligned(text.open_rows(opened), terminal_width(self.stdout)))
        else:
            self.stdout.write("No event is waiting.")

    def _change(self, options: dict[str, Any]) -> None:
        outbox, action, events = TableOutbox(options["database"]), options["action"], None
        if options["all_dead"] is bool(options["events"]):
            message = f"ttl_events {action}: give either the ids of events, or --all-dead."
            raise CommandError(message, returncode=Status.USAGE)
        if not options["all_dead"]:
            events = options["events"]
        change = outbox.retry if action == "retry" else outbox.skip
        number = change(options["consumer"], events)
        done = "will be delivered at once" if action == "retry" else "won't be delivered any more"
        self.stdout.write(f"{counted(number, 'event')} {done}.")


def _add_database(parser: ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--database",
        choices=tuple(connections),
        default=default,
        metavar="ALIAS",
        help=f"The database (default: {DEFAULT_DB_ALIAS}).",
    )
