"""The indexes of a SQL table as the database's catalogue has them, for `ttl-odm check`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from sqlalchemy import text

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.dialects.mysql import INHERITED_END, OWN_END
from ttl_odm.sqlalchemy.sweep.foreign_keys import name_of

if TYPE_CHECKING:
    from sqlalchemy import Connection, Table
    from sqlalchemy.engine import Dialect

    from ttl_odm.sqlalchemy.policy.binding import Binding


class Index(NamedTuple):
    """An index as the database has it.

    Attributes:
        first: Its first column; None where that is an expression, or where rows are left out.
        is_valid: Whether it can be used.
        definition: The statement that makes it; empty where the database has none.
    """

    first: str | None
    is_valid: bool
    definition: str


def indexes_of(connection: Connection, table: Table) -> dict[str, Index]:
    """Return the indexes of a table by their names."""
    dialect = connection.dialect
    schema, name = name_of(connection, table)
    parameters = {"schema": schema, "table": name}
    quote = dialect.identifier_preparer.quote
    if dialect.name == "postgresql":
        parameters["relation"] = ".".join(quote(part) for part in (schema, name) if part)
        rows = connection.execute(_POSTGRESQL_INDEXES, parameters)
    elif dialect.name in MYSQL_FAMILY:
        rows = connection.execute(_MYSQL_INDEXES, parameters)
    else:
        place = quote(schema) if schema else "main"
        statement = text(_SQLITE_INDEXES.format(master=f"{place}.sqlite_master"))
        rows = connection.execute(statement, {**parameters, "schema": schema or "main"})
    return {name: Index(*others) for name, *others in rows}


def is_as_declared(index: Index, binding: Binding, suffix: str, dialect: Dialect) -> bool:
    """Whether an index that is called like one of ours is over the right rows, in their order."""
    own = suffix == "ttl_own"
    if dialect.name in MYSQL_FAMILY:
        return index.first == (OWN_END if own else INHERITED_END)
    assert binding.override is not None  # noqa: S101 (without one there are none)
    definition = index.definition.lower().translate({ord(mark): None for mark in '() "'})
    ttl, stamp = binding.override.name.lower(), binding.last_modified.name.lower()
    _, _, rows = definition.rpartition("where")
    return rows == (f"{ttl}>0" if own else f"{ttl}isnull") and stamp in definition


_POSTGRESQL_INDEXES: Final = text("""
SELECT c.relname, CASE WHEN i.indpred IS NULL THEN a.attname::text END, i.indisvalid,
  pg_get_indexdef(i.indexrelid)
FROM pg_index i
JOIN pg_class c ON c.oid = i.indexrelid
LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
WHERE i.indrelid = CAST(:relation AS text)::regclass
""")
_MYSQL_INDEXES: Final = text("""
SELECT index_name, column_name, 1, '' FROM information_schema.statistics
WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :table AND seq_in_index = 1
""")
_SQLITE_INDEXES: Final = """
SELECT l.name, CASE WHEN l.partial = 0 THEN i.name END, 1, COALESCE(m.sql, '')
FROM pragma_index_list(:table, :schema) AS l, pragma_index_info(l.name, :schema) AS i
LEFT JOIN {master} AS m ON m.type = 'index' AND m.name = l.name
WHERE i.seqno = 0
"""
