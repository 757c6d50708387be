"""A table of PostgreSQL as its catalogue has it: everything that a replacement needs, too.

One query reads all of it as one text, so that a later comparison shows whether anything was changed
meanwhile. Properties that can't be carried over, or that would refer to the wrong table, are
rejected here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import text

from ttl_odm.dialects.family import as_value
from ttl_odm.dialects.postgresql import relation

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from sqlalchemy import Connection


@dataclass(frozen=True)
class CatalogueTable:
    """A table in the catalogue.

    Attributes:
        query: The query that has read it, without parameters.
        content: The result of the query, as JSON.
        facts: The same as an object, with an attribute for each key.
    """

    query: str
    content: str
    facts: Any

    @classmethod
    def read(cls, connection: Connection, name: str, column: str) -> CatalogueTable:
        """Read a table by its quoted name; it is to be cut by a column."""
        query = _TABLE.replace("{table}", as_value(name)).replace("{column}", as_value(column))
        content = connection.execute(text(query.replace(":", r"\:"))).scalar_one()
        facts = json.loads(content, object_hook=lambda pairs: SimpleNamespace(**pairs))
        return cls(query, content, facts)

    @property
    def primary_key(self) -> Any:
        """The constraint of the primary key; None without one."""
        constraints = self.facts.constraints
        return next((constraint for constraint in constraints if constraint.type == "p"), None)

    def reasons(
        self, column: str, *, remade: Collection[str], ours: Collection[str]
    ) -> Iterator[str]:
        """Yield the reasons why it can't become a partition of its replacement, each with the fix.

        Args:
            column: The column by which to cut it.
            remade: The triggers that are made on the replacement, too.
            ours: Constraints and indexes of an earlier run that was interrupted.
        """
        yield from self._of_its_kind(column)
        yield from self._of_others(remade)
        for index in self.facts.indexes:
            if index.name not in ours:
                yield from self._of_index(index, column)
        for constraint in self.facts.constraints:
            if constraint.name not in ours:
                yield from self._of_constraint(constraint, column)

    def _of_its_kind(self, column: str) -> Iterator[str]:
        facts = self.facts
        if facts.kind == "p":
            yield f"it is already partitioned, but not by {column!r} alone: leave partition= out"
        elif facts.kind != "r":
            yield "it is not an ordinary table: leave partition= out"
        if facts.persistence != "p":
            yield "it is UNLOGGED or TEMPORARY, which a partitioned table can't be"
        if facts.is_inherited:
            yield (
                "it inherits from a table, or a table inherits from it: end that first (NO INHERIT)"
            )
        if facts.is_typed:
            yield "it is a typed table: run ALTER TABLE ... NOT OF first"
        if facts.has_policies:
            yield (
                "it has row-level security, which prevents dropping partitions as a whole: drop "
                "its policies, and DISABLE ROW LEVEL SECURITY"
            )
        if facts.is_nullable:
            yield (
                f"column {column!r} may be NULL, which no range contains: give these rows a "
                f"value, then write op.alter_column({facts.name!r}, {column!r}, nullable=False). "
                "To avoid reading all rows under its lock, first ADD CHECK "
                f"({relation(None, column)} IS NOT NULL) NOT VALID, and VALIDATE it"
            )
        if not facts.may_own:
            yield (
                f"this user can't create tables owned by {facts.owner}: run the migration as "
                "that role"
            )

    def _of_others(self, remade: Collection[str]) -> Iterator[str]:
        facts = self.facts
        if facts.references:
            yield (
                f"foreign keys of {', '.join(facts.references)} refer to it by a key without the "
                "partitioning column: drop them"
            )
        if facts.dependents:
            yield (
                f"{', '.join(facts.dependents)} would stay with the old table, under its new "
                "name: drop these first, and recreate them after this operation"
            )
        triggers = [name for name in facts.triggers if name not in remade]
        if triggers:
            yield (
                f"it has triggers ({', '.join(triggers)}), which work differently on partitioned "
                "tables: drop them first, and recreate the ones you need after this operation "
                "(triggers for DELETE and TRUNCATE prevent dropping partitions as a whole)"
            )
        if facts.has_rules:
            yield "it has rules, which would stay with the old table: drop them"
        if facts.publications:
            yield (
                f"it is in publications ({', '.join(facts.publications)}), whose subscribers have "
                "no such partitions: remove it from these, and add it again after this operation"
            )
        if facts.is_subscribed:
            yield "it is filled by a subscription: partition the publisher's table instead"

    def _of_index(self, index: Any, column: str) -> Iterator[str]:
        name, table = index.name, self.facts.name
        if not index.is_valid:
            yield f"index {name} is not valid: drop it, or REINDEX INDEX CONCURRENTLY {name}"
        elif index.is_exclusion:
            yield f"{name} excludes rows across all partitions, which isn't supported: drop it"
        elif index.is_replica_identity:
            yield (
                f"index {name} is its replica identity: run ALTER TABLE ... REPLICA IDENTITY "
                "DEFAULT first"
            )
        elif index.is_unique and not index.is_primary and column not in index.keys:
            keys = [*index.keys, column]
            drop = f"op.drop_index({name!r})"
            create = f"op.create_index({name!r}, {table!r}, {keys}, unique=True)"
            if index.has_constraint:
                drop = f"op.drop_constraint({name!r}, {table!r})"
                create = f"op.create_unique_constraint({name!r}, {table!r}, {keys})"
            yield (
                f"{name} would be unique only within a partition, because it doesn't contain "
                f"{column!r}: write {drop} first, and {create} if that is unique enough"
            )

    def _of_constraint(self, constraint: Any, column: str) -> Iterator[str]:
        name = constraint.name
        if not constraint.is_validated:
            yield f"constraint {name} is not valid: VALIDATE it, or drop it"
        if constraint.is_local:
            yield f"constraint {name} is NO INHERIT, which a partitioned table can't have: drop it"
        if constraint.type == "p" and column not in constraint.columns:
            if constraint.is_deferrable:
                yield f"its primary key {name} is DEFERRABLE: recreate it as NOT DEFERRABLE"
            if constraint.includes:
                yield f"its primary key {name} has INCLUDE columns: recreate it without them"


_TABLE: Final = """
SELECT json_build_object(
  'oid', t.oid::text, 'kind', t.relkind, 'persistence', t.relpersistence,
  'schema', n.nspname, 'name', t.relname, 'is_typed', t.reloftype <> 0,
  'owner', quote_ident(pg_get_userbyid(t.relowner)),
  'may_own', pg_has_role(t.relowner, CASE
    WHEN CAST(current_setting('server_version_num') AS integer) < 160000 THEN 'MEMBER' ELSE 'SET'
    END),
  'is_owner', pg_get_userbyid(t.relowner) = current_user,
  'tablespace', (SELECT quote_ident(s.spcname) FROM pg_catalog.pg_tablespace s
                 WHERE s.oid = t.reltablespace),
  'replica', t.relreplident, 'comment', obj_description(t.oid, 'pg_class'),
  'is_inherited', EXISTS (SELECT FROM pg_catalog.pg_inherits i
                          WHERE t.oid IN (i.inhrelid, i.inhparent) AND t.relkind <> 'p'),
  'has_policies', t.relrowsecurity
    OR EXISTS (SELECT FROM pg_catalog.pg_policy p WHERE p.polrelid = t.oid),
  'has_rules', EXISTS (SELECT FROM pg_catalog.pg_rewrite r WHERE r.ev_class = t.oid),
  'is_subscribed', EXISTS (SELECT FROM pg_catalog.pg_subscription_rel s WHERE s.srrelid = t.oid),
  'is_nullable', (SELECT NOT a.attnotnull FROM pg_catalog.pg_attribute a
                  WHERE a.attrelid = t.oid AND a.attname = {column}),
  'sequences', ARRAY(
    SELECT json_build_object('column', a.attname, 'schema', m.nspname, 'name', s.relname,
      'is_identity', d.deptype = 'i')
    FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_class s ON s.oid = d.objid AND s.relkind = 'S'
    JOIN pg_catalog.pg_namespace m ON m.oid = s.relnamespace
    JOIN pg_catalog.pg_attribute a ON a.attrelid = t.oid AND a.attnum = d.refobjsubid
    WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass
    AND d.refobjid = t.oid AND d.deptype IN ('a', 'i') ORDER BY d.objid),
  'constraints', ARRAY(
    SELECT json_build_object('name', k.conname, 'type', k.contype,
      'definition', pg_get_constraintdef(k.oid), 'is_validated', k.convalidated,
      'is_deferrable', k.condeferrable, 'is_local', k.contype = 'c' AND k.connoinherit,
      'comment', obj_description(k.oid, 'pg_constraint'),
      'includes', x.indnatts > x.indnkeyatts,
      'columns', ARRAY(SELECT a.attname FROM unnest(k.conkey) WITH ORDINALITY u (number, place)
                       JOIN pg_catalog.pg_attribute a
                       ON a.attrelid = t.oid AND a.attnum = u.number ORDER BY u.place))
    FROM pg_catalog.pg_constraint k LEFT JOIN pg_catalog.pg_index x
    ON x.indexrelid = k.conindid AND x.indrelid = t.oid
    WHERE k.conrelid = t.oid ORDER BY k.oid),
  'indexes', ARRAY(
    SELECT json_build_object('name', c.relname, 'is_unique', x.indisunique,
      'is_primary', x.indisprimary, 'is_exclusion', x.indisexclusion,
      'is_valid', x.indisvalid AND x.indisready, 'is_replica_identity', x.indisreplident,
      'has_constraint', k.oid IS NOT NULL, 'comment', obj_description(c.oid, 'pg_class'),
      'definition', substr(pg_get_indexdef(c.oid), 1 + length(
        format('CREATE %sINDEX %I ON %I.%I ', CASE WHEN x.indisunique THEN 'UNIQUE ' END,
               c.relname, n.nspname, t.relname))),
      'keys', ARRAY(SELECT a.attname
                    FROM unnest(CAST(x.indkey AS int2[])) WITH ORDINALITY u (number, place)
                    JOIN pg_catalog.pg_attribute a ON a.attrelid = t.oid AND a.attnum = u.number
                    WHERE u.place <= x.indnkeyatts ORDER BY u.place))
    FROM pg_catalog.pg_index x JOIN pg_catalog.pg_class c ON c.oid = x.indexrelid
    LEFT JOIN pg_catalog.pg_constraint k
    ON k.conindid = c.oid AND k.conrelid = t.oid AND k.contype IN ('p', 'u', 'x')
    WHERE x.indrelid = t.oid ORDER BY c.oid),
  'references', ARRAY(
    SELECT DISTINCT CAST(k.conrelid AS regclass)::text FROM pg_catalog.pg_constraint k
    WHERE k.contype = 'f' AND k.confrelid = t.oid ORDER BY 1),
  'triggers', ARRAY(
    SELECT g.tgname FROM pg_catalog.pg_trigger g WHERE g.tgrelid = t.oid AND NOT g.tgisinternal
    ORDER BY 1),
  'publications', ARRAY(
    SELECT p.pubname FROM pg_catalog.pg_publication_tables p
    WHERE p.schemaname = n.nspname AND p.tablename = t.relname ORDER BY 1),
  'dependents', ARRAY(
    SELECT DISTINCT CASE WHEN r.oid IS NULL THEN pg_describe_object(d.classid, d.objid, 0)
      ELSE pg_describe_object('pg_class'::regclass, r.ev_class, 0) END
    FROM pg_catalog.pg_depend d LEFT JOIN pg_catalog.pg_rewrite r
    ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
    WHERE d.deptype = 'n' AND (
      (d.refclassid = 'pg_class'::regclass AND d.refobjid = t.oid) OR
      (d.refclassid = 'pg_type'::regclass AND d.refobjid IN (
        SELECT unnest(ARRAY[y.oid, y.typarray]) FROM pg_catalog.pg_type y WHERE y.oid = t.reltype)))
    AND d.classid IN ('pg_rewrite'::regclass, 'pg_proc'::regclass, 'pg_policy'::regclass,
                      'pg_class'::regclass, 'pg_type'::regclass)
    AND COALESCE(r.ev_class, 0) <> t.oid AND d.objid <> t.oid ORDER BY 1)
)::text
FROM pg_catalog.pg_class t JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace
WHERE t.oid = CAST({table} AS regclass)
"""
"""Dependents include those of the table's row type: they would keep the old table's type, whose
name changes with the table's."""
