"""What ``op.add_ttl``, ``op.alter_ttl`` and ``op.drop_ttl`` do, from the checks to the last step.

Nothing is changed before every check has passed. What a database does differently is in
`ttl_odm.alembic.steps` and its three children.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from alembic.operations import Operations

from ttl_odm.alembic.backfill import Backfill, capped, instant_of
from ttl_odm.alembic.checks import (
    refuse_existing,
    refuse_expiring,
    refuse_kept,
    refuse_missing,
    refuse_partitioned,
    refuse_source,
    refuse_without_rights,
)
from ttl_odm.alembic.enforcement import Enforcing, refuse_unenforceable
from ttl_odm.alembic.errors import MigrationRefusedError
from ttl_odm.alembic.mysql import MySQLSteps
from ttl_odm.alembic.operations import AddTTLOp, AlterTTLOp, DropTTLOp, written
from ttl_odm.alembic.postgresql import PostgreSQLSteps
from ttl_odm.alembic.progress import Progress
from ttl_odm.alembic.reflection import Found, look
from ttl_odm.alembic.runner import Runner
from ttl_odm.alembic.sqlite import SQLiteSteps
from ttl_odm.alembic.target_schema import Wanted
from ttl_odm.core.policy import as_policy
from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.errors import InvalidTTL, TTLConfigurationError
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from ttl_odm.alembic.steps import Steps

_STEPS: Final[dict[str, type[Steps]]] = {
    "postgresql": PostgreSQLSteps,
    "sqlite": SQLiteSteps,
    **dict.fromkeys(MYSQL_FAMILY, MySQLSteps),
}


@Operations.implementation_for(AddTTLOp)
def _add(operations: Operations, op: AddTTLOp) -> None:
    wanted = _wanted(op)
    _choose(op.sweep, "sweep", ("index", "scan"))
    _check_part(op.max_expired_now)
    runner = Runner(operations.migration_context, in_transaction=op.in_transaction)
    refuse_unenforceable(op.enforce, runner.dialect.name)
    progress = Progress(runner, "add", wanted.table.fullname)
    found = _found(runner, wanted)
    if wanted.dates is not None:
        _add_over_dates(runner, wanted, found, op)
        return
    source = _check_add(runner, wanted, found, op, resumes=progress.resumes)
    if progress.state == "finished":
        progress.resume()
        return
    with runner.outside_transactions():
        steps = _steps(runner, wanted, found)
        progress.resume() if progress.resumes else progress.begin()
        never = op.backfill is None
        steps.add_columns(never=never, note=lambda since: progress.note("begun", since=since))
        if progress.state != "backfilled":
            if not runner.offline and (source is not None or steps.rewrites_rows):
                assert progress.since is not None  # noqa: S101 (noted with the columns)
                Backfill(
                    runner,
                    wanted,
                    since=progress.since,
                    instant=source,
                    rewriting=steps.rewrites_rows,
                ).run()
            progress.note("backfilled")
        steps.settle()
        if op.sweep == "index":
            steps.add_indexes()
        if op.touch_trigger:
            steps.add_trigger()
        Enforcing(steps).put(op.enforce) if op.enforce else None
        progress.finish()


def _add_over_dates(runner: Runner, wanted: Wanted, found: Found, op: AddTTLOp) -> None:
    """A table that has its dates already only gets the index; to add it again does no harm."""
    others = {
        "backfill": op.backfill != "now",
        "touch_trigger": op.touch_trigger,
        "enforce": op.enforce,
        "keep_ttl": op.keep_ttl,
        "max_expired_now": op.max_expired_now is not None,
    }
    _refuse_over_dates(runner, wanted, found, [name for name, given in others.items() if given])
    with runner.outside_transactions():
        if op.sweep == "index":
            _steps(runner, wanted, found).add_indexes()


def _refuse_over_dates(runner: Runner, wanted: Wanted, found: Found, misplaced: list[str]) -> None:
    if misplaced:
        raise MigrationRefusedError(
            f"Table {wanted.label}: {written(wanted.policy)} adds nothing but an index, so "
            f"{', '.join(misplaced)} has no meaning here. Leave it out."
        )
    if runner.offline:
        return
    if wanted.dates not in found.columns:
        raise MigrationRefusedError(
            f"Table {wanted.label} has no column {wanted.dates!r}; it has "
            f"{', '.join(found.columns)}."
        )
    refuse_without_rights(runner.connection, wanted)


def _check_add(
    runner: Runner, wanted: Wanted, found: Found, op: AddTTLOp, *, resumes: bool
) -> str | None:
    """Refuse what can't be added; return SQL for the instants that old rows get."""
    from_column = op.backfill not in ("now", None)
    if runner.offline:
        if from_column or op.max_expired_now is not None:
            what = "backfill=a column" if from_column else "max_expired_now"
            raise MigrationRefusedError(
                f"{what} asks the database, which --sql can't. Run this migration online, or "
                "write backfill='now' and update _ts in batches of your own."
            )
        return None
    if not resumes:
        refuse_existing(wanted, found, keep_ttl=op.keep_ttl)
        if op.sweep == "index" and not runner.in_transaction:
            refuse_partitioned(runner.connection, wanted)
        refuse_without_rights(runner.connection, wanted)
    kept = op.keep_ttl and wanted.own_ttl.name in found.columns
    if kept and not resumes:
        refuse_kept(runner.connection, wanted, found)
        if op.backfill is None:
            raise MigrationRefusedError(
                f"Table {wanted.label}: backfill=None would overwrite the ttl of rows that "
                "keep_ttl=True keeps. Write backfill='now'."
            )
    if not from_column:
        return None
    assert op.backfill is not None  # noqa: S101 (it names a column)
    source = instant_of(refuse_source(wanted, found, op.backfill), runner.dialect)
    if not resumes:
        now = clock_of(runner.dialect).now
        instant = f"COALESCE({capped(source, now, runner.dialect)}, {now})"
        refuse_expiring(runner.connection, wanted, instant, op.max_expired_now)
    return source


@Operations.implementation_for(AlterTTLOp)
def _alter(operations: Operations, op: AlterTTLOp) -> None:
    wanted = _wanted(op)
    if op.sweep is not None:
        _choose(op.sweep, "sweep", ("index", "scan"))
    _check_part(op.max_expired_now)
    runner = Runner(operations.migration_context, in_transaction=op.in_transaction)
    refuse_unenforceable(op.enforce, runner.dialect.name, off=True)
    found = _found(runner, wanted)
    if wanted.dates is not None:
        _alter_over_dates(runner, wanted, found, op)
        return
    if runner.offline:
        # The columns and the CHECK are there, or there would be nothing to alter.
        found = replace(found, columns=dict(wanted.table.c), check="there", stamps=True)
    else:
        refuse_missing(wanted, found)
        refuse_without_rights(runner.connection, wanted)
        if op.sweep == "index" and not runner.in_transaction:
            refuse_partitioned(runner.connection, wanted)
        _check_alter(runner, wanted, op)
    with runner.outside_transactions():
        steps = _steps(runner, wanted, found)
        if not runner.offline:
            steps.add_columns(never=False, note=lambda _: None)
            steps.settle()
        if op.sweep == "index":
            steps.add_indexes()
        elif op.sweep == "scan":
            steps.drop_indexes()
        if op.touch_trigger is not None:
            steps.add_trigger() if op.touch_trigger else steps.drop_trigger()
        Enforcing(steps).change(op.enforce)


def _alter_over_dates(runner: Runner, wanted: Wanted, found: Found, op: AlterTTLOp) -> None:
    others = {
        "touch_trigger": op.touch_trigger is not None,
        "enforce": op.enforce,
        "max_expired_now": op.max_expired_now is not None,
    }
    _refuse_over_dates(runner, wanted, found, [name for name, given in others.items() if given])
    with runner.outside_transactions():
        steps = _steps(runner, wanted, found)
        if op.sweep == "index":
            steps.add_indexes()
        elif op.sweep == "scan":
            steps.drop_indexes()


def _check_alter(runner: Runner, wanted: Wanted, op: AlterTTLOp) -> None:
    quote = runner.dialect.identifier_preparer.quote
    own, stamp = quote(wanted.own_ttl.name), quote(wanted.last_modified.name)
    # Rows with a ttl of their own don't follow the default.
    instant = f"CASE WHEN {own} IS NULL THEN {stamp} END"
    refuse_expiring(runner.connection, wanted, instant, op.max_expired_now)


@Operations.implementation_for(DropTTLOp)
def _drop(operations: Operations, op: DropTTLOp) -> None:
    wanted = _wanted(op)
    runner = Runner(operations.migration_context, in_transaction=op.in_transaction)
    progress = Progress(runner, "drop", wanted.table.fullname)
    found = _found(runner, wanted)
    if wanted.dates is not None:
        _refuse_over_dates(runner, wanted, found, ["keep_ttl"] if op.keep_ttl else [])
        with runner.outside_transactions():
            _steps(runner, wanted, found).drop_indexes()
        return
    if not runner.offline and not progress.resumes:
        refuse_missing(wanted, found)
        refuse_without_rights(runner.connection, wanted)
        if not runner.in_transaction and any(each in found.indexes for each in wanted.index_names):
            refuse_partitioned(runner.connection, wanted)
    if progress.state == "finished":
        progress.resume()
        return
    with runner.outside_transactions():
        steps = _steps(runner, wanted, found)
        progress.resume() if progress.resumes else progress.begin()
        Enforcing(steps).drop()
        steps.drop_trigger()
        steps.drop_indexes()
        steps.drop_columns(keep_ttl=op.keep_ttl)
        progress.finish()


# --- what they share ---------------------------------------------------------------------------


def _wanted(op: AddTTLOp | AlterTTLOp | DropTTLOp) -> Wanted:
    where = f"op.{op.verb}_ttl({op.table_name!r}) default_ttl"
    try:
        return Wanted.of(op.table_name, as_policy(op.default_ttl, where=where), op.schema)
    except (InvalidTTL, TTLConfigurationError) as error:
        raise MigrationRefusedError(str(error)) from error


def _choose(value: object, name: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise MigrationRefusedError(f"{name}={value!r}: give {' or '.join(map(repr, choices))}.")


def _check_part(part: float | None) -> None:
    if part is not None and (isinstance(part, bool) or not 0 <= part <= 1):
        raise MigrationRefusedError(
            f"max_expired_now={part!r} is no part of the rows: give a number from 0 to 1."
        )


def _found(runner: Runner, wanted: Wanted) -> Found:
    if runner.dialect.name not in _STEPS:
        clock_of(runner.dialect)  # Says which databases there are.
    return Found() if runner.offline else look(runner.connection, wanted)


def _steps(runner: Runner, wanted: Wanted, found: Found) -> Steps:
    return _STEPS[runner.dialect.name](runner, wanted, found)
