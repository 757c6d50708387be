"""``ttl-odm pause`` and ``ttl-odm resume``: for every sweeper of a lease, in whatever process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ttl_odm.cli.application import answer, app_options, in_loop, json_option, opened
from ttl_odm.cli.output import Output
from ttl_odm.cli.status import lease_dict
from ttl_odm.cli.sweeping import lease_name_option

if TYPE_CHECKING:
    from ttl_odm.sweeper import LeaseState


@click.command()
@app_options
@lease_name_option
@json_option
def pause(app: str | None, url: str | None, **given: Any) -> None:
    """Let no sweeper begin another batch, until ttl-odm resume.

    Holds for every sweeper that shares the lease, in whatever process, and stays when they are
    started again. Expired rows stay out of sight all the same; only their space is not given back.
    """
    _set(app, url, paused=True, **given)


@click.command()
@app_options
@lease_name_option
@json_option
def resume(app: str | None, url: str | None, **given: Any) -> None:
    """Let the sweepers go on that ttl-odm pause has stopped."""
    _set(app, url, paused=False, **given)


def _set(
    app: str | None, url: str | None, *, paused: bool, lease_name: str | None, as_json: bool
) -> None:
    async def work() -> LeaseState:
        async with opened(app, url) as found:
            sweeper = found.sweeper(lease_name=lease_name)
            await answer(sweeper.pause() if paused else sweeper.resume())
            return await answer(sweeper.status())

    state = in_loop(work)
    output = Output(as_json=as_json)
    if as_json:
        output.json(lease_dict(state))
        return
    at_work = f" {state.holder} stops after its batch." if paused and state.holder else ""
    output.line(
        f"Paused: no sweeper begins another batch.{at_work} Let them go on with: ttl-odm resume"
        if paused
        else "Resumed: the sweepers go on."
    )
