"""``ttl-odm plan``: what expires when, and what another default would change, before it does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ttl_odm.cli.application import Application, Target, app_options, in_loop, json_option, opened
from ttl_odm.cli.output import Output
from ttl_odm.cli.plan_page import page
from ttl_odm.cli.problems import UsageProblem
from ttl_odm.errors import InvalidTTL
from ttl_odm.forecasting import (
    Forecast,
    bounds_for,
    forecast_of,
    note,
    planned_policy,
    sentences,
    table,
)
from ttl_odm.forecasting.planning import HELP, OPTION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ttl_odm.core.policy import Policy
    from ttl_odm.forecasting import Estimate, Measured

_BAR: Final = 40


@click.command()
@click.argument("model")
@app_options
@click.option(OPTION, metavar="SECONDS", help=HELP)
@click.option(
    "--html",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="Write it as a page with plots, too.",
)
@json_option
def plan(app: str | None, url: str | None, **given: Any) -> None:
    """Tell what of a model is expired now, in 1 h, 24 h, 7 d and 30 d, and how old its rows are.

    With --default-ttl also what that default would change: which rows it would expire at once, and
    which expired rows it would make visible again. It changes nothing. Of more than a million rows
    a sample is taken on PostgreSQL and MongoDB, and its error (95 %) is told.
    """

    async def work() -> Forecast:
        async with opened(app, url) as found:
            (target, *_) = found.narrowed([given["model"]], []).targets
            await found.check_connection()
            return await _forecast(found, target, given["default_ttl"])

    forecast = in_loop(work)
    output = Output(as_json=given["as_json"])
    if given["html"] is not None:
        given["html"].write_text(page(forecast, sentences(forecast), note(forecast)))
    if output.as_json:
        output.json(forecast.to_dict())
        return
    _show(forecast, output)
    if given["html"] is not None:
        output.line(f"Written to {given['html']}.")


async def _forecast(app: Application, target: Target, default: str | None) -> Forecast:
    current = _policy(app, target)
    planned = _planned(current, default)
    measured = await _measured(app, target, current, planned, bounds_for(current))
    return forecast_of(target.name, target.model or target.name, current, planned, measured)


def _policy(app: Application, target: Target) -> Policy:
    if app.is_mongodb:
        from ttl_odm.beanie.declaring import policy_of  # noqa: PLC0415 (needs the extra)

        return policy_of(target.given)
    from ttl_odm.sqlalchemy.binding import binding_of  # noqa: PLC0415 (needs the extra)

    binding = binding_of(target.given)
    assert binding is not None  # noqa: S101 (targets have one)
    return binding.default.policy


def _planned(current: Policy, default: str | None) -> Policy | None:
    try:
        return planned_policy(current, default)
    except InvalidTTL as error:
        raise UsageProblem(str(error)) from error


async def _measured(
    app: Application,
    target: Target,
    current: Policy,
    planned: Policy | None,
    bounds: Sequence[int],
) -> Measured:
    if app.is_mongodb:
        from ttl_odm.forecasting import mongodb  # noqa: PLC0415 (needs the extra)

        return await mongodb.measure(target.given, current, planned, bounds)
    from ttl_odm.forecasting import sql  # noqa: PLC0415 (needs the extra)

    if app.is_async:
        async with app.engine.connect() as connection:
            found: Measured = await connection.run_sync(sql.measure, target.given, planned, bounds)
            return found
    with app.engine.connect() as connection:
        return sql.measure(connection, target.given, planned, bounds)


def _show(forecast: Forecast, output: Output) -> None:
    output.line(f"{forecast.model} ({forecast.target}): {forecast.rows:,} rows", style="bold")
    output.line(f"{forecast.own} rows have a ttl of their own.")
    output.line(f"current  {forecast.current}", style="cyan")
    if forecast.planned is not None:
        output.line(f"planned  {forecast.planned}", style="cyan")
    output.line()
    output.table(table(forecast))
    output.line()
    for each in sentences(forecast):
        output.line(each, style="yellow", mark="! ")
    output.line("Age of the rows:", style="bold")
    _show_bars(forecast.histogram(), output)
    output.line(note(forecast))


def _show_bars(found: list[tuple[str, Estimate]], output: Output) -> None:
    most = max((each.rows for _, each in found), default=0) or 1
    label = max(len(name) for name, _ in found)
    number = max(len(str(each)) for _, each in found)
    room = _BAR
    if output.console.is_terminal:
        room = max(min(_BAR, output.console.width - label - number - 4), 1)
    for name, each in found:
        bar = "█" * max(round(room * each.rows / most), int(each.rows > 0))
        output.code(f"{name.rjust(label)}  {str(each).rjust(number)}  {bar}".rstrip())
