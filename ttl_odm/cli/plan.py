"""``ttl-odm plan``: what expires when, and what another default would change, before it does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ttl_odm.cli.application import Application, Target, app_options, in_loop, json_option, opened
from ttl_odm.cli.forecast import AGES, AHEAD, Forecast
from ttl_odm.cli.output import Output
from ttl_odm.cli.plan_page import page
from ttl_odm.cli.problems import UsageProblem
from ttl_odm.core.policy import ExpireAfter, ExpireAt
from ttl_odm.core.values import default_ttl
from ttl_odm.errors import InvalidTTL
from ttl_odm.inspecting import as_source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ttl_odm.cli.forecast import Estimate, Measured
    from ttl_odm.core.policy import Policy

_BAR: Final = 40
_OFF: Final = ("off", "none")


@click.command()
@click.argument("model")
@app_options
@click.option(
    "--default-ttl",
    metavar="SECONDS",
    help="The default that is planned: seconds, -1 (rows never expire by default), or off. Without "
    "it, only what expires as things are.",
)
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
        given["html"].write_text(page(forecast, _sentences(forecast), _note(forecast)))
    if output.as_json:
        output.json(forecast.to_dict())
        return
    _show(forecast, output)
    if given["html"] is not None:
        output.line(f"Written to {given['html']}.")


async def _forecast(app: Application, target: Target, default: str | None) -> Forecast:
    current = _policy(app, target)
    planned = None if default is None else _planned(current, default)
    bounds = AHEAD if isinstance(current, ExpireAt) else AGES
    measured = await _measured(app, target, current, planned, bounds)
    return Forecast(
        target.name,
        target.model or target.name,
        as_source(current),
        None if planned is None else as_source(planned),
        measured,
        bounds,
    )


def _policy(app: Application, target: Target) -> Policy:
    if app.is_mongodb:
        from ttl_odm.beanie.declaring import policy_of  # noqa: PLC0415 (needs the extra)

        return policy_of(target.given)
    from ttl_odm.sqlalchemy.binding import binding_of  # noqa: PLC0415 (needs the extra)

    binding = binding_of(target.given)
    assert binding is not None  # noqa: S101 (targets have one)
    return binding.default.policy


def _planned(current: Policy, default: str) -> Policy:
    where = f"--default-ttl {default}"
    if isinstance(current, ExpireAt):
        raise UsageProblem(f"{where}: {as_source(current)} has no default; each row has its end.")
    try:
        if isinstance(current, ExpireAfter):
            return replace(current, seconds=int(default))
        value = None if default in _OFF else default_ttl(int(default), where="--default-ttl")
        return current.with_default(value)
    except (ValueError, InvalidTTL) as error:
        also = "" if isinstance(current, ExpireAfter) else ", -1 or off"
        raise UsageProblem(f"{where}: give whole seconds from 1 to 2147483647{also}.") from error


async def _measured(
    app: Application,
    target: Target,
    current: Policy,
    planned: Policy | None,
    bounds: Sequence[int],
) -> Measured:
    if app.is_mongodb:
        from ttl_odm.cli import plan_mongodb  # noqa: PLC0415 (needs the extra)

        return await plan_mongodb.measure(target.given, current, planned, bounds)
    from ttl_odm.cli import plan_sql  # noqa: PLC0415 (needs the extra)

    if app.is_async:
        async with app.engine.connect() as connection:
            found: Measured = await connection.run_sync(
                plan_sql.measure, target.given, planned, bounds
            )
            return found
    with app.engine.connect() as connection:
        return plan_sql.measure(connection, target.given, planned, bounds)


def _sentences(forecast: Forecast) -> list[str]:
    """Say what the plan would change at once."""
    if forecast.planned is None:
        return []
    said = []
    if forecast.lost.rows:
        said.append(
            f"Live rows that would be expired at once, and deleted by the next sweep: "
            f"{forecast.lost}."
        )
    if forecast.revived.rows:
        said.append(
            f"Expired rows, still there, that would be visible again: {forecast.revived}. Sweep "
            "first if they are to stay away."
        )
    return said or ["Nothing would change at once."]


def _note(forecast: Forecast) -> str:
    if forecast.measured.total is None:
        return f"All {forecast.rows:,} rows were counted."
    return (
        f"Estimated from {forecast.measured.sampled:,} of about {forecast.rows:,} rows; "
        "± is the error (95 %)."
    )


def _show(forecast: Forecast, output: Output) -> None:
    output.line(f"{forecast.model} ({forecast.target}): {forecast.rows:,} rows", style="bold")
    output.line(f"{forecast.own} rows have a ttl of their own.")
    output.line(f"current  {forecast.current}", style="cyan")
    if forecast.planned is not None:
        output.line(f"planned  {forecast.planned}", style="cyan")
    output.line()
    current = forecast.expired("current")
    if forecast.planned is None:
        rows: list[tuple[str, ...]] = [("expired", "current", "share")]
        rows += [(label, str(each), _share(each, forecast)) for label, each in current]
    else:
        rows = [("expired", "current", "planned", "share")]
        rows += [
            (label, str(before), str(after), _share(after, forecast))
            for (label, before), (_, after) in zip(
                current, forecast.expired("planned"), strict=True
            )
        ]
    output.table(rows)
    output.line()
    for each in _sentences(forecast):
        output.line(each, style="yellow", mark="! ")
    output.line("Age of the rows:", style="bold")
    _show_bars(forecast.histogram(), output)
    output.line(_note(forecast))


def _share(each: Estimate, forecast: Forecast) -> str:
    return f"{each.rows / forecast.rows:.1%}" if forecast.rows else "-"


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
