"""`TTLIndex`: what lets the sweeper find expired rows without walking the table.

One of them is over the rows that inherit the default, by the instant that they began; the other is
over those with a ttl of their own, by its end. PostgreSQL and SQLite have partial indexes and
indexes on expressions. MariaDB has neither, so there each is on an invisible virtual column, which
the same migration operation adds.

Django's own operations work with it: ``AddIndex`` (also what ``makemigrations`` writes),
``RemoveIndex``, ``AddIndexConcurrently``. In a migration with ``atomic = False`` PostgreSQL builds
it CONCURRENTLY without being asked.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

from django.db import models
from django.db.backends.ddl_references import Statement, Table
from django.db.models.expressions import Expression

from ttl_odm.django.time import clock
from ttl_odm.django.time.fields import InstantField, LastModifiedField, TTLField

if TYPE_CHECKING:
    from ttl_odm.django.policy.binding import Binding

_MAX_NAME: Final = 60

INHERITED_END: Final = "_ttl_inh"
OWN_END: Final = "_ttl_own"


def index_name(table: str, suffix: str) -> str:
    """A name that is the same as SQLAlchemy's adapter gives, and short enough everywhere."""
    name = f"ix_{table}_{suffix}"
    if len(name) <= _MAX_NAME:
        return name
    digest = hashlib.sha256(table.encode()).hexdigest()[:8]
    return f"ix_{table[: _MAX_NAME - len(suffix) - 13]}_{digest}_{suffix}"


class TTLIndex(models.Index):
    """An index for the sweeper.

    Of one field: over the rows that inherit the default. Of two, that of the last modification and
    that of the row's own ttl: over the rows that have one.
    """

    max_name_length = _MAX_NAME

    def create_sql(self, model: Any, schema_editor: Any, using: str = "", **kwargs: Any) -> Any:  # noqa: ARG002
        """The statement that makes it."""
        connection = schema_editor.connection
        quote = connection.ops.quote_name
        columns = [quote(model._meta.get_field(name).column) for name in self.fields]
        is_own = len(columns) > 1
        stamp, own = columns[0], columns[-1]
        if clock.vendor_of(connection) == "mysql":
            virtual = OWN_END if is_own else INHERITED_END
            end = own_end_sql(connection, stamp, own) if is_own else stamp
            holds = f"{own} > 0" if is_own else f"{_own_column(model, quote)} IS NULL"
            return _statement(
                model,
                quote,
                f"ALTER TABLE %(table)s ADD COLUMN {virtual} BIGINT GENERATED ALWAYS AS "
                f"(CASE WHEN {holds} THEN {end} END) VIRTUAL INVISIBLE, "
                f"ADD INDEX {quote(self.name)} ({virtual})",
            )
        end = own_end_sql(connection, stamp, own) if is_own else stamp
        holds = f"{own} > 0" if is_own else f"{_own_column(model, quote)} IS NULL"
        return _statement(
            model,
            quote,
            f"CREATE INDEX {_concurrently(schema_editor, kwargs)}{quote(self.name)} "
            f"ON %(table)s ({end}) WHERE {holds}",
        )

    def remove_sql(self, model: Any, schema_editor: Any, **kwargs: Any) -> Any:
        """The statement that takes it away."""
        quote = schema_editor.connection.ops.quote_name
        if clock.vendor_of(schema_editor.connection) == "mysql":
            virtual = OWN_END if len(self.fields) > 1 else INHERITED_END
            return _statement(
                model,
                quote,
                f"ALTER TABLE %(table)s DROP INDEX {quote(self.name)}, DROP COLUMN {virtual}",
            )
        concurrently = _concurrently(schema_editor, kwargs)
        return _statement(model, quote, f"DROP INDEX {concurrently}IF EXISTS {quote(self.name)}")


def _statement(model: Any, quote: Any, template: str) -> Statement:
    return Statement(template, table=Table(model._meta.db_table, quote))


def _own_column(model: Any, quote: Any) -> str:
    from ttl_odm.django.time.fields import TTLField  # noqa: PLC0415

    field = next(each for each in model._meta.local_fields if isinstance(each, TTLField))
    return str(quote(field.column))


def _concurrently(schema_editor: Any, asked: Any) -> str:
    connection = schema_editor.connection
    outside = connection.vendor == "postgresql" and not (
        connection.in_atomic_block or schema_editor.collect_sql
    )
    return "CONCURRENTLY " if asked.get("concurrently") or outside else ""


def own_end_sql(connection: Any, stamp: str, own: str) -> str:
    """The end of a row's own ttl, spelled as its index has it."""
    vendor = clock.vendor_of(connection)
    if vendor == "postgresql":
        # timestamptz + interval hangs on the session's time zone; in UTC, without a zone, it may
        # be indexed.
        return (
            f"(((({stamp} AT TIME ZONE 'UTC') + {own} * interval '1 second') AT TIME ZONE 'UTC'))"
        )
    return f"({stamp} + {own} * {clock.UNITS[clock.INSTANT_UNITS[vendor]]})"


class PartEnd(Expression):
    """What one of the indexes orders by, in a query."""

    def __init__(self, index: str, stamp: Any, own: Any = None) -> None:
        """Name the index's virtual column, and the expressions that it is made of elsewhere."""
        super().__init__(output_field=InstantField())
        self.index = index
        self.sources = [stamp] if own is None else [stamp, own]

    def get_source_expressions(self) -> list[Any]:
        """The columns."""
        return self.sources

    def set_source_expressions(self, exprs: list[Any]) -> None:
        """Set them, once they are resolved."""
        self.sources = exprs

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, list[Any]]:
        """Render it, word for word as the index has it."""
        stamp, *own = (compiler.compile(source)[0] for source in self.sources)
        if connection.vendor == "mysql":
            return f"{stamp.rpartition('.')[0]}.{self.index}", []
        return (own_end_sql(connection, stamp, own[0]), []) if own else (stamp, [])


def has_contract_fields(binding: Binding) -> bool:
    """Whether a model has the fields that our indexes are made for."""
    return isinstance(binding.stamp, LastModifiedField) and isinstance(binding.own, TTLField)
