"""``ttl-odm plan``: what expires when, and what another policy would change, before it does."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ttl_odm.cli.application import Application, Target, app_options, in_loop, json_option, opened
from ttl_odm.cli.output import Output
from ttl_odm.cli.plan_page import page
from ttl_odm.cli.problems import FailedProblem, UsageProblem
from ttl_odm.cli.urls import shown
from ttl_odm.errors import InvalidTTL
from ttl_odm.forecast import (
    Forecast,
    heading,
    named,
    note,
    planned_policy,
    sentences,
    table,
)
from ttl_odm.forecast.parse import HELP, OPTION, POLICY_HELP, POLICY_OPTION
from ttl_odm.inspection.evidence import SMALL

if TYPE_CHECKING:
    from ttl_odm.core.policy import Policy
    from ttl_odm.forecast import Estimate, Measured

_BAR: Final = 40


@click.command()
@click.argument("model")
@app_options
@click.option(OPTION, metavar="SECONDS", help=HELP)
@click.option(POLICY_OPTION, metavar="POLICY", help=POLICY_HELP)
@click.option("--deep", is_flag=True, help="Count all rows, however many there are.")
@click.option(
    "--html",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="Write it as a page with plots, too.",
)
@json_option
def plan(app: str | None, url: str | None, **given: Any) -> None:
    """Tell what of a model is expired now, in 1 h, 24 h, 7 d and 30 d, and how old its rows are.

    With --default-ttl or --policy also what that would change: which rows it would expire at once,
    and which expired rows it would make visible again. With --policy, MODEL may be any table of
    the database, and no --app is needed.

    It changes nothing. Of more than 100,000 rows a sample is taken, and its error (95 %) is told.
    """
    wanted = (given["default_ttl"], given["policy"])
    html: Path | None = given["html"]
    if html is not None and not html.parent.is_dir():  # better now than after the counting
        raise UsageProblem(f"--html {shown(str(html))!r}: there is no such folder.")

    async def work() -> Forecast:
        async with opened(app, url, with_ttl=False) as found:
            target = _target(found, given["model"], is_any=app is None or wanted[1] is not None)
            return await _forecast(found, target, wanted, math.inf if given["deep"] else SMALL)

    forecast = in_loop(work)
    output = Output(as_json=given["as_json"])
    if html is not None:
        _write(html, page(forecast))
    if output.as_json:
        output.json(forecast.to_dict())
        return
    _show(forecast, output)
    if html is not None:
        output.line(f"Written to {html}.")


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise FailedProblem(f"--html {shown(str(file))!r}: {error.strerror}.") from error


def _target(app: Application, model: str, *, is_any: bool) -> Target:
    """The one that is meant; one without `Target.given` is known to the database alone."""
    if app.is_store:
        raise UsageProblem("plan can't look into a store of one's own.")
    called = app.called(model)
    if not called:
        if is_any:
            return Target(model, None, None)
        raise app.unknown(f"MODEL {model!r}")
    target = called[0]
    return target if app.is_mongodb else _at_root(target)


def _at_root(target: Target) -> Target:
    """Rows of joined subclasses live and die with those of the table at the root."""
    from ttl_odm.sqlalchemy.policy.binding import root_binding_of  # noqa: PLC0415 (needs the extra)

    binding = root_binding_of(target.given)
    return target if binding is None else replace(target, given=binding.table)


async def _forecast(
    app: Application, target: Target, wanted: tuple[str | None, str | None], big: float
) -> Forecast:
    current = None if target.given is None else _policy(app, target)
    try:
        planned = planned_policy(current, *wanted)
    except InvalidTTL as error:
        raise UsageProblem(str(error)) from error
    measured = await _measured(app, target, current, planned, big)
    return Forecast(target.name, target.model or target.name, current, planned, measured)


def _policy(app: Application, target: Target) -> Policy | None:
    """The policy of a model; None where it has none."""
    if app.is_mongodb:
        from ttl_odm.beanie.policy import binding as documents  # noqa: PLC0415 (needs the extra)

        bound = documents.binding_of(target.given)
        return None if bound is None else bound.policy
    from ttl_odm.sqlalchemy.policy.binding import binding_of  # noqa: PLC0415 (needs the extra)

    binding = binding_of(target.given)
    return None if binding is None else binding.default.policy


async def _measured(
    app: Application, target: Target, current: Policy | None, planned: Policy | None, big: float
) -> Measured:
    if app.is_mongodb:
        from ttl_odm.forecast import mongodb  # noqa: PLC0415 (needs the extra)

        collection = mongodb.collection_for(app.engine, target.given or target.name)
        stored = mongodb.as_stored(target.given, planned)
        return await mongodb.measure(collection, current, stored, big)
    from ttl_odm.forecast import sql  # noqa: PLC0415 (needs the extra)

    table = target.name if target.given is None else target.given
    if app.is_async:
        async with app.engine.connect() as connection:
            found: Measured = await connection.run_sync(sql.measure, table, planned, big)
            return found
    with app.engine.connect() as connection:
        return sql.measure(connection, table, planned, big)


def _show(forecast: Forecast, output: Output) -> None:
    output.line(f"{named(forecast)}: {forecast.measured.rows} rows", style="bold")
    if forecast.own.rows:
        output.line(f"{forecast.own} rows have a ttl of their own.")
    for name, policy in forecast.scenarios.items():
        output.line(f"{name.ljust(7)}  {policy}", style="cyan")
    output.line()
    output.table(table(forecast))
    output.line()
    for each in sentences(forecast):
        output.line(each, style="yellow", mark="! ")
    output.line(heading(forecast), style="bold")
    _show_bars(forecast.histogram(), output)
    output.line(note(forecast) + " --deep counts all." * forecast.measured.is_sample)


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
