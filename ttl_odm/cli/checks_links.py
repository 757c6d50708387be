"""Columns that lead to swept rows and have no index: what `ttl-odm check` says of them.

They are columns of foreign keys, and the links of rows with a rule. One index serves both, so there
is one finding for each table and its columns.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlalchemy import Table, inspect

from ttl_odm.cli.checked_table import MIGRATE
from ttl_odm.cli.checks_references import declared_as
from ttl_odm.cli.tables import REFLECTED
from ttl_odm.sqlalchemy.policy import schema
from ttl_odm.sqlalchemy.policy.references import all_rules_below, index_link
from ttl_odm.sqlalchemy.sweep.foreign_keys import ReferringKey, ReferringKeys, is_indexed
from ttl_odm.sqlalchemy.sweep.transactions import name_of
from ttl_odm.sweeper.findings import Finding, Severity
from ttl_odm.sweeper.hooks import sweep_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

    from ttl_odm.sqlalchemy.policy.bindings import Binding

_READS_ALL = "the database would read all of that table for each deleted row"


def unindexed(connection: Connection, binding: Binding, target: str) -> Iterator[Finding]:
    """Report what leads to the rows of a policy, or to their dependents, without an index."""
    keys = ReferringKeys()
    links = _unindexed_links(connection, binding)
    for _, key in keys.of_rows(connection, binding):
        if not key.has_index:
            wanted = _taken(links, connection, keys, key)
            yield Finding(
                Severity.ERROR,
                "missing-fk-index",
                target,
                f"{key} refers to it and has no index, so the sweeper rejects the table: "
                f"{_READS_ALL}",
                _fix(connection, binding, wanted),
            )
    for rule in all_rules_below(binding.table):
        place = keys.place(connection, rule.table)
        if not inspect(connection).has_table(place[1], place[0]):
            continue
        for key in keys.of(connection, place):
            if not key.has_index:
                wanted = _taken(links, connection, keys, key)
                yield Finding(
                    Severity.WARNING,
                    "missing-fk-index",
                    target,
                    f"{key} refers to rows of {place[1]}, which follow it, and has no index: "
                    f"{_READS_ALL} there",
                    _fix(connection, binding, wanted),
                )
    for link in links:
        yield Finding(
            Severity.WARNING,
            "missing-follows-index",
            target,
            f"{link} follows it and has no index, so a sweep reads all of that table for each "
            "batch of expired rows",
            _fix(connection, binding, link),
        )


def _unindexed_links(connection: Connection, binding: Binding) -> list[ReferringKey]:
    """The columns that lead rows to those of a policy, unless their model wants no index."""
    links = []
    for rule in all_rules_below(binding.table):
        name, table = name_of(connection, rule.table), rule.table
        if not inspect(connection).has_table(name[1], name[0]):
            continue
        own = schema.in_key_order(table, rule.links().own)
        columns = tuple(str(column.name) for column in own)
        is_wanted = sweep_of(rule.owner) == "index"
        if is_wanted and not is_indexed(connection, name, columns):
            links.append(ReferringKey(name, columns, (), "", has_index=False))
    return links


def _taken(
    links: list[ReferringKey], connection: Connection, keys: ReferringKeys, key: ReferringKey
) -> ReferringKey:
    """Take the link whose index serves a foreign key too from the list; else, the key itself."""
    for link in links:
        place = keys.resolved(connection, link.table)
        if place == key.table and set(link.columns).issuperset(key.columns):
            links.remove(link)
            return link
    return key


def _fix(connection: Connection, binding: Binding, key: ReferringKey) -> str:
    """What adds the index so that the next migration leaves it there."""
    table = declared_as(connection, binding, key)
    if not isinstance(table, Table) or table.metadata.info.get(REFLECTED):
        return key.remedy(connection.dialect)
    columns = ", ".join(key.columns)
    index_link(table)
    link = schema.link_index(table)
    if link is not None and {column.name for column in link.columns} == set(key.columns):
        if not schema.is_created_on(link, connection.dialect.name):
            return f"give {columns} of {table.name} a length, then migrate: {MIGRATE}"
        statement = replace(key, index=str(link.name)).remedy(connection.dialect)
        return f"{statement} -- or migrate: Follows declares this index, which index=True replaces"
    how = f"index=True on {columns}"
    if len(key.columns) > 1:
        how = f"Index({', '.join(map(repr, ('ix', *key.columns)))}) in __table_args__"
    return f"write {how} in the model of {table.name}, then migrate: {MIGRATE}"
