"""What a database's own job loses below the table that it sweeps.

The job deletes the rows of its table, and knows no models. Rows that follow these are removed only
by a foreign key with ON DELETE CASCADE. SET NULL would leave them without a parent, perhaps live
again; without a foreign key they would stay forever, or come back under a new parent. And a CASCADE
deletes rows of recorded models (see `ttl_odm.sqlalchemy.policy.references`) without a trace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import inspect

from ttl_odm.sqlalchemy.policy.references import Change, all_rules_below
from ttl_odm.sqlalchemy.sweep.foreign_keys import ReferringKey, ReferringKeys
from ttl_odm.sqlalchemy.sweep.transactions import name_of

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sqlalchemy.policy.rules import Rule


def would_lose(connection: Connection, binding: Binding) -> bool:
    """Whether a job would leave rows behind, or delete some without a trace.

    For tables that the database doesn't have yet, the models decide.
    """
    return (
        bool(left_behind(connection, binding, planned=True))
        or bool(untraced_keys(connection, binding))
        or any(Change(binding.table).recorded())
    )


def left_behind(connection: Connection, binding: Binding, *, planned: bool = False) -> list[str]:
    """Return the tables in which a job leaves rows behind, at whatever depth.

    Args:
        connection: A connection, in a transaction.
        binding: The policy of the table that the database sweeps.
        planned: Include tables that the database doesn't have yet, as their models declare them.
    """
    keys = ReferringKeys()
    return [
        rule.table.fullname
        for rule in all_rules_below(binding.table)
        if not _is_cascade(connection, rule, keys, planned=planned)
    ]


def untraced_keys(connection: Connection, binding: Binding) -> list[ReferringKey]:
    """Return the foreign keys by which a job deletes rows of recorded models, at whatever depth.

    Args:
        connection: A connection, in a transaction.
        binding: The policy of the table that the database sweeps.
    """
    keys = ReferringKeys()
    waiting = [key for _, key in keys.of_rows(connection, binding)]
    seen, untraced = set(waiting), []
    while waiting:
        key = waiting.pop()
        if key.deletes != "CASCADE":
            continue
        if keys.is_recorded(connection, key.table):
            untraced.append(key)
            continue
        below = [key for key in keys.of(connection, key.table) if key not in seen]
        seen.update(below)
        waiting += below
    return sorted(untraced, key=str)


def _is_cascade(connection: Connection, rule: Rule, keys: ReferringKeys, *, planned: bool) -> bool:
    """Whether a foreign key deletes the rows of a rule together with their parents."""
    links, table = rule.links(), rule.table
    link = {(str(own.name), str(theirs.name)) for own, theirs in links.pairs}
    schema, name = name_of(connection, table)
    if not inspect(connection).has_table(name, schema):
        return not planned or any(
            key.referred_table is links.parent
            and (key.ondelete or "").upper() == "CASCADE"
            and all((str(own.parent.name), str(own.column.name)) in link for own in key.elements)
            for key in table.foreign_key_constraints
        )
    place, parent = keys.place(connection, table), keys.place(connection, links.parent)
    return any(
        key.table == place and key.deletes == "CASCADE" and link.issuperset(key.pairs)
        for key in keys.of(connection, parent)
    )
