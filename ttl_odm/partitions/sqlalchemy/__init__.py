"""`Partitions` on SQLAlchemy; imported when the first table in partitions is met.

- `layout`: whether a table can be cut as its model declares it, by which column, and how
  ``create_all()`` makes it.
- `catalogue`: the partitions of a table that is cut by time, and which of them are over.
- `whereabouts`: everything that a sweep asks: where the rows are, and which partitions go whole;
  what `ttl-odm check` reports of them.
- `leaf_tables`: the partitions of a table on PostgreSQL, each of which is swept by itself.
- `work`: the next step with a whole partition, and what prevents it.
- `postgresql_work`, `mysql_work`: how it is done on PostgreSQL, and on MariaDB and MySQL.
"""

from __future__ import annotations

from ttl_odm.partitions.sqlalchemy.layout import lay_out

__all__ = ["lay_out"]
