"""The indexes that a table has in the database, and which of them lead to its expired rows.

The database is asked, not the declarations: a table of somebody else's may have an index that no
model knows of, and one that a model declares may be missing, or half built. Each kind of rows that
can expire needs one that is ordered by the end of their lives (`needs_of`); a table that lacks one
is walked.

Asked is what a catalogue knows. Whether a planner takes the index is its own decision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakKeyDictionary

from sqlalchemy import Table, inspect, text

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.dialects.mysql import INHERITED_END, OWN_END, MySQL
from ttl_odm.dialects.postgresql import relation
from ttl_odm.sqlalchemy.policy.schema import can_lead
from ttl_odm.sqlalchemy.sweep.foreign_keys import name_of
from ttl_odm.sqlalchemy.sweep.transactions import prepared, reading
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper import Part

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import Connection
    from sqlalchemy.engine import Dialect

    from ttl_odm.dialects import Family
    from ttl_odm.sqlalchemy.policy.binding import Binding


class StoredIndex(NamedTuple):
    """An index as the database has it.

    Attributes:
        name: Its name.
        first: The column that it begins with; None where that is an expression, or a column's
            first few characters.
        rows: The condition of the rows that it holds; empty for all of them.
        is_valid: Whether it is complete, and planners see it.
        is_ordered: Whether it can be read in ascending order, NULLs where the database has them:
            no hash, no BRIN, no other collation.
        definition: The statement that makes it; empty where the database has none.
        second: The next column, as `first`; None where there is none.
        collation: By which it takes some values of its first column for the same, as Acme for acme;
            None where it tells all apart.
    """

    name: str
    first: str | None
    rows: str
    is_valid: bool
    is_ordered: bool
    definition: str
    second: str | None = None
    collation: str | None = None

    def leads_to(self, need: IndexNeed) -> bool:
        """Whether a sweep can go by it."""
        return self.is_valid and self.is_ordered and self.is_over(need)

    def narrows(self, need: IndexNeed) -> bool:
        """Whether it tells which stretches of the table may hold expired rows: a BRIN does."""
        is_summary = self.is_valid and " USING brin (" in self.definition
        return is_summary and need.ttl is None and self.is_over(need)

    def is_over(self, need: IndexNeed) -> bool:
        """Whether it is over the right rows, in the right order."""
        rows, stamp = _bare(self.rows), _bare(need.column)
        if need.scope is not None:
            is_led = (self.first, self.second) == (need.scope, need.column)
            return is_led and rows in ("", "" if need.ttl is None else f"{_bare(need.ttl)}isnull")
        if need.ttl is None:
            # A comparison with the column holds for no NULL, so these need not be in it.
            return self.first == need.column and rows in (
                "",
                f"{stamp}isnotnull",
                f"{stamp}notnull",
            )
        ttl, order = _bare(need.ttl), _bare(self.definition).partition("where")[0]
        if need.part is Part.OWN:
            return rows == f"{ttl}>0" and self.first is None and stamp in order and ttl in order
        return rows in (f"{ttl}isnull", "") and self.first == need.column


class IndexNeed(NamedTuple):
    """What an index has to be for a part of a table's rows.

    It is over the column itself where `ttl` is None; else it is one of the contract's two partial
    ones, over the rows that inherit the default, or over those with a ttl of their own. A column
    leads it whose values have stored defaults of their own: `scope`.
    """

    part: Part
    column: str
    ttl: str | None = None
    scope: str | None = None

    @property
    def least(self) -> IndexNeed:
        """What a sweep can do with: by the shortest default of all scopes."""
        return self._replace(scope=None)

    @property
    def is_partial(self) -> bool:
        """Whether it is one of the contract's two."""
        return self.ttl is not None or self.column in (INHERITED_END, OWN_END)


_Seen = dict["IndexNeed", StoredIndex]

_seen: WeakKeyDictionary[Table, WeakKeyDictionary[Dialect, _Seen]] = WeakKeyDictionary()
"""The needs that an index was seen for, and where: they are not looked for again."""


def needs_of(binding: Binding, family: Family) -> list[IndexNeed]:
    """The indexes that lead to all expired rows of a table; none where indexes can't do that.

    Rows whose own ttl is in a column of the application's, and NULLs that are expired, are in no
    index at the place where they end.
    """
    stamp, own, limit = binding.last_modified, binding.override, binding.max_lifetime
    if binding.nulls_expire or (own is not None and not binding.instants.native):
        return []
    if own is None:
        needs = [IndexNeed(Part.INHERITING, stamp.name)]
    elif not family.indexes_parts:
        return []
    elif isinstance(family, MySQL):  # which have no partial indexes, but virtual columns
        needs = [IndexNeed(Part.INHERITING, INHERITED_END), IndexNeed(Part.OWN, OWN_END)]
    else:
        needs = [IndexNeed(part, stamp.name, own.name) for part in (Part.INHERITING, Part.OWN)]
    scope = binding.discriminator
    if own is not None and binding.is_scoped and scope is not None and can_lead(scope, family):
        needs[0] = needs[0]._replace(scope=scope.name)
    return needs if limit is None else [*needs, IndexNeed(Part.CAPPED, limit.created.name)]


def is_walked(connection: Connection, binding: Binding) -> bool:
    """Whether a sweep has to walk a table: it was declared so, or lacks an index.

    The connection is fresh from the pool. The database is asked until it has all that are needed.
    """
    needs = needs_of(binding, clock_of(connection.dialect))
    if binding.sweep == "scan" or not needs:
        return True
    seen = _seen_of(connection, binding, needs)
    return not all(need in seen or need.least in seen for need in needs)


def scope_index(connection: Connection, binding: Binding) -> StoredIndex | None:
    """The index by which a sweep comes to one scope after the other; None where it can't.

    The connection is fresh from the pool.
    """
    if not binding.is_scoped or is_walked(connection, binding):
        return None
    needs = needs_of(binding, clock_of(connection.dialect))
    seen = _seen_of(connection, binding, needs)
    return next((seen[need] for need in needs if need.scope and need in seen), None)


def _seen_of(connection: Connection, binding: Binding, needs: Sequence[IndexNeed]) -> _Seen:
    """The needs for which the database has an index, or has had one."""
    places = _seen.setdefault(binding.table, WeakKeyDictionary())
    seen = places.setdefault(connection.dialect, {})
    if any(need not in seen for need in needs):
        with prepared(connection), reading(connection):
            stored = stored_indexes(connection, binding.table)
        every = {*needs, *(need.least for need in needs)}
        seen |= {need: index for need in every for index in stored if index.leads_to(need)}
    return seen


def is_narrowed(connection: Connection, binding: Binding, source: Table) -> bool:
    """Whether a walk need not go through all of a table, or a partition, on PostgreSQL."""
    needs = needs_of(binding, clock_of(connection.dialect))
    return len(needs) == 1 and any(
        index.narrows(needs[0]) for index in stored_indexes(connection, source)
    )


def stored_indexes(connection: Connection, table: Table) -> list[StoredIndex]:
    """The indexes of a table as the database's catalogue has them.

    By SQLAlchemy's inspector only where the database isn't one of ours: it warns of indexes over
    expressions on SQLite, and knows neither which are valid nor how they are ordered.
    """
    schema, name = name_of(connection, table)
    quote = connection.dialect.identifier_preparer.quote
    if connection.dialect.name == "postgresql":
        rows = connection.execute(_POSTGRESQL, {"relation": relation(schema, name)})
        return [StoredIndex(*row) for row in rows]
    if connection.dialect.name in MYSQL_FAMILY:
        return list(_of_mysql(connection, schema, name))
    if connection.dialect.name != "sqlite":
        if not clock_of(connection.dialect).is_inspected:
            return []
        return [
            StoredIndex(str(index["name"]), index["column_names"][0], "", True, True, "")  # noqa: FBT003
            for index in inspect(connection).get_indexes(name, schema)
        ]
    query = text(_SQLITE.format(master=f"{quote(schema or 'main')}.sqlite_master"))
    indexes = connection.execute(query, {"schema": schema or "main", "table": name})
    return [
        StoredIndex(name, first, sql[sql.lower().rfind("where") + 5 :] if partial else "", *rest)
        for name, first, partial, sql, *rest in indexes
    ]


def _of_mysql(connection: Connection, schema: str | None, table: str) -> Iterator[StoredIndex]:
    for row in connection.execute(_MYSQL, {"schema": schema, "table": table}).mappings():
        column = {key.lower(): value for key, value in row.items()}
        # MariaDB ignores an index, MySQL makes it invisible.
        is_hidden = column.get("ignored") == "YES" or column.get("is_visible") == "NO"
        whole = column["column_name"] if column["sub_part"] is None else None
        is_tree = column["index_type"] == "BTREE"
        collation = column["first_collation"]
        is_exact = collation is None or collation.endswith("_bin")
        found = (column["index_name"], whole, "", not is_hidden, is_tree, "")
        yield StoredIndex(*found, column["second"], None if is_exact else collation)


def _bare(sql: str) -> str:
    """A condition, or a definition, without what each database spells in its own way."""
    return sql.lower().translate(_MARKS)


_MARKS: Final = dict.fromkeys(map(ord, '() "`\n\t'))

_POSTGRESQL: Final = text("""
SELECT c.relname::text, a.attname::text, COALESCE(pg_get_expr(i.indpred, i.indrelid), ''),
  i.indisvalid,
  m.amname = 'btree' AND o.opcdefault AND i.indoption[0] IN (0, 3)
    AND (a.attnum IS NULL OR i.indcollation[0] = a.attcollation),
  pg_get_indexdef(i.indexrelid), b.attname::text,
  CASE WHEN n.collisdeterministic THEN NULL ELSE n.collname::text END
FROM pg_catalog.pg_index i
JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
JOIN pg_catalog.pg_am m ON m.oid = c.relam
JOIN pg_catalog.pg_opclass o ON o.oid = i.indclass[0]
LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
LEFT JOIN pg_catalog.pg_attribute b ON b.attrelid = i.indrelid AND b.attnum = i.indkey[1]
  AND i.indnkeyatts > 1
LEFT JOIN pg_catalog.pg_collation n ON n.oid = i.indcollation[0]
WHERE i.indrelid = CAST(:relation AS text)::regclass
""")
"""``indoption`` is 0 for ascending with NULLs last, 3 for the same backwards."""

_MYSQL: Final = text("""
SELECT s.*, n.column_name AS second, c.collation_name AS first_collation
FROM information_schema.statistics s
LEFT JOIN information_schema.statistics n ON n.table_schema = s.table_schema
  AND n.table_name = s.table_name AND n.index_name = s.index_name AND n.seq_in_index = 2
LEFT JOIN information_schema.columns c ON c.table_schema = s.table_schema
  AND c.table_name = s.table_name AND c.column_name = s.column_name
WHERE s.table_schema = COALESCE(:schema, DATABASE()) AND s.table_name = :table
  AND s.seq_in_index = 1
""")

_SQLITE: Final = """
SELECT l.name, x.name, l.partial, COALESCE(m.sql, ''), 1, x.coll = 'BINARY', COALESCE(m.sql, ''),
  (SELECT y.name FROM pragma_index_xinfo(l.name, :schema) AS y WHERE y.seqno = 1 AND y.key)
FROM pragma_index_list(:table, :schema) AS l, pragma_index_xinfo(l.name, :schema) AS x
LEFT JOIN {master} AS m ON m.type = 'index' AND m.name = l.name
WHERE x.seqno = 0
"""
