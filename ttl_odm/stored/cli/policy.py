"""``ttl-odm policy``, with which operators read and change stored defaults."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import click

from ttl_odm.cli.application import in_loop, unknown
from ttl_odm.cli.connect import connect
from ttl_odm.cli.errors import SuggestingGroup
from ttl_odm.cli.options import json_option
from ttl_odm.cli.output import Output
from ttl_odm.cli.source import Source, app_options
from ttl_odm.stored.cli import prompts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from ttl_odm.cli.application import Application, Target


@click.group("policy", cls=SuggestingGroup)
def command() -> None:
    """Show and change default ttls stored in the database (Stored)."""


@command.command(help=prompts.SHOW)
@prompts.targets_argument
@app_options
@json_option
def show(source: Source, targets: Sequence[str], *, as_json: bool) -> None:
    """Show the stored defaults."""
    _show(source, targets, prompts.POLICIES, as_json=as_json)


@command.command(help=prompts.HISTORY)
@prompts.targets_argument
@app_options
@json_option
def history(source: Source, targets: Sequence[str], *, as_json: bool) -> None:
    """Show the changes of stored defaults."""
    _show(source, targets, prompts.CHANGES, as_json=as_json)


@command.command("set", help=prompts.SET, context_settings=prompts.SETTINGS)
@prompts.change_arguments
@app_options
@prompts.change_options
def set_(
    source: Source, model: str, change: Sequence[str], *, as_json: bool, **options: Any
) -> None:
    """Change a stored default."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[tuple[Application, Target]]:
        async with connect(source.only(model)) as app:
            yield app, _target(app, model)

    output = Output(as_json=as_json)
    prompts.change_default(opened, output, model, change, **options)


def _show(source: Source, targets: Sequence[str], view: prompts.View, *, as_json: bool) -> None:
    async def work() -> list[Any]:
        async with connect(source) as app:
            return await prompts.read(app, [_target(app, name) for name in targets], view)

    rows = in_loop(work)
    prompts.show(Output(as_json=as_json), rows, view)


def _target(app: Application, name: str) -> Target:
    prompts.reject_store(app)
    targets = app.named(name)
    if not targets:
        raise unknown(app.targets, "MODEL", name)
    return targets[0]
