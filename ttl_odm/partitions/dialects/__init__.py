"""What is known of partitions in each family of SQL databases: texts, the same for every ORM.

- `ddl`: `PartitionDDL`, how a family cuts tables into partitions
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
    """How a database that an ORM calls by this name cuts tables; None if it doesn't, with us."""
    return _FAMILIES.get(name)


__all__ = ["PartitionDDL", "partition_ddl"]
