"""Tables whose rows follow others: the rule, the columns of the link, their index, the ancestry.

The columns and the index are needed before the parent is known: Alembic and ``create_all()`` may
come before the mappers are configured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Column, and_, inspect
from sqlalchemy.exc import InvalidRequestError

from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.policy import schema
from ttl_odm.sqlalchemy.policy.references import all_rules_below, rule_of
from ttl_odm.sqlalchemy.rewrite.statement_rules import StatementRule
from ttl_odm.sqlalchemy.time.clock import UnwrappedConfigurationError
from ttl_odm.sweeper.hooks import sweep_of

if TYPE_CHECKING:
    from sqlalchemy import ForeignKeyConstraint, FromClause, Table
    from sqlalchemy.orm import Mapper

    from ttl_odm.follows import Follows


@dataclass(frozen=True, slots=True)
class Following(StatementRule):
    """The rule of a table whose rows live while their parents do."""

    declared: Follows


def following_of(table: object) -> Following | None:
    """Return the rule of a table; None if its rows don't follow others."""
    rule = rule_of(table)
    return rule if isinstance(rule, Following) else None


def all_followers(table: Table) -> list[Following]:
    """Return the rules of all tables that follow a table, directly or not, parents first."""
    return [rule for rule in all_rules_below(table) if isinstance(rule, Following)]


class Ancestry(NamedTuple):
    """A table joined to its parents, up to the rows that have a lifetime.

    Attributes:
        joined: The table and its parents, as one FROM clause.
        levels: The rule of each table that follows, with the alias of its parent, upwards.
        root: The alias of the last parent; the table itself if it follows nothing.
    """

    joined: FromClause
    levels: list[tuple[Following, FromClause]]
    root: FromClause


def ancestry(table: Table, *, keeps_orphans: bool) -> Ancestry:
    """Join a table to its parents; `keeps_orphans` makes these outer joins."""
    joined: FromClause = table
    source: FromClause = table
    levels: list[tuple[Following, FromClause]] = []
    following = following_of(table)
    while following is not None:
        links = following.links()
        parent = links.parent.alias()
        same_key = (source.c[own.key] == parent.c[theirs.key] for own, theirs in links.pairs)
        joined = joined.join(parent, and_(*same_key), isouter=keeps_orphans)
        levels.append((following, parent))
        source, following = parent, following_of(links.parent)
    return Ancestry(joined, levels, source)


def index_link(table: Table) -> None:
    """Give a table the index of its link, unless an index of its own serves, or it is scanned.

    Raises:
        TTLConfigurationError: The link is misdeclared.
    """
    following = following_of(table)
    if following is None or sweep_of(following.owner) == "scan":
        return
    try:
        names = [column.name for column in _link_columns(following)]
    except (InvalidRequestError, NameError):
        return  # The parent isn't declared yet.
    columns = {column.name: column for column in table.c}
    original: Any = inspect(following.owner).local_table
    schema.add_link_index(table, [columns[name] for name in names], original.name)


def _link_columns(following: Following) -> list[Column[object]]:
    """Return the columns that lead to the parent.

    Mappers are configured only as a last resort: that fails for good if one of them names a model
    that isn't imported yet.
    """
    mapper: Mapper[Any] = inspect(following.owner)
    declared = following.declared
    where = f"{following.owner.__name__}.__ttl__ = {declared!r}"
    if not isinstance(declared.parent, str):
        return [column_of(mapper, own, where) for own, _ in declared.on]
    relationship = compat.relationship_of(mapper, declared.parent)
    if relationship is None:
        return list(key_of(mapper, declared.parent, where).columns)
    key = None if mapper.configured else compat.only_foreign_key(relationship)
    return following.links().own if key is None else list(key.columns)


def key_of(mapper: Mapper[Any], name: str, where: str) -> ForeignKeyConstraint:
    """Return the only foreign key of a class's column; TTLConfigurationError if it isn't one."""
    column = column_of(mapper, name, where)
    table: Any = mapper.local_table
    constraints: set[ForeignKeyConstraint] = table.foreign_key_constraints
    keys = [key for key in constraints if column in set(key.columns)]
    if len(keys) != 1:
        raise UnwrappedConfigurationError(
            f"{where}: {name!r} has {len(keys) or 'no'} foreign keys; name a relationship, or give "
            "the parent's class and on={...}."
        )
    return keys[0]


def column_of(mapper: Mapper[Any], name: str, where: str) -> Column[object]:
    """Return the column of a class by its attribute or name; TTLConfigurationError for none."""
    columns: Any = mapper.local_table.c
    column: Any = mapper.columns.get(name)
    if column is None:
        column = next((own for own in columns if own.name == name), None)
    if isinstance(column, Column):
        return column
    raise UnwrappedConfigurationError(
        f"{where}: {mapper.class_.__name__} has no relationship or column {name!r}; it has "
        f"{', '.join(map(repr, mapper.attrs.keys()))}."
    )
