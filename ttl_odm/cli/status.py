"""``ttl-odm status``: what there is to sweep, who does it, and when that was last done."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ttl_odm.cli.application import Application, Target, answer, in_loop
from ttl_odm.cli.connect import connect
from ttl_odm.cli.errors import in_one_line
from ttl_odm.cli.options import app_options, json_option, lease_name_option, selection_options
from ttl_odm.cli.output import Output, aligned
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
class Snapshot:
    """One look at everything.

    Attributes:
        database: Its URL as it may be printed; None where it isn't known.
        lease: The state of the lease; None where none is kept.
        targets: What is in each.
        at: When that was, in seconds of a monotonic clock.
    """

    database: str | None
    lease: LeaseState | None
    targets: list[Counts]
    at: float

    def change_of(self, counts: Counts, before: Snapshot | None) -> float | None:
        """Return by how many rows per second the expired ones of a target grow; None: unknown."""
        earlier = [] if before is None else before.targets
        then = next((other for other in earlier if other.target == counts.target), None)
        if before is None or then is None or then.expired is None or counts.expired is None:
            return None
        return (counts.expired - then.expired) / max(self.at - before.at, 1e-9)

    @property
    def history(self) -> History:
        """What the last sweeps found, and how fast they were."""
        return History.loads("" if self.lease is None else self.lease.history)

    def to_dict(self, before: Snapshot | None) -> dict[str, Any]:
        """Return plain values, for JSON."""
        history = self.history
        return {
            "database": self.database,
            "lease": None if self.lease is None else lease_dict(self.lease),
            "targets": [
                {
                    "target": counts.target.name,
                    "model": counts.target.model,
                    "is_on": counts.is_on,
                    "rows": counts.rows,
                    "rows_are_estimated": counts.is_estimated,
                    "expired": counts.expired,
                    "expired_change_per_second": self.change_of(counts, before),
                    "oldest_expired_age": counts.oldest,
                    "last_rows_per_second": history.rate_of(counts.target.name),
                    "last_found": list(history.of(counts.target.name)),
                    "error": counts.problem,
                }
                for counts in self.targets
            ],
        }


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
def status(  # noqa: PLR0913 (click's)
    app: str | None,
    url: str | None,
    models: list[str],
    excepted: list[str],
    *,
    watch: float | None,
    lease_name: str | None,
    as_json: bool,
) -> None:
    """Show live and expired rows of each target, the lease, and the last sweep.

    Expired rows are counted by the sweeper's indexes; of big tables, all rows are the database's
    own estimate (~). "oldest" is for how long the first expired row has been waiting: the number
    to watch. "rate" is that of the last sweep that deleted any, and with --watch "change" is by how
    many the expired rows grow or shrink since the look before: both in rows per second.

    Exit status: 0 done, 1 a target could not be counted, 2 usage.
    """
    output = Output(as_json=as_json)

    async def work() -> bool:
        async with connect(app, url) as application:
            selected = application.select(models, excepted)
            if watch is None:
                return _print(await _snapshot(selected, lease_name), output)
            return await _watch(selected, lease_name, watch, output)

    if not in_loop(work):
        raise SystemExit(Status.FAILED)


async def lease_of(app: Application, lease_name: str | None) -> LeaseState | None:
    """Read the lease; None where none is kept."""
    try:
        return await answer(app.sweeper(lease_name=lease_name).status())
    except TTLConfigurationError:  # without a lease, on purpose
        return None


async def _snapshot(app: Application, lease_name: str | None) -> Snapshot:
    """Count, and read the lease."""
    await app.check_connection()
    store = app.store()
    counts = [await _count(store, target) for target in app.all_targets()]
    lease = await lease_of(app, lease_name)
    return Snapshot(app.database, lease, counts, time.monotonic())


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


class _Ticks:
    """The moments at which to look again, which a signal ends."""

    def __init__(self) -> None:
        self._stop = Stop()
        self.stop = self._stop.ask

    async def every(self, seconds: float) -> AsyncIterator[None]:
        """Give a moment to look, until it is stopped."""
        with stop_on_signals(self):
            while not self._stop.asked:
                yield
                await self._stop.wait_async(seconds)


async def _watch(app: Application, lease_name: str | None, seconds: float, output: Output) -> bool:
    ticks = _Ticks().every(seconds)
    before: Snapshot | None = None
    if output.as_json or output.width is None:
        async for _ in ticks:
            snapshot = await _snapshot(app, lease_name)
            _print(snapshot, output, before)
            output.code("")
            before = snapshot
        return True
    from rich.live import Live  # noqa: PLC0415 (as in Output)
    from rich.text import Text  # noqa: PLC0415

    with Live(console=output.console, screen=True, auto_refresh=False) as live:
        async for _ in ticks:
            snapshot = await _snapshot(app, lease_name)
            hint = f"Every {seconds:g} s; Ctrl-C ends it."
            screen = f"{format_snapshot(snapshot, output.width, before)}\n\n{hint}"
            live.update(Text(screen, no_wrap=True, overflow="ellipsis"), refresh=True)
            before = snapshot
    return True


def _print(snapshot: Snapshot, output: Output, before: Snapshot | None = None) -> bool:
    if output.as_json:
        output.json(snapshot.to_dict(before))
    else:
        output.code(format_snapshot(snapshot, output.width, before))
    return not any(counts.problem for counts in snapshot.targets)


def format_snapshot(
    snapshot: Snapshot, width: int | None = None, before: Snapshot | None = None
) -> str:
    """Return it for people.

    Args:
        snapshot: What was counted and read.
        width: Columns of the terminal; None for any number.
        before: The snapshot before this one, for what has changed since; None for the first.
    """
    lines = [] if snapshot.database is None else [snapshot.database]
    lines += _lease_lines(snapshot.lease)
    change = () if before is None else ("change",)
    head = ("target", "model", "rows", "live", "expired", *change, "oldest", "rate")
    rows: list[tuple[str, ...]] = [(*head, "last sweeps found")]
    for counts in snapshot.targets:
        name = counts.target.name
        *cells, oldest = _cells(counts)
        changes = [_per_second(snapshot.change_of(counts, before), sign="+") for _ in change]
        rate = _per_second(snapshot.history.rate_of(name))
        last = " ".join(f"{number:,}" for number in snapshot.history.of(name)[-3:]) or "-"
        rows.append((name, counts.target.model or "-", *cells, *changes, oldest, rate, last))
    lines += ["", aligned(rows, width)]
    lines += [f"! {row.target.name}: {row.problem}" for row in snapshot.targets if row.problem]
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


def _per_second(rows: float | None, sign: str = "") -> str:
    return "-" if rows is None else f"{rows:{sign},.0f}/s"


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
