"""The commands of ``ttl-odm``: what they are called and take. What they do is elsewhere."""

from __future__ import annotations

import importlib.util

import click

from ttl_odm import __version__
from ttl_odm.cli.inspecting import inspect_command


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ttl-odm")
def cli() -> None:
    """Time-to-live for SQLAlchemy models and Beanie documents."""


@cli.command()
def demo() -> None:
    """Watch rows expire, in a SQLite file of its own that is removed afterwards."""
    if importlib.util.find_spec("sqlalchemy") is None:
        raise click.ClickException(
            "the demo needs SQLAlchemy; install it with: pip install 'ttl-odm[cli,sqlalchemy]'"
        )
    from ttl_odm.cli.demo import run  # noqa: PLC0415 - needs the extra

    run()


cli.add_command(inspect_command)
