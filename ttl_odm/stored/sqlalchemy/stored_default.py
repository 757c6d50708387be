"""Which stored default somebody means: a table's, or that of one scope of it.

This module must not know how a value is changed, nor what a change would do.
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

from ttl_odm.core.values import short_repr
from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sqlalchemy.compat import SQLTemplate
from ttl_odm.sqlalchemy.policy.bindings import root_binding_of
from ttl_odm.stored.rows import INHERIT, WHOLE_TABLE, StoredNow
from ttl_odm.stored.scope_columns import ScopeColumn
from ttl_odm.stored.sqlalchemy.lookup import UNPADDED, as_text, same_scope, scope_of
from ttl_odm.stored.sqlalchemy.tables import name_of, row_of, tables_of

if TYPE_CHECKING:
    from sqlalchemy import Column, ColumnElement, Connection, FromClause
    from sqlalchemy.engine import Dialect

    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.stored import Stored, StoredTTL


_BITS: Final = {mysql.TINYINT: 8, SmallInteger: 16, mysql.MEDIUMINT: 24, BigInteger: 64}
"""Of columns of whole numbers; other ones have 32."""


@dataclass(frozen=True, slots=True)
class StoredDefault:
    """A default that is stored, or may be.

    Attributes:
        binding: The table's.
        stored: What is declared of it.
        scope: Whose it is, as it is stored; None for the default of all rows.
    """

    binding: Binding
    stored: Stored
    scope: str | None

    @classmethod
    def of(cls, target: Any, scope: object, dialect: Dialect) -> StoredDefault:
        """That of a model or a Table, for a value of `Stored.by` (None: the default of all).

        Raises:
            TTLConfigurationError: It isn't stored, or not by scopes.
        """
        binding, stored = _declared(target)
        if scope is None:
            return cls(binding, stored, None)
        if stored.by is None or binding.discriminator is None:
            raise TTLConfigurationError(
                f"{binding.name}.__ttl__ = {stored!r} has one default for all rows, and none for "
                f"scope={short_repr(scope)}; declare Stored(..., by='field')."
            )
        column = binding.discriminator
        value = _scope_column(f"{binding.name}.{stored.by}", column, dialect).canonical(scope)
        return cls(binding, stored, scope_of(column, value, dialect))

    @property
    def name(self) -> str:
        """The table's name in the table of the policies."""
        return name_of(self.binding.first.table)

    def checked(self, ttl: StoredTTL) -> int | None:
        """A default that it is to be; raises InvalidTTL where it can't."""
        where, is_of_scope = f"{self.binding.name}.__ttl__", self.scope is not None
        return self.stored.checked(ttl, where=where, is_of_scope=is_of_scope)

    @property
    def absent(self) -> int | None:
        """What it is where nothing is stored for it."""
        return None if self.scope is None else INHERIT

    def read(self, connection: Connection) -> StoredNow:
        """What is stored now; None also where nothing is stored for the table."""
        changes = tables_of(self.binding.first.table).changes.c
        last = select(func.max(changes.id)).where(
            changes.name == self.name, changes.scope.in_(self._scopes)
        )
        return self._read(connection)._replace(last=str(connection.scalar(last)))

    def read_locked(self, connection: Connection) -> StoredNow:
        """The same but for the latest change, in a transaction that has locked the rows."""
        # There a SELECT would read what the transaction's snapshot has.
        return self._read(connection, locking=connection.dialect.name in MYSQL_FAMILY)

    def _read(self, connection: Connection, *, locking: bool = False) -> StoredNow:
        table, scopes = self.binding.first.table, self._scopes
        c = tables_of(table).policies.c
        rows = select(c.scope, c.ttl, c.changed_at).where(row_of(table)[0], c.scope.in_(scopes))
        rows = rows.with_for_update(read=True) if locking else rows
        return StoredNow.of(connection.execute(rows), scopes, self.absent)

    @property
    def _scopes(self) -> list[str]:
        return [WHOLE_TABLE, *filter(None, [self.scope])]

    def rows(self, source: FromClause, dialect: Dialect) -> list[ColumnElement[bool]]:
        """The conditions for the rows of a table, or of a subquery of it, that have this default.

        But for those with a ttl of their own.
        """
        column = self.binding.columns_of(source).discriminator
        if self.binding.source.scoping is None or column is None:
            return []
        if self.scope is not None:
            text, scope = as_text(column), literal(self.scope)
            if dialect.name in MYSQL_FAMILY:  # where Acme would be acme
                is_text = isinstance(column.type, String)
                unpadded = [SQLTemplate(UNPADDED, Boolean(), column)] if is_text else []
                return [text == collate(scope, "utf8mb4_bin"), *unpadded]
            return [text == scope]
        table = self.binding.first.table
        c = tables_of(table).policies.c
        own = select(c.name).where(row_of(table)[0], same_scope(c.scope, column))
        return [~own.where(c.scope != WHOLE_TABLE).correlate(None).exists()]


def _scope_column(where: str, column: Column[Any], dialect: Dialect) -> ScopeColumn:
    """What a column can hold on a database, for the values that may have their own default."""
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


def stored_of(target: Any) -> Stored:
    """What a model or a Table declares of its default; raises as `StoredDefault.of` does."""
    return _declared(target)[1]


def _declared(target: Any) -> tuple[Binding, Stored]:
    table = target if isinstance(target, Table) else inspect(target).local_table
    binding = root_binding_of(table)
    stored = getattr(None if binding is None else binding.default.policy, "stored", None)
    if binding is None or stored is None:
        name = getattr(target, "__name__", None) or getattr(table, "fullname", target)
        raise TTLConfigurationError(
            f"The default ttl of {name} isn't stored in the database: to store it, declare "
            "__ttl__ = Stored(3600)."
        )
    return binding, stored


def name_of_stored(target: Any) -> str:
    """A model's or a Table's name in the table of the policies; raises as `stored_of` does."""
    return name_of(_declared(target)[0].first.table)
