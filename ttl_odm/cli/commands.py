"""The group of all commands of ``ttl-odm``. Their modules have the code."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from ttl_odm import __version__
from ttl_odm.cli import configuration
from ttl_odm.cli.check import check
from ttl_odm.cli.errors import SuggestingGroup, printable
from ttl_odm.cli.extensions import Commands, installed_commands
from ttl_odm.cli.inspect import inspect
from ttl_odm.cli.options import AS_JSON
from ttl_odm.cli.output import echo, json_text, writing
from ttl_odm.cli.plan import plan
from ttl_odm.cli.run import run
from ttl_odm.cli.status import pause, resume, status
from ttl_odm.cli.sweep import sweep

if TYPE_CHECKING:
    from collections.abc import Callable

_Command = TypeVar("_Command", bound="Callable[..., object] | click.Command")

_SETTINGS: Final = {"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "TTL_ODM"}


class _Commands(SuggestingGroup):
    """A group whose commands report failures without passwords, and as JSON with ``--json``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Find ``--json`` before click can reject the line; move ``--config`` to the front."""
        ctx.meta[AS_JSON] = "--json" in args
        with writing():  # the help or the version
            return super().parse_args(ctx, _config_first(args))

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command, or print its help."""
        try:
            with writing():
                return super().invoke(ctx)
        except click.ClickException as error:
            # click quotes words that it rejects, perhaps a URL in the wrong place. Each of its
            # errors makes its text from `message`, which is final for type checkers only.
            error.message = printable(error.message)  # type: ignore[misc]
            if ctx.meta[AS_JSON]:
                content = {"message": error.format_message(), "status": error.exit_code}
                echo(json_text({"error": content}))
            raise


def _config_first(args: list[str]) -> list[str]:
    """Return the words with ``--config FILE`` before the command, wherever it was typed.

    The file has the defaults of all options, so it is read before the command's options.
    """
    end = args.index("--") if "--" in args else len(args)
    first: list[str] = []
    others: list[str] = []
    words = iter(args[:end])
    for word in words:
        if word.startswith("--config="):
            first.append(word)
        elif word == "--config" and (file := next(words, None)) is not None:
            first += [word, file]
        else:
            others.append(word)
    return [*first, *others, *args[end:]]


def _config_option(**settings: Any) -> Callable[[_Command], _Command]:
    return click.option(
        "--config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Read [tool.ttl_odm] from this TOML file instead of pyproject.toml.",
        **settings,
    )


def _prepare(command: click.Command) -> None:
    """Add ``--config`` for the help and for completion; its value has been moved to the front."""
    for part in command.commands.values() if isinstance(command, click.Group) else [command]:
        _config_option(expose_value=False, allow_from_autoenv=False)(part)


_COMMANDS: Final = Commands(installed_commands(), _prepare)


@click.group(cls=_Commands, commands=_COMMANDS, context_settings=_SETTINGS)
@click.version_option(__version__, prog_name="ttl-odm")
@_config_option()
@click.pass_context
def cli(context: click.Context, config: Path | None) -> None:
    """Time-to-live for SQLAlchemy models, Beanie documents, and tables without a model."""
    context.default_map, context.obj = configuration.read(_COMMANDS, config)


@cli.command()
@click.option(
    "--svg",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="Also save the output as an SVG image.",
)
def demo(svg: Path | None) -> None:
    """Watch rows expire in a temporary SQLite file."""
    if importlib.util.find_spec("sqlalchemy") is None:
        raise click.ClickException(
            "the demo needs SQLAlchemy; install it with: pip install 'ttl-odm[cli,sqlalchemy]'"
        )
    from ttl_odm.cli.demo import show  # noqa: PLC0415 - needs the extra

    show(svg)


for command in (inspect, sweep, run, pause, resume, status, check, plan):
    cli.add_command(command)
    _prepare(command)
