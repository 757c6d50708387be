"""Foreign keys that refer to a swept table, from the live database.

Three things depend on them. A key without an index makes each deleted row read the whole referring
table, so such a sweep is rejected until there is an index. Rows that others refer to may have to
stay: `ReferringKeys.blocks` finds them without a try for each. And a cascade must not delete rows
of a recorded model (see `ttl_odm.sqlalchemy.policy.references`), live or expired: these keep the
rows that they refer to, like a key that restricts.

They come from the database, not from the metadata, since other applications have tables too.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import and_, column, exists, inspect, or_, text

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.dialects.postgresql import relation
from ttl_odm.sqlalchemy.policy.bindings import (
    all_subtables,
    bound_tables,
    first_of,
    root_binding_of,
)
from ttl_odm.sqlalchemy.policy.references import Change, all_rules_below, is_recorded, rule_of
from ttl_odm.sqlalchemy.policy.second_tables import BareTable
from ttl_odm.sqlalchemy.purge.removal import mode_of
from ttl_odm.sqlalchemy.sweep.transactions import name_of, reading
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper import Hooks, StoreError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from sqlalchemy import ColumnElement, Connection, FromClause, MetaData, Table
    from sqlalchemy.engine import Dialect

    from ttl_odm.sqlalchemy.policy.bindings import Binding, SubBinding

logger = logging.getLogger("ttl_odm.sweeper")

Name = tuple["str | None", str]
"""A schema, None for the connection's own, and a table."""

Reference = tuple[Name, frozenset[str]]
"""A table, and its columns that refer to another."""

_SKIP_EVENTS: Final = "skip_user_error_events"


@dataclass(frozen=True, slots=True)
class ReferringKey:
    """One foreign key of a table: its columns refer to the referred ones, in the same order.

    Attributes:
        deletes: The action when a referred row is deleted: ``CASCADE``, ``SET NULL``...
        has_index: Whether an index finds the rows that refer to a row.
        index: The name for a new index; None for a name made of the columns.
    """

    table: Name
    columns: tuple[str, ...]
    referred: tuple[str, ...]
    deletes: str
    has_index: bool
    index: str | None = None

    def __str__(self) -> str:
        schema, table = self.table
        return f"{f'{schema}.' if schema else ''}{table}({', '.join(self.columns)})"

    @property
    def restricts(self) -> bool:
        """Whether it keeps referred rows from being deleted."""
        return self.deletes in ("RESTRICT", "NO ACTION")

    def is_link_in(self, metadata: MetaData) -> bool:
        """Return whether the referring rows expire with those that they refer to, by a `Rule`."""
        tables = (table for table in metadata.tables.values() if table.name == self.table[1])
        rules = map(rule_of, tables)
        return any(rule.has_key(self.columns) for rule in rules if rule is not None)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Each column with the one that it refers to."""
        return list(zip(self.columns, self.referred, strict=True))

    @property
    def reference(self) -> Reference:
        """The referring table and columns."""
        return self.table, frozenset(self.columns)

    def remedy(self, dialect: Dialect) -> str:
        """Return the statement that adds the index."""
        quote = dialect.identifier_preparer.quote
        schema, table = self.table
        index = quote(self.index or "_".join(("ix", table, *self.columns))[:60])
        where = f"{f'{quote(schema)}.' if schema else ''}{quote(table)}"
        columns = ", ".join(map(quote, self.columns))
        how = "INDEX CONCURRENTLY" if dialect.name == "postgresql" else "INDEX"
        return f"CREATE {how} {index} ON {where} ({columns})"


class ReferringKeys:
    """The foreign keys of the database, cached by table for the current sweep.

    Attributes:
        hooks: The sweeper's hooks, which also make a model a recorded one.

    Args:
        enforced: Leave out keys that the connection doesn't enforce (SQLite's, by default).
    """

    def __init__(self, *, enforced: bool = True) -> None:
        self.hooks = Hooks()
        self._enforced = enforced
        self._keys: dict[Name, list[ReferringKey]] = {}
        self._places: dict[Name, Name] = {}
        self._endangered: dict[Name, bool] = {}
        self._logged: set[Name] = set()

    def forget(self) -> None:
        """Empty the cache, since a sweep begins."""
        self._keys.clear()
        self._places.clear()
        self._endangered.clear()
        self._logged.clear()

    def log(self, connection: Connection, binding: Binding) -> None:
        """Log, once in a sweep, the keys that may keep rows of a table from being deleted."""
        table = binding.table
        name = name_of(connection, table)
        if name not in self._logged:
            self._logged.add(name)
            keys = (str(key) for _, key in self.of_rows(connection, binding))
            which = ", ".join(keys) or "a trigger"
            message = "Expired rows of %s are kept, because other rows refer to them: %s"
            logger.info(message, table.fullname, which)

    def of(self, connection: Connection, name: Name) -> list[ReferringKey]:
        """Return the keys that refer to a table."""
        if name not in self._keys:
            dialect = connection.dialect.name
            if not clock_of(connection.dialect).is_inspected:
                # A row that others keep is found when it is deleted.
                keys: Iterator[ReferringKey] = iter(())
            elif dialect == "postgresql":
                keys = _of_postgresql(connection, name)
            elif (
                self._enforced
                and dialect == "sqlite"
                and not connection.exec_driver_sql("PRAGMA foreign_keys").scalar()
            ):
                keys = iter(())
            else:
                keys = _of_others(connection, name)
            self._keys[name] = list(keys)
        return self._keys[name]

    def of_rows(
        self, connection: Connection, binding: Binding
    ) -> Iterator[tuple[Table, ReferringKey]]:
        """Yield the keys that refer to rows, with the table: the policy's, or a subclass's.

        Without the keys that join a subclass's part of a row to the rest of it.
        """
        parts = self._parts(connection, binding)
        for table in (binding.table, *(sub.table for sub in parts.values())):
            for key in self.of(connection, self.place(connection, table)):
                if not _joins(key, parts):
                    yield table, key

    def check(self, connection: Connection, binding: Binding) -> None:
        """Raise StoreError if a key that refers to a table has no index."""
        dialect = connection.dialect
        if dialect.name in MYSQL_FAMILY:
            return  # InnoDB makes an index with each key
        slow = [key for _, key in self.of_rows(connection, binding) if not key.has_index]
        if slow:
            which = ", ".join(map(str, slow))
            fix = "; ".join(key.remedy(dialect) for key in slow)
            names = {table.name for table in binding.table.metadata.tables.values()}
            keep = ""
            if any(key.table[1] in names for key in slow):
                keep = " Also write index=True in the model, or the next migration drops the index."
            raise StoreError(
                f"{which} refers to {binding.table.fullname} and has no index, so the database "
                f"would read all of that table for each deleted row. Run {fix}; or sweep with "
                f"force=True.{keep}"
            )

    def endangers(self, connection: Connection, binding: Binding) -> bool:
        """Return whether deleting rows would delete or change others that must be removed before.

        It looks at declared foreign keys and those of the database, and at the ORM's cascades if
        the ORM deletes the rows. It may begin a transaction of its own.
        """
        if Change(binding.table).endangers_rows(self.hooks):
            return True
        name = name_of(connection, binding.table)
        if name not in self._endangered:
            orm = mode_of(binding).orm
            endangered = orm is not None and _orm_takes_along(orm, self.hooks.named)
            if not endangered and any(True for _ in _recorded_tables(self.hooks)):
                # Reflection on MariaDB and MySQL leaves this option set, and the user's listeners
                # for errors would be called for no error of this connection any more.
                before = connection.get_execution_options().get(_SKIP_EVENTS, False)
                with reading(connection):
                    blocked = self.blocks(connection, binding, recorded_only=True)
                    endangered = blocked is not None
                connection.execution_options(**{_SKIP_EVENTS: before})
            self._endangered[name] = endangered
        return self._endangered[name]

    def blocks(
        self,
        connection: Connection,
        binding: Binding,
        source: FromClause | None = None,
        but: Collection[Reference] = (),
        *,
        recorded_only: bool = False,
    ) -> ColumnElement[bool] | None:
        """Return the condition for rows that a foreign key keeps from being deleted; None if none.

        `source` has the rows, if not the table. `but` are foreign keys of rows that are deleted
        too. With `recorded_only`, only rows of recorded models count.
        """
        name = self.place(connection, binding.table)
        source = binding.table if source is None else source
        parts = self._parts(connection, binding)
        keys = (key for place in (name, *parts) for key in self.of(connection, place))
        skipped = {*but, *(key.reference for key in keys if _joins(key, parts))}
        search = _Blocks(self, connection, skipped, self._links(connection, binding))
        conditions = [search.of(name, source, (name,), recorded_only=recorded_only)]
        for part, sub in parts.items():  # the subclasses' parts of rows, which are deleted before
            names = {own.name for own, _ in sub.keys}
            rest = _bare(part, names.union(*(key.referred for key in self.of(connection, part))))
            below = search.of(part, rest, (name, part), recorded_only=recorded_only)
            if below is not None:
                is_rest = (rest.c[own.name] == source.c[root.name] for own, root in sub.keys)
                conditions.append(exists().select_from(rest).where(*is_rest, below))
        present = [condition for condition in conditions if condition is not None]
        return or_(*present) if present else None

    def keeps(
        self, connection: Connection, binding: Binding, table: Table
    ) -> ColumnElement[bool] | None:
        """Return the condition for rows of a table below a policy that recorded rows keep."""
        if not any(True for _ in _recorded_tables(self.hooks)):
            return None
        name = self.place(connection, table)
        search = _Blocks(self, connection, (), self._links(connection, binding))
        return search.of(name, table, (name,), recorded_only=True)

    def _parts(self, connection: Connection, binding: Binding) -> dict[Name, SubBinding]:
        return {self.place(connection, sub.table): sub for sub in all_subtables(binding)}

    def linking(self, connection: Connection, binding: Binding) -> set[Reference]:
        """Return the foreign keys of rows that are removed first, since they expire with these."""
        return {
            key.reference
            for parent, links in self._links(connection, binding).items()
            for key in self.of(connection, parent)
            for link in links
            if key.table == link.table and not set(key.columns).isdisjoint(link.columns)
        }

    def _links(self, connection: Connection, binding: Binding) -> dict[Name, list[ReferringKey]]:
        """Return the links of a policy's dependents, at any depth, by parent.

        As if each link were a foreign key that cascades.
        """
        by_parent: dict[Name, list[ReferringKey]] = {}
        for rule in all_rules_below(binding.table):
            links = rule.links()
            own = tuple(str(column.name) for column in links.own)
            referred = tuple(str(column.name) for column in links.theirs)
            table = self.place(connection, rule.table)
            link = ReferringKey(table, own, referred, "CASCADE", has_index=True)
            by_parent.setdefault(self.place(connection, links.parent), []).append(link)
        return by_parent

    def recorded(self, connection: Connection, binding: Binding) -> list[ReferringKey]:
        """Return the keys by which a cascade reaches rows of recorded models."""
        name = self.place(connection, binding.table)
        parts = self._parts(connection, binding)
        links = self._links(connection, binding)
        keys: dict[ReferringKey, None] = {}
        waiting, seen = [name, *parts], {name, *parts}
        while waiting:
            place = waiting.pop()
            for key in (*self.of(connection, place), *links.get(place, ())):
                if key.deletes != "CASCADE" or _joins(key, parts):
                    continue
                if self.is_recorded(connection, key.table):
                    keys[key] = None
                elif key.table not in seen:
                    seen.add(key.table)
                    waiting.append(key.table)
        return list(keys)

    def is_recorded(self, connection: Connection, name: Name) -> bool:
        """Return whether a table belongs to a recorded model, or to a joined subclass of one."""
        return any(
            self.place(connection, table) == name
            for table in _recorded_tables(self.hooks)
            if table.name == name[1]
        )

    def place(self, connection: Connection, table: Table) -> Name:
        """Return a table's name in the form of `ReferringKey.table`."""
        return self.resolved(connection, name_of(connection, table))

    def resolved(self, connection: Connection, place: Name) -> Name:
        """Return a name with the schema in which PostgreSQL finds it."""
        schema, name = place
        if schema is not None or connection.dialect.name != "postgresql":
            return place
        if (schema, name) not in self._places:
            own_schema = connection.execute(_SCHEMA, {"relation": relation(None, name)}).scalar()
            self._places[schema, name] = own_schema, name
        return self._places[schema, name]


@dataclass(frozen=True, slots=True)
class _Blocks:
    """The search for rows that keep others: by the keys that refer to them, and their cascades."""

    keys: ReferringKeys
    connection: Connection
    skipped: Collection[Reference]
    links: Mapping[Name, Sequence[ReferringKey]]

    def of(
        self, name: Name, source: FromClause, above: tuple[Name, ...], *, recorded_only: bool
    ) -> ColumnElement[bool] | None:
        """Return the condition for rows of a table; `above` are the tables on the way there."""
        conditions = [
            self._by(key, name, source, above, recorded_only=recorded_only)
            for key in self.keys.of(self.connection, name)
            if not key.deletes.startswith("SET") and key.reference not in self.skipped
        ]
        # Other rows that refer to these are found when they are deleted.
        conditions += [
            self._by(link, name, source, above, recorded_only=True)
            for link in self.links.get(name, ())
        ]
        present = [condition for condition in conditions if condition is not None]
        return or_(*present) if present else None

    def _by(
        self,
        key: ReferringKey,
        name: Name,
        source: FromClause,
        above: tuple[Name, ...],
        *,
        recorded_only: bool,
    ) -> ColumnElement[bool] | None:
        """Return the condition for rows kept by a key, or by rows that its cascade reaches."""
        cascades = key.deletes == "CASCADE"
        if recorded_only and not cascades:
            return None
        others = (other.referred for other in self.keys.of(self.connection, key.table))
        links = (link.referred for link in self.links.get(key.table, ()))
        child = _bare(key.table, {*key.columns}.union(key.referred, *others, *links))
        pairs = zip(key.columns, key.referred, strict=True)
        refers = and_(*(child.c[own] == source.c[other] for own, other in pairs))
        if key.table == name and (cascades or self.connection.dialect.name not in MYSQL_FAMILY):
            # A row that refers to itself doesn't keep itself, except on InnoDB (seen on 10.11).
            refers = and_(refers, or_(*(child.c[own] != source.c[own] for own in key.referred)))
        if cascades and not self.keys.is_recorded(self.connection, key.table):
            # Its rows are deleted too, unless others in turn keep them.
            if key.table in above:
                return None
            further = (*above, key.table)
            below = self.of(key.table, child, further, recorded_only=recorded_only)
            if below is None:
                return None
            refers = and_(refers, below)
        return exists().select_from(child).where(refers)


def _recorded_tables(hooks: Hooks) -> Iterator[Table]:
    """Yield the tables of recorded models in this process, and of their joined subclasses."""
    for table in bound_tables:
        binding = root_binding_of(table)
        if binding is not None and first_of(table) is table and is_recorded(binding, hooks):
            yield table


def _orm_takes_along(owner: type, hooks: Hooks) -> bool:
    """Return whether the ORM's cascades delete rows that are archived or reported to hooks."""
    waiting, seen = [owner], {owner}
    while waiting:
        mapper: Any = inspect(waiting.pop())
        for relationship in mapper.relationships:
            target = relationship.mapper.class_
            if not relationship.cascade.delete or relationship.viewonly or target in seen:
                continue
            binding = root_binding_of(relationship.mapper.local_table)
            if binding is not None and is_recorded(binding, hooks):
                return True
            seen.add(target)
            waiting += [target, *(sub.class_ for sub in relationship.mapper.self_and_descendants)]
    return False


def _joins(key: ReferringKey, parts: Mapping[Name, SubBinding]) -> bool:
    """Return whether a key joins a subclass's part of a row to the rest of it."""
    part = parts.get(key.table)
    return part is not None and {own.name for own, _ in part.keys}.issuperset(key.columns)


def _bare(name: Name, columns: set[str]) -> FromClause:
    """Return an alias of a bare table, which the gate doesn't know."""
    schema, table = name
    return BareTable(table, *map(column, sorted(columns)), schema=schema).alias()


_POSTGRESQL: Final = text("""
SELECT n.nspname, c.relname, k.confdeltype::text,
    ARRAY(SELECT a.attname::text
          FROM unnest(k.conkey) WITH ORDINALITY AS u(number, place)
          JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.number
          ORDER BY u.place),
    ARRAY(SELECT a.attname::text
          FROM unnest(k.confkey) WITH ORDINALITY AS u(number, place)
          JOIN pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = u.number
          ORDER BY u.place),
    EXISTS (
        SELECT FROM pg_index i
        WHERE i.indrelid = k.conrelid AND i.indisvalid
        AND (i.indpred IS NULL OR pg_get_expr(i.indpred, i.indrelid) = (
            SELECT '(' || quote_ident(a.attname) || ' IS NOT NULL)' FROM pg_attribute a
            WHERE a.attrelid = k.conrelid AND a.attnum = k.conkey[1]))
        AND (SELECT array_agg(u.number ORDER BY u.number)
             FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS u(number, place)
             WHERE u.place <= cardinality(k.conkey))
          = (SELECT array_agg(u.number ORDER BY u.number) FROM unnest(k.conkey) AS u(number)))
FROM pg_constraint k
JOIN pg_class c ON c.oid = k.conrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE k.contype = 'f' AND k.conparentid = 0 AND k.confrelid = CAST(:relation AS text)::regclass
""")
"""Not by SQLAlchemy's inspector, which would read all keys of all tables, of one schema only."""

_SCHEMA: Final = text("""
SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass(CAST(:relation AS text))
""")

_ACTIONS: Final = {"c": "CASCADE", "n": "SET NULL", "d": "SET DEFAULT"}


def _of_postgresql(connection: Connection, name: Name) -> Iterator[ReferringKey]:
    keys = connection.execute(_POSTGRESQL, {"relation": relation(*name)})
    for schema, child, action, columns, referred, indexed in keys:
        deletes = _ACTIONS.get(action, "RESTRICT")
        yield ReferringKey((schema, child), tuple(columns), tuple(referred), deletes, indexed)


_POSTGRESQL_INDEXES: Final = text("""
SELECT x.relname, pg_get_expr(i.indpred, i.indrelid),
    ARRAY(SELECT a.attname::text
          FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS u(number, place)
          LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = u.number
          WHERE u.place <= i.indnkeyatts
          ORDER BY u.place)
FROM pg_index i
JOIN pg_class x ON x.oid = i.indexrelid
JOIN pg_am m ON m.oid = x.relam
WHERE i.indrelid = CAST(:relation AS text)::regclass AND i.indisvalid
AND m.amname IN ('btree', 'hash')
""")

_SQLITE_INDEXES: Final = text("""
SELECT l.name, i.name
FROM pragma_index_list(:table, :schema) AS l, pragma_index_info(l.name, :schema) AS i
WHERE l.partial = 0
ORDER BY l.name, i.seqno
""")
"""Not by SQLAlchemy's inspector, which warns of indexes over expressions, as the sweeper's are."""


def is_indexed(
    connection: Connection, name: Name, columns: Sequence[str], but: Collection[str] = ()
) -> bool:
    """Return whether the database finds rows of a table by columns without reading all of them.

    It does if an index, a unique constraint or the primary key begins with these columns, in any
    order. Indexes named in `but` don't count.
    """
    count, names = len(columns), set(columns)
    return any(
        set(indexed[:count]) == names
        for index, indexed in _indexes_of(connection, name, columns[0])
        if index not in but
    )


def _indexes_of(
    connection: Connection, name: Name, column: str
) -> Iterator[tuple[str, Sequence[str | None]]]:
    """Yield the names and columns of a table's indexes and primary key, except partial indexes.

    Partial indexes of PostgreSQL are included if they only omit rows in which a column is NULL.
    """
    schema, table = name
    if connection.dialect.name == "postgresql":
        with_value = f"({column} IS NOT NULL)"
        rows = connection.execute(_POSTGRESQL_INDEXES, {"relation": relation(schema, table)})
        for index, condition, columns in rows:
            if condition is None or condition.replace('"', "") == with_value:
                yield index, columns
        return
    inspector = inspect(connection)
    yield "", inspector.get_pk_constraint(table, schema)["constrained_columns"]
    if connection.dialect.name != "sqlite":
        for reflected in inspector.get_indexes(table, schema):
            yield str(reflected["name"]), reflected["column_names"]
        return
    indexes: dict[str, list[str | None]] = {}
    names = {"table": table, "schema": schema or "main"}
    for index, column_name in connection.execute(_SQLITE_INDEXES, names):
        indexes.setdefault(index, []).append(column_name)
    yield from indexes.items()


def _of_others(connection: Connection, name: Name) -> Iterator[ReferringKey]:
    dialect = connection.dialect.name
    schema, table = name
    inspector = inspect(connection)
    for child, keys in inspector.get_multi_foreign_keys(schema=schema).items():
        for key in keys:
            if (key["referred_table"].lower(), key["referred_schema"]) != (table.lower(), child[0]):
                continue
            columns = tuple(key["constrained_columns"])
            deletes = key.get("options", {}).get("ondelete", "RESTRICT").upper()
            has_index = dialect in MYSQL_FAMILY or is_indexed(connection, child, columns)
            yield ReferringKey(child, columns, tuple(key["referred_columns"]), deletes, has_index)
