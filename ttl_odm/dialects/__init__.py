"""What ttl_odm knows of each family of SQL databases: texts and numbers, the same for every ORM.

- `family`: `Family`, all that a family of databases brings; names that are the same everywhere
- `postgresql`: PostgreSQL
- `mysql`: MariaDB and MySQL; `mysql_values`: what their columns make of a value
- `sqlite`: SQLite
- `definitions`: what MariaDB and MySQL say of a CHECK
- `replication`: keeping writes from replicas and subscribers
- `waits`: how long a change of a stored default waits for others
- `indexes`: which indexes of a table lead to its expired rows
- `general`: `General`, what a family of somebody else's begins with
- `errors`: which errors of a driver pass by themselves, and how each reads in one line
- `entry_points`: families that other distributions bring

This package must not know an ORM: the adapters make expressions of its texts, and quote the names
that they put into them. Nor does it ask a database; it only says what there is to be asked.
"""

from ttl_odm.dialects.family import EPOCH, Family, index_name
from ttl_odm.dialects.general import General
from ttl_odm.dialects.mysql import MySQL
from ttl_odm.dialects.postgresql import PostgreSQL
from ttl_odm.dialects.sqlite import SQLite

FAMILIES: tuple[Family, ...] = (PostgreSQL(), MySQL(), SQLite())

MYSQL_FAMILY = MySQL.names


def family_named(name: str) -> Family | None:
    """The family of the database that an ORM calls by this name; None if it is not one of ours."""
    return next((family for family in FAMILIES if name in family.names), None)


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
