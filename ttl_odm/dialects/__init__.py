"""What ttl_odm knows of each family of SQL databases: texts and numbers, the same for every ORM.

- `family`: `Family`, all that a family of databases brings; names that are the same everywhere;
  keeping writes from replicas and subscribers
- `postgresql`: PostgreSQL
- `mysql`: MariaDB and MySQL
- `sqlite`: SQLite
- `general`: `General`, the base of a family for any other database
- `families`: the list of ours; families that other distributions bring
- `indexes`: which indexes of a table lead to its expired rows
- `errors`: which errors of a driver pass by themselves, what each says in one line, and how often a
  change of a stored default is tried again

This package must not know an ORM: the adapters make expressions of its texts, and quote the names
that they put into them. Nor does it query a database; it has the queries.
"""

from ttl_odm.dialects.families import FAMILIES, MYSQL_FAMILY, family_named
from ttl_odm.dialects.family import EPOCH, Family, index_name
from ttl_odm.dialects.general import General
from ttl_odm.dialects.mysql import MySQL
from ttl_odm.dialects.postgresql import PostgreSQL
from ttl_odm.dialects.sqlite import SQLite

__all__ = [
    "EPOCH",
    "FAMILIES",
    "MYSQL_FAMILY",
    "Family",
    "General",
    "MySQL",
    "PostgreSQL",
    "SQLite",
    "family_named",
    "index_name",
]
