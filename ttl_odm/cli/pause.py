"""``ttl-odm pause`` and ``ttl-odm resume``: for every sweeper of a lease, in whatever process.

``flask ttl pause`` and ``flask ttl resume`` call `set_paused`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ttl_odm.cli.application import Application, answer, in_loop
from ttl_odm.cli.connect import connect
from ttl_odm.cli.options import json_option, lease_name_option
from ttl_odm.cli.output import Output
from ttl_odm.cli.source import Source, source_options
from ttl_odm.sweeper.snapshot import RESUMED, lease_dict, paused_text

if TYPE_CHECKING:
    from ttl_odm.sweeper import LeaseState


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
    """Pause the sweepers of a lease, or let them go on; return its state."""
    sweeper = app.sweeper(lease_name=lease_name)
    await answer(sweeper.pause() if paused else sweeper.resume())
    return await answer(sweeper.status())


def _set_paused(source: Source, lease_name: str | None, *, paused: bool) -> LeaseState:
    async def work() -> LeaseState:
        async with connect(source) as application:
            return await set_paused(application, lease_name, paused=paused)

    return in_loop(work)
