"""The statements by which a table of PostgreSQL becomes the first partition of another.

They belong in one transaction, under one lock, and none reads a row. Names of indexes are unique in
a schema, so the old table's indexes are renamed: the names of indexes, constraints and sequences
now mean those of the new table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ttl_odm.dialects.family import as_value, derived_name
from ttl_odm.dialects.postgresql import relation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from ttl_odm.partitions.alembic.postgresql_table import CatalogueTable
    from ttl_odm.partitions.dialects.ddl import Cut, NewPartition
    from ttl_odm.partitions.dialects.postgresql import PostgreSQLPartitions


@dataclass(frozen=True)
class Swap:
    """One swap.

    Attributes:
        cut: The table, its schema and column.
        table: The table as the catalogue had it before.
        key: The index of the longer primary key, which replaces the present key.
        remade: The statements that make triggers on the new table, by the names of the triggers.
    """

    cut: Cut
    table: CatalogueTable
    key: str
    remade: Mapping[str, str]

    @property
    def old_names(self) -> dict[str, str]:
        """The new names of the old table's indexes and sequences of identities."""
        facts = self.table.facts
        names = [index.name for index in facts.indexes if index.name != self.key]
        names += [sequence.name for sequence in facts.sequences if sequence.is_identity]
        return {name: derived_name(name, "past") for name in names}

    def statements(
        self,
        ddl: PostgreSQLPartitions,
        bound: datetime,
        partitions: Sequence[NewPartition],
        check: str,
    ) -> list[str]:
        """Return all statements of the swap, in order.

        Args:
            ddl: The statements about partitions.
            bound: The upper bound of the old table's rows.
            partitions: The other partitions of the new table.
            check: The name of the CHECK for that bound, which is dropped.
        """
        facts = self.table.facts
        new = ddl.table(self.cut)
        old = ddl.quoted(self.cut.schema, self.cut.past)
        tablespace = f" TABLESPACE {facts.tablespace}" if facts.tablespace else ""
        like = f"(LIKE {old} INCLUDING ALL EXCLUDING INDEXES)"
        end = ddl.bound(self.cut, bound)
        drop = f"DROP CONSTRAINT {check}"
        first = ddl.first(self.cut, partitions)
        return [
            f"LOCK TABLE {new} IN ACCESS EXCLUSIVE MODE",
            _SAME.format(query=self.table.query, content=as_value(self.table.content)),
            *self._make_room(new),
            f"ALTER TABLE {new} RENAME TO {relation(None, self.cut.past)}",
            f"CREATE TABLE {new} {like} PARTITION BY {ddl.clause(self.cut.column)}{tablespace}",
            f"ALTER TABLE {new} {drop}",
            *self._owned(new),
            _GRANTS.format(kind="TABLE", letter="r", old=as_value(old), new=as_value(new)),
            *self._sequences(new, old),
            *self._keys(new),
            *self._others(new),
            f"ALTER TABLE {new} ATTACH PARTITION {old} FOR VALUES FROM (MINVALUE) TO ({end})",
            f"ALTER TABLE {old} {drop}",
            *first,
            *(
                statement
                for name in [self.cut.rest, *(leaf.name for leaf in partitions)]
                for statement in self._owned(ddl.quoted(self.cut.schema, name))
            ),
        ]

    def _owned(self, table: str) -> list[str]:
        facts = self.table.facts
        return [] if facts.is_owner else [f"ALTER TABLE {table} OWNER TO {facts.owner}"]

    def _make_room(self, table: str) -> Iterator[str]:
        """Free the old table's names, and give it the longer primary key."""
        facts, key = self.table.facts, self.table.primary_key
        alter = f"ALTER TABLE {table}"
        names = self.old_names
        if key is not None and self.cut.column not in key.columns:
            del names[key.name]
            name = relation(None, derived_name(key.name, "past"))
            using = f"PRIMARY KEY USING INDEX {relation(None, self.key)}"
            yield f"{alter} DROP CONSTRAINT {relation(None, key.name)}"
            yield f"{alter} ADD CONSTRAINT {name} {using}"
        schemas = {sequence.name: sequence.schema for sequence in facts.sequences}
        for name, other in names.items():
            kind = "SEQUENCE" if name in schemas else "INDEX"
            place = schemas.get(name, facts.schema)
            yield f"ALTER {kind} {relation(place, name)} RENAME TO {relation(None, other)}"
        for name in self.remade:
            if name in facts.triggers:
                yield f"DROP TRIGGER {relation(None, name)} ON {table}"

    def _sequences(self, new: str, old: str) -> Iterator[str]:
        """Continue the sequences; an identity gets a new one that goes on counting."""
        for sequence in self.table.facts.sequences:
            column = relation(None, sequence.column)
            if not sequence.is_identity:
                name = relation(sequence.schema, sequence.name)
                yield f"ALTER SEQUENCE {name} OWNED BY {new}.{column}"
                continue
            before = relation(sequence.schema, self.old_names[sequence.name])
            made = f"pg_get_serial_sequence({as_value(new)}, {as_value(sequence.column)})"
            name = as_value(sequence.name)
            yield _IDENTITY.format(before=before, made=made, name=name)
            now = relation(sequence.schema, sequence.name)
            names = {"old": as_value(before), "new": as_value(now)}
            yield _GRANTS.format(kind="SEQUENCE", letter="s", **names)
            yield f"ALTER TABLE {old} ALTER COLUMN {column} DROP IDENTITY"

    def _keys(self, new: str) -> Iterator[str]:
        """Add keys and indexes; attaching makes equal indexes of the old table parts of them."""
        facts = self.table.facts
        for constraint in facts.constraints:
            if constraint.type not in ("p", "u", "f"):
                continue  # LIKE has copied the others.
            definition = constraint.definition
            if constraint.type == "p" and self.cut.column not in constraint.columns:
                columns = [*constraint.columns, self.cut.column]
                names = ", ".join(relation(None, column) for column in columns)
                definition = f"PRIMARY KEY ({names})"
            name = relation(None, constraint.name)
            yield f"ALTER TABLE {new} ADD CONSTRAINT {name} {definition}"
            if constraint.comment is not None:
                yield f"COMMENT ON CONSTRAINT {name} ON {new} IS {as_value(constraint.comment)}"
        for index in facts.indexes:
            if index.has_constraint or index.name == self.key:
                continue
            unique, name = "UNIQUE " * index.is_unique, relation(None, index.name)
            yield f"CREATE {unique}INDEX {name} ON {new} {index.definition}"
            if index.comment is not None:
                whole = relation(facts.schema, index.name)
                yield f"COMMENT ON INDEX {whole} IS {as_value(index.comment)}"

    def _others(self, new: str) -> Iterator[str]:
        facts = self.table.facts
        if facts.comment is not None:
            yield f"COMMENT ON TABLE {new} IS {as_value(facts.comment)}"
        if facts.replica in _REPLICA:
            yield f"ALTER TABLE {new} REPLICA IDENTITY {_REPLICA[facts.replica]}"
        for name, statement in self.remade.items():
            if name in facts.triggers:
                yield statement


_REPLICA: Final = {"f": "FULL", "n": "NOTHING"}

_SAME: Final = """DO $same$ BEGIN
IF ({query}) IS DISTINCT FROM {content} THEN
  RAISE EXCEPTION 'the table was changed meanwhile' USING ERRCODE = 'lock_not_available';
END IF;
END $same$"""
"""Its error is one that the migration retries, like a lock that another session holds."""

_GRANTS: Final = """DO $grants$
DECLARE one record;
BEGIN
FOR one IN
  SELECT DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee))
    END AS who
  FROM pg_catalog.pg_class c,
    aclexplode(COALESCE(c.relacl, acldefault('{letter}', c.relowner))) a
  WHERE c.oid = CAST({new} AS regclass)
LOOP
  EXECUTE format('REVOKE ALL ON {kind} %s FROM %s', {new}, one.who);
END LOOP;
FOR one IN
  SELECT g.what, g.of_columns, g.is_grantable,
    CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(g.grantee)) END AS who
  FROM (
    SELECT a.privilege_type AS what, a.grantee, a.is_grantable, '' AS of_columns
    FROM pg_catalog.pg_class c,
      aclexplode(COALESCE(c.relacl, acldefault('{letter}', c.relowner))) a
    WHERE c.oid = CAST({old} AS regclass)
    UNION ALL
    SELECT a.privilege_type, a.grantee, a.is_grantable, format(' (%I)', c.attname)
    FROM pg_catalog.pg_attribute c, aclexplode(c.attacl) a
    WHERE c.attrelid = CAST({old} AS regclass) AND NOT c.attisdropped
  ) g
LOOP
  EXECUTE format('GRANT %s%s ON {kind} %s TO %s%s', one.what, one.of_columns, {new}, one.who,
    CASE WHEN one.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END);
END LOOP;
END $grants$"""

_IDENTITY: Final = """DO $identity$ BEGIN
PERFORM setval({made}, s.last_value, s.is_called) FROM {before} s;
IF {name} <> (
  SELECT c.relname FROM pg_catalog.pg_class c WHERE c.oid = CAST({made} AS regclass))
THEN
  EXECUTE format('ALTER SEQUENCE %s RENAME TO %I', {made}, {name});
END IF;
END $identity$"""
