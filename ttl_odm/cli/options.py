"""The options that several commands have, as decorators for click.

Those of a sweep come from `ttl_odm.sweeper.command_line`, from which Flask's and Django's
commands have theirs too.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from ttl_odm.sweeper.command_line import COMMAND_OPTIONS, LIMITS

if TYPE_CHECKING:
    from collections.abc import Callable

Command: TypeAlias = "Callable[..., None]"


class Seconds(click.FloatRange):
    """A number of seconds, of which there is an end; a range alone would take ``nan``."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read it."""
        seconds = float(super().convert(value, param, ctx))
        if not math.isfinite(seconds):
            self.fail(f"{value} is no number of seconds.", param, ctx)
        return seconds


def sweep_option(name: str, parameter: str | None = None) -> Callable[[Command], Command]:
    """Add an option of `COMMAND_OPTIONS`, whose value is None unless it is given.

    The command may call it otherwise, by the name of a parameter.
    """
    option = COMMAND_OPTIONS[name]
    flag = name.replace("_", "-")
    settings: dict[str, Any] = {"help": option.help}
    if option.type is list:
        settings.update(multiple=True, metavar=option.metavar)
    elif option.type is not bool:
        settings.update(type=option.type, metavar=option.metavar)
    elif option.is_negatable:
        flag, settings["default"] = f"{flag}/--no-{flag}", None
    else:
        settings.update(is_flag=True, default=None)
    return click.option(f"--{flag}", parameter or name, **settings)


lease_name_option = sweep_option("lease_name")
json_option = click.option("--json", "as_json", is_flag=True, help=COMMAND_OPTIONS["json"].help)


def sweep_options(command: Command) -> Command:
    """Add what `ttl_odm.sweeper.SweepOptions` has, under the same names."""
    command = click.option("--json", "as_json", is_flag=True, help="Print reports as JSON.")(
        command
    )
    command = click.option(
        "--otel",
        is_flag=True,
        help="Report metrics and spans to OpenTelemetry, as the variables OTEL_* say.",
    )(command)
    for name in reversed(LIMITS):
        command = sweep_option(name)(command)
    return command


def selection_options(command: Command) -> Command:
    """Add ``--model`` and ``--except`` to a command."""
    return sweep_option("model", "models")(sweep_option("except", "excepted")(command))


def app_options(command: Command) -> Command:
    """Add ``--app`` and ``--url`` to a command."""
    command = click.option(
        "--url",
        envvar="TTL_ODM_URL",
        metavar="URL",
        help="The database, where --app doesn't say: postgresql://user@host/database, "
        "mysql://..., sqlite:///file, mongodb://host/database.",
    )(command)
    return click.option(
        "--app",
        envvar="TTL_ODM_APP",
        metavar="MODULE:NAME",
        help="What to work on: a declarative base, a list of models or of document classes, or a "
        "function that returns an engine and these.",
    )(command)
