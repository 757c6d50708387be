"""``ttl-odm policy``: defaults that the database stores, shown and changed by operators."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import click

from ttl_odm.cli import stored_defaults
from ttl_odm.cli.application import in_loop, unknown
from ttl_odm.cli.connect import connect
from ttl_odm.cli.errors import SuggestingGroup
from ttl_odm.cli.options import json_option
from ttl_odm.cli.output import Output
from ttl_odm.cli.source import Source, app_options

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from ttl_odm.cli.application import Application, Target


@click.group(cls=SuggestingGroup)
def policy() -> None:
    """Show and change default ttls stored in the database (Stored)."""


@policy.command(help=stored_defaults.SHOW)
@stored_defaults.targets_argument
@app_options
@json_option
def show(source: Source, targets: Sequence[str], *, as_json: bool) -> None:
    """Show the stored defaults."""
    _show(source, targets, stored_defaults.POLICIES, as_json=as_json)


@policy.command(help=stored_defaults.HISTORY)
@stored_defaults.targets_argument
@app_options
@json_option
def history(source: Source, targets: Sequence[str], *, as_json: bool) -> None:
    """Show their changes."""
    _show(source, targets, stored_defaults.CHANGES, as_json=as_json)


@policy.command("set", help=stored_defaults.SET, context_settings=stored_defaults.SETTINGS)
@stored_defaults.change_arguments
@app_options
@stored_defaults.change_options
def set_(
    source: Source, model: str, change: Sequence[str], *, as_json: bool, **options: Any
) -> None:
    """Change one."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[tuple[Application, Target]]:
        async with connect(source.only(model)) as app:
            yield app, _one(app, model)

    output = Output(as_json=as_json)
    stored_defaults.change_default(opened, output, model, change, **options)


def _show(
    source: Source, targets: Sequence[str], view: stored_defaults.View, *, as_json: bool
) -> None:
    async def work() -> list[Any]:
        async with connect(source) as app:
            named = [_one(app, name) for name in targets]
            return await stored_defaults.read(app, named, view)

    rows = in_loop(work)
    stored_defaults.show(Output(as_json=as_json), rows, view)


def _one(app: Application, name: str) -> Target:
    stored_defaults.reject_store(app)
    found = app.named(name)
    if not found:
        raise unknown(app.targets, "MODEL", name)
    return found[0]
