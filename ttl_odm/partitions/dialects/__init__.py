"""The statements about partitions in each family of SQL databases: texts, for every ORM.

- `ddl`: `PartitionDDL`, the interface of a family
- `postgresql`: PostgreSQL
- `mysql`: MariaDB and MySQL

This package must not know an ORM; see `ttl_odm.dialects`.
"""

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.partitions.dialects.ddl import PartitionDDL
from ttl_odm.partitions.dialects.mysql import MySQLPartitions
from ttl_odm.partitions.dialects.postgresql import PostgreSQLPartitions

_FAMILIES: dict[str, PartitionDDL] = {
    "postgresql": PostgreSQLPartitions(),
    **dict.fromkeys(MYSQL_FAMILY, MySQLPartitions()),
}


def partition_ddl(name: str) -> PartitionDDL | None:
    """Return the statements for a database, by the name that ORMs give it; None without support."""
    return _FAMILIES.get(name)


__all__ = ["PartitionDDL", "partition_ddl"]
