"""``manage.py ttl_events``: record and deliver events; show, retry and skip them.

Its actions, and their options, are those of ``ttl-odm events``.
"""

from __future__ import annotations

import json
from argparse import SUPPRESS, ArgumentTypeError
from math import inf
from typing import TYPE_CHECKING, Any, Final

from django.core.management import CommandError
from django.db import DEFAULT_DB_ALIAS, connections

from ttl_odm.django.management.options import TTLCommand
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.events import text
from ttl_odm.events.django.outbox import TableOutbox
from ttl_odm.events.tail import LATEST, LEAST_POLL, Stopping, Tail
from ttl_odm.events.tail import POLL as TAIL_POLL
from ttl_odm.events.worker import HIDDEN, POLL, EventWorker
from ttl_odm.sweeper import StoreError, stop_on_signals
from ttl_odm.sweeper.command_line import Status, terminal_width
from ttl_odm.sweeper.text import aligned, visible

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Callable, Iterable, Sequence

    from ttl_odm.events.outbox import Recorded
    from ttl_odm.events.tail import Look

_LIMIT: Final = 100


class Command(TTLCommand):
    """Runs a worker; or shows events and consumers, retries events, and skips them."""

    help = (
        "Record an event for each row that expires, and deliver events to their handlers, until a "
        "signal. Or show events and consumers, deliver events again, or drop them. Exit status: 0 "
        "done, 1 the database didn't answer, 2 usage error."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the options of the worker, and the actions."""
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
        for name, (what, add_options) in _ACTIONS.items():
            action = actions.add_parser(name, help=what, description=what)
            add_options(action)
            action.add_argument("--json", action="store_true", dest="as_json", help="Print JSON.")
            # A default here would replace an option that precedes the action.
            _add_database(action, SUPPRESS)

    def handle(self, **options: Any) -> None:
        """Run the worker, or the action."""
        actions = {
            "list": self._list,
            "consumers": self._consumers,
            "tail": self._tail,
            "retry": self._change,
            "skip": self._change,
            "forget": self._forget,
        }
        try:
            actions.get(options["action"], self._work)(options)
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
        outbox, limit = TableOutbox(options["database"]), options["limit"]
        opened = outbox.opened(limit + 1, consumer=options["consumer"], dead=options["dead"])
        shown = opened[:limit]
        if options["as_json"]:
            self.stdout.write(json.dumps([text.open_dict(delivery) for delivery in shown]))
        elif shown:
            self._table(text.open_rows(shown))
            if len(opened) > limit:
                self.stdout.write(text.more_than(limit))
        else:
            self.stdout.write("No event is waiting.")

    def _consumers(self, options: dict[str, Any]) -> None:
        states = TableOutbox(options["database"]).states()
        if options["as_json"]:
            self.stdout.write(json.dumps([text.consumer_dict(state) for state in states]))
        elif states:
            self._table(text.consumer_rows(states))
        else:
            self.stdout.write(text.NO_CONSUMERS)

    def _tail(self, options: dict[str, Any]) -> None:
        outbox, number = TableOutbox(options["database"]), options["number"]

        def show(events: Iterable[Recorded]) -> None:
            for event in events:
                line = json.dumps(text.recorded_dict(event)) if options["as_json"] else None
                self.stdout.write(line or text.recorded_line(event))
            self.stdout.flush()  # a pipe has a buffer

        if not options["follow"]:
            show(outbox.recorded(number) if number else ())
            return
        stopping, tail = Stopping(), Tail()
        with stop_on_signals(stopping):
            show(_answered(outbox, tail.first(number)))
            while not stopping.asked:
                stopping.wait(options["poll"])
                show(_answered(outbox, tail.further()))

    def _table(self, rows: Sequence[Sequence[str]]) -> None:
        self.stdout.write(aligned(rows, terminal_width(self.stdout)))

    def _change(self, options: dict[str, Any]) -> None:
        outbox, action, events = TableOutbox(options["database"]), options["action"], None
        if options["all_dead"] is bool(options["events"]):
            message = f"ttl_events {action}: give either the ids of events, or --all-dead."
            raise CommandError(message, returncode=Status.USAGE)
        if not options["all_dead"]:
            events = options["events"]
        if action == "retry":
            number = outbox.retry(options["consumer"], events)
            self._print_change(number, text.retried(number), options)
        else:
            number = outbox.skip(options["consumer"], events)
            self._print_change(number, text.skipped(number), options)

    def _forget(self, options: dict[str, Any]) -> None:
        outbox, consumer = TableOutbox(options["database"]), options["consumer"]
        if problem := text.unknown_consumer(consumer, outbox.states()):
            raise CommandError(problem, returncode=Status.USAGE)
        number = outbox.forget(consumer)
        self._print_change(number, text.forgotten(consumer, number), options)

    def _print_change(self, number: int, sentence: str, options: dict[str, Any]) -> None:
        """Print the number of deliveries that were changed, as a sentence or JSON."""
        self.stdout.write(json.dumps({"deliveries": number}) if options["as_json"] else sentence)


def _answered(outbox: TableOutbox, look: Look) -> Sequence[Recorded]:
    """Answer the questions of a look from an outbox."""
    question = next(look)
    while True:
        recorded = outbox.recorded(question.limit, since=question.since)
        try:
            question = look.send(recorded)
        except StopIteration as end:
            events: Sequence[Recorded] = end.value
            return events


def _add_list(parser: ArgumentParser) -> None:
    states = parser.add_mutually_exclusive_group()
    states.add_argument(
        "--dead",
        action="store_const",
        const=True,
        help="Only events that failed too often.",
    )
    states.add_argument(
        "--pending",
        action="store_const",
        const=False,
        dest="dead",
        help="Only those to be delivered.",
    )
    parser.add_argument(
        "--limit",
        type=_at_least(1, int),
        default=_LIMIT,
        metavar="NUMBER",
        help="How many to show; those recorded first come first (default: %(default)s).",
    )
    _add_consumer(parser)


def _add_tail(parser: ArgumentParser) -> None:
    parser.add_argument(
        "-n",
        "--number",
        type=_at_least(0, int),
        default=LATEST,
        metavar="NUMBER",
        help="How many of the last events to show (default: %(default)s).",
    )
    parser.add_argument(
        "-f", "--follow", action="store_true", help="Wait for further events, until Ctrl-C."
    )
    parser.add_argument(
        "--poll",
        type=_at_least(LEAST_POLL, float),
        default=TAIL_POLL,
        metavar="SECONDS",
        help="With --follow: the time between two looks (default: %(default)s).",
    )


def _add_change(parser: ArgumentParser) -> None:
    parser.add_argument("events", metavar="EVENT", nargs="*", help="The id of an event.")
    parser.add_argument("--all-dead", action="store_true", help="All dead events instead.")
    _add_consumer(parser)


def _add_forget(parser: ArgumentParser) -> None:
    parser.add_argument("consumer", metavar="CONSUMER", help="A name, as consumers shows it.")


def _add_consumer(parser: ArgumentParser) -> None:
    parser.add_argument("--consumer", metavar="NAME", help="Only of this consumer.")


def _at_least(lowest: float, kind: Callable[[str], float]) -> Callable[[str], float]:
    """Return the type of an option that is a number from `lowest` on."""

    def number(typed: str) -> float:
        value = kind(typed)
        if not lowest <= value < inf:
            raise ArgumentTypeError(f"{typed} isn't a number from {lowest} on")
        return value

    number.__name__ = kind.__name__  # argparse's name for the type in errors
    return number


_ACTIONS: Final[dict[str, tuple[str, Callable[[ArgumentParser], None]]]] = {
    "list": ("Show events that consumers haven't dealt with.", _add_list),
    "consumers": (
        "Show the consumers, and how many events each hasn't dealt with.",
        lambda _: None,
    ),
    "tail": ("Show the events that were recorded last, the oldest first.", _add_tail),
    "retry": ("Deliver events again, at once.", _add_change),
    "skip": ("Don't deliver events any more, dead or not.", _add_change),
    "forget": ("Remove a consumer whose handler is gone.", _add_forget),
}


def _add_database(parser: ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--database",
        choices=tuple(connections),
        default=default,
        metavar="ALIAS",
        help=f"The database (default: {DEFAULT_DB_ALIAS}).",
    )
