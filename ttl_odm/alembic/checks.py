"""The checks of a migration before its first DDL.

Checks only read, so a migration that can't work, or would do harm, is rejected while the table is
unchanged.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Date, DateTime, Integer, inspect, text

from ttl_odm.alembic.runner import MigrationRefusedError, Runner
from ttl_odm.alembic.target_schema import LAST_MODIFIED, OWN_TTL
from ttl_odm.core.values import MAX_TTL, NEVER
from ttl_odm.sqlalchemy.policy.references import index_link, root_of, rule_of
from ttl_odm.sqlalchemy.policy.schema import in_key_order, link_index
from ttl_odm.sqlalchemy.sweep.foreign_keys import ReferringKeys, is_indexed
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper.hooks import sweep_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Column, Connection

    from ttl_odm.alembic.reflection import ExistingSchema
    from ttl_odm.alembic.target_schema import TargetSchema
    from ttl_odm.sqlalchemy.policy.rules import Rule

log = logging.getLogger("alembic.ttl_odm")


def refuse_existing(target: TargetSchema, existing: ExistingSchema, *, keep_ttl: bool) -> None:
    """Reject a table that already has columns that the operation would add."""
    names = [name for name in target.table.c.keys() if name in existing.columns]  # noqa: SIM118
    if keep_ttl and names == [target.own_ttl.name]:
        return
    if len(names) == len(target.table.c):
        raise MigrationRefusedError(
            f"Table {target.label} already has TTL: it has the columns {', '.join(names)}. "
            "Use op.alter_ttl() to change it or to add what is missing."
        )
    if names == [target.own_ttl.name]:
        raise MigrationRefusedError(
            f"Table {target.label} already has a column {names[0]!r}. If it holds rows' own ttl "
            "in seconds, keep it with op.add_ttl(..., keep_ttl=True); otherwise rename it."
        )
    if names:
        raise MigrationRefusedError(
            f"Table {target.label} already has a column {names[0]!r}, which is not left over from "
            "an unfinished op.add_ttl(). Drop or rename it first."
        )


def refuse_other_case(target: TargetSchema, existing: ExistingSchema) -> None:
    """Reject a column that the database takes for one of TTL's: its name differs in case only."""
    ours = set(target.table.c.keys())
    for name in existing.columns:
        if name not in ours and name.lower() in ours:
            raise MigrationRefusedError(
                f"Table {target.label} has a column {name!r}, which this database takes for "
                f"{name.lower()!r}. Rename it first: to {target.own_ttl.name!r} if it holds rows' "
                "own ttl in seconds, which op.add_ttl(..., keep_ttl=True) keeps."
            )


def refuse_missing(target: TargetSchema, existing: ExistingSchema) -> None:
    """Reject a table without TTL, for operations that change or remove it."""
    missing = [name for name in (LAST_MODIFIED, OWN_TTL) if name not in existing.columns]
    if missing:
        raise MigrationRefusedError(
            f"Table {target.label} has no TTL: it has no column {' and no '.join(missing)}. "
            "Use op.add_ttl()."
        )


def refuse_kept(connection: Connection, target: TargetSchema, existing: ExistingSchema) -> None:
    """Reject an existing column of rows' own ttl that isn't an integer or holds invalid values."""
    name = target.own_ttl.name
    if not isinstance(existing.columns[name].type, Integer):
        raise MigrationRefusedError(
            f"Table {target.label}: keep_ttl=True keeps column {name!r}, which is "
            f"{existing.columns[name].type!r}; a row's own ttl is a whole number of seconds."
        )
    if existing.check in ("missing", "outdated", "unenforced"):
        refuse_unchecked(connection, target)


def refuse_unchecked(connection: Connection, target: TargetSchema) -> None:
    """Reject rows that violate the CHECK."""
    dialect, name = connection.dialect, target.own_ttl.name
    table, condition = target.plain(dialect), target.condition(dialect)
    wrong = connection.scalar(text(f"SELECT count(*) FROM {table} WHERE NOT ({condition})"))
    if wrong:
        raise MigrationRefusedError(
            f"Table {target.label}: {wrong:,} rows have an invalid {name} (valid are NULL, -1, and "
            f"whole seconds from 1 to {MAX_TTL}). Set {name} to NULL or -1 in these rows first. "
            "To apply the default to them, as now: "
            f"UPDATE {table} SET {name} = NULL WHERE NOT ({condition})"
        )


def refuse_source(target: TargetSchema, existing: ExistingSchema, name: str) -> Column[Any]:
    """Return the column of ``backfill=``; reject one from which no instant can be read."""
    column = existing.columns.get(name)
    if column is None:
        raise MigrationRefusedError(
            f"Table {target.label} has no column {name!r} for backfill={name!r}; it has "
            f"{', '.join(existing.columns)}. Write 'now' to start lifetimes at the migration."
        )
    if not isinstance(column.type, (DateTime, Date)):
        raise MigrationRefusedError(
            f"Table {target.label}: backfill={name!r} is {column.type!r}, but backfill needs a "
            "column of dates and times (naive ones are read as UTC). For other columns, write "
            "backfill='now', and set _ts with your own statements."
        )
    if not existing.primary_key:
        raise MigrationRefusedError(
            f"Table {target.label} has no primary key, which backfill={name!r} needs to work in "
            "batches. Write backfill='now', or add a primary key."
        )
    return column


def refuse_expiring(
    connection: Connection,
    target: TargetSchema,
    instant: str,
    seconds: int | None,
    at_most: float | None,
) -> None:
    """Reject a migration by which too many rows would expire at once.

    Args:
        connection: The database.
        target: The table.
        instant: SQL for a row's last modification after the migration.
        seconds: The default ttl after the migration.
        at_most: The share of the rows, from 0 to 1, that may expire; None for any.
    """
    if at_most is None or seconds is None or seconds == NEVER:
        return
    clock = clock_of(connection.dialect)
    is_expired = f"{instant} <= {clock.now} - {seconds} * {clock.second}"
    query = text(
        f"SELECT count(*), coalesce(sum(CASE WHEN {is_expired} THEN 1 ELSE 0 END), 0) "
        f"FROM {target.plain(connection.dialect)}"
    )
    rows, expired = connection.execute(query).one()
    if rows and expired > at_most * rows:
        raise MigrationRefusedError(
            f"Table {target.label}: {int(expired):,} of {rows:,} rows ({expired / rows:.1%}) would "
            f"expire at once with a default ttl of {seconds:,} seconds, and max_expired_now="
            f"{at_most} allows {at_most:.1%}. Raise the default ttl, or the limit."
        )


def refuse_partitioned(target: TargetSchema, existing: ExistingSchema) -> None:
    """Reject indexes that can't be built without blocking writers."""
    if existing.is_nested and not all(map(existing.has_index, target.index_names)):
        raise MigrationRefusedError(
            f"Table {target.label} has partitions that are partitioned themselves or are foreign "
            "tables, so its indexes can't be built without blocking writers. Write "
            "in_transaction=True, which locks the table until the transaction ends, or do "
            "without indexes (sweep='scan')."
        )


_POSTGRESQL_RIGHTS: Final = text(
    "SELECT current_user, current_setting('transaction_read_only') = 'on', "
    "pg_has_role(c.relowner, 'USAGE'), has_schema_privilege(c.relnamespace, 'CREATE') "
    "FROM pg_class c WHERE c.oid = CAST(:table AS regclass)"
)
_MYSQL_RIGHTS: Final = text(
    # MySQL calls it 'NONE' if there is no role.
    "SELECT CURRENT_USER(), @@read_only, NULLIF(CURRENT_ROLE(), 'NONE'), EXISTS ("
    "SELECT 1 FROM information_schema.user_privileges p WHERE p.privilege_type = 'ALTER' "
    "AND p.grantee = g.grantee UNION ALL "
    "SELECT 1 FROM information_schema.schema_privileges p WHERE p.privilege_type = 'ALTER' "
    "AND p.grantee = g.grantee AND COALESCE(:schema, DATABASE()) LIKE p.table_schema UNION ALL "
    "SELECT 1 FROM information_schema.table_privileges p WHERE p.privilege_type = 'ALTER' "
    "AND p.grantee = g.grantee AND p.table_schema = COALESCE(:schema, DATABASE()) "
    "AND p.table_name = :table) "
    "FROM (SELECT CONCAT('''', REPLACE(CURRENT_USER(), '@', '''@'''), '''') AS grantee) g"
)


def refuse_without_rights(connection: Connection, target: TargetSchema) -> None:
    """Reject a database user who lacks the rights for the operation."""
    dialect = connection.dialect
    reason = None
    if dialect.name == "postgresql":
        names = {"table": target.plain(dialect)}
        user, read_only, owns, may_create = connection.execute(_POSTGRESQL_RIGHTS, names).one()
        if read_only:
            reason = "its transactions are read-only (transaction_read_only is on)"
        elif not owns:
            reason = (
                f"{user} is not its owner; run the migration as the owner, or as a member of "
                "that role"
            )
        elif not may_create:
            reason = f"{user} lacks CREATE on its schema, which creating indexes requires; GRANT it"
    elif dialect.name == "sqlite":
        if connection.exec_driver_sql("PRAGMA query_only").scalar():
            reason = "the connection is read-only (PRAGMA query_only)"
    else:
        table = target.table
        user, read_only, role, may_alter = connection.execute(
            _MYSQL_RIGHTS, {"schema": table.schema, "table": table.name}
        ).one()
        # These views don't show a role's rights. If the role lacks them too, the server reports it.
        if not may_alter and role is None:
            reason = f"{user} lacks ALTER; GRANT ALTER, INDEX, CREATE, DROP and UPDATE on it"
        elif read_only and not may_alter:
            reason = "the server is read-only"
    if reason:
        raise MigrationRefusedError(
            f"This database user may not change table {target.label}: {reason}. Nothing was "
            "changed."
        )


def warn_of_restricting_keys(
    runner: Runner, target: TargetSchema, existing: ExistingSchema
) -> None:
    """Log the foreign keys that will keep expired rows of a table from being deleted."""
    if runner.offline or not existing.columns:
        return
    name = target.table.schema, target.table.name
    for key in ReferringKeys(enforced=False).of(runner.connection, name):
        if key.restricts and not any(map(key.is_link_in, runner.metadatas)):
            log.warning(
                "Table %s: %s refers to it without ON DELETE, so referring rows prevent expired "
                "rows from being deleted. Write __ttl__ = Follows(%r) on the referring model, so "
                "that the rows expire together, or give the foreign key ON DELETE CASCADE or SET "
                "NULL.",
                target.label,
                key,
                key.columns[0],
            )


def warn_of_unindexed_links(runner: Runner, target: TargetSchema, existing: ExistingSchema) -> None:
    """Log the references to a table's rows that lack the index that the sweeper needs."""
    if runner.offline or not existing.columns:
        return
    connection, table = runner.connection, target.table
    keys, rules = ReferringKeys(enforced=False), list(_rules_below(runner, target))
    parent = keys.resolved(connection, (table.schema, table.name))
    unindexed = {
        (key.table, frozenset(key.columns)): key
        for key in keys.of(connection, parent)
        if not key.has_index
    }
    for rule in rules:
        schema, name = place = keys.place(connection, rule.table)
        own = in_key_order(rule.table, rule.links().own)
        columns = [str(column.name) for column in own]
        if not inspect(connection).has_table(name, schema):
            continue
        # The warning about the rule, if any, is enough.
        for reference in [reference for reference in unindexed if reference[0] == place]:
            if reference[1].issubset(columns):
                del unindexed[reference]
        if sweep_of(rule.owner) == "scan" or is_indexed(connection, place, columns):
            continue
        fix = "create the index that its model declares, in a migration"
        if link_index(rule.table) is not None:
            schema = f", schema={rule.table.schema!r}" if rule.table.schema else ""
            fix = f"op.add_follows({rule.table.name!r}, {columns!r}{schema})"
        log.warning(
            "Table %s: rows of %s follow it by %s, but no index begins with these columns. The "
            "sweeper needs one: %s.",
            target.label,
            rule.table.fullname,
            ", ".join(columns),
            fix,
        )
    for key in unindexed.values():
        log.warning(
            "Table %s: %s refers to it and has no index, so the sweeper will reject this table. "
            "Write index=True in the model of %s, or: %s",
            target.label,
            key,
            key.table[1],
            key.remedy(runner.dialect),
        )


def _rules_below(runner: Runner, target: TargetSchema) -> Iterator[Rule]:
    """Yield the rules of the application's models that lead to a table, directly or not."""
    for metadata in runner.metadatas:
        for table in list(metadata.tables.values()):
            rule = rule_of(table)
            root = None if rule is None else root_of(table)
            if rule is None or root is None or root.table.name != target.table.name:
                continue
            if target.table.schema in (None, root.table.schema):
                index_link(table)  # so that `link_index` returns the index of the model
                yield rule
