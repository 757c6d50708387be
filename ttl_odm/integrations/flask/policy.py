"""``flask ttl policy``, which shows and changes the defaults that the database stores."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import click
from flask import current_app
from flask.cli import AppGroup

from ttl_odm.cli.application import in_loop
from ttl_odm.cli.options import json_option
from ttl_odm.cli.output import PlainOutput
from ttl_odm.integrations.flask.commands import find_target, print_title, selected_databases
from ttl_odm.integrations.flask.sweepers import bind_name
from ttl_odm.stored.approval import plain
from ttl_odm.stored.cli import prompts

if TYPE_CHECKING:
    from collections.abc import Sequence


@click.group("policy", cls=AppGroup)
def command() -> None:
    """Show and change default ttls stored in the database (Stored)."""


@command.command(help=prompts.SHOW)
@prompts.targets_argument
@json_option
def show(targets: Sequence[str], *, as_json: bool) -> None:
    """Show the stored defaults."""
    _show(targets, prompts.POLICIES, as_json=as_json)


@command.command(help=prompts.HISTORY)
@prompts.targets_argument
@json_option
def history(targets: Sequence[str], *, as_json: bool) -> None:
    """Show the changes of stored defaults."""
    _show(targets, prompts.CHANGES, as_json=as_json)


@command.command("set", help=prompts.SET, context_settings=prompts.SETTINGS)
@prompts.change_arguments
@prompts.change_options
def set_(model: str, change: Sequence[str], *, as_json: bool, **options: Any) -> None:
    """Change a stored default; the token is signed with the application's secret key."""
    target = find_target(selected_databases(), model)
    prompts.change_default(
        lambda: nullcontext(target),
        PlainOutput(as_json=as_json),
        model,
        change,
        secret=current_app.secret_key,
        **options,
    )


def _show(names: Sequence[str], view: prompts.View, *, as_json: bool) -> None:
    """Print what each database stores; as JSON in one list, with the bind keys."""
    databases, output = selected_databases(), PlainOutput(as_json=as_json)
    named = [find_target(databases, name) for name in names]
    rows: dict[str | None, list[Any]] = {}
    for bind, application in databases.items():
        targets = [target for owner, target in named if owner is application]
        if targets or (not names and not application.is_store):
            rows[bind] = in_loop(partial(prompts.read, application, targets, view))
    if as_json:
        output.json(
            [
                {"bind": bind_name(bind), **plain(row)}
                for bind, of_bind in rows.items()
                for row in of_bind
            ]
        )
        return
    if not any(rows.values()):
        prompts.show(output, [], view)
    for bind, of_bind in rows.items():
        if of_bind:
            print_title(bind, databases)
            prompts.show(output, of_bind, view)
