"""`StoredDefault`: the default of a table, or of one of its scopes, that a caller names.

This module must not know how a default is changed, nor what a change would do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    CHAR,
    BigInteger,
    Boolean,
    SmallInteger,
    String,
    Table,
    Uuid,
    collate,
    func,
    inspect,
    literal,
    select,
)
from sqlalchemy.dialects import mysql

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.sqlalchemy.compat import SQLTemplate
from ttl_odm.sqlalchemy.policy.bindings import root_binding_of
from ttl_odm.stored.rows import WHOLE_TABLE, NamedDefault, StoredNow, not_stored
from ttl_odm.stored.scope_columns import ScopeColumn
from ttl_odm.stored.sqlalchemy.lookup import UNPADDED, as_text, same_scope, scope_of
from ttl_odm.stored.sqlalchemy.tables import name_of, row_of, tables_of

if TYPE_CHECKING:
    from sqlalchemy import Column, ColumnElement, Connection, FromClause
    from sqlalchemy.engine import Dialect

    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.stored import Stored


_BITS: Final = {mysql.TINYINT: 8, SmallInteger: 16, mysql.MEDIUMINT: 24, BigInteger: 64}
"""The size of a column of whole numbers by its type; other types have 32 bits."""


@dataclass(frozen=True, slots=True)
class StoredDefault(NamedDefault):
    """A default that is stored, or may be.

    Attributes:
        binding: The policy of the table.
    """

    binding: Binding

    @classmethod
    def of(cls, target: object, scope: object, dialect: Dialect) -> StoredDefault:
        """Return the default of a model or a Table, for a value of `Stored.by`.

        A scope of None is that of all rows without a default of their own.

        Raises:
            TTLConfigurationError: The default isn't stored, or not by scopes.
        """
        binding, stored = _declared(target)
        text, column = None, binding.discriminator
        if scope is not None:
            if stored.by is None or column is None:
                raise stored.without_scopes(binding.name, scope)
            scopes = _scope_column(f"{binding.name}.{stored.by}", column, dialect)
            text = scope_of(column, scopes.canonical(scope), dialect)
        return cls(name_of(binding.first.table), binding.name, stored, text, binding)

    def read(self, connection: Connection) -> StoredNow:
        """Read what is stored now."""
        changes = tables_of(self.binding.first.table).changes.c
        last = select(func.max(changes.id)).where(
            changes.name == self.name, changes.scope.in_(self.scopes)
        )
        return self._read(connection)._replace(last=str(connection.scalar(last)))

    def read_locked(self, connection: Connection) -> StoredNow:
        """Read what is stored, except for the latest change, once the rows are locked."""
        # On MariaDB and MySQL a SELECT would read the transaction's snapshot.
        return self._read(connection, locking=connection.dialect.name in MYSQL_FAMILY)

    def _read(self, connection: Connection, *, locking: bool = False) -> StoredNow:
        table, scopes = self.binding.first.table, self.scopes
        c = tables_of(table).policies.c
        rows = select(c.scope, c.ttl, c.changed_at).where(row_of(table)[0], c.scope.in_(scopes))
        rows = rows.with_for_update(read=True) if locking else rows
        return StoredNow.of(connection.execute(rows), scopes, self.absent)

    def rows(self, source: FromClause, dialect: Dialect) -> list[ColumnElement[bool]]:
        """Return the conditions for the rows of a table, or of a subquery of it, with this default.

        They don't exclude rows with a ttl of their own.
        """
        column = self.binding.columns_of(source).discriminator
        if self.binding.source.scoping is None or column is None:
            return []
        if self.scope is not None:
            text, scope = as_text(column), literal(self.scope)
            if dialect.name in MYSQL_FAMILY:  # where Acme would equal acme
                is_text = isinstance(column.type, String)
                unpadded = [SQLTemplate(UNPADDED, Boolean(), column)] if is_text else []
                return [text == collate(scope, "utf8mb4_bin"), *unpadded]
            return [text == scope]
        table = self.binding.first.table
        c = tables_of(table).policies.c
        own = select(c.name).where(row_of(table)[0], same_scope(c.scope, column))
        return [~own.where(c.scope != WHOLE_TABLE).correlate(None).exists()]


def _scope_column(where: str, column: Column[object], dialect: Dialect) -> ScopeColumn:
    """The values that the column of the scopes can hold on a database."""
    kind: Any = column.type.dialect_impl(dialect)
    is_mysql, is_sqlite = dialect.name in MYSQL_FAMILY, dialect.name == "sqlite"
    if isinstance(column.type, Uuid):
        return ScopeColumn(where, "uuid")
    if isinstance(column.type, String):
        # A CHAR is padded with blanks. And MariaDB and MySQL compare stored scopes as if they were.
        keeps = is_sqlite or not (is_mysql or isinstance(kind, CHAR))
        longest = None if is_sqlite else kind.length
        return ScopeColumn(where, "text", longest, keeps_blanks=keeps)
    bits = next((bits for name, bits in _BITS.items() if isinstance(kind, name)), 32)
    bits = 64 if is_sqlite else bits
    if getattr(kind, "unsigned", False):
        return ScopeColumn(where, "number", least=0, most=2**bits - 1)
    return ScopeColumn(where, "number", least=-(2 ** (bits - 1)), most=2 ** (bits - 1) - 1)


def stored_of(target: object) -> Stored:
    """Return the declaration of a model or a Table; raises as `StoredDefault.of` does."""
    return _declared(target)[1]


def _declared(target: object) -> tuple[Binding, Stored]:
    mapped: Any = target
    table = target if isinstance(target, Table) else inspect(mapped).local_table
    binding = root_binding_of(table)
    stored = getattr(None if binding is None else binding.default.policy, "stored", None)
    if binding is None or stored is None:
        raise not_stored(
            str(getattr(target, "__name__", None) or getattr(table, "fullname", target))
        )
    return binding, stored


def name_of_stored(target: object) -> str:
    """Return the name under which the default of a model or Table is stored.

    Raises:
        TTLConfigurationError: It isn't stored.
    """
    return name_of(_declared(target)[0].first.table)
