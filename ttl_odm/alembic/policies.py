"""The rows of defaults that the database stores: a migration begins them, and takes them away.

The tables that they are in are made with the first of them, by no line of Alembic's own, and stay.
What is stored by then is never overwritten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import MetaData, inspect, select
from sqlalchemy.schema import CreateTable

from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.stored.rows import CHANGES, POLICIES
from ttl_odm.stored.sqlalchemy.tables import (
    declared_policy_tables,
    name_of,
    row_of,
    starting_row,
    tables_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from alembic.runtime.migration import MigrationContext
    from sqlalchemy import ClauseElement, Connection, Table
    from sqlalchemy.engine import Dialect

    from ttl_odm.alembic.runner import Runner
    from ttl_odm.alembic.target_schema import TargetSchema

POLICY_TABLES: Final = (POLICIES, CHANGES)


def place_of(context: MigrationContext) -> MetaData | None:
    """The application's MetaData where it says where the tables are; None where it doesn't."""
    given: Any = context.opts.get("target_metadata")
    metadatas: Iterable[Any] = given if isinstance(given, (list, tuple)) else [given]
    known = (one for one in metadatas if isinstance(one, MetaData))
    return next((one for one in known if declared_policy_tables(one) is not None), None)


def begin(runner: Runner, target: TargetSchema) -> None:
    """Make the tables and the row that aren't there yet, where the default is stored."""
    stored, dialect = target.policy.stored, runner.dialect
    if stored is None:
        return
    for table in tables_of(target.table):
        runner.at_once(_text(CreateTable(table, if_not_exists=True), dialect))
    clock = clock_of(dialect)
    now = clock.literal(clock.now_at_write)
    runner.at_once(_text(starting_row(target.table, stored.start, now), dialect))


def end(runner: Runner, target: TargetSchema) -> None:
    """Take the row away; a script does so only where it is told that there is one."""
    is_told = target.policy.stored is not None
    if is_told if runner.offline else is_begun(runner.connection, target.table):
        policies = tables_of(target.table).policies
        rows = policies.delete().where(policies.c.name == name_of(target.table))
        runner.at_once(_text(rows, runner.dialect))


def settle(runner: Runner, target: TargetSchema) -> None:
    """Let there be a row where the default is stored, and none where it isn't any more."""
    if target.policy.stored is None:
        end(runner, target)
    else:
        begin(runner, target)


def is_begun(connection: Connection, table: Table) -> bool:
    """Whether a default of a table is stored."""
    policies = tables_of(table).policies
    if not inspect(connection).has_table(policies.name, schema=policies.schema):
        return False
    return connection.scalar(select(policies.c.name).where(*row_of(table))) is not None


def _text(element: ClauseElement, dialect: Dialect) -> str:
    return str(element.compile(dialect=dialect, compile_kwargs={"literal_binds": True}))
