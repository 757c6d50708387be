"""The columns by which rows follow others, before the parent need be known, and their index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, inspect
from sqlalchemy.exc import InvalidRequestError

from ttl_odm.follows.sqlalchemy.following import following_of
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.policy import schema
from ttl_odm.sqlalchemy.time.clock import UnwrappedConfigurationError
from ttl_odm.sweeper.hooks import sweep_of

if TYPE_CHECKING:
    from sqlalchemy import ForeignKeyConstraint, Table
    from sqlalchemy.orm import Mapper

    from ttl_odm.follows.sqlalchemy.following import Following


def index_link(table: Table) -> None:
    """Give a table the index of its link, unless its model or an index of its own sees to that.

    Raises:
        TTLConfigurationError: What the rows follow is misdeclared.
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


def _link_columns(following: Following) -> list[Column[Any]]:
    """The columns that lead to the parent.

    Mappers are configured only where nothing else tells the columns: that would fail for good where
    a model that one of them names isn't imported yet.
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
    """The foreign key that a column belongs to."""
    column = column_of(mapper, name, where)
    table: Any = mapper.local_table
    every: set[ForeignKeyConstraint] = table.foreign_key_constraints
    keys = [key for key in every if column in set(key.columns)]
    if len(keys) != 1:
        raise UnwrappedConfigurationError(
            f"{where}: {name!r} has {len(keys) or 'no'} foreign keys; name a relationship, or give "
            "the parent's class and on={...}."
        )
    return keys[0]


def column_of(mapper: Mapper[Any], name: str, where: str) -> Column[Any]:
    """The column of a name of a class."""
    columns: Any = mapper.local_table.c
    column: Any = mapper.columns.get(name)
    if column is None:
        column = next((one for one in columns if one.name == name), None)
    if isinstance(column, Column):
        return column
    raise UnwrappedConfigurationError(
        f"{where}: {mapper.class_.__name__} has no relationship or column {name!r}; it has "
        f"{', '.join(map(repr, mapper.attrs.keys()))}."
    )
