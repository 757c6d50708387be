"""`Partitions` on SQLAlchemy; imported when the first table in partitions is met.

- `layout`: whether a table can be cut as its model declares it, by which column, and how
  ``create_all()`` makes it.
- `whereabouts`: all that a sweep asks: where the rows are, and which partitions go whole.
- `catalogue`: the partitions of a table that is cut by time, and which of them are over.
- `leaf_tables`: the partitions of a table on PostgreSQL, each of which is swept by itself.
- `work`: what is to be done next with one of them, and what stands against it.
- `whole_partitions`: making and dropping them, as PostgreSQL does it.
- `locked_partitions`: the same for MariaDB and MySQL, which have no transactions of DDL.
- `checks`: what `ttl-odm check` reports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ttl_odm.partitions.sqlalchemy.layout import partitioning_of

if TYPE_CHECKING:
    from ttl_odm.partitions import Partitions
    from ttl_odm.sqlalchemy.policy.bindings import Binding, TableLayout


def lay_out(binding: Binding, declared: Partitions, where: str) -> TableLayout:
    """Return how a table is cut."""
    return partitioning_of(binding, declared, where)
