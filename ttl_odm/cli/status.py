"""``ttl-odm status``: what there is to sweep, who does it, and when that was last done."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
from rich.live import Live
from rich.text import Text

from ttl_odm.cli.application import (
    Application,
    Target,
    answer,
    app_options,
    in_loop,
    json_option,
    opened,
)
from ttl_odm.cli.output import Output, aligned
from ttl_odm.cli.problems import in_one_line
from ttl_odm.cli.sweeping import lease_name_option, selection_options
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper import StoreError, stop_on_signals
from ttl_odm.sweeper.statuses import Status
from ttl_odm.sweeper.stop import Stop
from ttl_odm.sweeper.tenure import History
from ttl_odm.sweeper.text import age

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ttl_odm.sweeper import LeaseState


@dataclass(frozen=True, slots=True)
class Counts:
    """What is in a target.

    Attributes:
        target: Which.
        is_on: Whether its TTL is.
        rows: All rows; None where they could not be counted.
        is_estimated: Whether `rows` is an estimate.
        expired: Those that have expired.
        oldest: Seconds since the first of them has; None where nobody knows.
        problem: Why nothing is known.
    """

    target: Target
    is_on: bool = True
    rows: int | None = None
    is_estimated: bool = False
    expired: int | None = None
    oldest: float | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at everything.

    Attributes:
        database: Its URL as it may be shown; None where nobody told.
        lease: The state of the lease; None where none is kept.
        targets: What is in each.
        at: When that was, in seconds of a monotonic clock.
    """

    database: str | None
    lease: LeaseState | None
    targets: list[Counts]
    at: float

    def change_of(self, now: Counts, before: Seen | None) -> float | None:
        """Return by how many rows per second the expired ones of a target grow; None: unknown."""
        if before is None or now.expired is None:
            return None
        then = next((each for each in before.targets if each.target == now.target), None)
        if then is None or then.expired is None:
            return None
        return (now.expired - then.expired) / max(self.at - before.at, 1e-9)

    @property
    def history(self) -> History:
        """What the last sweeps found, and how fast they were."""
        return History.loads("" if self.lease is None else self.lease.history)


@click.command()
@app_options
@selection_options
@click.option(
    "--watch",
    is_flag=False,
    flag_value=2.0,
    type=click.FloatRange(min=0.1),
    metavar="[SECONDS]",
    help="Look again and again, every 2 seconds or so many, until Ctrl-C.",
)
@lease_name_option
@json_option
def status(app: str | None, url: str | None, **given: Any) -> None:
    """Show live and expired rows of each target, the lease, and the last sweep.

    Expired rows are counted by the sweeper's indexes; of big tables, all rows are the database's
    own estimate (~). "oldest" is for how long the first expired row has been waiting: the number
    to watch. "rate" is that of the last sweep that deleted any, and with --watch "change" is by how
    many the expired rows grow or shrink since the look before: both in rows per second.

    Exit status: 0 done, 1 a target could not be counted, 2 usage.
    """
    output = Output(as_json=given["as_json"])

    async def work() -> bool:
        async with opened(app, url) as found:
            narrowed = found.narrowed(given["models"], given["excepted"])
            if given["watch"] is None:
                return _print(await look(narrowed, given["lease_name"]), output)
            return await _watch(narrowed, given["lease_name"], given["watch"], output)

    if not in_loop(work):
        raise SystemExit(Status.FAILED)


async def look(app: Application, lease_name: str | None = None) -> Seen:
    """Count, and read the lease."""
    await app.check_connection()
    store = app.store()
    counted = [await _count(store, each) for each in app.every_target()]
    lease = await lease_of(app, lease_name)
    return Seen(app.database, lease, counted, time.monotonic())


async def lease_of(app: Application, lease_name: str | None) -> LeaseState | None:
    """Read the lease; None where none is kept."""
    try:
        return await answer(app.sweeper(lease_name=lease_name).status())
    except TTLConfigurationError:  # without a lease, on purpose
        return None


async def _count(store: Any, target: Target) -> Counts:
    try:
        due = await answer(store.due(target.name))
        if due is None:
            return Counts(target, is_on=False)
        counted = await answer(store.count(target.name))
    except StoreError as error:
        return Counts(target, problem=in_one_line(error))
    return Counts(
        target,
        rows=counted.rows,
        is_estimated=counted.is_estimated,
        expired=counted.due,
        oldest=due.oldest,
    )


class _Watching:
    """The looking again and again, which a signal ends."""

    def __init__(self) -> None:
        self._stop = Stop()
        self.stop = self._stop.ask

    async def every(self, seconds: float) -> AsyncIterator[None]:
        """Give a moment to look, until it is stopped."""
        with stop_on_signals(self):
            while not self._stop.asked:
                yield
                await self._stop.wait_async(seconds)


async def _watch(app: Application, name: str | None, seconds: float, output: Output) -> bool:
    moments = _Watching().every(seconds)
    before: Seen | None = None
    if output.as_json or not output.console.is_terminal:
        async for _ in moments:
            seen = await look(app, name)
            _print(seen, output, before)
            output.code("")
            before = seen
        return True
    with Live(console=output.console, screen=True, auto_refresh=False) as live:
        async for _ in moments:
            seen = await look(app, name)
            hint = f"Every {seconds:g} s; Ctrl-C ends it."
            screen = f"{shown(seen, output.console.width, before)}\n\n{hint}"
            live.update(Text(screen, no_wrap=True, overflow="ellipsis"), refresh=True)
            before = seen
    return True


def _print(seen: Seen, output: Output, before: Seen | None = None) -> bool:
    if output.as_json:
        output.json(_as_dict(seen, before))
    else:
        width = output.console.width if output.console.is_terminal else None
        output.code(shown(seen, width, before))
    return not any(each.problem for each in seen.targets)


def shown(seen: Seen, width: int | None, before: Seen | None = None) -> str:
    """Return it for people.

    Args:
        seen: What was seen.
        width: Columns of the terminal; None for any number.
        before: The look before this one, to tell what has changed since; None for the first.
    """
    lines = [] if seen.database is None else [seen.database]
    lines += _lease_lines(seen.lease)
    change = () if before is None else ("change",)
    head = ("target", "model", "rows", "live", "expired", *change, "oldest", "rate")
    rows: list[tuple[str, ...]] = [(*head, "last sweeps found")]
    for each in seen.targets:
        name = each.target.name
        *counts, oldest = _cells(each)
        changes = [_per_second(seen.change_of(each, before), signed=True) for _ in change]
        rate = _per_second(seen.history.rate_of(name))
        last = " ".join(f"{number:,}" for number in seen.history.of(name)[-3:]) or "-"
        rows.append((name, each.target.model or "-", *counts, *changes, oldest, rate, last))
    lines += ["", aligned(rows, width)]
    lines += [f"! {each.target.name}: {each.problem}" for each in seen.targets if each.problem]
    return "\n".join(lines)


def _cells(counts: Counts) -> tuple[str, str, str, str]:
    if not counts.is_on:
        return ("-", "-", "-", "TTL is off")
    if counts.rows is None or counts.expired is None:
        return ("?", "?", "?", "?")
    live = max(counts.rows - counts.expired, 0)
    about = "~" if counts.is_estimated else ""
    expired = f"{counts.expired:,}"
    return (f"{about}{counts.rows:,}", f"{about}{live:,}", expired, age(counts.oldest))


def _per_second(rows: float | None, *, signed: bool = False) -> str:
    if rows is None:
        return "-"
    return f"{rows:+,.0f}/s" if signed else f"{rows:,.0f}/s"


def _lease_lines(lease: LeaseState | None) -> list[str]:
    if lease is None:
        return ["No lease is kept."]
    if lease.holder is None:
        holder = "No sweeper holds the lease."
    else:
        holder = f"{lease.holder} holds the lease for {lease.seconds_left:,.0f} s."
    never = "No sweep has been recorded."
    last = never if lease.recorded_ago is None else f"Last sweep {age(lease.recorded_ago)} ago."
    paused = ["PAUSED: nothing is deleted until ttl-odm resume."] if lease.paused else []
    return [f"{holder} {last}", *paused]


def lease_dict(lease: LeaseState) -> dict[str, Any]:
    """Return the state of a lease for JSON."""
    return {
        "holder": lease.holder,
        "seconds_left": lease.seconds_left,
        "paused": lease.paused,
        "last_sweep_seconds_ago": lease.recorded_ago,
    }


def _as_dict(seen: Seen, before: Seen | None) -> dict[str, Any]:
    history = seen.history
    return {
        "database": seen.database,
        "lease": None if seen.lease is None else lease_dict(seen.lease),
        "targets": [
            {
                "target": each.target.name,
                "model": each.target.model,
                "is_on": each.is_on,
                "rows": each.rows,
                "rows_are_estimated": each.is_estimated,
                "expired": each.expired,
                "expired_change_per_second": seen.change_of(each, before),
                "oldest_expired_age": each.oldest,
                "last_rows_per_second": history.rate_of(each.target.name),
                "last_found": list(history.of(each.target.name)),
                "error": each.problem,
            }
            for each in seen.targets
        ],
    }
