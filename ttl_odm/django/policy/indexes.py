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

from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.backends.ddl_references import Statement, Table
from django.db.models.expressions import Combinable, Expression

from ttl_odm.dialects.family import MAX_NAME, index_name
from ttl_odm.dialects.mysql import INHERITED_END, OWN_END, MySQL
from ttl_odm.django.time.clock import family_of
from ttl_odm.django.time.fields import InstantField, LastModifiedField, TTLField

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.backends.base.schema import BaseDatabaseSchemaEditor
    from django.db.models.sql.compiler import SQLCompiler

    from ttl_odm.django.policy.binding import Binding, Model
    from ttl_odm.django.time.fields import SQL


class TTLIndex(models.Index):
    """An index for the sweeper.

    Of one field: over the rows that inherit the default. Of two, that of the last modification and
    that of the row's own ttl: over the rows that have one.
    """

    __module__ = "ttl_odm.django"  # what migrations name, and may rely on

    max_name_length = MAX_NAME

    def create_sql(
        self,
        model: Model,
        schema_editor: BaseDatabaseSchemaEditor,
        using: str = "",  # noqa: ARG002 (Django's signature)
        **kwargs: Any,
    ) -> Statement:
        """The statement that makes it."""
        connection = schema_editor.connection
        quote = connection.ops.quote_name
        is_own = len(self.fields) > 1
        columns = {field.name: str(field.column) for field in model._meta.local_concrete_fields}
        stamp = quote(columns[self.fields[0]])
        own = next(field for field in model._meta.local_fields if isinstance(field, TTLField))
        ttl = quote(str(own.column))
        family = family_of(connection)
        if isinstance(family, MySQL):
            column = family.virtual_columns(stamp, ttl)[self.virtual_column]
            index = f"ADD INDEX {quote(self.name)} ({self.virtual_column})"
            return _statement(model, schema_editor, f"ALTER TABLE %(table)s {column}, {index}")
        end = family.part_end(stamp, *([ttl] if is_own else []))
        holds = f"{ttl} > 0" if is_own else f"{ttl} IS NULL"
        create = f"CREATE INDEX {_concurrently(schema_editor, kwargs)}{quote(self.name)}"
        return _statement(model, schema_editor, f"{create} ON %(table)s ({end}) WHERE {holds}")

    def remove_sql(
        self, model: Model, schema_editor: BaseDatabaseSchemaEditor, **kwargs: Any
    ) -> Any:
        """The statement that takes it away."""
        name = schema_editor.connection.ops.quote_name(self.name)
        if isinstance(family_of(schema_editor.connection), MySQL):
            parts = f"DROP INDEX {name}, DROP COLUMN {self.virtual_column}"
            return _statement(model, schema_editor, f"ALTER TABLE %(table)s {parts}")
        concurrently = _concurrently(schema_editor, kwargs)
        return _statement(model, schema_editor, f"DROP INDEX {concurrently}IF EXISTS {name}")

    @property
    def virtual_column(self) -> str:
        """MariaDB's and MySQL's column that it is on."""
        return OWN_END if len(self.fields) > 1 else INHERITED_END


def sweeper_indexes(table: str, stamp: str = "last_modified", own: str = "ttl") -> list[TTLIndex]:
    """The two indexes of a table, whose fields of the last modification and the ttl these are."""
    return [
        TTLIndex(fields=[stamp], name=index_name(table, "ttl_inherited")),
        TTLIndex(fields=[stamp, own], name=index_name(table, "ttl_own")),
    ]


def _statement(model: Model, schema_editor: BaseDatabaseSchemaEditor, template: str) -> Statement:
    quote = schema_editor.connection.ops.quote_name
    return Statement(template, table=Table(model._meta.db_table, quote))


def _concurrently(schema_editor: BaseDatabaseSchemaEditor, options: dict[str, Any]) -> str:
    connection = schema_editor.connection
    outside = connection.vendor == "postgresql" and not (
        connection.in_atomic_block or schema_editor.collect_sql
    )
    return "CONCURRENTLY " if options.get("concurrently") or outside else ""


class PartEnd(Expression):
    """What one of the indexes orders by, in a query."""

    def __init__(self, stamp: Combinable, own: Combinable | None = None) -> None:
        """Name what it is made of: the column of the last modification, and that of the ttl."""
        super().__init__(output_field=InstantField())
        self.sources: list[Any] = [stamp] if own is None else [stamp, own]

    def get_source_expressions(self) -> list[Any]:
        """The columns."""
        return self.sources

    def set_source_expressions(self, exprs: Sequence[Any]) -> None:
        """Set them, once they are resolved."""
        self.sources = list(exprs)

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> SQL:
        """Render it, word for word as the index has it."""
        stamp, *own = (compiler.compile(source)[0] for source in self.sources)
        return family_of(connection).part_end(stamp, *own), ()


def has_contract_fields(binding: Binding) -> bool:
    """Whether a model has the fields that our indexes are made for."""
    return isinstance(binding.stamp, LastModifiedField) and isinstance(binding.own, TTLField)
