"""``ttl-odm pause`` and ``ttl-odm resume``: for every sweeper of a lease, in whatever process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ttl_odm.cli.application import answer, in_loop
from ttl_odm.cli.connect import connect
from ttl_odm.cli.options import json_option, lease_name_option
from ttl_odm.cli.output import Output
from ttl_odm.cli.source import Source, source_options
from ttl_odm.cli.status import lease_dict
from ttl_odm.sweeper.text import visible

if TYPE_CHECKING:
    from ttl_odm.sweeper import LeaseState


@click.command()
@source_options
@lease_name_option
@json_option
def pause(source: Source, lease_name: str | None, *, as_json: bool) -> None:
    """Let no sweeper begin another batch, until ttl-odm resume.

    Holds for every sweeper that shares the lease, in whatever process, and stays when they are
    started again. Expired rows stay out of sight all the same; only their space is not given back.
    """
    state = _set_paused(source, lease_name, paused=True)
    output = Output(as_json=as_json)
    if as_json:
        output.json(lease_dict(state))
        return
    at_work = f" {visible(state.holder)} stops after its batch." if state.holder else ""
    output.line(
        f"Paused: no sweeper begins another batch.{at_work} Let them go on with: ttl-odm resume"
    )


@click.command()
@source_options
@lease_name_option
@json_option
def resume(source: Source, lease_name: str | None, *, as_json: bool) -> None:
    """Let the sweepers go on that ttl-odm pause has stopped."""
    state = _set_paused(source, lease_name, paused=False)
    output = Output(as_json=as_json)
    if as_json:
        output.json(lease_dict(state))
    else:
        output.line("Resumed: the sweepers go on.")


def _set_paused(source: Source, lease_name: str | None, *, paused: bool) -> LeaseState:
    async def work() -> LeaseState:
        async with connect(source) as application:
            sweeper = application.sweeper(lease_name=lease_name)
            await answer(sweeper.pause() if paused else sweeper.resume())
            return await answer(sweeper.status())

    return in_loop(work)
