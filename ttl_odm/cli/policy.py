"""``ttl-odm policy``: defaults that the database stores, shown and changed by operators."""

from __future__ import annotations

import getpass
import shlex
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ttl_odm.cli.application import in_loop, unknown
from ttl_odm.cli.connect import connect
from ttl_odm.cli.errors import FailedError, SuggestingGroup, UsageError, readable_errors
from ttl_odm.cli.options import json_option
from ttl_odm.cli.output import Output
from ttl_odm.cli.source import Source, app_options
from ttl_odm.forecast.approval import (
    ITS_TOKEN,
    NOTHING,
    TYPE_IT,
    UNCHANGED,
    change_lines,
    plain,
    stored_lines,
)
from ttl_odm.forecast.parse import parse_stored

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ttl_odm.cli.application import Application, Target
    from ttl_odm.core.stored import Stored
    from ttl_odm.forecast.approval import PolicyPreview


@click.group(cls=SuggestingGroup)
def policy() -> None:
    """Show and change default ttls stored in the database (Stored)."""


@policy.command()
@click.argument("targets", metavar="[MODEL]...", nargs=-1)
@app_options
@json_option
def show(source: Source, targets: Sequence[str], *, as_json: bool) -> None:
    """Show the stored defaults of all models, or of the given ones."""
    found, output = _read(source, targets, "stored_policies"), Output(as_json=as_json)
    if as_json:
        output.json([plain(row) for row in found])
        return
    _print(output, stored_lines(found))


@policy.command()
@click.argument("targets", metavar="[MODEL]...", nargs=-1)
@app_options
@json_option
def history(source: Source, targets: Sequence[str], *, as_json: bool) -> None:
    """Show the changes of stored defaults, newest first."""
    found, output = _read(source, targets, "policy_changes"), Output(as_json=as_json)
    if as_json:
        output.json([plain(row) for row in found])
        return
    _print(output, change_lines(found))


@policy.command("set", context_settings={"ignore_unknown_options": True})
@click.argument("model")
@click.argument("change", metavar="[FIELD=VALUE] TTL", nargs=-1, required=True)
@app_options
@click.option("--approve", metavar="TOKEN", help="Apply the change whose preview has this token.")
@click.option("--by", metavar="NAME", help="Who makes the change, for the history (default: you).")
@click.option("--reason", metavar="TEXT", help="The reason, for the history.")
@click.option("--deep", is_flag=True, help="Count all rows, regardless of how many there are.")
@json_option
def set_(  # noqa: PLR0913 (click's)
    source: Source,
    model: str,
    change: Sequence[str],
    *,
    approve: str | None,
    by: str | None,
    reason: str | None,
    deep: bool,
    as_json: bool,
) -> None:
    """Change a stored default: preview the effect, then apply the change once approved.

    TTL is a number of seconds, or a duration such as 90d, 12h or 30m; -1 (rows never expire by
    default), or off. With FIELD=VALUE, such as tenant_id=42, it is the default of the rows with
    that value; TTL may then be the word default, which removes their own default again.

    The preview shows what would expire at once and within 30 days, and ends with a token. Type it,
    or run the command again with --approve TOKEN. If the change would by then expire more rows
    than the preview said, it is refused.
    """
    *named, text = change
    if len(named) > 1:
        raise UsageError(f"{shlex.join(change)}: give [FIELD=VALUE] TTL.")
    with readable_errors():
        ttl = parse_stored(text, where=f"TTL {text!r}")
    who, output = by or getpass.getuser(), Output(as_json=as_json)

    async def preview() -> PolicyPreview:
        async with connect(source.only(model)) as app:
            target = _one(app, model)
            about = {"target": target.entity, "ttl": ttl, "scope": _value(app, target, named)}
            seen: PolicyPreview = await _change(app, "preview_policy", {**about, "deep": deep})
            return seen

    async def make(token: str) -> None:
        async with connect(source.only(model)) as app:
            target = _one(app, model)
            about = {"target": target.entity, "ttl": ttl, "scope": _value(app, target, named)}
            told = {"token": token, "by": who, "reason": reason}
            await _change(app, "approve_policy", {**about, **told})

    if approve is None:
        seen = in_loop(preview)
        if as_json:
            output.json(seen.to_dict())
            return
        _print_preview(output, seen)
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            output.line(f"{UNCHANGED} To make the change, add:")
            output.code(f"--approve {seen.token}")
            return
        output.code(f"{ITS_TOKEN} {seen.token}")
        approve = click.prompt(TYPE_IT, default="", show_default=False).strip()
        if approve != seen.token:
            raise FailedError(f"That is not the token. {UNCHANGED}")
    in_loop(partial(make, approve))
    if as_json:
        output.json({"model": model, "ttl": ttl, "by": who, "reason": reason})
    else:
        output.line(f"Changed: {model} {' '.join(change)}.", style="green")


async def _change(app: Application, function: str, arguments: dict[str, Any]) -> Any:
    """What a function answers that is about a change of a stored default."""
    if app.is_mongodb:
        from ttl_odm.forecast import change_mongodb  # noqa: PLC0415 (needs the extra)

        return await getattr(change_mongodb, function)(**arguments)
    from ttl_odm.forecast import change  # noqa: PLC0415 (needs the extra)

    return await app.ask(partial(getattr(change, function), **arguments))


def _print_preview(output: Output, seen: PolicyPreview) -> None:
    for said in seen.paragraphs(output.width, " --deep counts all."):
        if said.is_table:
            output.code(said.text)
        else:
            output.line(said.text, style=said.style, mark=said.mark)


def _read(source: Source, names: Sequence[str], function: str) -> list[Any]:
    """What a function reads of the stored defaults of the models of these names, or of all."""

    async def work() -> list[Any]:
        async with connect(source) as app:
            _refuse_store(app)
            targets = [_one(app, name) for name in names]
            if not names:
                targets = [target for target in app.targets if _stored(app, target) is not None]
            entities = [target.entity for target in targets]
            if not entities:
                return []
            if app.is_mongodb:
                from ttl_odm.beanie.indexes import policies  # noqa: PLC0415 (needs the extra)

                rows: list[Any] = await getattr(policies, function)(*entities)
                return rows
            from ttl_odm.sqlalchemy.policy import changes  # noqa: PLC0415 (needs the extra)

            read = getattr(changes, function)
            return await app.ask(lambda connection: read(connection, *entities))

    return in_loop(work)


def _one(app: Application, name: str) -> Target:
    _refuse_store(app)
    found = app.named(name)
    if not found:
        raise unknown(app.targets, "MODEL", name)
    return found[0]


def _refuse_store(app: Application) -> None:
    if app.is_store:
        raise UsageError("policy: only SQL databases and MongoDB store defaults.")


def _stored(app: Application, target: Target) -> Stored | None:
    """What is declared of a default that the database stores."""
    binding: Any
    if app.is_mongodb:
        from ttl_odm.beanie.policy import binding as documents  # noqa: PLC0415 (needs the extra)

        binding = documents.binding_of(target.entity)
    else:
        from ttl_odm.sqlalchemy.policy.binding import binding_of  # noqa: PLC0415 (needs the extra)

        binding = binding_of(target.entity)
    return None if binding is None else binding.stored


def _value(app: Application, target: Target, named: Sequence[str]) -> str | None:
    """The scope of ``FIELD=VALUE``; None where nothing is named."""
    if not named:
        return None
    if app.is_mongodb:
        stored = _stored(app, target)
        by = None if stored is None else stored.by
    else:
        from ttl_odm.sqlalchemy.policy.stored_default import stored_of  # noqa: PLC0415 (as above)

        by = stored_of(target.entity).by
    field, is_given, value = named[0].partition("=")
    if not is_given or field != by:
        fix = f"give {by}=VALUE" if by else "its rows have one default, so give TTL alone"
        raise UsageError(f"{named[0]!r}: {fix}.")
    return value


def _print(output: Output, lines: list[tuple[str, ...]]) -> None:
    if len(lines) == 1:
        output.line(NOTHING)
        return
    output.table(lines)
