"""The databases of the application that a command of ``flask ttl`` is for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from flask import current_app

from ttl_odm.cli.application import Application, Target, select, unknown
from ttl_odm.cli.errors import UsageError, readable_errors
from ttl_odm.integrations.flask.sweepers import EXTENSION, bind_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ttl_odm.integrations.flask.sweepers import AppTTL


def app_ttl() -> AppTTL:
    """Return the sweepers of the application."""
    sweepers: AppTTL = current_app.extensions[EXTENSION]
    return sweepers


def selected_databases(
    models: Sequence[str] = (), excepted: Sequence[str] = ()
) -> dict[str | None, Application]:
    """Return the databases that have something of what was selected, by their bind keys."""
    with readable_errors():
        every = app_ttl().applications()
    if not every:
        raise click.ClickException(
            "No model has a TTL: declare __ttl__ on one or enable() it, and import its module "
            "where the app is created."
        )
    selected = select([*every.values()], models, excepted)
    return {
        bind: application
        for bind, application in zip(every, selected, strict=True)
        if application.is_store or application.targets
    }


def find_target(databases: dict[str | None, Application], model: str) -> tuple[Application, Target]:
    """Return the only target of that name, and where it is."""
    every = list(databases.values())
    fitting = [
        (application, target) for application in every for target in application.named(model)
    ]
    if len(fitting) > 1:
        raise UsageError(f"MODEL {model!r}: several models have that name; give the table's name.")
    if not fitting:
        raise unknown([target for app in every for target in app.targets], "MODEL", model)
    return fitting[0]


def print_title(bind: str | None, databases: dict[str | None, Any], *, err: bool = False) -> None:
    """Print the name of a database, unless it is the only one."""
    if len(databases) > 1:
        click.echo(f"{bind_name(bind)}:", err=err)
