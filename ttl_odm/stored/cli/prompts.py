"""Stored defaults at a prompt, for ``ttl-odm policy`` and ``flask ttl policy``.

The commands read and change an `Application`; this module must not know how they find it.
"""

from __future__ import annotations

import shlex
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from ttl_odm.cli.application import in_loop
from ttl_odm.cli.errors import FailedError, UsageError, readable_errors
from ttl_odm.cli.options import json_option
from ttl_odm.stored.approval import (
    ITS_TOKEN,
    NOTHING,
    TYPE_IT,
    UNCHANGED,
    change_lines,
    parse_stored,
    plain,
    stored_lines,
)
from ttl_odm.sweeper.command_line import user_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractAsyncContextManager

    from ttl_odm.cli.application import Application, Target
    from ttl_odm.cli.output import PlainOutput
    from ttl_odm.stored import Stored
    from ttl_odm.stored.approval import PolicyPreview

    Command = Callable[..., None]

SHOW: Final = "Show the stored defaults of all models, or of the given ones."
HISTORY: Final = "Show the changes of stored defaults, newest first."
SET: Final = """Change a stored default: preview the effect, then apply the change once approved.

TTL is a number of seconds, or a duration such as 90d, 12h or 30m; -1 (rows never expire by
default), or off. With FIELD=VALUE, such as tenant_id=42, it is the default of the rows with
that value; TTL may then be the word default, which removes their own default again.

The preview shows what would expire at once and within 30 days, and ends with a token. Type it,
or run the command again with --approve TOKEN. If the change would by then expire more rows
than the preview showed, it is rejected.
"""

SETTINGS: Final = {"ignore_unknown_options": True}
"""Click's settings for the command that changes a default: -1 is a ttl, not an option."""

targets_argument = click.argument("targets", metavar="[MODEL]...", nargs=-1)

_SET_OPTIONS: Final = (
    click.option(
        "--approve", metavar="TOKEN", help="Apply the change whose preview has this token."
    ),
    click.option(
        "--by", metavar="NAME", help="Who makes the change, for the history (default: you)."
    ),
    click.option("--reason", metavar="TEXT", help="The reason, for the history."),
    click.option("--deep", is_flag=True, help="Count all rows, regardless of how many there are."),
    json_option,
)


class View(NamedTuple):
    """A way to read stored defaults.

    Attributes:
        function: The name of the function of each adapter that reads the rows.
        lines: Makes the lines of a table of them.
    """

    function: str
    lines: Callable[[Iterable[Any]], list[tuple[str, ...]]]


POLICIES: Final = View("stored_policies", stored_lines)
CHANGES: Final = View("policy_changes", change_lines)


def change_arguments(command: Command) -> Command:
    """Add the arguments of a change."""
    change = click.argument("change", metavar="[FIELD=VALUE] TTL", nargs=-1, required=True)
    return click.argument("model")(change(command))


def change_options(command: Command) -> Command:
    """Add the options of a change, which the command passes on to `change_default`."""
    for option in reversed(_SET_OPTIONS):
        command = option(command)
    return command


async def read(app: Application, targets: Sequence[Target], view: View) -> list[Any]:
    """Read the stored defaults, or the history, of some targets; of all if none is given."""
    reject_store(app)
    chosen = targets or [target for target in app.targets if _stored(app, target) is not None]
    entities = [target.entity for target in chosen]
    if not entities:
        return []
    if app.is_mongodb:
        from ttl_odm.stored.beanie import changes as policies  # noqa: PLC0415 (needs the extra)

        rows: list[Any] = await getattr(policies, view.function)(*entities)
        return rows
    from ttl_odm.stored.sqlalchemy import changes  # noqa: PLC0415 (needs the extra)

    function = getattr(changes, view.function)
    return await app.ask(lambda connection: function(connection, *entities))


def show(output: PlainOutput, rows: Sequence[Any], view: View) -> None:
    """Print the rows of a view."""
    if output.as_json:
        output.json([plain(row) for row in rows])
    elif rows:
        output.table(view.lines(rows))
    else:
        output.line(NOTHING)


def change_default(  # noqa: PLR0913 (click's)
    opened: Callable[[], AbstractAsyncContextManager[tuple[Application, Target]]],
    output: PlainOutput,
    model: str,
    change: Sequence[str],
    *,
    approve: str | None,
    by: str | None,
    reason: str | None,
    deep: bool,
    secret: str | bytes | None = None,
) -> None:
    """Preview a change of a stored default, and make it once approved.

    Args:
        opened: Connects to the target; called for the preview and for the change.
        output: Where results go.
        model: The name of the target as the user typed it.
        change: The arguments of `change_arguments`.
        approve: The token; None to preview, and to ask for the token at a terminal.
        by: Who makes the change; None for the system's user.
        reason: Why.
        deep: Whether the preview counts all rows.
        secret: A secret of the application, with which the token is signed.
    """
    *scopes, text = change
    if len(scopes) > 1:
        raise UsageError(f"{shlex.join(change)}: give [FIELD=VALUE] TTL.")
    with readable_errors():
        ttl = parse_stored(text, where=f"TTL {text!r}")

    async def call(function: str, **arguments: object) -> Any:
        async with opened() as (app, target):
            reject_store(app)
            scope = _value(app, target, scopes)
            common = {"target": target.entity, "ttl": ttl, "scope": scope, "secret": secret}
            return await _call(app, function, {**common, **arguments})

    def who() -> str:
        with readable_errors():
            return by or user_name()

    if approve is None:
        preview: PolicyPreview = in_loop(partial(call, "preview_policy", deep=deep))
        if output.as_json:
            output.json(preview.to_dict())
            return
        output.paragraphs(preview.paragraphs(output.width, " --deep counts all."))
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            output.line(f"{UNCHANGED} To make the change, add:")
            output.code(f"--approve {preview.token}")
            return
        by = who()
        output.code(f"{ITS_TOKEN} {preview.token}")
        approve = click.prompt(TYPE_IT, default="", show_default=False).strip()
        if approve != preview.token:
            raise FailedError(f"That is not the token. {UNCHANGED}")
    by = who()
    in_loop(partial(call, "approve_policy", token=approve, by=by, reason=reason))
    if output.as_json:
        output.json({"model": model, "ttl": ttl, "by": by, "reason": reason})
    else:
        output.line(f"Changed: {model} {' '.join(change)}.", style="green")


async def _call(app: Application, function: str, arguments: dict[str, object]) -> Any:
    """Call the function of the application's adapter that previews or makes a change."""
    if app.is_mongodb:
        from ttl_odm.stored.beanie import previews as on_mongodb  # noqa: PLC0415 (needs the extra)

        return await getattr(on_mongodb, function)(**arguments)
    from ttl_odm.stored.sqlalchemy import previews  # noqa: PLC0415 (needs the extra)

    return await app.ask(partial(getattr(previews, function), **arguments))


def reject_store(app: Application) -> None:
    """Raise `UsageError` for a custom store, which has no stored defaults."""
    if app.is_store:
        raise UsageError("policy: only SQL databases and MongoDB store defaults.")


def _stored(app: Application, target: Target) -> Stored | None:
    """The declaration of a target whose default is stored; None for any other."""
    if app.is_mongodb:
        from ttl_odm.beanie.policy import bindings as documents  # noqa: PLC0415 (needs the extra)

        document = documents.binding_of(target.entity)
        return None if document is None else document.declared.stored
    from ttl_odm.sqlalchemy.policy.bindings import binding_of  # noqa: PLC0415 (needs the extra)

    binding = binding_of(target.entity)
    return None if binding is None else binding.policy.stored


def _value(app: Application, target: Target, scopes: Sequence[str]) -> str | None:
    """The scope of ``FIELD=VALUE``; None without one."""
    if not scopes:
        return None
    if app.is_mongodb:
        stored = _stored(app, target)
        by = None if stored is None else stored.by
    else:
        from ttl_odm.stored.sqlalchemy.stored_default import stored_of  # noqa: PLC0415 (as above)

        by = stored_of(target.entity).by
    field, separator, value = scopes[0].partition("=")
    if not separator or field != by:
        fix = f"give {by}=VALUE" if by else "its rows have one default, so give TTL alone"
        raise UsageError(f"{scopes[0]!r}: {fix}.")
    return value
