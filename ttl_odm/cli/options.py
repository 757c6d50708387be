"""The options that several commands share, as decorators for click.

The options of a sweep come from `ttl_odm.sweeper.command_line`, as for Flask's and Django's
commands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click

from ttl_odm.core.values import duration
from ttl_odm.sweeper.command_line import COMMAND_OPTIONS, SWEEP_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable

Command: TypeAlias = "Callable[..., None]"

AS_JSON: Final = f"{__name__}.AS_JSON"
"""The key in click's ``meta`` that says whether an error is printed as JSON, too."""


class Duration(click.ParamType):  # type: ignore[type-arg] # (of one release of click)
    """A parameter that `duration` reads, in seconds."""

    name = "seconds"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the seconds."""
        return _seconds(value, param, ctx)


class Seconds(click.FloatRange):
    """A duration within a range, in seconds."""

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the seconds."""
        return float(super().convert(_seconds(value, param, ctx), param, ctx))


def _seconds(value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
    try:
        return duration(value)
    except ValueError as error:
        raise click.BadParameter(f"{error}.", ctx, param) from error


def sweep_option(
    name: str, parameter: str | None = None, **own: Any
) -> Callable[[Command], Command]:
    """Return a decorator that adds an option; its value is None unless the user sets it.

    Args:
        name: Its key in `COMMAND_OPTIONS`.
        parameter: The name of the command's parameter; None for the same name.
        own: Settings of the command's own for ``click.option``.
    """
    option = COMMAND_OPTIONS[name]
    flag = name.replace("_", "-")
    settings: dict[str, Any] = {"help": option.help}
    if option.type is list:
        settings.update(multiple=True, metavar=option.metavar)
    elif option.type is not bool:
        kind: Any = Duration() if option.type is duration else option.type
        settings.update(type=kind, metavar=option.metavar)
    elif option.is_negatable:
        flag, settings["default"] = f"{flag}/--no-{flag}", None
    else:
        settings.update(is_flag=True, default=None)
    flags = [f"--{flag}", *([f"-{option.letter}"] if option.letter else [])]
    return click.option(*flags, parameter or name, **{**settings, **own})


def json_option_for(about: str) -> Callable[[Command], Command]:
    """Return a decorator that adds ``--json``, which is read first: other options may be wrong."""

    def note(ctx: click.Context, _option: click.Parameter, as_json: bool) -> bool:  # noqa: FBT001
        ctx.meta[AS_JSON] = ctx.meta.get(AS_JSON, False) or as_json
        return as_json

    return click.option("--json", "as_json", is_flag=True, is_eager=True, callback=note, help=about)


lease_name_option = sweep_option("lease_name")
json_option = json_option_for(COMMAND_OPTIONS["json"].help)


def sweep_options(command: Command) -> Command:
    """Add the options of `SweepOptions` under the same names, ``--otel`` and ``--json``."""
    command = json_option_for("Print reports as JSON.")(command)
    command = click.option(
        "--otel",
        is_flag=True,
        help="Report metrics and spans to OpenTelemetry, configured by the OTEL_* variables.",
    )(command)
    for name in reversed(SWEEP_OPTIONS):
        command = sweep_option(name)(command)
    return command


def selection_options(command: Command) -> Command:
    """Add ``--model`` and ``--except`` to a command."""
    return sweep_option("model", "models")(sweep_option("except", "excepted")(command))
