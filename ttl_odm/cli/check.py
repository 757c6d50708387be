"""``ttl-odm check``: is the database as the declarations say, and does anybody sweep it?"""

from __future__ import annotations

import os
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final

import click

from ttl_odm.cli import findings
from ttl_odm.cli.application import (
    Application,
    Target,
    answer,
    app_options,
    in_loop,
    json_option,
    opened,
)
from ttl_odm.cli.findings import Finding, Severity, fix_of_unreadable
from ttl_odm.cli.output import Output
from ttl_odm.cli.problems import in_one_line
from ttl_odm.cli.status import lease_of
from ttl_odm.cli.sweeping import lease_name_option, selection_options
from ttl_odm.sweeper import StoreError
from ttl_odm.sweeper.statuses import Status
from ttl_odm.sweeper.text import age

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ttl_odm.sweeper import Due, LeaseState

DAY: Final = 86_400.0
_CLOCK_SECONDS: Final = 5.0
_UNSEARCHABLE: Final = (
    *("missing-table", "missing-column"),
    *("missing-index", "invalid-index", "wrong-index"),
)
"""What would let the question for the first expired row fail, or read the whole table."""


@click.command()
@app_options
@selection_options
@click.option(
    "--max-age",
    type=click.FloatRange(min=0, min_open=True),
    default=DAY,
    show_default=True,
    metavar="SECONDS",
    help="Longer than that no expired row may wait, and no sweep be ago.",
)
@click.option("--deep", is_flag=True, help="Read whole tables, however big they are.")
@click.option("--strict", is_flag=True, help="Exit with 1 on warnings too.")
@lease_name_option
@json_option
def check(app: str | None, url: str | None, **given: Any) -> None:
    """Compare declarations, schema, indexes and values; name the command that fixes each finding.

    Changes nothing, so it may run in CI and against production. Within GitHub Actions findings
    become annotations.

    Exit status: 0 nothing or warnings only, 1 errors (or, with --strict, warnings), 2 usage.
    """

    async def work() -> tuple[int, list[Finding]]:
        async with opened(app, url) as opened_app:
            narrowed = opened_app.narrowed(given["models"], given["excepted"])
            found = await _of_database(narrowed, deep=given["deep"])
            broken = {each.target for each in found if each.code in _UNSEARCHABLE}
            looked_at = narrowed.every_target()
            for each in looked_at:
                if each.name not in broken:
                    found += await _of_waiting(narrowed, each, given["max_age"])
            if not await _needs_no_sweeper(narrowed):
                lease = await lease_of(narrowed, given["lease_name"])
                found += [] if lease is None else _of_lease(lease, given["max_age"])
            found += await _of_clock(narrowed)
            return len(looked_at), found

    looked_at, found = in_loop(work)
    output = Output(as_json=given["as_json"])
    if output.as_json:
        output.json({"checked": looked_at, "findings": [each.to_dict() for each in found]})
    elif os.environ.get("GITHUB_ACTIONS") == "true":
        for each in found:
            output.code(each.annotation)
    else:
        findings.show(found, looked_at, output)
    severities = {each.severity for each in found}
    if Severity.ERROR in severities or (given["strict"] and Severity.WARNING in severities):
        raise SystemExit(Status.FAILED)


async def _of_database(app: Application, *, deep: bool) -> list[Finding]:
    await app.check_connection()
    if app.is_store:
        return []
    if app.is_mongodb:
        from ttl_odm.cli import checks_mongodb  # noqa: PLC0415 (needs the extra)

        return await checks_mongodb.check(app.targets, deep=deep)
    from ttl_odm.cli import checks_sql  # noqa: PLC0415 (needs the extra)

    if app.is_async:
        async with app.engine.connect() as connection:
            found: list[Finding] = await connection.run_sync(checks_sql.run, app.targets, deep)
            return found
    with app.engine.connect() as connection:
        return checks_sql.check(connection, app.targets, deep=deep)


async def _needs_no_sweeper(app: Application) -> bool:
    """Whether MongoDB itself deletes everything."""
    if not app.is_mongodb:
        return False
    from ttl_odm.beanie.policy.binding import purge_of  # noqa: PLC0415 (needs the extra)

    return all(purge_of(each.given) == "native" for each in app.targets)


def _of_lease(lease: LeaseState, most: float) -> Iterator[Finding]:
    if lease.paused:
        yield Finding(Severity.WARNING, "paused", None, "the sweepers are paused", "ttl-odm resume")
    if lease.recorded_ago is None:
        message = "no sweep has been recorded in this database"
        yield Finding(Severity.WARNING, "never-swept", None, message, "ttl-odm run")
    elif lease.recorded_ago > most:
        message = f"the last sweep was {age(lease.recorded_ago)} ago"
        yield Finding(Severity.ERROR, "not-swept", None, message, "ttl-odm run")


async def _of_waiting(app: Application, target: Target, most: float) -> list[Finding]:
    """See for how long the first expired row has been waiting, without counting the others."""
    name = target.model or target.name
    try:
        due: Due | None = await answer(app.store().due(target.name))
    except StoreError as error:
        why = in_one_line(error)
        fix = fix_of_unreadable(why, target.name, f"ttl-odm sweep --dry-run --model {name}")
        return [Finding(Severity.ERROR, "unreadable", target.name, why, fix)]
    if due is None or due.oldest is None or due.oldest <= most:
        return []
    message = f"expired rows wait to be deleted, the oldest for {age(due.oldest)}"
    return [
        Finding(Severity.ERROR, "overdue", target.name, message, f"ttl-odm sweep --model {name}")
    ]


async def _of_clock(app: Application) -> list[Finding]:
    store = app.store()
    if not hasattr(store, "now"):
        return []
    before = datetime.now(timezone.utc)
    told: datetime = await answer(store.now())
    after = datetime.now(timezone.utc)
    # The answer was given at some instant between the two.
    off = max((before - told).total_seconds(), (told - after).total_seconds(), 0.0)
    if off <= _CLOCK_SECONDS:
        return []
    return [
        Finding(
            Severity.WARNING,
            "clock",
            None,
            f"the database's clock and this host's differ by {off:,.0f} s; expiry goes by the "
            "database's",
            "timedatectl set-ntp true, on the one that is wrong",
        )
    ]
