"""The tables in FROM elements: joins, aliases and samples of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Alias, Join, TableSample
from sqlalchemy.sql.selectable import FromGrouping

from ttl_odm.sqlalchemy.compat import original

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import FromClause


def leaves(source: FromClause) -> Iterator[FromClause]:
    """The FROM elements that a join is made of; an element that is not a join, itself."""
    if isinstance(source, Join):
        yield from leaves(source.left)
        yield from leaves(source.right)
    elif isinstance(source, FromGrouping):
        yield from leaves(source.element)
    else:
        yield source


def table_of(source: object) -> object:
    """The table that an alias or a sample stands for, or what it is itself."""
    while isinstance(source, (Alias, TableSample)):
        source = source.element
    return original(source)
