"""``ttl-odm status``, ``pause`` and ``resume``: show or change the state that sweepers share.

``flask ttl status`` calls `snapshot_of`; ``flask ttl pause`` and ``flask ttl resume`` call
`set_paused`.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import click

from ttl_odm.cli.application import Application, answer, in_loop
from ttl_odm.cli.connect import connect
from ttl_odm.cli.errors import in_one_line
from ttl_odm.cli.extensions import further_status
from ttl_odm.cli.options import Seconds, json_option, lease_name_option, selection_options
from ttl_odm.cli.output import Output
from ttl_odm.cli.source import Source, source_options
from ttl_odm.sweeper import stop_on_signals
from ttl_odm.sweeper.command_line import Status
from ttl_odm.sweeper.snapshot import (
    RESUMED,
    Snapshot,
    format_snapshot,
    lease_dict,
    look,
    paused_text,
)
from ttl_odm.sweeper.stop import Stop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from ttl_odm.cli.extensions import FurtherStatus
    from ttl_odm.sweeper import LeaseState
    from ttl_odm.sweeper.command_line import Program


@click.command()
@source_options
@selection_options
@click.option(
    "--watch",
    is_flag=False,
    flag_value=2.0,
    type=Seconds(min=0.1),
    metavar="[SECONDS]",
    help="Refresh every 2 seconds, or at this interval, until Ctrl-C.",
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

    Expired rows and all rows are counted at the same instant, expired ones through the sweeper's
    indexes. For big tables the number of all rows is the database's own estimate (~). "oldest" is
    how long the oldest expired row has been waiting: the number to watch. "rate" is the rate of
    the last sweep that deleted any rows. With --watch, "change" is how fast the number of expired
    rows has grown or shrunk since the last refresh. Both are in rows per second.

    Exit status: 0 done, 1 a target could not be counted, 2 usage error.
    """
    output, program = Output(as_json=as_json), source.program(lease_name)

    async def work() -> bool:
        async with connect(source) as application:
            selected = application.select(models, excepted)
            if watch is None:
                snapshot = await snapshot_of(selected, lease_name)
                further = await further_status(selected)
                _print(snapshot, program, output, further=further)
                return not snapshot.has_problems
            return await _watch(selected, lease_name, watch, program, output)

    if not in_loop(work):
        raise SystemExit(Status.FAILED)


async def snapshot_of(app: Application, lease_name: str | None = None) -> Snapshot:
    """Count live and expired rows, and read the lease."""
    await app.check_connection()
    sweeper = app.sweeper(lease_name=lease_name)
    targets = {target.name: target.model for target in app.all_targets()}
    plan = look(targets, sweeper.lease_name, app.database, in_one_line)
    return await answer(sweeper.carry_out(plan))


class _Ticks:
    """Ticks at which to refresh, until a signal."""

    def __init__(self) -> None:
        self._stop = Stop()
        self.stop = self._stop.ask

    async def every(self, seconds: float) -> AsyncIterator[None]:
        """Yield at once and then at intervals, until stopped."""
        with stop_on_signals(self):
            while not self._stop.asked:
                yield
                await self._stop.wait_async(seconds)


async def _watch(
    app: Application, lease_name: str | None, seconds: float, program: Program, output: Output
) -> bool:
    from rich.live import Live  # noqa: PLC0415 (as in Output)
    from rich.text import Text  # noqa: PLC0415

    before: Snapshot | None = None
    has_screen = not output.as_json and output.width is not None
    live = Live(console=output.console, screen=True, auto_refresh=False)
    with live if has_screen else nullcontext():
        async for _ in _Ticks().every(seconds):
            snapshot = await snapshot_of(app, lease_name)
            if has_screen:
                hint = f"Every {seconds:g} s; Ctrl-C ends it."
                screen = f"{format_snapshot(snapshot, program, output.width, before)}\n\n{hint}"
                live.update(Text(screen, no_wrap=True, overflow="ellipsis"), refresh=True)
            else:
                _print(snapshot, program, output, before)
                output.code("")
            before = snapshot
    return True


def _print(
    snapshot: Snapshot,
    program: Program,
    output: Output,
    before: Snapshot | None = None,
    *,
    further: Sequence[FurtherStatus] = (),
) -> None:
    if output.as_json:
        output.json({**snapshot.to_dict(before), **{part.name: part.content for part in further}})
        return
    output.code(format_snapshot(snapshot, program, output.width, before))
    for part in further:
        output.code("")
        output.table(part.rows)


@click.command()
@source_options
@lease_name_option
@json_option
def pause(source: Source, lease_name: str | None, *, as_json: bool) -> None:
    """Stop all sweepers after their current batch, until ttl-odm resume.

    Applies to every sweeper that shares the lease, in any process, and survives their restart.
    Expired rows stay hidden meanwhile; only their space isn't freed.
    """
    state, output = _set_paused(source, lease_name, paused=True), Output(as_json=as_json)
    if as_json:
        output.json(lease_dict(state))
    else:
        output.code(paused_text(state, source.program(lease_name)))


@click.command()
@source_options
@lease_name_option
@json_option
def resume(source: Source, lease_name: str | None, *, as_json: bool) -> None:
    """Resume the sweepers that ttl-odm pause has stopped."""
    state, output = _set_paused(source, lease_name, paused=False), Output(as_json=as_json)
    if as_json:
        output.json(lease_dict(state))
    else:
        output.code(RESUMED)


async def set_paused(
    app: Application, lease_name: str | None = None, *, paused: bool
) -> LeaseState:
    """Pause or resume the sweepers of a lease; return its state."""
    sweeper = app.sweeper(lease_name=lease_name)
    await answer(sweeper.pause() if paused else sweeper.resume())
    return await answer(sweeper.status())


def _set_paused(source: Source, lease_name: str | None, *, paused: bool) -> LeaseState:
    async def work() -> LeaseState:
        async with connect(source) as application:
            return await set_paused(application, lease_name, paused=paused)

    return in_loop(work)
