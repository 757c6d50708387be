"""``ttl-odm plan``: forecasts what expires, under the current policy and under a planned one.

``flask ttl plan`` calls `forecast_target` and `policy_options`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ttl_odm.cli.application import Application, Target, in_loop, unknown
from ttl_odm.cli.connect import connect
from ttl_odm.cli.errors import FailedError, UsageError, did_you_mean
from ttl_odm.cli.options import json_option
from ttl_odm.cli.output import Output
from ttl_odm.cli.plan_page import page
from ttl_odm.cli.source import Source, app_options
from ttl_odm.cli.tables import find_table
from ttl_odm.cli.urls import public_url
from ttl_odm.errors import InvalidTTL
from ttl_odm.forecast import Forecast, planned_policy
from ttl_odm.forecast.parser import HELP, OPTION, POLICY_HELP, POLICY_OPTION
from ttl_odm.inspection.evidence import SMALL

if TYPE_CHECKING:
    from collections.abc import Callable

    from ttl_odm.core.policy import Policy


def policy_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add ``--default-ttl`` and ``--policy``."""
    command = click.option(POLICY_OPTION, metavar="POLICY", help=POLICY_HELP)(command)
    return click.option(OPTION, metavar="SECONDS", help=HELP)(command)


@click.command()
@click.argument("model")
@app_options
@policy_options
@click.option("--deep", is_flag=True, help="Count all rows, regardless of how many there are.")
@click.option(
    "--html",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="Also write an HTML page with plots.",
)
@json_option
def plan(  # noqa: PLR0913 (click's)
    source: Source,
    model: str,
    default_ttl: str | None,
    policy: str | None,
    *,
    deep: bool,
    html: Path | None,
    as_json: bool,
) -> None:
    """Forecast which rows of a model expire in the next 30 days.

    Shows how many rows are expired now and will be in 1 h, 24 h, 7 d and 30 d, and how old the
    rows are.

    With --default-ttl or --policy it also shows the effect of that change: which rows would expire
    at once, and which expired rows would become visible again. With --policy, MODEL may be any
    table of the database, and --app is not needed.

    It changes nothing. Tables of more than 100,000 rows are sampled, and the sampling error (95 %)
    is shown.
    """
    if html is not None and not html.parent.is_dir():  # fails now, not after the counting
        raise UsageError(f"--html {public_url(str(html))!r}: no such folder.")

    async def work() -> Forecast:
        async with connect(source.only(model), with_ttl=False) as application:
            is_any = source.app is None or policy is not None
            target = _target(application, model, is_any=is_any)
            if target.entity is None:
                await _check_exists(application, target.name)
            most = math.inf if deep else SMALL
            return await forecast_target(application, target, default_ttl, policy, most)

    forecast = in_loop(work)
    output = Output(as_json=as_json)
    if html is not None:
        try:
            html.write_text(page(forecast), encoding="utf-8")
        except OSError as error:
            raise FailedError(f"--html {public_url(str(html))!r}: {error.strerror}.") from error
    if output.as_json:
        output.json(forecast.to_dict())
        return
    output.paragraphs(forecast.paragraphs(output.width, " --deep counts all."))
    if html is not None:
        output.line(f"Written to {html}.")


def _target(app: Application, model: str, *, is_any: bool) -> Target:
    """Return the target of a name; without `Target.entity` if only the database knows it."""
    if app.is_store:
        raise UsageError("plan doesn't work with a custom store.")
    targets = app.named(model)
    if not targets:
        if is_any:
            return Target(model, None, None)
        raise unknown(app.targets, "MODEL", model)
    target = targets[0]
    if target.entity is None:
        return target
    if app.is_mongodb:
        from ttl_odm.beanie.policy import rules  # noqa: PLC0415 (needs the extra)

        rule = rules.rule_of(target.entity)
        if rule is not None:
            raise _without_policy(model, rule.root.model.__name__)
        return target
    from ttl_odm.sqlalchemy.policy.bindings import root_binding_of  # noqa: PLC0415 (needs the extra)
    from ttl_odm.sqlalchemy.policy.references import root_of, rule_of  # noqa: PLC0415

    root = root_of(target.entity)
    if rule_of(target.entity) is not None and root is not None:
        raise _without_policy(model, root.name)
    # Rows of joined subclasses expire with those of the root table.
    binding = root_binding_of(target.entity)
    return target if binding is None else replace(target, entity=binding.table)


def _without_policy(model: str, parent: str) -> UsageError:
    return UsageError(
        f"MODEL {model!r}: its rows follow those of {parent} and have no policy of their own. Plan "
        f"{parent} instead."
    )


async def _check_exists(app: Application, name: str) -> None:
    """Reject the name of a table or collection that the database doesn't have."""
    if app.is_mongodb:
        collections = await app.engine.list_collection_names()
        if name not in collections:
            hint = did_you_mean(name, collections) or "."
            raise UsageError(f"MODEL {name!r}: the database has no collection {name!r}{hint}")
        return
    from sqlalchemy import inspect  # noqa: PLC0415 (needs the extra)

    await app.ask(lambda connection: find_table(inspect(connection), name, f"MODEL {name!r}"))


async def forecast_target(
    app: Application, target: Target, default_ttl: str | None, policy: str | None, most: float
) -> Forecast:
    """Forecast what of a target expires, by its policy and by a planned one.

    Args:
        app: The application.
        target: The target.
        default_ttl: The planned default ttl, as it was typed.
        policy: The planned policy, as it was typed.
        most: Rows; larger targets are sampled.

    Raises:
        UsageError: The planned policy is invalid.
    """
    current = None if target.entity is None else await _policy(app, target)
    try:
        planned = planned_policy(target.name, current, default_ttl, policy)
    except InvalidTTL as error:
        raise UsageError(str(error)) from error
    if app.is_mongodb:
        from ttl_odm.forecast import mongodb  # noqa: PLC0415 (needs the extra)

        collection = mongodb.collection_for(app.engine, target.entity or target.name)
        stored = mongodb.as_stored(target.entity, planned)
        scopes = mongodb.scopes_of(target.entity, current)
        measured = await mongodb.measure(collection, current, stored, most, scopes)
        measured = replace(measured, doubts=await mongodb.doubts(collection, stored or current))
    else:
        from ttl_odm.forecast import sql  # noqa: PLC0415 (needs the extra)

        table = target.name if target.entity is None else target.entity
        measured = await app.ask(partial(sql.measure, table=table, planned=planned, big=most))
    return Forecast(target.name, target.model or target.name, current, planned, measured)


async def _policy(app: Application, target: Target) -> Policy | None:
    """Return the policy of a model; None if it has none."""
    if app.is_mongodb:
        from ttl_odm.beanie.policy import bindings as documents  # noqa: PLC0415 (needs the extra)

        bound = documents.binding_of(target.entity)
        if bound is None:
            return None
        await bound.source.see(documents.collection_of(target.entity))
        return bound.policy
    from ttl_odm.sqlalchemy.policy.bindings import binding_of  # noqa: PLC0415 (needs the extra)

    binding = binding_of(target.entity)
    return None if binding is None else binding.default.policy
