"""``ttl-odm events``, with which operators read the outbox, and retry, skip or forget deliveries.

And the consumers in ``ttl-odm status``: see `further_status`.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import click

from ttl_odm.cli.application import answer, in_loop
from ttl_odm.cli.connect import connect
from ttl_odm.cli.errors import SuggestingGroup, UsageError
from ttl_odm.cli.extensions import FurtherStatus
from ttl_odm.cli.options import Seconds, json_option, json_option_for
from ttl_odm.cli.output import Output, echo, json_text
from ttl_odm.cli.source import Source, app_options
from ttl_odm.events import text
from ttl_odm.events.handlers import adapter_of
from ttl_odm.events.tail import LATEST, LEAST_POLL, POLL, Stopping, Tail
from ttl_odm.sweeper import stop_on_signals

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from sqlalchemy import Connection

    from ttl_odm.cli.application import Application
    from ttl_odm.events.outbox import (
        AsyncOutbox,
        ConsumerState,
        OpenDelivery,
        Outbox,
        Recorded,
    )
    from ttl_odm.events.tail import Look

    Command = Callable[..., None]

_LIMIT: Final = 100

_consumer_option = click.option(
    "--consumer", metavar="NAME", help="Only what this consumer hasn't dealt with."
)


@click.group("events", cls=SuggestingGroup)
def command() -> None:
    """Show events and consumers; retry or skip events that a consumer failed on."""


@command.command("list")
@app_options
@_consumer_option
@click.option("--dead", "state", flag_value="dead", help="Only events that failed too often.")
@click.option("--pending", "state", flag_value="pending", help="Only those to be delivered.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="NUMBER",
    default=_LIMIT,
    show_default=True,
    help="How many to show; those recorded first come first.",
)
@json_option
def list_(
    source: Source, *, consumer: str | None, state: str | None, limit: int, as_json: bool
) -> None:
    """List the events that consumers haven't dealt with.

    An event is there once for each consumer. "deliveries" is how often it was delivered so far,
    "due" when it is delivered next. A dead event isn't delivered any more.
    """
    dead = None if state is None else state == "dead"

    async def work() -> Sequence[OpenDelivery]:
        async with _outbox(source) as outbox:
            return await answer(outbox.opened(limit + 1, consumer=consumer, dead=dead))

    opened, output = in_loop(work), Output(as_json=as_json)
    shown = opened[:limit]
    if output.as_json:
        output.json([text.open_dict(delivery) for delivery in shown])
    elif shown:
        output.table(text.open_rows(shown))
        if len(opened) > limit:
            output.line(text.more_than(limit))
    else:
        output.line(f"No event is {state or 'pending or dead'}.")


@command.command()
@app_options
@json_option
def consumers(source: Source, *, as_json: bool) -> None:
    """Show the consumers, and how many events each hasn't dealt with.

    "retried" is how many of the pending events were delivered before, "lag" how long ago the oldest
    of them was recorded.
    """

    async def work() -> Sequence[ConsumerState]:
        async with _outbox(source) as outbox:
            return await answer(outbox.states())

    states, output = in_loop(work), Output(as_json=as_json)
    if output.as_json:
        output.json([text.consumer_dict(state) for state in states])
    elif states:
        output.table(text.consumer_rows(states))
    else:
        output.line(text.NO_CONSUMERS)


@command.command()
@app_options
@click.option(
    "-n",
    "--number",
    type=click.IntRange(min=0),
    metavar="NUMBER",
    default=LATEST,
    show_default=True,
    help="How many of the last events to show.",
)
@click.option("-f", "--follow", is_flag=True, help="Wait for further events, until Ctrl-C.")
@click.option(
    "--poll",
    type=Seconds(min=LEAST_POLL),
    metavar="SECONDS",
    default=POLL,
    show_default=True,
    help="With --follow: the time between two looks.",
)
@json_option_for("Print JSON, one line for each event.")
def tail(source: Source, *, number: int, follow: bool, poll: float, as_json: bool) -> None:
    """Show the events that were recorded last, the oldest first.

    A line has the time of the recording (UTC), the event's id, what happened, the table and the
    row's primary key. Events that were dealt with are there too, until they expire.
    """

    def show(events: Sequence[Recorded]) -> None:
        for event in events:
            echo(json_text(text.recorded_dict(event)) if as_json else text.recorded_line(event))

    async def work() -> None:
        async with _outbox(source) as outbox:
            if not follow:
                show(await answer(outbox.recorded(number)) if number else ())
                return
            async for events in _follow(outbox, number, poll):
                show(events)

    in_loop(work)


@command.command()
@click.argument("events", metavar="[EVENT]...", nargs=-1)
@app_options
@_consumer_option
@click.option("--all-dead", is_flag=True, help="All dead events, instead of EVENT.")
@json_option
def retry(
    source: Source, events: Sequence[str], *, consumer: str | None, all_dead: bool, as_json: bool
) -> None:
    """Deliver events again, at once.

    EVENT is an id, as list and tail show it. Without --consumer an event is delivered to every
    consumer that hasn't dealt with it. An event that was dead is dead again if it fails once more.
    """
    number = _change(source, "retry", events, consumer, all_dead=all_dead)
    _print_change(number, text.retried(number), as_json=as_json)


@command.command()
@click.argument("events", metavar="[EVENT]...", nargs=-1)
@app_options
@_consumer_option
@click.option("--all-dead", is_flag=True, help="All dead events, instead of EVENT.")
@json_option
def skip(
    source: Source, events: Sequence[str], *, consumer: str | None, all_dead: bool, as_json: bool
) -> None:
    """Don't deliver events any more, dead or not.

    EVENT is an id, as list and tail show it. Without --consumer no consumer gets the event. It
    can't be undone.
    """
    number = _change(source, "skip", events, consumer, all_dead=all_dead)
    _print_change(number, text.skipped(number), as_json=as_json)


@command.command()
@click.argument("consumer", metavar="CONSUMER")
@app_options
@json_option
def forget(source: Source, consumer: str, *, as_json: bool) -> None:
    """Remove a consumer whose handler is gone.

    CONSUMER is a name, as consumers shows it. Events that it hasn't dealt with aren't delivered any
    more. Stop the processes that have its handler first: the next one that starts adds the consumer
    again, with all events that are kept.
    """

    async def work() -> int:
        async with _outbox(source) as outbox:
            if problem := text.unknown_consumer(consumer, await answer(outbox.states())):
                raise UsageError(problem)
            number: int = await answer(outbox.forget(consumer))
            return number

    number = in_loop(work)
    _print_change(number, text.forgotten(consumer, number), as_json=as_json)


def _change(
    source: Source, action: str, events: Sequence[str], consumer: str | None, *, all_dead: bool
) -> int:
    """Retry or skip deliveries, and return their number."""
    if all_dead is bool(events):
        problem = "give the ids of events, or --all-dead"
        raise UsageError(f"events {action}: {problem}{', not both' if all_dead else ''}.")

    async def work() -> int:
        async with _outbox(source) as outbox:
            change = getattr(outbox, action)
            number: int = await answer(change(consumer, None if all_dead else events))
            return number

    return in_loop(work)


def _print_change(number: int, sentence: str, *, as_json: bool) -> None:
    """Print the number of deliveries that were changed, as a sentence or JSON."""
    output = Output(as_json=as_json)
    if output.as_json:
        output.json({"deliveries": number})
    else:
        output.line(sentence)


@asynccontextmanager
async def _outbox(source: Source) -> AsyncIterator[Outbox | AsyncOutbox]:
    """Open the outbox of the database, in the schema that the application's models name."""
    if source.app is None and source.url is None:
        raise UsageError(
            "Specify the database: give --url, TTL_ODM_URL, or url in [tool.ttl_odm]; or --app "
            "module:function, which returns an engine and models."
        )
    async with connect(replace(source, tables={}), with_ttl=False) as app:
        yield adapter_of(app.engine).read_from(app.engine, None).outbox()


async def _follow(
    outbox: Outbox | AsyncOutbox, number: int, poll: float
) -> AsyncIterator[Sequence[Recorded]]:
    """Yield the last events, and those that are added, until a signal."""
    stopping, tail = Stopping(), Tail()
    with stop_on_signals(stopping):
        yield await _answered(outbox, tail.first(number))
        while not stopping.asked:
            await stopping.wait_async(poll)
            yield await _answered(outbox, tail.further())


async def _answered(outbox: Outbox | AsyncOutbox, look: Look) -> Sequence[Recorded]:
    """Answer the questions of a look from an outbox, synchronous or not."""
    question = next(look)
    while True:
        recorded = await answer(outbox.recorded(question.limit, since=question.since))
        try:
            question = look.send(recorded)
        except StopIteration as end:
            events: Sequence[Recorded] = end.value
            return events


async def further_status(app: Application) -> FurtherStatus | None:
    """Return the consumers and their events for ``ttl-odm status``.

    None if there are no consumers, or no tables for them, which ``ttl-odm check`` reports.
    """
    if app.is_mongodb:
        states = await answer(adapter_of(app.engine).read_from(app.engine, None).outbox().states())
    else:
        states = await _states_in_tables(app)
    if not states:
        return None
    content = [text.consumer_dict(state) for state in states]
    return FurtherStatus("consumers", text.consumer_rows(states), content)


async def _states_in_tables(app: Application) -> Sequence[ConsumerState]:
    """Read the consumers, if the tables exist: servers log a query of a missing one as an error."""
    from sqlalchemy import Table, inspect  # noqa: PLC0415 (not installed with Beanie alone)

    from ttl_odm.events.sqlalchemy.outbox import Statements  # noqa: PLC0415 (as above)
    from ttl_odm.events.sqlalchemy.tables import outbox_with  # noqa: PLC0415 (as above)

    entities = [target.entity for target in app.all_targets()]
    outboxes = map(outbox_with, (entity for entity in entities if isinstance(entity, Table)))
    tables = next(filter(None, outboxes), None)
    if tables is None:
        return []

    def read(connection: Connection) -> Sequence[ConsumerState]:
        catalogue = inspect(connection)
        if not all(catalogue.has_table(table.name, schema=table.schema) for table in tables):
            return []
        return Statements(tables).states_in(connection)

    return await app.ask(read)
