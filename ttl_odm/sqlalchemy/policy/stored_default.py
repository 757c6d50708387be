"""Which stored default somebody means: a table's, or that of one scope of it.

This module must not know how a value is changed, nor what a change would do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import Table, and_, collate, inspect, literal, select

from ttl_odm.core.stored_rows import INHERIT, LONGEST_SCOPE, WHOLE_TABLE, StoredNow
from ttl_odm.core.values import lenient_ttl, short_repr
from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sqlalchemy.policy.binding import root_binding_of
from ttl_odm.sqlalchemy.policy.stored import (
    as_text,
    name_of,
    of_outer,
    row_of,
    scope_of,
    tables_of,
)

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, FromClause
    from sqlalchemy.engine import Dialect

    from ttl_odm.core.stored import Stored, StoredTTL
    from ttl_odm.sqlalchemy.policy.binding import Binding


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
                f"{binding.name}.__ttl__ = {stored!r}: no rows have a default of their own, so "
                f"there is none for scope={scope!r}; declare Stored(..., by='field')."
            )
        text = scope_of(binding.discriminator, scope, dialect)
        if not 1 <= len(text) <= LONGEST_SCOPE:
            raise TTLConfigurationError(
                f"{binding.name}.{stored.by} = {short_repr(scope)}: a stored default of its own is "
                f"for values of 1 to {LONGEST_SCOPE} characters."
            )
        return cls(binding, stored, text)

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
        table, scopes = self.binding.first.table, [WHOLE_TABLE, *filter(None, [self.scope])]
        c = tables_of(table).policies.c
        is_one = and_(row_of(table)[0], c.scope.in_(scopes))
        found = {
            scope: lenient_ttl(ttl)
            for scope, ttl in connection.execute(select(c.scope, c.ttl).where(is_one))
        }
        own = found.get(self.scope or WHOLE_TABLE, self.absent)
        return StoredNow(own, found.get(WHOLE_TABLE))

    def rows(self, source: FromClause, dialect: Dialect) -> list[ColumnElement[bool]]:
        """The conditions for the rows of a table, or of a subquery of it, that have this default.

        But for those with a ttl of their own.
        """
        column = self.binding.columns_of(source).discriminator
        if not self.binding.is_scoped or column is None:
            return []
        text = as_text(column)
        if self.scope is not None:
            scope: Any = literal(self.scope)
            if dialect.name in MYSQL_FAMILY:  # where Acme would be acme
                scope = collate(scope, "utf8mb4_bin")
            return [text == scope]
        table = self.binding.first.table
        c = tables_of(table).policies.c
        own = select(c.name).where(row_of(table)[0], c.scope == of_outer(text))
        return [~own.where(c.scope != WHOLE_TABLE).correlate(None).exists()]


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
            f"The default ttl of {name} isn't stored in the database: declare it as in "
            "__ttl__ = Stored(3600)."
        )
    return binding, stored


def name_of_stored(target: Any) -> str:
    """A model's or a Table's name in the table of the policies; raises as `stored_of` does."""
    return name_of(_declared(target)[0].first.table)
