"""``ttl-odm status``: what there is to sweep, who does it, and when that was last done."""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ttl_odm.cli.application import Application, Target, answer, in_loop
from ttl_odm.cli.connect import connect
from ttl_odm.cli.errors import in_one_line
from ttl_odm.cli.options import Seconds, json_option, lease_name_option, selection_options
from ttl_odm.cli.output import Output, aligned
from ttl_odm.cli.source import Source, source_options
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper import StoreError, stop_on_signals
from ttl_odm.sweeper.command_line import Status
from ttl_odm.sweeper.stop import Stop
from ttl_odm.sweeper.tenure import History
from ttl_odm.sweeper.text import age, visible

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ttl_odm.sweeper import LeaseState, PartitionsCounted


@dataclass(frozen=True, slots=True)
class Counts:
    """What is in a target; None for what could not be counted, with the problem.

    `oldest` is seconds since the first of its expired rows has expired, 0 where there are none.
    """

    target: Target
    is_on: bool = True
    rows: int | None = None
    is_estimated: bool = False
    expired: int | None = None
    oldest: float | None = None
    problem: str | None = None
    partitions: PartitionsCounted | None = None

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """The texts of a table's row: all rows, live ones, expired ones, the oldest of these."""
        if not self.is_on:
            return ("-", "-", "-", "TTL is off")
        if self.rows is None or self.expired is None:
            return ("?", "?", "?", "?")
        about, live = "~" if self.is_estimated else "", max(self.rows - self.expired, 0)
        return (f"{about}{self.rows:,}", f"{about}{live:,}", f"{self.expired:,}", age(self.oldest))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One look at everything, at an instant of a monotonic clock, in seconds.

    The URL is as it may be printed, None where it isn't known; there may be no lease either.
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
                    "partitions": None
                    if counts.partitions is None
                    else counts.partitions.to_dict(),
                    "error": counts.problem,
                }
                for counts in self.targets
            ],
        }


@click.command()
@source_options
@selection_options
@click.option(
    "--watch",
    is_flag=False,
    flag_value=2.0,
    type=Seconds(min=0.1),
    metavar="[SECONDS]",
    help="Look again every 2 seconds, or every so many, until Ctrl-C.",
)
@lease_name_option
@json_option
def status(  # noqa: PLR0913 (click's)
    source: Source,
    models: list[str],
    excepted: list[str],
    *,
    watch: float | None,
    lease_name: str | None,
    as_json: bool,
) -> None:
    """Show live and expired rows, the lease, and the last sweep.

    Expired rows are counted by the sweeper's indexes; of big tables, all rows are the database's
    own estimate (~). "oldest" is for how long the first expired row has been waiting: the number
    to watch. "rate" is that of the last sweep that deleted any, and with --watch "change" is by how
    many the expired rows grow or shrink since the look before: both in rows per second.

    Exit status: 0 done, 1 a target could not be counted, 2 usage.
    """
    output = Output(as_json=as_json)

    async def work() -> bool:
        async with connect(source) as application:
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
    store, targets = app.store(), []
    for target in app.all_targets():
        counts = Counts(target, is_on=False)
        try:
            due = await answer(store.due(target.name))
            if due is not None:
                rows = await answer(store.count(target.name))
                oldest = rows.oldest if due.oldest is None else due.oldest
                counts = Counts(
                    target,
                    rows=rows.rows,
                    is_estimated=rows.is_estimated,
                    expired=rows.due,
                    oldest=oldest if rows.due else 0.0,
                    partitions=rows.partitions,
                )
        except StoreError as error:
            counts = Counts(target, problem=in_one_line(error))
        targets.append(counts)
    return Snapshot(app.database, await lease_of(app, lease_name), targets, time.monotonic())


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
    from rich.live import Live  # noqa: PLC0415 (as in Output)
    from rich.text import Text  # noqa: PLC0415

    before: Snapshot | None = None
    has_screen = not output.as_json and output.width is not None
    live = Live(console=output.console, screen=True, auto_refresh=False)
    with live if has_screen else nullcontext():
        async for _ in _Ticks().every(seconds):
            snapshot = await _snapshot(app, lease_name)
            if has_screen:
                hint = f"Every {seconds:g} s; Ctrl-C ends it."
                screen = f"{format_snapshot(snapshot, output.width, before)}\n\n{hint}"
                live.update(Text(screen, no_wrap=True, overflow="ellipsis"), refresh=True)
            else:
                _print(snapshot, output, before)
                output.code("")
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
    """Return it for people, with what has changed since the one before, if there was one."""
    lines = [] if snapshot.database is None else [snapshot.database]
    lease = snapshot.lease
    if lease is None:
        lines.append("No lease is kept.")
    else:
        holder, last = "No sweeper holds the lease.", "No sweep has been recorded."
        if lease.holder is not None:
            holder = f"{visible(lease.holder)} holds the lease for {lease.seconds_left:,.0f} s."
        if lease.recorded_ago is not None:
            last = f"Last sweep {age(lease.recorded_ago)} ago."
        lines.append(f"{holder} {last}")
        if lease.paused:
            lines.append("PAUSED: nothing is deleted until ttl-odm resume.")
    change = () if before is None else ("change",)
    head = ("target", "model", "rows", "live", "expired", *change, "oldest", "rate")
    rows: list[tuple[str, ...]] = [(*head, "last sweeps found")]
    for counts in snapshot.targets:
        name = counts.target.name
        *cells, oldest = counts.cells
        changes = [_per_second(snapshot.change_of(counts, before), sign="+") for _ in change]
        rate = _per_second(snapshot.history.rate_of(name))
        last = " ".join(f"{number:,}" for number in snapshot.history.of(name)[-3:]) or "-"
        model = counts.target.model or "-"
        rows.append((visible(name), visible(model), *cells, *changes, oldest, rate, last))
    lines += ["", aligned(rows, width)]
    lines += [
        f"{visible(row.target.name)}: {row.partitions}"
        for row in snapshot.targets
        if row.partitions is not None
    ]
    lines += [
        f"! {visible(row.target.name)}: {row.problem}" for row in snapshot.targets if row.problem
    ]
    return "\n".join(lines)


def _per_second(rows: float | None, sign: str = "") -> str:
    return "-" if rows is None else f"{rows:{sign},.0f}/s"


def lease_dict(lease: LeaseState) -> dict[str, Any]:
    """Return the state of a lease for JSON."""
    return {
        "holder": lease.holder,
        "seconds_left": lease.seconds_left,
        "paused": lease.paused,
        "last_sweep_seconds_ago": lease.recorded_ago,
    }
